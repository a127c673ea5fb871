//! A reader's slots reach a member that joins: two switches in the kernel, of whose messages a
//! fifth is lost each way, while writes go on; and what a switch forgets before. Needs root.
//! `SEED=N` repeats a run.

#[path = "copies/empties.rs"]
mod empties;
#[path = "common/frame.rs"]
mod frame;
#[path = "common/network.rs"]
mod network;
#[path = "common/switch.rs"]
mod switch;

use dataplane::Verdict;
use frame::frame;
use manifest::Manifest;
use netchain_protocol::layouts::SlotMark;
use netchain_protocol::{Key, Message, Operation, Room, Status};
use netchain_switch::copies::{self, Copies, Purpose};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use switch::{GROUP, JOINING, KEY, READER, RING, Switch};

const KEYS: u32 = 110_000;

/// Where a message begins in a frame.
const MESSAGE_AT: usize = 42;

/// A write of a client's to a key: mostly a value of some length, at times a delete.
fn write(key: u32, number: u32, view: u32, random: &mut StdRng) -> Vec<u8> {
    let key = Key(u128::from(key).to_be_bytes());
    let value: Vec<u8> = (0..random.random_range(0..=128)).map(|_| random.random()).collect();
    let deletes = random.random_bool(0.1);
    let message = Message {
        operation: if deletes { Operation::Delete } else { Operation::Put },
        status: Status::Request,
        flags: 0,
        key_id: KEY.id,
        tag: 0,
        ring: RING,
        view,
        group: GROUP,
        client: 1,
        number,
        version: 0,
        operand: 0,
        key,
        chain: vec![],
        records: Default::default(),
        room: Room::Large,
        value: (!deletes).then_some(value),
    };
    let mut payload = message.encode().expect("a message");
    KEY.sign(&mut payload);
    frame(READER, &payload)
}

/// What a switch sends for a frame that comes in.
fn sends(switch: &Switch, frame: &[u8], port: u32, now_ns: u64) -> Option<Vec<u8>> {
    let outcome = switch.dataplane.run(frame, port, now_ns).expect("it runs");
    matches!(outcome.verdict, Verdict::Forward { .. }).then_some(outcome.frame)
}

/// Fills the reader, lets the other one join, and compares.
fn copy_under_loss(object: &Path, manifest: &Manifest) {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let reader = Switch::load(object, manifest, READER, true);
    let joining = Switch::load(object, manifest, JOINING, true);
    let mut now_ns = 1_000_000_000;
    let mut number = 0;
    reader.take_part(1, 1 | 2 | 4, 0, &[READER]);
    for key in (0..KEYS).chain((0..KEYS / 8).map(|key| key * 7)) {
        number += 1;
        let request = write(key, number, 1, &mut random);
        let reply = sends(&reader, &request, 0, now_ns).expect("a reply");
        assert_ne!(reply[MESSAGE_AT + 2], Status::OldView as u8);
    }
    let chain = [READER, JOINING];
    joining.take_part(2, 2 | 8, 0, &chain);
    reader.take_part(2, 1 | 4, JOINING.into(), &chain);
    let copies = Copies::new(Arc::clone(&reader.dataplane), reader.slots.clone(), 300_000);
    let copies = copies.expect("notes");
    let (group, view, purpose, to) = (GROUP, 2, Purpose::Copy, JOINING);
    copies.set(vec![copies::Job { group, view, purpose, to }]);
    // Writes that are on their way.
    let mut late: Vec<Vec<u8>> = vec![];
    let lost = |random: &mut StdRng| random.random_bool(0.2);
    while copies.done().is_empty() {
        now_ns += 1_000_000;
        for _ in 0..copies.due(now_ns) {
            let made = reader.dataplane.run_generator(now_ns).expect("it runs");
            let Some(copy) = made.filter(|_| !lost(&mut random)) else { continue };
            let answer = sends(&joining, &copy, 1, now_ns).expect("an acknowledgement");
            if !lost(&mut random) {
                assert_eq!(sends(&reader, &answer, 1, now_ns), None);
            }
        }
        for _ in 0..random.random_range(0..4) {
            number += 1;
            let key = random.random_range(0..KEYS + KEYS / 4);
            late.extend(sends(&reader, &write(key, number, 2, &mut random), 0, now_ns));
        }
        while late.len() > 20 {
            let one = late.swap_remove(random.random_range(0..late.len()));
            sends(&joining, &one, 1, now_ns);
        }
    }
    // The acknowledgement of a slot made later is that the write itself comes.
    for one in late {
        sends(&joining, &one, 1, now_ns);
    }
    let notes = reader.dataplane.map_words(&format!("{}_marks", reader.slots.map));
    let notes = notes.expect("notes");
    let mut compared = 0;
    for number in 0..notes.len() {
        if SlotMark::from_word(notes.get(number)).used == 0 {
            continue;
        }
        let slot = reader.slot(number as u32);
        let other = joining.slot_of(&slot[..16]);
        assert_eq!(other.as_ref(), Some(&slot), "slot {number}");
        compared += 1;
    }
    println!("{compared} keys, {} copies", copies.sent());
    assert!(compared >= KEYS * 9 / 10, "the first deletes of a key make no slot, few others");
}

#[test]
fn all_slots_reach_the_new_member() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), 2 * KEYS);
    let (job_file, job_manifest) = (file.clone(), manifest.clone());
    network::run(&file, &manifest, move || copy_under_loss(&job_file, &job_manifest));
}
