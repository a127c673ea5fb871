//! How fast a switch lists keys: all of them, a prefix that no key has, a group without keys among
//! the slots of others. One request at a time, by BPF_PROG_RUN; the time is the program's own.
//!
//! ```
//! list_speed [KEYS]     # as root
//! ```

#[path = "common/fill.rs"]
mod fill;
#[path = "../tests/common/switch.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod switch;

use fill::fill;
use netchain_protocol::{Key, Message, Operation, Room, Status};
use std::collections::HashSet;
use switch::{GROUP, KEY, READER, RING, Switch};

/// Head, tail and reader.
const ALONE: u8 = 1 | 2 | 4;
/// Ethernet, IPv4, UDP.
const MESSAGE_AT: usize = 42;
/// As a cursor: there are no more keys.
const END: u64 = u32::MAX as u64;

/// A client's request for a page.
fn frame(group: u16, prefix: &[u8], cursor: u64) -> Vec<u8> {
    let (mut key, mut mask) = ([0; 16], vec![0; 16]);
    key[..prefix.len()].copy_from_slice(prefix);
    mask[..prefix.len()].fill(255);
    let message = Message {
        operation: Operation::List,
        status: Status::Request,
        flags: 0,
        key_id: 0,
        tag: 0,
        ring: RING,
        view: 2,
        group,
        client: 1,
        number: 1,
        version: 0,
        operand: cursor,
        key: Key(key),
        chain: vec![],
        records: Default::default(),
        room: Room::Large,
        value: Some(mask),
    };
    let mut payload = message.encode().expect("it fits");
    KEY.sign(&mut payload);
    let bytes = payload.len() as u16;
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + bytes).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 5]);
    frame.extend(READER.octets());
    frame.extend([40_000_u16.to_be_bytes(), 5410_u16.to_be_bytes()].concat());
    frame.extend([(8 + bytes).to_be_bytes(), [0, 0]].concat());
    frame.extend(payload);
    frame
}

/// Lists a prefix, which so many keys have, and prints what it took.
fn list(switch: &Switch, what: &str, (group, prefix): (u16, &[u8]), expected: usize) {
    let (mut cursor, mut requests, mut busy_ns) = (0, 0_u64, 0_u64);
    let mut keys: HashSet<[u8; 16]> = HashSet::with_capacity(expected);
    let mut slowest_ns = 0;
    while cursor != END {
        let outcome =
            switch.dataplane.run(&frame(group, prefix, cursor), 0, 1_000_000_000).expect("run");
        let payload = outcome.frame.get(MESSAGE_AT..).expect("a message");
        assert!(KEY.verify(payload), "{what}: the tag");
        let reply = Message::decode(payload).expect("a reply");
        assert_eq!(reply.status, Status::Done, "{what}");
        let value = reply.value.unwrap_or_default();
        for (place, key) in value.chunks_exact(16).enumerate() {
            if reply.version >> place & 1 != 0 {
                assert!(keys.insert(key.try_into().expect("16 bytes")), "{what}: a key twice");
            }
        }
        cursor = reply.operand;
        requests += 1;
        busy_ns += u64::from(outcome.duration_ns);
        slowest_ns = slowest_ns.max(outcome.duration_ns);
    }
    assert_eq!(keys.len(), expected, "{what}");
    println!(
        "{what}: {} keys, {requests} requests, {:.3} s in the program: {:.0} ns a request (at most \
         {slowest_ns}), {:.0} keys/s",
        keys.len(),
        busy_ns as f64 / 1e9,
        busy_ns as f64 / requests as f64,
        keys.len() as f64 / (busy_ns as f64 / 1e9),
    );
}

fn main() {
    let keys = std::env::args().nth(1).map_or(2_000_000, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), keys);
    let switch = Switch::load(&file, &manifest, READER, true);
    switch.take_part(2, ALONE, 0, &[READER]);
    switch.take_part_in((GROUP + 1, 1, 0), 2, ALONE, 0, &[READER]);
    fill(&switch, keys, 64);
    // (Keys are the numbers from 0 on, big-endian.)
    list(&switch, "all keys", (GROUP, b""), keys as usize);
    list(&switch, "no key", (GROUP, b"none"), 0);
    list(&switch, "no key of a group", (GROUP + 1, b""), 0);
    let one = u128::from(keys / 2).to_be_bytes();
    list(&switch, "one key", (GROUP, &one), 1);
}
