//! Two CPUs write, delete, read and collect the same few keys of a switch in the kernel, with so
//! few slots that a number goes to another key at once: single requests, and storms of one message
//! that makes or frees a slot. Needs root. `SEED=N` repeats the requests of a run (not the order
//! in which two CPUs come to a slot).

#[path = "common/frame.rs"]
mod frame;
#[path = "common/network.rs"]
mod network;
#[path = "common/switch.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod switch;

use c_layout::CStruct;
use frame::{CLIENT, frame};
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use netchain_protocol::layouts::{COUNTED, PeersDueValue, SlotMark};
use netchain_protocol::message::{MOVED, REPLY, STAMPED};
use netchain_protocol::tag::{member_tag, put_tag};
use netchain_protocol::{Key, Message, Operation, Room, Status};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use switch::{FABRIC, GROUP, KEY, READER, RING, Switch};

const SLOTS: u32 = 6;
const KEYS: u128 = 8;
const ROUNDS: u16 = 100;
/// Of a CPU in a round: fewer than a window remembers.
const STEPS: u32 = 200;
const STORM_ROUNDS: u64 = 40;
/// Storms of a CPU in a round, and the most messages of one.
const STORMS: u32 = 300;
const STORM: u32 = 400;
const NOW_NS: u64 = 1_000_000_000;
/// Where a message begins in a frame.
const MESSAGE_AT: usize = 42;
/// Head, tail and reader; and tombstones are collected.
const ALONE: u8 = 1 | 2 | 4;
const COLLECTS: u8 = ALONE | 16;

/// Head and tail of this group are somewhere else; slots are made, or freed, or only read.
const MAKES: [u16; 2] = [GROUP, GROUP + 2];
const FREES: u16 = GROUP + 1;
const READS: u16 = GROUP + 3;

fn message(operation: Operation, key: u128, group: u16, view: u32) -> Message {
    Message {
        operation,
        status: Status::Request,
        flags: 0,
        key_id: KEY.id,
        tag: 0,
        ring: RING,
        view,
        group,
        client: 1,
        number: 1,
        version: 0,
        operand: 0,
        key: Key(key.to_be_bytes()),
        chain: vec![],
        records: Default::default(),
        room: Room::Small,
        value: None,
    }
}

/// A client's request, in its frame.
fn request(operation: Operation, key: u128, client: u64, number: u32, view: u32) -> Vec<u8> {
    let writes = matches!(operation, Operation::Put | Operation::Insert);
    let message = Message {
        client,
        number,
        operand: u64::from(operation == Operation::Add),
        value: writes.then(|| (client << 32 | u64::from(number)).to_be_bytes().to_vec()),
        ..message(operation, key, GROUP, view)
    };
    let mut payload = message.encode().expect("a message");
    KEY.sign(&mut payload);
    frame(READER, &payload)
}

/// The version of the only tombstone that a key has in a storm.
fn tombstone(key: u128) -> u64 {
    1 << 48 | (key as u64 + 1)
}

/// Another member's message about this tombstone, in its frame.
fn stamped(operation: Operation, key: u128, group: u16) -> Vec<u8> {
    let (flags, version) = (STAMPED, tombstone(key));
    let message = Message { flags, version, ..message(operation, key, group, 1) };
    let mut payload = message.encode().expect("a message");
    let tag = member_tag(&FABRIC, &payload, CLIENT, READER);
    put_tag(&mut payload, tag);
    frame(READER, &payload)
}

/// The answer; None: it is not known. (What the program says of the frame's way and length is of
/// either CPU; the frame is of this one.)
fn asks(switch: &Switch, frame: &[u8]) -> Option<Message> {
    let outcome = switch.dataplane.run(frame, 0, NOW_NS).expect("it runs");
    let message = Message::decode(outcome.frame.get(MESSAGE_AT..)?).ok()?;
    (message.flags & REPLY != 0).then_some(message)
}

/// The agent queues a slot, and the generator makes its frame.
fn collects(switch: &Switch, number: u32, part: u16) {
    let operation = Operation::Collect as u32;
    let (to, object) = (Ipv4Addr::UNSPECIFIED, switch.slots.id);
    let due = PeersDueValue { operation, number, to, part, object };
    let queue = switch.dataplane.map("sp_peers_due").expect("a queue");
    queue.update(&[], &due.to_bytes(), MapFlags::ANY).expect("there is room");
    switch.dataplane.run_generator(NOW_NS).expect("it runs");
}

/// The sum of a counter of the program.
fn counter(switch: &Switch, name: &str) -> u64 {
    let name = format!("NetChainIngress.{name}");
    let of = switch.dataplane.manifest().counters.iter().find(|it| it.name == name);
    let of = of.expect("a counter");
    let count = |at| switch.dataplane.read_counter(of, at).expect("a count").packets;
    (0..of.size).map(count).sum()
}

fn counted(switch: &Switch, name: &str) -> u64 {
    let at = COUNTED.iter().position(|(known, _)| *known == name).expect("a counter");
    switch.dataplane.read_count("sp_slots_stats", at as u32).expect("a count")
}

/// What a CPU has seen.
#[derive(Default)]
struct Seen {
    asked: u64,
    /// Writes that made a version.
    made: Vec<(u128, u64)>,
    /// The value that a key had with a version.
    values: Vec<((u128, u64), Vec<u8>)>,
}

fn pin(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    // (On a machine of one CPU both share it.)
    if set.set(cpu).is_ok() {
        let _shared = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}

fn one_cpu(switch: &Switch, cpu: usize, view: u32, random: &mut StdRng) -> Seen {
    const OPERATIONS: [Operation; 9] = [
        Operation::Put,
        Operation::Insert,
        Operation::Insert,
        Operation::Add,
        Operation::Delete,
        Operation::Delete,
        Operation::Delete,
        Operation::Read,
        Operation::Read,
    ];
    let mut seen = Seen::default();
    for step in 0..STEPS {
        if random.random_bool(0.4) {
            // (Sometimes for another group: the number was queued long ago.)
            let part = if random.random_bool(0.1) { GROUP + 1 } else { GROUP };
            collects(switch, random.random_range(0..SLOTS), part);
            continue;
        }
        let operation = OPERATIONS[random.random_range(0..OPERATIONS.len())];
        let key = random.random_range(0..KEYS);
        let number = view * STEPS + step;
        seen.asked += 1;
        let Some(reply) = asks(switch, &request(operation, key, cpu as u64 + 1, number, view))
        else {
            continue;
        };
        assert!(
            matches!(reply.status, Status::Done | Status::Absent | Status::Refused | Status::Full),
            "{operation:?}: {reply:?}"
        );
        if reply.status == Status::Done && operation != Operation::Read {
            assert_eq!(reply.flags & MOVED, 0, "one copy of each request: {reply:?}");
            seen.made.push((key, reply.version));
        }
        if let (Some(value), Status::Done | Status::Refused) = (reply.value, reply.status) {
            seen.values.push(((key, reply.version), value));
        }
    }
    seen
}

/// Each slot that was ever used has one key, or is free; each key has one slot.
fn whole(switch: &Switch, parts: &[u16], what: &str) {
    let name = &switch.slots.map;
    let used = switch.dataplane.read_array(&format!("{name}_used"), 0).expect("used");
    let used = u32::from_ne_bytes(*used.first_chunk().expect("a number")).min(SLOTS);
    let queue = switch.dataplane.map(&format!("{name}_free")).expect("queue");
    let next = || queue.lookup_and_delete(&[]).expect("queue");
    let free: Vec<u32> = std::iter::from_fn(next)
        .map(|it| u32::from_ne_bytes(*it.first_chunk().expect("a number")))
        .collect();
    for number in &free {
        queue.update(&[], &number.to_ne_bytes(), MapFlags::ANY).expect("it goes back");
    }
    let index = switch.dataplane.map(name).expect("index");
    let keys: BTreeMap<u32, u128> = (0..KEYS)
        .filter_map(|key| {
            let number = index.lookup(&key.to_be_bytes(), MapFlags::ANY).expect("lookup")?;
            Some((u32::from_ne_bytes(*number.first_chunk()?), key))
        })
        .collect();
    assert_eq!(index.keys().count(), keys.len(), "{what}: two keys have one slot: {keys:?}");
    let mut all: BTreeSet<u32> = free.iter().copied().collect();
    assert_eq!(all.len(), free.len(), "{what}: a number is free twice: {free:?}");
    all.extend(keys.keys());
    assert_eq!(all.len(), free.len() + keys.len(), "{what}: free and in use: {free:?} {keys:?}");
    assert_eq!(all, (0..used).collect(), "{what}: lost: {free:?} {keys:?}");
    let notes = switch.dataplane.map_words(&format!("{name}_marks")).expect("notes");
    let map = switch.slots.slots_map.as_deref().expect("a map of slots");
    for number in 0..used {
        let mark = SlotMark::from_word(notes.get(number as usize));
        let slot = switch.dataplane.read_array(map, number).expect("slot");
        let busy = u8::from(!keys.contains_key(&number));
        assert_eq!(slot[4] % 2, busy, "{what}: slot {number}: the generation");
        match keys.get(&number) {
            Some(key) => {
                assert_eq!(slot[8..24], key.to_be_bytes(), "{what}: slot {number}");
                assert_eq!(mark.used, 1, "{what}: slot {number}");
                assert!(parts.contains(&mark.part), "{what}: slot {number}");
            }
            None => {
                assert!(slot[8..].iter().all(|it| *it == 0), "{what}: slot {number}");
                assert_eq!(mark.used, 0, "{what}: slot {number}");
            }
        }
    }
}

/// Both CPUs at once; what they return.
fn both<T: Send>(seed: u64, job: impl Fn(usize, &mut StdRng) -> T + Sync) -> Vec<T> {
    let job = &job;
    std::thread::scope(|scope| {
        let begin = |cpu: usize| {
            let mut random = StdRng::seed_from_u64(seed ^ (cpu as u64) << 32);
            scope.spawn(move || {
                pin(cpu);
                job(cpu, &mut random)
            })
        };
        let both = [0, 1].map(begin);
        both.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

/// One message again and again, as fast as the kernel can, mostly about this key; and reads in
/// between.
fn storms(switch: &Switch, mostly: u128, random: &mut StdRng) {
    const LOOPBACK: u32 = 1;
    for _ in 0..STORMS {
        let other = random.random_bool(0.3);
        let key = if other { random.random_range(0..KEYS) } else { mostly };
        let repeated = if random.random_bool(0.5) {
            stamped(Operation::Delete, key, MAKES[random.random_range(0..MAKES.len())])
        } else {
            stamped(Operation::CollectAck, key, FREES)
        };
        let times = random.random_range(1..STORM);
        switch.dataplane.run_live("sp_main", &repeated, LOOPBACK, times).expect("it runs");
        let key = random.random_range(0..KEYS);
        let mut read = message(Operation::Read, key, READS, 1).encode().expect("a message");
        KEY.sign(&mut read);
        if let Some(reply) = asks(switch, &frame(READER, &read)) {
            assert_eq!(reply.status, Status::Absent, "{reply:?}");
            assert!([0, tombstone(key)].contains(&reply.version), "key {key}: {reply:?}");
        }
    }
}

/// One CPU makes slots, while the other one frees them.
fn two_cpus_at_full_speed(object: &Path, manifest: &Manifest, seed: u64) {
    let switch = Switch::load(object, manifest, READER, true);
    for makes in MAKES {
        switch.take_part_in((makes, 1, 0), 1, 2, 0, &[READER]);
    }
    switch.take_part_in((FREES, 2, 2), 1, 2 | 16, 0, &[READER]);
    switch.take_part_in((READS, 1, 0), 1, ALONE, 0, &[READER]);
    let _ready = switch.dataplane.keep_ready("sp_main");
    for round in 0..STORM_ROUNDS {
        let mostly = u128::from(round) % KEYS;
        both(seed ^ round << 8, |_, random| storms(&switch, mostly, random));
        let what = format!("SEED={seed}, storm {round}");
        whole(&switch, &MAKES, &what);
        for key in 0..KEYS {
            // (Its version comes first, behind the key.)
            if let Some(slot) = switch.slot_of(&key.to_be_bytes()) {
                assert_eq!(slot[16..24], tombstone(key).to_be_bytes(), "{what}: key {key}");
            }
        }
    }
    let [freed, full] = ["collected", "no_slot"].map(|it| counter(&switch, it));
    let [again, too_often] = ["slots_again", "slots_too_often"].map(|it| counted(&switch, it));
    println!("{freed} freed, {full} had no slot, {again} again, {too_often} too often");
    assert!(freed > STORM_ROUNDS, "SEED={seed}: {freed} were freed");
}

fn two_cpus(object: &Path, manifest: &Manifest, seed: u64) {
    let switch = Switch::load(object, manifest, READER, true);
    let (mut made, mut values) = (BTreeSet::new(), BTreeMap::new());
    let mut asked = 0;
    // Each round is a collecting view: what the rounds before have deleted is collected.
    for round in 1..=ROUNDS {
        let view = u32::from(round);
        switch.take_part_in((GROUP, round, round), view, COLLECTS, 0, &[READER]);
        // All tombstones would be below this one's floor.
        switch.take_part_in((GROUP + 1, 999, 999), view, COLLECTS, 0, &[READER]);
        let seed_of_round = seed ^ u64::from(round) << 8;
        for seen in both(seed_of_round, |cpu, random| one_cpu(&switch, cpu, view, random)) {
            asked += seen.asked;
            for write in seen.made {
                assert!(made.insert(write), "SEED={seed}: a version twice: {write:?}");
            }
            for (of, value) in seen.values {
                let known = values.entry(of).or_insert_with(|| value.clone());
                assert_eq!(*known, value, "SEED={seed}: two values of {of:?}");
            }
        }
        whole(&switch, &[GROUP], &format!("SEED={seed}, round {round}"));
    }
    let [again, too_often] = ["slots_again", "slots_too_often"].map(|it| counted(&switch, it));
    let collected = counter(&switch, "collected");
    println!("{} writes, {collected} collected, {again} again", made.len());
    assert_eq!(
        counter(&switch, "answered") + too_often,
        asked,
        "SEED={seed}: requests were dropped"
    );
    assert!(collected > u64::from(ROUNDS) / 2, "SEED={seed}: {collected} were collected");
}

/// A packet may still have the number of a slot that its key has lost. A free slot's key is
/// cleared, as the key of zeros is: it is not that key's slot.
fn of_a_free_slot(object: &Path, manifest: &Manifest) {
    let switch = Switch::load(object, manifest, READER, true);
    switch.take_part(1, ALONE, 0, &[READER]);
    for (number, operation) in [(1, Operation::Put), (2, Operation::Delete)] {
        let reply = asks(&switch, &request(operation, 0, 1, number, 1)).expect("a reply");
        assert_eq!(reply.status, Status::Done);
    }
    switch.take_part_in((GROUP, 2, 2), 2, COLLECTS, 0, &[READER]);
    collects(&switch, 0, GROUP);
    assert_eq!(switch.slot_of(&[0; 16]), None, "the slot is free");
    let index = switch.dataplane.map(&switch.slots.map).expect("index");
    index.update(&[0; 16], &[0; 4], MapFlags::ANY).expect("its number is as it was");
    let writes = request(Operation::Put, 0, 1, 3, 2);
    assert_eq!(asks(&switch, &writes).map(|it| it.status), None, "a free slot is written");
}

/// A number that was queued for a group may have gone to another group's key by now.
fn of_another_group(object: &Path, manifest: &Manifest) {
    let switch = Switch::load(object, manifest, READER, true);
    switch.take_part(1, ALONE, 0, &[READER]);
    switch.take_part_in((GROUP + 1, 9, 9), 5, COLLECTS, 0, &[READER]);
    let marks = format!("{}_marks", switch.slots.map);
    let mark = || {
        let notes = switch.dataplane.map_words(&marks).expect("notes");
        SlotMark::from_word(notes.get(0))
    };
    for (number, operation) in [(1, Operation::Put), (2, Operation::Delete)] {
        let reply = asks(&switch, &request(operation, 3, 1, number, 1)).expect("a reply");
        assert_eq!(reply.status, Status::Done);
        collects(&switch, 0, GROUP + 1);
        assert!(switch.slot_of(&3_u128.to_be_bytes()).is_some(), "{operation:?}: it was freed");
        assert_eq!(mark().copied_view, 0, "{operation:?}: noted in another group's view");
    }
    // Its own group frees it.
    switch.take_part_in((GROUP, 2, 2), 2, COLLECTS, 0, &[READER]);
    collects(&switch, 0, GROUP);
    assert_eq!((switch.slot_of(&3_u128.to_be_bytes()), mark().used), (None, 0));
}

#[test]
fn a_number_goes_to_another_key_at_once() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (file, manifest) = switch::object(folder.path(), SLOTS);
    let (job_file, job_manifest) = (file.clone(), manifest.clone());
    network::run(&file, &manifest, move || {
        of_another_group(&job_file, &job_manifest);
        of_a_free_slot(&job_file, &job_manifest);
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
        let seed: u64 = seed.unwrap_or_else(|| rand::rng().random());
        println!("SEED={seed}");
        two_cpus(&job_file, &job_manifest, seed);
        two_cpus_at_full_speed(&job_file, &job_manifest, seed);
    });
}
