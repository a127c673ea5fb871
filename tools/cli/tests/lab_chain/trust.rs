//! Who is heard, by sockets: no key, a forged one, rights, rotation, revocation.

use crate::common::{TestLab, json, must, stateplane, wait_for};
use crate::config;
use netchain_client::{Client, Config, Failed, Failure, Key, Outcome};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn file(lab: &TestLab, name: &str) -> PathBuf {
    Path::new("/run/stateplane/labs").join(&lab.name).join(name)
}

/// A client with the key in a file of the lab's folder.
fn client(lab: &TestLab, key: Option<&str>) -> Client {
    let identity = key.map(|name| file(lab, name));
    let config = Config { identity, deadline_ms: 200, ..config() };
    let make = || Client::new(config).map_err(std::io::Error::other);
    lab.netns("client").run(make).expect("client")
}

/// Edits the file that all switches read; they see it by themselves.
fn edit(lab: &TestLab, words: &[&str], out: Option<&str>) {
    let keys = file(lab, "client-keys.toml").display().to_string();
    let out = out.map(|name| file(lab, name).display().to_string());
    let mut arguments = vec!["kv", "key", words[0], &keys];
    arguments.extend(&words[1..]);
    arguments.extend(out.iter().flat_map(|out| ["--out", out.as_str()]));
    must(&arguments);
}

/// What `stateplane status` tells of the lab's switches, by name.
fn told(lab: &TestLab) -> Vec<Value> {
    // (It exits with 1 if any switch of this machine is not well.)
    let page = json(&String::from_utf8_lossy(&stateplane(&["status", "--json"]).stdout));
    let all = page["switches"].as_array().expect("switches").clone();
    let ours = |it: &Value| it["name"].as_str().is_some_and(|it| it.starts_with(&lab.name));
    all.into_iter().filter(ours).collect()
}

/// What the lab's switches dropped for a reason.
fn dropped(lab: &TestLab, reason: &str) -> u64 {
    let of_switch = |told: &Value| {
        let drops = told["load"]["drops"].as_array().cloned().unwrap_or_default();
        drops
            .iter()
            .filter(|it| it["part"] == "netchain" && it["reason"] == reason)
            .filter_map(|it| it["count"].as_u64())
            .sum::<u64>()
    };
    told(lab).iter().map(of_switch).sum()
}

fn is_denied(outcome: &Result<Outcome, Failed>) -> bool {
    matches!(outcome, Err(Failed::Refused(Failure::Denied)))
}

/// `lab` has one key, in `client.key`, with which everything is allowed.
pub fn check(lab: &TestLab) {
    let key = Key::from_name("pub/x").unwrap();
    let mut first = client(lab, Some("client.key"));
    assert!(matches!(first.put(&key, b"1"), Ok(Outcome::Done(_))));
    // Whoever has no key, or not the secret of one, hears nothing.
    let unknown = dropped(lab, "unknown_key");
    assert_eq!(client(lab, None).get(&key).unwrap(), Outcome::NoChain);
    assert!(dropped(lab, "unknown_key") > unknown);
    let program = env!("CARGO_BIN_EXE_stateplane");
    let configuration = file(lab, "kv.toml");
    std::fs::write(&configuration, format!("cluster = {:?}", crate::CLUSTER)).unwrap();
    let command = format!("{program} kv --config {} get pub/x", configuration.display());
    let (good, said) = lab.run("client", &command);
    assert!(!good && said.contains("--identity"), "{said}");
    let forged = dropped(lab, "forged");
    let genuine = std::fs::read_to_string(file(lab, "client.key")).unwrap();
    let other = format!("{}\nhex = \"{}\"\n", genuine.lines().next().unwrap(), "5a".repeat(16));
    std::fs::write(file(lab, "forged.key"), other).unwrap();
    must_be_private(&file(lab, "forged.key"));
    assert_eq!(client(lab, Some("forged.key")).get(&key).unwrap(), Outcome::NoChain);
    assert!(dropped(lab, "forged") > forged);
    // A reader of a prefix.
    edit(lab, &["issue", "--rights", "read", "--prefix", "pub/"], Some("reader.key"));
    let mut reader = client(lab, Some("reader.key"));
    wait_for("the switches to read the new key", || {
        matches!(reader.get(&key), Ok(Outcome::Done(_)))
    });
    let elsewhere = Key::from_name("private").unwrap();
    wait_for("the other switches, too", || is_denied(&reader.get(&elsewhere)));
    wait_for("and the head", || is_denied(&reader.put(&key, b"2")));
    assert!(dropped(lab, "denied") > 0);
    for told in told(lab) {
        assert_eq!(told["load"]["client_keys"]["accepted"], 2, "{told}");
    }
    let of_reader = |told: &Value| {
        let dropped = told["load"]["client_keys"]["dropped"].as_array().cloned();
        dropped.unwrap_or_default().iter().any(|it| it["key"] == 2 && it["denied"] != 0)
    };
    assert!(told(lab).iter().any(of_reader), "{:?}", told(lab));
    // Both keys are accepted for a while; a revoked one is not.
    edit(lab, &["issue"], Some("old.key"));
    let mut old = client(lab, Some("old.key"));
    wait_for("another key", || matches!(old.put(&key, b"2"), Ok(Outcome::Done(_))));
    edit(lab, &["rotate", "3"], Some("new.key"));
    let mut new = client(lab, Some("new.key"));
    wait_for("the one in its place", || matches!(new.put(&key, b"3"), Ok(Outcome::Done(_))));
    assert!(matches!(old.get(&key), Ok(Outcome::Done(_))), "the old one still holds");
    edit(lab, &["revoke", "3"], None);
    wait_for("the revocation", || old.get(&key).unwrap() == Outcome::NoChain);
    // (A busy machine may keep an answer for longer than a deadline.)
    wait_for("the new one goes on", || matches!(new.get(&key), Ok(Outcome::Done(_))));
    let keys = file(lab, "client-keys.toml").display().to_string();
    let listed = json(&must(&["kv", "--json", "key", "list", &keys]));
    let states: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["active", "active", "revoked", "active"]);
}

fn must_be_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
