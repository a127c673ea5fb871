//! The lab's switches get their parts by tables, as the ring places them; clients in its namespace.

use crate::common::{TestLab, must};
use netchain_client::{Client, Config, Ring, read_ring};
use std::path::{Path, PathBuf};

pub const SWITCHES: [&str; 3] = ["s1", "s2", "s3"];
pub const CLUSTER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/netchain/lab/cluster.toml");

pub fn ring() -> Ring {
    read_ring(Path::new(CLUSTER)).expect("ring")
}

pub fn config() -> Config {
    Config { retry_ms: 20, ..Config::new(ring()) }
}

/// The client's key, which the lab has made.
pub fn identity(lab: &TestLab) -> PathBuf {
    Path::new("/run/stateplane/labs").join(&lab.name).join("client.key")
}

/// The number of a switch's life, which roles are for.
pub fn incarnation(switch: &str) -> String {
    let status = must(&["switch", "status", switch, "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status[0]["incarnation"].to_string()
}

/// Sets an entry of a table of a switch. `keys` are separated by spaces.
pub fn set(lab: &TestLab, node: &str, table: &str, keys: &str, action: &str, values: &[String]) {
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
pub fn members(chain: &[String]) -> Vec<String> {
    let member = |at: usize| chain.get(at).map_or("0.0.0.0", String::as_str);
    let mut values = vec![format!("members={}", chain.len())];
    values.extend((0..4).map(|at| format!("member{at}={}", member(at))));
    values
}

/// The place of an address in [`SWITCHES`], and in the list of peers.
pub fn place(address: &str) -> usize {
    address[address.len() - 1..].parse::<usize>().unwrap() - 1
}

/// The numbers of a member's fellow members as peers, each a byte.
pub fn peers(chain: &[String], own: &str) -> u32 {
    let others = chain.iter().filter(|it| *it != own).map(|it| place(it) as u8);
    let mut numbers = [255; 4];
    numbers.iter_mut().zip(others).for_each(|(number, other)| *number = other);
    u32::from_be_bytes(numbers)
}

/// The switch with an address.
pub fn node(address: &str) -> &'static str {
    SWITCHES[place(address)]
}

/// Gives the members of a chain their parts in a group: the founded chain, or a later one.
pub fn take_part(lab: &TestLab, group: u16, view: u32, chain: &[String]) {
    let same_head = chain_of(&ring(), group).first() == chain.first();
    let head_since = if same_head { 1 } else { view };
    for (at, address) in chain.iter().enumerate() {
        // Head; tail and reader.
        let position = u8::from(at == 0) | (u8::from(at + 1 == chain.len()) * 6);
        let next = chain.get(at + 1).map_or("0.0.0.0", String::as_str);
        let mut values = vec![
            format!("view={view}"),
            format!("head_since={head_since}"),
            format!("session={view}"),
            "floor=0".to_owned(),
            format!("position={position}"),
            format!("next={next}"),
        ];
        values.extend(members(chain));
        values.push(format!("peers={:#x}", peers(chain, address)));
        let key = format!("hdr.netchain.group={group}");
        set(lab, node(address), "roles", &key, "take_part", &values);
    }
}

pub fn chain_of(ring: &Ring, group: u16) -> Vec<String> {
    ring.chain_of(group).expect("group").iter().map(ToString::to_string).collect()
}

/// Gives each switch its part in the groups, as the ring places them: view 1, session 1.
pub fn found(lab: &TestLab) {
    let ring = ring();
    for group in 0..ring.groups() {
        take_part(lab, group, 1, &chain_of(&ring, group));
    }
}

/// A client whose socket is in the client's namespace.
pub fn client_in(lab: &TestLab) -> Client {
    let config = Config { identity: Some(identity(lab)), ..config() };
    let make = || Client::new(config).map_err(std::io::Error::other);
    lab.netns("client").run(make).expect("client")
}
