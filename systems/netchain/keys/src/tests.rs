use super::*;
use std::os::unix::fs::PermissionsExt;

fn grant(rights: Rights, prefix: &str, rate_per_s: u32) -> Grant {
    Grant { rights, prefix: prefix.into(), rate_per_s, burst: 0 }
}

#[test]
fn a_key_is_issued_rotated_and_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-keys.toml");
    let mut keys = ClientKeys::empty(&path);
    let first = keys.issue("web \"a\"\\", grant(Rights::Read, "web/", 500), None).unwrap();
    let second = keys.issue("", Grant::ALL, Some(1000)).unwrap();
    assert_eq!((first.id, second.id), (1, 2));
    assert_ne!(first.secret, second.secret);
    keys.save().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ClientKeys::load(&path).unwrap(), keys);

    let third = keys.rotate(1, Some(50)).unwrap();
    let old = keys.key(1).unwrap();
    assert_eq!((third.id, old.state, old.not_after), (3, State::Retiring, Some(50)));
    assert_eq!(old.accepted(50), Some(&first.secret), "both are accepted for a while");
    assert_eq!(old.accepted(51), None);
    assert_eq!(keys.key(3).unwrap().grant, old.grant);
    assert_eq!(keys.key(3).unwrap().accepted(u64::MAX), Some(&third.secret));
    assert_eq!(keys.key(2).unwrap().accepted(1001), None, "out of date");
    keys.revoke(1).unwrap();
    assert_eq!(keys.key(1).unwrap().accepted(0), None);
    assert!(keys.rotate(1, None).unwrap_err().to_string().contains("was revoked"));
    assert!(keys.revoke(9).unwrap_err().to_string().contains("kv key list"));
    assert_eq!(keys.issue("", Grant::ALL, None).unwrap().id, 4, "a number comes back late");
    keys.save().unwrap();
    assert_eq!(ClientKeys::load(&path).unwrap(), keys);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing left over");
}

/// The limit of the table.
#[test]
fn one_key_too_many_is_refused() {
    let mut keys = ClientKeys::empty(Path::new("k.toml"));
    for id in 1..=KEYS_MAX {
        assert_eq!(keys.issue("", Grant::ALL, None).unwrap().id, id);
    }
    let error = keys.issue("", Grant::ALL, None).unwrap_err().to_string();
    assert!(error.contains("all 1024 are taken") && error.contains("revoke"), "{error}");
    keys.revoke(77).unwrap();
    assert_eq!(keys.issue("", Grant::ALL, None).unwrap().id, 77);
}

#[test]
fn a_client_reads_what_was_issued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client.toml");
    let mut keys = ClientKeys::empty(Path::new("k.toml"));
    let identity = keys.issue("", Grant::ALL, None).unwrap();
    identity.create(&path).unwrap();
    assert_eq!(Identity::load(&path).unwrap(), identity);
    assert!(identity.create(&path).is_err(), "never overwritten");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Identity::load(&path).unwrap_err().to_string().contains("chmod 600"));
    let missing = Identity::load(&directory.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("kv key issue KEYS --out"), "{missing}");
    let missing = ClientKeys::load(&directory.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("kv key issue"), "{missing}");
}

#[test]
fn a_rate_is_an_interval_and_a_burst() {
    assert_eq!(grant(Rights::Read, "", 0).pace_ns(), (0, 0));
    assert_eq!(grant(Rights::Read, "", 1000).pace_ns(), (1_000_000, 999_000_000));
    let burst = Grant { burst: 1, ..grant(Rights::Read, "", 10) };
    assert_eq!(burst.pace_ns(), (100_000_000, 0));
}

#[test]
fn every_fault_names_field_and_remedy_and_no_secret() {
    let good = "[[key]]\nid = 3\nhex = \"000102030405060708090a0b0c0d0e0f\"\nrights = \"read\"\n\
                rate_per_s = 5\n[anonymous]\nrights = \"read\"\n";
    let parse = |text: &str| ClientKeys::parse(Path::new("k.toml"), text);
    let keys = parse(good).unwrap();
    assert_eq!(keys.anonymous().map(|grant| grant.rights), Some(Rights::Read));
    assert_eq!(keys.key(3).unwrap().grant.rate_per_s, 5);
    for (from, to, field, remedy) in [
        ("id = 3", "id = 0", "key[0].id", "1 to 1024"),
        ("id = 3", "id = 1025", "key[0].id", "1 to 1024"),
        ("0f\"", "0\"", "key[0].hex", "kv key issue"),
        ("hex", "hexx", "3:1", ""),
        ("rights", "state = \"revoked\"\nrights", "key[0].hex", "remove it"),
        ("rights", "prefix = \"seventeen-letters\"\nrights", "key[0].prefix", "a key has 16"),
        ("rate_per_s = 5", "burst = 5", "key[0].burst", "write both"),
        ("\"read\"", "\"all\"", "4:10", "read-write"),
        ("[anonymous]", "[anonymous]\nburst = 1", "anonymous.burst", "write both"),
        (
            "[anonymous]",
            "[[key]]\nid = 3\nstate = \"revoked\"\nrights = \"read\"\n[anonymous]",
            "key[1].id",
            "its own",
        ),
    ] {
        let text = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
        let told = text.starts_with("k.toml: ") && text.contains(field) && text.contains(remedy);
        assert!(told, "{to}: {text}");
        assert!(!text.contains("00010203"), "{text}");
    }
}
