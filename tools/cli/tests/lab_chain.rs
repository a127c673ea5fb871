//! Switches that serve keys, for real: the compiled program on three switches, and clients with
//! sockets. Needs root. Waits for timers.

mod common;
#[path = "lab_chain/founding.rs"]
mod founding;
#[path = "lab_chain/trust.rs"]
mod trust;

use common::{TestLab, skip};
use founding::*;
use netchain_client::{Client, Done, Key, Outcome, Refused, Shown};
use std::time::{Duration, Instant};

fn value(shown: &Shown) -> &[u8] {
    shown.value.as_deref().unwrap_or_default()
}

/// What a request came to that was carried out, and that no later write has overtaken.
fn done(outcome: Result<Outcome, netchain_client::Failed>) -> Shown {
    let Done { own, now } = outcome.unwrap().done().expect("done");
    assert!(own.is_none_or(|own| own == now.version), "{own:?} {now:?}");
    now
}

/// Each operation, on keys of all groups; then two clients that add to one counter at once.
#[test]
fn three_switches_serve_keys() {
    if skip() {
        return;
    }
    let topology = "../../systems/netchain/lab/chain.toml";
    let text = std::fs::read_to_string(common::topology(topology)).unwrap();
    let fingerprint = format!("ring = {:#x}", ring().fingerprint());
    assert!(text.contains(&fingerprint), "{topology}: write {fingerprint}");
    let lab = TestLab::up("chain", topology, &[]);
    found(&lab);
    let mut client = client_in(&lab);
    // Routes may still be on their way.
    let began = Instant::now();
    let first = Key::from_name("first").unwrap();
    while !matches!(client.get(&first).unwrap(), Outcome::Done(_)) {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody answers");
    }
    let mut groups = std::collections::BTreeSet::new();
    for i in 0..50 {
        let name = format!("key-{i}");
        groups.insert(ring().group_of_name(&name).unwrap());
        operations(&mut client, &Key::from_name(&name).unwrap());
    }
    assert!(groups.len() >= 8, "{groups:?}");
    let counter = Key::from_name("counter").unwrap();
    let adders: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client_in(&lab);
            std::thread::spawn(move || {
                (0..500).filter(|_| client.add(&counter, 1).unwrap().done().is_some()).count()
            })
        })
        .collect();
    let added: usize = adders.into_iter().map(|it| it.join().unwrap()).sum();
    assert_eq!(added, 1000);
    let total = done(client.get(&counter));
    assert_eq!(value(&total), 1000u64.to_be_bytes());
    by_command(&lab);
    trust::check(&lab);
    a_switch_dies(&lab, &mut client, &counter);
    lab.down();
}

/// What a controller does when s3 dies: parts, the dead one, and last the version of its decision.
/// The client knows the old chains.
fn a_switch_dies(lab: &TestLab, client: &mut Client, counter: &Key) {
    let (dead, survivors) = ("10.9.0.3", ["s1", "s2"]);
    let ring = ring();
    lab.fail("s3");
    for group in 0..ring.groups() {
        let mut chain = chain_of(&ring, group);
        chain.retain(|it| it != dead);
        take_part(lab, group, 2, &chain);
    }
    for (at, node) in survivors.into_iter().enumerate() {
        set(lab, node, "dead_sources", &format!("hdr.ipv4.source={dead}"), "dead", &[]);
        set(lab, node, "destinations", &format!("hdr.ipv4.destination={dead}"), "dead", &[]);
        let own = format!("hdr.ipv4.destination=10.9.0.{}", at + 1);
        let values = [format!("ring={:#x}", ring.fingerprint()), "version=2".to_owned()];
        set(lab, node, "destinations", &own, "serve", &values);
    }
    assert_eq!(value(&done(client.get(counter))), 1000u64.to_be_bytes());
    let mut sessions = std::collections::BTreeSet::new();
    for i in 0..50 {
        let key = Key::from_name(&format!("key-{i}")).unwrap();
        let held = done(client.get(&key));
        assert_eq!(value(&held), b"x", "key-{i}");
        let next = done(client.compare_and_set(&key, held.version, b"y"));
        sessions.insert(next.version >> 48);
        assert_eq!(done(client.get(&key)), next);
    }
    assert_eq!(sessions, [2].into());
    // The others die, too.
    let group = ring.group_of(counter);
    for node in survivors {
        let key = format!("hdr.netchain.group={group}");
        set(lab, node, "roles", &key, "lost", &["view=3".to_owned()]);
    }
    assert_eq!(client.get(counter).unwrap(), Outcome::Lost);
}

/// The same by `stateplane kv`.
fn by_command(lab: &TestLab) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = identity(lab);
    std::fs::write(&file, format!("cluster = {CLUSTER:?}\nidentity = {key:?}")).unwrap();
    let kv = |words: &str| {
        let program = env!("CARGO_BIN_EXE_stateplane");
        let (good, said) =
            lab.run("client", &format!("{program} kv --config {} {words}", file.path().display()));
        (good, said.trim().to_owned())
    };
    let first = (1u64 << 48) + 1;
    assert_eq!(kv("get greeting"), (false, "the key has no value (version 0)".into()));
    assert_eq!(kv("put greeting hello"), (true, format!("version {first}")));
    assert_eq!(kv("get greeting"), (true, "hello".into()));
    let refused = format!("refused: version {first} has hello");
    assert_eq!(kv("cas greeting 7 other"), (false, refused));
    assert_eq!(kv("add visits 41").1, "41");
    assert_eq!(kv("add visits 1").1, "42");
    let told = serde_json::from_str::<serde_json::Value>(&kv("--json get greeting").1).unwrap();
    assert_eq!(told["version"], first);
    assert!(kv("get seventeen-letters").1.contains("a name of 17 bytes; a name has at most 16"));
}

fn refused(now: &Shown) -> Outcome {
    Outcome::Refused(Refused { now: now.clone(), moved: false })
}

fn operations(client: &mut Client, key: &Key) {
    let absent = done(client.get(key));
    assert_eq!((absent.version, absent.value), (0, None));
    let first = done(client.insert(key, b"owner--1"));
    assert_eq!((first.version >> 48, value(&first)), (1, &b"owner--1"[..]));
    let Outcome::Refused(held) = client.insert(key, b"owner--2").unwrap() else {
        panic!("inserted twice")
    };
    assert_eq!(held, Refused { now: first.clone(), moved: false });
    let second = done(client.compare_and_set(key, first.version, b"owner--2"));
    assert_eq!(second.version, first.version + 1);
    let stale = client.compare_and_set(key, first.version, b"owner--3").unwrap();
    assert_eq!(stale, refused(&second));
    let third = done(client.compare_owner(key, *b"owner--2", &[7; 128]));
    assert_eq!(done(client.get(key)), third);
    assert_eq!(value(&third), [7; 128]);
    // The reply of a short write has no room for what is there.
    let longer = client.insert(key, b"x").unwrap();
    assert_eq!(longer, refused(&third));
    let gone = done(client.delete(key, third.version));
    assert_eq!((gone.version, gone.value), (third.version + 1, None));
    assert_eq!(done(client.get(key)).value, None);
    // A version never comes back.
    let again = done(client.put(key, b"x"));
    assert_eq!(again.version, gone.version + 1);
}
