//! Switches that serve keys, for real: the compiled program on three switches, and clients with
//! sockets. Needs root.

mod common;
#[path = "lab_chain/trust.rs"]
mod trust;

use common::{TestLab, must, skip};
use netchain_client::{Client, Config, Done, Key, Outcome, Refused, Ring, Shown, read_ring};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SWITCHES: [&str; 3] = ["s1", "s2", "s3"];
const CLUSTER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/netchain/lab/cluster.toml");

fn ring() -> Ring {
    read_ring(Path::new(CLUSTER)).expect("ring")
}

fn config() -> Config {
    Config { retry_ms: 20, ..Config::new(ring()) }
}

/// The client's key, which the lab has made.
fn identity(lab: &TestLab) -> PathBuf {
    Path::new("/run/stateplane/labs").join(&lab.name).join("client.key")
}

/// The number of a switch's life, which roles are for.
fn incarnation(switch: &str) -> String {
    let status = must(&["switch", "status", switch, "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status[0]["incarnation"].to_string()
}

/// Sets an entry of a table of a switch. `keys` are separated by spaces.
fn set(lab: &TestLab, node: &str, table: &str, keys: &str, action: &str, values: &[String]) {
    let name = format!("{}-{node}", lab.name);
    let [table, action] = [table, action].map(|it| format!("NetChainIngress.{it}"));
    let mut arguments = vec!["table", "add", &table];
    arguments.extend(keys.split(' '));
    let incarnation = incarnation(&name);
    arguments.extend(["--replace", "--switch", &name, "--incarnation", &incarnation]);
    arguments.extend(["-a", &action]);
    arguments.extend(values.iter().map(String::as_str));
    must(&arguments);
}

/// A chain as action data.
fn members(chain: &[String]) -> Vec<String> {
    let member = |at: usize| chain.get(at).map_or("0.0.0.0", String::as_str);
    let mut values = vec![format!("members={}", chain.len())];
    values.extend((0..4).map(|at| format!("member{at}={}", member(at))));
    values
}

/// The place of an address in [`SWITCHES`], and in the list of peers.
fn place(address: &str) -> usize {
    address[address.len() - 1..].parse::<usize>().unwrap() - 1
}

/// The numbers of a member's fellow members as peers, each a byte.
fn peers(chain: &[String], own: &str) -> u32 {
    let others = chain.iter().filter(|it| *it != own).map(|it| place(it) as u8);
    let mut numbers = [255; 4];
    numbers.iter_mut().zip(others).for_each(|(number, other)| *number = other);
    u32::from_be_bytes(numbers)
}

/// The switch with an address.
fn node(address: &str) -> &'static str {
    SWITCHES[place(address)]
}

/// Gives the members of a chain their parts in a group.
fn take_part(lab: &TestLab, group: u16, view: u32, chain: &[String]) {
    for (at, address) in chain.iter().enumerate() {
        // Head; tail and reader.
        let position = u8::from(at == 0) | u8::from(at + 1 == chain.len()) * 6;
        let next = chain.get(at + 1).map_or("0.0.0.0", String::as_str);
        let mut values = vec![
            format!("view={view}"),
            format!("session={view}"),
            format!("position={position}"),
            format!("next={next}"),
        ];
        values.extend(members(chain));
        values.push(format!("peers={:#x}", peers(chain, address)));
        let key = format!("hdr.netchain.group={group}");
        set(lab, node(address), "roles", &key, "take_part", &values);
    }
}

fn chain_of(ring: &Ring, group: u16) -> Vec<String> {
    ring.chain_of(group).expect("group").iter().map(ToString::to_string).collect()
}

/// Gives each switch its part in the groups, as the ring places them: view 1, session 1.
fn found(lab: &TestLab) {
    let ring = ring();
    for group in 0..ring.groups() {
        take_part(lab, group, 1, &chain_of(&ring, group));
    }
}

/// A client whose socket is in the client's namespace.
fn client_in(lab: &TestLab) -> Client {
    let config = Config { identity: Some(identity(lab)), ..config() };
    let make = || Client::new(config).map_err(std::io::Error::other);
    lab.netns("client").run(make).expect("client")
}

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
    assert!(kv("get seventeen-letters").1.contains("a name of 17 bytes; a key has 16"));
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
