//! Switches that serve keys, for real: the compiled program on three switches, and clients with
//! sockets. Needs root.

mod common;

use common::{TestLab, must, skip};
use netchain_client::{Client, Config, Key, Outcome, Shown};
use std::time::{Duration, Instant};

const GROUPS: u16 = 4;
const SWITCHES: [&str; 3] = ["s1", "s2", "s3"];

fn config() -> Config {
    let switches: String =
        (1..=3).map(|i| format!("[[switch]]\naddress = \"10.9.0.{i}\"\n")).collect();
    toml::from_str(&format!("groups = {GROUPS}\nretry_ms = 20\n{switches}")).expect("config")
}

/// Gives each switch its parts in the groups, as the ring places them: view 1, session 1. They are
/// for the switch's incarnation, and all at once.
fn found(lab: &TestLab) {
    let ring = config().ring().expect("ring");
    let mut parts = [const { String::new() }; SWITCHES.len()];
    for group in 0..ring.groups() {
        let chain: Vec<String> =
            ring.chain_of(group).expect("group").iter().map(ToString::to_string).collect();
        for (at, address) in chain.iter().enumerate() {
            let switch = address[address.len() - 1..].parse::<usize>().unwrap() - 1;
            let position = u8::from(at == 0) | u8::from(at + 1 == chain.len()) << 1;
            let next = chain.get(at + 1).map_or("0.0.0.0", String::as_str);
            let (members, [first, second, third]) = (chain.len(), [0, 1, 2].map(|at| &chain[at]));
            parts[switch] += &format!(
                "[[table.entry]]\nkey = {{ \"hdr.netchain.group\" = {group} }}\n\
                 action = \"NetChainIngress.take_part\"\n\
                 arguments = {{ view = 1, session = 1, position = {position}, next = \"{next}\", \
                 members = {members}, member0 = \"{first}\", member1 = \"{second}\", \
                 member2 = \"{third}\", member3 = \"0.0.0.0\" }}\n"
            );
        }
    }
    for (node, parts) in SWITCHES.iter().zip(parts) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let table = format!("[[table]]\nname = \"NetChainIngress.roles\"\n{parts}");
        std::fs::write(&file, table).unwrap();
        let name = format!("{}-{node}", lab.name);
        let status: serde_json::Value =
            serde_json::from_str(&must(&["switch", "status", &name, "--json"])).unwrap();
        let incarnation = status[0]["incarnation"].to_string();
        let path = file.path().to_str().unwrap();
        let options = ["--switch", &name, "--incarnation", &incarnation];
        must(&[&["table", "replace", path][..], &options].concat());
    }
}

/// A client whose socket is in the client's namespace.
fn client_in(lab: &TestLab) -> Client {
    let make = || Client::new(config()).map_err(std::io::Error::other);
    lab.netns("client").run(make).expect("client")
}

fn value(shown: &Shown) -> &[u8] {
    shown.value.as_deref().unwrap_or_default()
}

/// Each operation, on keys of all groups; then two clients that add to one counter at once.
#[test]
fn three_switches_serve_keys() {
    if skip() {
        return;
    }
    let lab = TestLab::up("chain", "../../systems/netchain/lab/chain.toml", &[]);
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
        groups.insert(config().ring().unwrap().group_of_name(&name).unwrap());
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
    let total = client.get(&counter).unwrap().done().unwrap();
    assert_eq!(value(&total), 1000u64.to_be_bytes());
    by_command(&lab);
    lab.down();
}

/// The same by `stateplane kv`.
fn by_command(lab: &TestLab) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let switches: String =
        (1..=3).map(|i| format!("[[switch]]\naddress = \"10.9.0.{i}\"\n")).collect();
    std::fs::write(&file, format!("groups = {GROUPS}\n{switches}")).unwrap();
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
    assert!(kv("get seventeen-letters").1.contains("a name of 17 bytes; a key has 16"));
}

fn operations(client: &mut Client, key: &Key) {
    let absent = client.get(key).unwrap().done().unwrap();
    assert_eq!((absent.version, absent.value), (0, None));
    let first = client.insert(key, b"owner--1").unwrap().done().unwrap();
    assert_eq!((first.version >> 48, value(&first)), (1, &b"owner--1"[..]));
    let Outcome::Refused(held) = client.insert(key, b"owner--2").unwrap() else {
        panic!("inserted twice")
    };
    assert_eq!(held, first);
    let second = client.compare_and_set(key, first.version, b"owner--2").unwrap().done().unwrap();
    assert_eq!(second.version, first.version + 1);
    let stale = client.compare_and_set(key, first.version, b"owner--3").unwrap();
    assert_eq!(stale, Outcome::Refused(second.clone()));
    let third = client.compare_owner(key, *b"owner--2", &[7; 128]).unwrap().done().unwrap();
    assert_eq!(client.get(key).unwrap(), Outcome::Done(third.clone()));
    assert_eq!(value(&third), [7; 128]);
    let gone = client.delete(key, third.version).unwrap().done().unwrap();
    assert_eq!((gone.version, gone.value), (third.version + 1, None));
    assert_eq!(client.get(key).unwrap().done().unwrap().value, None);
    // A version never comes back.
    let again = client.put(key, b"x").unwrap().done().unwrap();
    assert_eq!(again.version, gone.version + 1);
}
