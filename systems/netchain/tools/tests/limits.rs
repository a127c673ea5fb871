//! What a switch has room for, and what is beyond that. Needs root. The other limits, and their
//! tests: `systems/netchain/docs/design.md`, "Limits".

#[path = "common/frame.rs"]
mod frame;
#[path = "common/switch.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod switch;

use dataplane::Verdict;
use frame::frame;
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use netchain_protocol::layouts::{COUNTED, PEERS, PEERS_DUE};
use netchain_protocol::{CHAIN_MAX, GROUPS_MAX, MEMBERS_MAX, VALUE_MAX};
use netchain_protocol::{Key, Message, Operation, Room, Status};
use netchain_switch::peers::{Pace, Peers};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use switch::{GROUP, KEY, READER, RING, Switch};

const PAGE: &str = include_str!("../../README.md");
/// As many as the program has by default.
const KEYS: u32 = 65_536;

/// Bytes that the kernel has for a map.
fn bytes(switch: &Switch, map: &str) -> u64 {
    let map = switch.dataplane.map(map).unwrap_or_else(|| panic!("no map {map}"));
    let file = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(file).expect("what the kernel says of the map");
    let found = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    found.and_then(|bytes| bytes.trim().parse().ok()).expect("bytes")
}

/// The number on the page between some words.
fn on_the_page(before: &str, after: &str) -> f64 {
    let (_, rest) = PAGE.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    let (number, _) = rest.split_once(after).unwrap_or_else(|| panic!("no {after:?}"));
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {number:?}"))
}

#[test]
fn a_switch_has_room_for_what_the_page_says() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), KEYS);
    let switch = Switch::load(&file, &manifest, READER, true);
    memory(&switch, &manifest);
    tables(&manifest);
    peers(&switch);
    runs(&switch);
}

fn memory(switch: &Switch, manifest: &Manifest) {
    let of = |kind: &str| {
        let object = manifest.state_objects.iter().find(|it| it.kind == kind).expect(kind);
        let all: u64 = switch
            .dataplane
            .maps()
            .filter(|(name, _)| name.starts_with(&object.map))
            .map(|(name, _)| bytes(switch, name))
            .sum();
        all as f64 / f64::from(object.capacity)
    };
    let (key, client) = (of("SlotState"), of("RequestWindow"));
    println!("{key:.1} bytes a key, {client:.1} bytes a client");
    let near = |found: f64, told: f64| (found / told - 1.0).abs() < 0.05;
    assert!(near(key, on_the_page("| memory | ", " bytes a key")), "{key}");
    let a_gib = f64::from(1 << 30) / key / 1e6;
    assert!(near(a_gib, on_the_page(" bytes a key: ", " million keys a GiB")), "{a_gib}");
    assert!(
        near(client / 1024.0, on_the_page("`-D NETCHAIN_CLIENTS=N`; ", " KiB each")),
        "{client}"
    );
}

/// Every founding that is taken fits into the program's tables.
fn tables(manifest: &Manifest) {
    let size = |name: &str| {
        let found = manifest.tables.iter().find(|it| it.name.ends_with(name));
        found.unwrap_or_else(|| panic!("no table {name}")).size as usize
    };
    assert_eq!(size("roles"), usize::from(GROUPS_MAX));
    assert!(size("destinations") > MEMBERS_MAX && size("dead_sources") > MEMBERS_MAX);
}

fn peers(switch: &Switch) {
    let peers = Peers::new(Arc::clone(&switch.dataplane), Pace::default()).expect("peers");
    let all: Vec<Ipv4Addr> = (0..=PEERS).map(|at| Ipv4Addr::from(u32::from(READER) + at)).collect();
    let most = &all[..PEERS as usize];
    peers.set(READER, RING, most).expect("as many as there may be");
    assert_eq!(peers.load().len(), most.len() - 1, "all but the switch itself");
    let error = peers.set(READER, RING, &all).expect_err("one more").to_string();
    assert!(error.contains("more than 255 peers"), "{error}");
    // No frame is made: probes that are due wait, up to a number.
    let mut now_ns = 1_000_000_000;
    let mut look = || {
        now_ns += 10_000_000;
        peers.due(now_ns)
    };
    let before = (0..PEERS_DUE / PEERS).map(|_| look()).collect::<Vec<_>>();
    assert!(before.iter().all(|frames| *frames == u64::from(PEERS) - 1), "{before:?}");
    assert_eq!(look(), u64::from(PEERS_DUE), "all that wait are to be made");
}

/// A packet whose slot another one always changes ends, and is counted. (The slot looks as if a CPU
/// were in the middle of a write.)
fn runs(switch: &Switch) {
    switch.take_part(1, 1 | 2 | 4, 0, &[READER]);
    let key = Key::from_name("hot").expect("a short name");
    let map = switch.slots.slots_map.as_deref().expect("a map of slots");
    let mut slot = switch.dataplane.read_array(map, 0).expect("a slot");
    slot[4..8].copy_from_slice(&1u32.to_ne_bytes()); // the generation: odd
    slot[8..24].copy_from_slice(&key.0);
    switch.dataplane.write_array(map, 0, &slot).expect("written");
    let index = switch.dataplane.map(&switch.slots.map).expect("numbers");
    index.update(&key.0, &0u32.to_ne_bytes(), MapFlags::ANY).expect("its number");
    let counted = |name: &str| {
        let at = COUNTED.iter().position(|(known, _)| *known == name).expect("a counter");
        switch.dataplane.read_count("sp_slots_stats", at as u32).expect("a count")
    };
    let outcome = switch.dataplane.run(&read(key), 0, 1_000_000_000).expect("it runs");
    assert!(!matches!(outcome.verdict, Verdict::Forward { .. }), "nothing is answered");
    assert_eq!((counted("slots_again"), counted("slots_too_often")), (24, 1));
}

/// A read of a key, in its frame.
fn read(key: Key) -> Vec<u8> {
    let message = Message {
        operation: Operation::Read,
        status: Status::Request,
        flags: 0,
        key_id: KEY.id,
        tag: 0,
        ring: RING,
        view: 1,
        group: GROUP,
        client: 1,
        number: 1,
        version: 0,
        operand: 0,
        key,
        chain: vec![],
        records: Default::default(),
        room: Room::Small,
        value: None,
    };
    let mut payload = message.encode().expect("a message");
    KEY.sign(&mut payload);
    frame(READER, &payload)
}

/// The page says where the limits are that no switch is needed for.
#[test]
fn the_page_has_the_limits_of_a_founding() {
    assert_eq!(on_the_page("| groups | ", " | the founding"), f64::from(GROUPS_MAX));
    assert_eq!(on_the_page("| switches | ", " | the founding"), MEMBERS_MAX as f64);
    assert_eq!(on_the_page("| a chain | ", " switches (f = 2)") + 1.0, CHAIN_MAX as f64);
    assert_eq!(on_the_page("| a value | ", " bytes |"), VALUE_MAX as f64);
}
