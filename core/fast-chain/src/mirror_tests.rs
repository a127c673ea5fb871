use super::*;
use crate::count::Count;
use crate::layouts::LINE_ENTRIES;
use crate::member::{Verdict, take};
use crate::memory::{ObjectShape, Shape};
use wire::{Batch, BatchHead, BatchRecord, KeyRing, PORT, RecordFlags, Secret};

const MEMBER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), PORT);
const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), PORT);
const ALONE: Standing = Standing { view: 4, previous: None, next: None };

fn memory(records: u32) -> Arc<Memory> {
    let objects = vec![ObjectShape { id: 1, key_bytes: 5, value_bytes: 9 }];
    let memory = Memory::own(Shape { shards: 2, records, address: MEMBER, objects, seed: 3 });
    memory.set_keys(&keys());
    memory
}

fn keys() -> KeyRing {
    KeyRing::new(0, Secret([7; 16])).unwrap()
}

fn key(number: u8) -> [u8; 5] {
    [number, 1, 2, 3, 4]
}

fn entry<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
    let (slot, owner) = (u32::from(key[0]), (1, 1));
    Entry { slot, object_id: 1, epoch: 2, seq: 1, owner, session: 5, flags: 4, key, value }
}

/// Shard 1's mirror, which user space holds.
fn entered(memory: &Arc<Memory>) -> ShardMirror {
    let mut mirror = ShardMirror::new(memory.clone(), 1);
    mirror.enter(|_| {});
    mirror
}

fn put(mirror: &mut ShardMirror, number: u8) -> Option<u32> {
    mirror.put(None, &entry(&key(number), &[number; 9]))
}

fn find(memory: &Memory, number: u8) -> Option<u32> {
    memory.find(1, 1, &[u64::from_le_bytes([number, 1, 2, 3, 4, 0, 0, 0]).to_le()])
}

/// What becomes of an update of that key.
fn update(memory: &Memory, number: u8, seq: u64) -> Verdict {
    let head = BatchHead {
        flags: 0,
        switch_id: 1,
        incarnation: 1,
        request_ns: 0,
        number: 1,
        view: 0,
        session: 5,
        stream: 0,
        client: *SWITCH.ip(),
        shard: 1,
    };
    let (mut records, mut datagram) = (Vec::new(), Vec::new());
    let flags = RecordFlags(8);
    let record = BatchRecord { object_id: 1, flags, epoch: 2, place: 0, seq, content: &[] };
    record.append_to(&key(number), &[seq as u8; 9], &mut records).unwrap();
    Batch::new(head, &records).unwrap().append_to(&mut datagram);
    assert!(keys().sign(&mut datagram, *SWITCH.ip(), *MEMBER.ip()));
    take(memory, SWITCH, &datagram)
}

fn is_taken(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Send { to, .. } if *to == SWITCH)
}

#[test]
fn what_is_put_is_found_until_it_is_removed() {
    let memory = memory(64);
    let mut mirror = entered(&memory);
    assert!(mirror.is_empty() && find(&memory, 1).is_none());
    let places = [1, 2].map(|number| put(&mut mirror, number).unwrap());
    assert_ne!(places[0], places[1]);
    assert_eq!([1, 2].map(|number| find(&memory, number)), places.map(Some));
    assert_eq!((mirror.len(), memory.find(0, 1, &[0])), (2, None), "the other shard has none");

    // Anew, where it is.
    let again = entry(&[1, 1, 2, 3, 4], &[9; 9]);
    assert_eq!(mirror.put(Some(places[0]), &Entry { seq: 8, ..again }), Some(places[0]));
    let record = memory.record(1, places[0]);
    assert_eq!((record.seq, record.content[1].to_ne_bytes(), mirror.len()), (8, [9; 8], 2));

    mirror.remove(places[0]);
    assert_eq!([1, 2].map(|number| find(&memory, number)), [None, Some(places[1])]);
    assert_eq!(put(&mut mirror, 3), Some(places[0]), "its place is free again");
    mirror.clear();
    assert!(mirror.is_empty() && find(&memory, 2).is_none());
}

#[test]
fn what_does_not_fit_stays_with_user_space() {
    let memory = memory(64);
    let mut mirror = entered(&memory);
    let right = entry(&[1, 1, 2, 3, 4], &[0; 9]);
    assert_eq!(mirror.put(None, &Entry { object_id: 2, ..right }), None, "no such object");
    assert_eq!(mirror.put(None, &Entry { key: &[1; 4], ..right }), None);
    assert_eq!(mirror.put(None, &Entry { value: &[1; 10], ..right }), None);
    let object = |id, key_bytes, value_bytes| ObjectShape { id, key_bytes, value_bytes };
    assert!(object(63, 8, 144).fits() && object(0, 1, 1).fits());
    for object in [object(64, 8, 8), object(1, 0, 8), object(1, 8, 0), object(1, 9, 144)] {
        assert!(!object.fits(), "{object:?}");
    }
}

#[test]
fn a_full_memory_takes_no_more() {
    let memory = memory(2 * 4);
    let mut mirror = entered(&memory);
    let places: Vec<_> = (0..20).filter_map(|number| put(&mut mirror, number)).collect();
    assert_eq!((places.len(), mirror.len()), (4, 4));
    mirror.remove(places[2]);
    assert_eq!(put(&mut mirror, 30), Some(places[2]));
}

/// Keys that crowd one line: the ninth has no room, though there are places.
#[test]
fn a_full_line_takes_no_more() {
    let memory = memory(2 * 64);
    let mut mirror = entered(&memory);
    let line = |number: u8| {
        let words = [u64::from_le_bytes([number, 1, 2, 3, 4, 0, 0, 0]).to_le()];
        memory.line(1, 1, &words).0.as_ptr()
    };
    let mut same: Vec<u8> = (0..=u8::MAX).collect();
    let lines: Vec<_> = same.iter().map(|number| line(*number)).collect();
    let of = |at: &_| lines.iter().filter(|other| *other == at).count();
    let fullest = *lines.iter().max_by_key(|at| of(at)).unwrap();
    same.retain(|number| line(*number) == fullest);
    assert!(same.len() > LINE_ENTRIES, "{same:?}");
    let (fit, over) = same.split_at(LINE_ENTRIES);
    let places: Vec<_> = fit.iter().map(|it| put(&mut mirror, *it).unwrap()).collect();
    assert_eq!((put(&mut mirror, over[0]), mirror.len()), (None, LINE_ENTRIES));
    for (number, place) in fit.iter().zip(&places) {
        assert_eq!(find(&memory, *number), Some(*place));
    }
    mirror.remove(places[3]);
    assert_eq!(put(&mut mirror, over[0]), Some(places[3]));
}

#[test]
fn user_space_hears_of_each_changed_record_once() {
    let memory = memory(64);
    let mut mirror = entered(&memory);
    for number in 1..4 {
        assert!(put(&mut mirror, number).is_some());
    }
    assert_eq!(update(&memory, 1, 5), Verdict::Pass(Count::Busy));
    mirror.leave(Some(&ALONE));
    for (number, seq) in [(1, 5), (3, 6), (1, 7)] {
        assert!(is_taken(&update(&memory, number, seq)), "{number}");
    }
    // Nothing newer: its answer may have been lost.
    for (number, seq) in [(1, 6), (2, 1)] {
        assert_eq!(update(&memory, number, seq), Verdict::Pass(Count::Known));
    }
    assert_eq!(update(&memory, 9, 2), Verdict::Pass(Count::Absent));
    let mut changes = Vec::new();
    mirror.enter(|it| changes.push((it.slot, it.seq, it.flags, it.value.to_vec())));
    let value = |byte: u8| [[byte; 9].as_slice(), &[0; 7]].concat();
    assert_eq!(changes, [(3, 6, 8, value(6)), (1, 7, 8, value(7))]);
    mirror.leave(Some(&ALONE));
    mirror.enter(|it| panic!("{it:?} again"));
    mirror.leave(None);
    assert_eq!(update(&memory, 1, 9), Verdict::Pass(Count::Off));
}

#[test]
fn a_mirror_that_ends_turns_its_shard_off() {
    let memory = memory(64);
    let mut mirror = entered(&memory);
    assert!(put(&mut mirror, 1).is_some());
    mirror.leave(Some(&ALONE));
    assert!(is_taken(&update(&memory, 1, 2)));
    drop(mirror);
    assert_eq!(update(&memory, 1, 3), Verdict::Pass(Count::Off));
    // While it has the shard, too.
    let mut mirror = entered(&memory);
    assert!(mirror.is_entered() && put(&mut mirror, 1).is_some());
    drop(mirror);
    assert_eq!(update(&memory, 1, 3), Verdict::Pass(Count::Off));
}
