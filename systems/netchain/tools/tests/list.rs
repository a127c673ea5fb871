//! A listing lists what a read finds, also while another packet gives a key its slot. Needs root.

#[path = "../examples/common/fill.rs"]
mod fill;
#[path = "common/frame.rs"]
mod frame;
#[path = "common/switch.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod switch;

use frame::frame;
use netchain_protocol::{Key, Message, Operation, Room, Status};
use switch::{GROUP, KEY, READER, RING, Switch};

/// Head, tail and reader.
const ALONE: u8 = 1 | 2 | 4;
/// Where a message begins in a frame.
const MESSAGE_AT: usize = 42;
const KEYS: u32 = 4;

fn key(number: u32) -> Key {
    Key(u128::from(number).to_be_bytes())
}

/// The keys on the first page of all keys.
fn listed(switch: &Switch) -> Vec<Key> {
    let message = Message {
        operation: Operation::List,
        status: Status::Request,
        flags: 0,
        key_id: 0,
        tag: 0,
        ring: RING,
        view: 2,
        group: GROUP,
        client: 1,
        number: 1,
        version: 0,
        operand: 0,
        key: Key([0; 16]),
        chain: vec![],
        records: Default::default(),
        room: Room::Large,
        value: Some(vec![0; 16]),
    };
    let mut payload = message.encode().expect("a message");
    KEY.sign(&mut payload);
    let outcome = switch.dataplane.run(&frame(READER, &payload), 0, 1_000_000).expect("it runs");
    let reply =
        Message::decode(outcome.frame.get(MESSAGE_AT..).expect("a reply")).expect("a reply");
    assert_eq!(reply.status, Status::Done);
    let value = reply.value.unwrap_or_default();
    let places = value.chunks_exact(16).enumerate();
    let keys = places.filter(|(place, _)| reply.version >> place & 1 != 0);
    keys.map(|(_, key)| Key(key.try_into().expect("16 bytes"))).collect()
}

/// A packet that gives a key its slot fills the slot, enters its number, notes it, and makes its
/// generation even last. Until then no read finds the key. If two packets do so at once, one of the
/// two slots is given back.
#[test]
fn a_slot_that_no_key_has_yet_is_passed_by() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), KEYS);
    let switch = Switch::load(&file, &manifest, READER, true);
    switch.take_part(2, ALONE, 0, &[READER]);
    fill::fill(&switch, KEYS, 64);
    assert_eq!(listed(&switch), [0, 1, 2, 3].map(key));

    let slots = switch.slots.slots_map.as_deref().expect("a map of slots");
    let turn = |generation: u32| {
        let mut slot = switch.dataplane.read_array(slots, 1).expect("a slot");
        slot[4..8].copy_from_slice(&generation.to_ne_bytes());
        switch.dataplane.write_array(slots, 1, &slot).expect("written");
    };
    turn(7);
    assert_eq!(listed(&switch), [key(0)], "the listing waits for slot 1");
    turn(8);
    assert_eq!(listed(&switch), [0, 1, 2, 3].map(key));
    turn(9);
    let marks = format!("{}_marks", switch.slots.map);
    switch.dataplane.write_array(&marks, 1, &[0; 8]).expect("noted");
    assert_eq!(listed(&switch), [0, 2, 3].map(key), "slot 1 is free");
}
