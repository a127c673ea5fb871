//! Keys for which several switches count at the same time (systems/redplane/docs/snapshots.md,
//! "Several switches at once"): the store's rules, message by message, and a random run with what
//! the network does to snapshots.

mod common;

use common::*;
use state_protocol::MessageType::{self, Absent, LeaseGrant, Refused, SnapshotAck, SnapshotState};
use state_protocol::objects::Merge;
use state_protocol::{Flags, Message, Owner, SnapshotPart, snapshot_parts};
use state_store::core::{
    AllocatorSettings, MergeSettings, ObjectSettings, Settings, SplitMix64, StateQuery, from_hex,
};
use std::collections::BTreeMap;
use wire::{Joining, Member, ShardView, Views};

const SKETCH: u16 = 8;
/// Two parts.
const SLOTS: usize = 400;
const KEY: &[u8] = b"vlan";

fn merged_by(how: Merge, window_bits: Option<u32>) -> impl Fn(&mut Settings) {
    move |settings| {
        settings.limits.sessions = 64;
        settings.limits.unacked = 4_096;
        settings.objects.push(ObjectSettings {
            name: "sketch".to_owned(),
            id: SKETCH,
            key_bytes: 4,
            value_bytes: 4,
            allocator: AllocatorSettings::Snapshot {
                slots: SLOTS,
                slot_bytes: 4,
                idle_ns: Some(4 * SECOND),
                merge: Some(MergeSettings { how, window_bits }),
            },
            closed_ns: SECOND,
            half_open_ns: SECOND,
            shard_bytes: None,
        });
    }
}

fn sums() -> Chain {
    Chain::with(3, merged_by(Merge::Sum, None))
}

fn parts() -> usize {
    snapshot_parts(SLOTS, 4)
}

/// A part of a snapshot in which all slots are `value`.
fn part(part: usize, value: u32) -> Vec<u8> {
    let bytes = (SLOTS * 4 - part * 1_280).min(1_280);
    let slots = value.to_be_bytes().repeat(bytes / 4);
    SnapshotPart::packet(part as u16, SLOTS, 4, 1, &slots)
}

fn send_part(chain: &mut Chain, sender: Owner, epoch: u32, seq: u64, number: usize, value: u32) {
    let packet = part(number, value);
    let snapshot = message(MessageType::Snapshot, SKETCH, sender, KEY);
    chain.send(&Message { epoch, seq, packet: &packet, ..snapshot });
}

/// A whole snapshot in which all slots are `value`.
fn send(chain: &mut Chain, sender: Owner, epoch: u32, seq: u64, value: u32) {
    (0..parts()).for_each(|number| send_part(chain, sender, epoch, seq, number, value));
}

/// A switch asks for the key: its grant, and the slots that it goes on from, which are all alike.
fn granted(chain: &mut Chain, sender: Owner) -> (u32, u64, u32) {
    chain.replies.clear();
    chain.send(&lease(SKETCH, sender, KEY));
    let (mut state, mut grant) = (vec![], None);
    while let Some(reply) = chain.reply() {
        let reply = reply.message();
        assert_eq!((reply.sender, reply.key), (sender, KEY), "only who asked is told");
        match reply.message_type {
            SnapshotState => {
                let part = SnapshotPart::decode_message(&reply, SLOTS, 4).expect("a part");
                state.extend_from_slice(part.slots);
            }
            kind => grant = Some((kind, reply.epoch, reply.seq)),
        }
    }
    let Some((LeaseGrant, epoch, seq)) = grant else { panic!("no grant: {grant:?}") };
    assert_eq!(state.len(), 4 * SLOTS);
    assert!(state.chunks(4).all(|slot| *slot == state[..4]));
    (epoch, seq, u32::from_be_bytes(state[..4].try_into().unwrap()))
}

/// The first slot of what all servers have merged, if anything.
fn merged(chain: &Chain) -> Option<u32> {
    let of = |server: &Server| {
        let records = server.records();
        let merged = records.merged(records.object(SKETCH).unwrap(), KEY)?;
        let slots = &merged.slots;
        assert!(slots.chunks(4).all(|slot| *slot == slots[..4]));
        Some(u32::from_be_bytes(slots.get(..4)?.try_into().unwrap()))
    };
    let first = of(&chain.servers[0]);
    assert!(chain.servers.iter().all(|server| of(server) == first), "servers differ");
    first
}

#[test]
fn switches_count_at_once_and_nobody_waits_or_is_recalled() {
    let mut chain = sums();
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, ..) = granted(&mut chain, one);
    let (second, _, begins_with) = granted(&mut chain, other);
    assert_eq!(begins_with, 0, "its own slots, not the other's");
    assert_eq!(merged(&chain), None, "no snapshot is whole");
    send(&mut chain, one, first, 1, 10);
    assert_eq!(merged(&chain), Some(10));
    send(&mut chain, other, second, 1, 7);
    assert_eq!(merged(&chain), Some(17));
    send(&mut chain, one, first, 2, 12);
    assert_eq!(merged(&chain), Some(19), "2 in the place of 1");
    assert!(chain.sent().iter().all(|(_, kind)| *kind == SnapshotAck));
    chain.assert_alike();
}

#[test]
fn a_part_counts_once_however_often_and_late_it_comes() {
    let mut chain = sums();
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    send(&mut chain, other, second, 1, 7);
    for _ in 0..3 {
        send(&mut chain, one, first, 5, 10);
        assert_eq!(merged(&chain), Some(17));
    }
    send(&mut chain, one, first, 4, 900);
    assert_eq!(merged(&chain), Some(17), "an older one");
    send_part(&mut chain, one, first, 6, 0, 11);
    assert_eq!(merged(&chain), Some(17), "half of a newer one");
    send_part(&mut chain, one, first, 6, 1, 11);
    assert_eq!(merged(&chain), Some(18));
    // One switch's snapshot under the other's grant.
    chain.replies.clear();
    send(&mut chain, one, second.max(first) + 1, 9, 100);
    assert!(chain.sent().contains(&(1, Refused)));
    assert_eq!(merged(&chain), Some(18));
}

#[test]
fn a_dead_switch_counts_and_its_next_life_goes_on_from_there() {
    let mut chain = sums();
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    send(&mut chain, one, first, 1, 10);
    send(&mut chain, other, second, 1, 7);
    // Half of its last snapshot is lost with it.
    send_part(&mut chain, one, first, 2, 0, 12);
    chain.keep_alive(other, chain.now + 2 * SECOND);
    assert_eq!(merged(&chain), Some(17));
    let again = owner(1, 2);
    let (third, seq, begins_with) = granted(&mut chain, again);
    assert_eq!((seq, begins_with), (1, 10));
    assert!(third > first);
    assert_eq!(merged(&chain), Some(17));
    // What was still under way of its last life.
    send_part(&mut chain, one, first, 2, 1, 12);
    assert_eq!(merged(&chain), Some(17));
    send(&mut chain, again, third, 2, 15);
    assert_eq!(merged(&chain), Some(22), "once, not 10 and 15");
}

#[test]
fn only_the_newest_window_is_merged() {
    // All slots are alike, so the window's number is what the others are, too.
    let mut chain = Chain::with(3, merged_by(Merge::Sum, Some(32)));
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    let of = |chain: &Chain| {
        let records = chain.head().records();
        let merged = records.merged(records.object(SKETCH).unwrap(), KEY).unwrap();
        let number = |at: usize| u32::from_be_bytes(merged.slots[at..at + 4].try_into().unwrap());
        (number(0), number(4 * SLOTS - 4))
    };
    send(&mut chain, one, first, 1, 8);
    send(&mut chain, other, second, 1, 8);
    assert_eq!(of(&chain), (16, 8));
    send(&mut chain, one, first, 2, 9);
    assert_eq!(of(&chain), (9, 9), "the other has counted nothing in window 9");
    send(&mut chain, other, second, 2, 9);
    assert_eq!(of(&chain), (18, 9));
}

#[test]
fn a_key_goes_when_nobody_counts_for_it_any_more() {
    let mut chain = sums();
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    send(&mut chain, one, first, 1, 10);
    send(&mut chain, other, second, 1, 7);
    let release = message(MessageType::Release, SKETCH, one, KEY);
    chain.send(&Message { epoch: first, seq: 1, flags: Flags::UNKNOWN, ..release });
    let until = chain.now + 30 * SECOND;
    chain.keep_alive(other, until);
    assert_eq!(merged(&chain), Some(17), "its idle time is 4 s, but the other counts on");
    chain.advance(30 * SECOND);
    assert_eq!((merged(&chain), chain.head().records().len()), (None, 0));
    assert_eq!(granted(&mut chain, one).2, 0);
}

/// Its idle time begins anew, or its counts went as soon as it is away again.
#[test]
fn a_switch_that_came_back_was_not_idle() {
    let mut chain = sums();
    let one = owner(1, 1);
    let first = granted(&mut chain, one).0;
    send(&mut chain, one, first, 1, 10);
    // Its session is forgotten, and nobody seems to have the key.
    chain.advance(12 * SECOND);
    send(&mut chain, one, first, 2, 11);
    assert_eq!(merged(&chain), Some(11));
    let until = chain.now + 5 * SECOND;
    chain.keep_alive(one, until);
    chain.advance(13 * SECOND);
    assert_eq!(merged(&chain), Some(11), "its idle time of 4 s began when it went for good");
    chain.advance(30 * SECOND);
    assert_eq!(merged(&chain), None);
}

/// A switch that is gone for good takes a place among the most that may count: not for ever.
#[test]
fn what_counts_no_longer_goes_alone() {
    let mut chain = Chain::with(3, merged_by(Merge::Sum, Some(32)));
    let (one, other) = (owner(1, 1), owner(2, 1));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    send(&mut chain, one, first, 1, 8);
    send(&mut chain, other, second, 1, 8);
    chain.keep_alive(other, chain.now + 30 * SECOND);
    assert_eq!(chain.head().records().len(), 2, "it counts in window 8");
    send(&mut chain, other, second, 2, 9);
    let until = chain.now + 30 * SECOND;
    chain.keep_alive(other, until);
    assert_eq!((merged(&chain), chain.head().records().len()), (Some(9), 1));
}

#[test]
fn so_many_switches_and_no_more() {
    let mut chain = sums();
    for switch in 1..=32 {
        let grant = granted(&mut chain, owner(switch, 1)).0;
        send(&mut chain, owner(switch, 1), grant, 1, 1);
    }
    let refused = chain.ask_last(&lease(SKETCH, owner(33, 1), KEY));
    assert_eq!((refused.kind(), refused.message().flags), (Absent, Flags::EXHAUSTED));
    assert_eq!(merged(&chain), Some(32));
}

#[test]
fn a_query_reads_one_array_and_who_has_counted_what() {
    let mut chain = sums();
    let (one, other) = (owner(1, 1), owner(2, 4));
    let (first, second) = (granted(&mut chain, one).0, granted(&mut chain, other).0);
    send(&mut chain, one, first, 3, 10);
    send(&mut chain, other, second, 1, 7);
    let of_key = StateQuery {
        object: Some(SKETCH),
        key: Some("766c616e".to_owned()),
        slots_from: Some(0),
        ..StateQuery::default()
    };
    for server in &chain.servers {
        let answer = server.node.inspect(&of_key);
        let [record] = answer.records.as_slice() else { panic!("{answer:?}") };
        let of = |at: usize| {
            let it = record.contributions[at];
            (it.switch, it.incarnation, it.epoch, it.seq, it.merged)
        };
        assert_eq!(record.key, "766c616e");
        assert_eq!(of(0), (1, Some(1), first, 3, true));
        assert_eq!(of(1), (2, Some(4), second, 1, true));
        let slots = from_hex(&answer.slots.expect("slots").bytes).unwrap();
        assert!(slots.chunks(4).all(|slot| slot == [0, 0, 0, 17]));
        let own = server.node.inspect(&StateQuery { contributor: Some(2), ..of_key.clone() });
        let slots = from_hex(&own.slots.expect("slots").bytes).unwrap();
        assert!(slots.chunks(4).all(|slot| slot == [0, 0, 0, 7]));
        // A list has the key once, for whoever counts for it.
        for (owner, times) in [(None, 1), (Some(1), 1), (Some(2), 1), (Some(3), 0)] {
            let all = server.node.inspect(&StateQuery {
                object: Some(SKETCH),
                owner,
                ..StateQuery::default()
            });
            assert_eq!(all.records.len(), times, "owner {owner:?}");
        }
    }
}

/// What a switch has of its key.
struct Counting {
    life: Owner,
    epoch: u32,
    seq: u64,
    value: u32,
    acked: u64,
}

fn join(chain: &mut Chain, number: u64, members: &[usize], joining: Option<(usize, u64)>) {
    let member = |at: usize| Member { address: server_address(at), incarnation: at as u64 + 1 };
    let joining = joining.map(|(at, since)| Joining { member: member(at), since });
    let members = members.iter().copied().map(member).collect();
    let view = ShardView { number, founded: 1, members, joining, draining: false };
    let all: Vec<_> = (0..chain.servers.len()).collect();
    chain.tell(&Views { version: number, shards: vec![view] }, &all);
}

/// Parts are lost, come twice and late, switches restart, a server joins: at every moment each
/// server has merged what the newest whole snapshots are together.
#[test]
fn the_network_adds_nothing_and_a_server_that_joins_has_it_all() {
    let seeds = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    for seed in seeds.map_or(1..=20, |seed| seed..=seed) {
        println!("seed {seed} (SEED=)");
        for how in Merge::ALL {
            random_run(seed, how);
        }
    }
}

fn random_run(seed: u64, how: Merge) {
    let random = &mut SplitMix64::new(seed);
    let mut chain = Chain::with(3, merged_by(how, None));
    let mut switches: BTreeMap<u32, Counting> = BTreeMap::new();
    for switch in 1..=4 {
        let life = owner(switch, 1);
        let (epoch, seq, value) = granted(&mut chain, life);
        switches.insert(switch, Counting { life, epoch, seq, value, acked: 0 });
    }
    // Newest whole snapshots, and messages that may come again at any time.
    let mut whole: BTreeMap<u32, u32> = BTreeMap::new();
    let mut under_way: Vec<(Owner, u32, u64, usize, u32)> = vec![];
    for step in 0..600 {
        if step == 300 {
            let mut settings = settings();
            merged_by(how, None)(&mut settings);
            let joiner = Server::new(settings, start(4, chain.now), 3);
            chain.servers.push(joiner);
            join(&mut chain, 2, &[0, 1, 2], Some((3, 2)));
            chain.advance(100 * MS);
            join(&mut chain, 3, &[0, 1, 2, 3], None);
            chain.advance(100 * MS);
        }
        let at = 1 + (random.draw() % 4) as u32;
        let it = switches.get_mut(&at).unwrap();
        if random.draw().is_multiple_of(40) {
            it.life = owner(at, it.life.incarnation + 1);
            // Until its last life's lease is over.
            chain.advance(2 * STORE_LEASE);
            let before = whole.get(&at).copied().unwrap_or(0);
            (it.epoch, it.seq, it.value) = granted(&mut chain, it.life);
            assert_eq!(it.value, before, "it goes on from its newest whole snapshot");
            it.acked = 0;
        }
        if it.acked == 0 {
            it.seq += 1;
            it.value += (random.draw() % 5) as u32;
        }
        let number = (random.draw() % parts() as u64) as usize;
        under_way.push((it.life, it.epoch, it.seq, number, it.value));
        // Any that was sent so far, if not lost; the newest one more often.
        for _ in 0..random.draw() % 3 {
            let back = random.draw() as usize % under_way.len().min(12);
            let (life, epoch, seq, number, value) = under_way[under_way.len() - 1 - back];
            send_part(&mut chain, life, epoch, seq, number, value);
            let it = switches.get_mut(&life.switch_id).unwrap();
            if (life, epoch, seq) == (it.life, it.epoch, it.seq) {
                it.acked |= 1 << number;
                if it.acked == (1 << parts()) - 1 {
                    whole.insert(life.switch_id, value);
                    it.acked = 0;
                }
            }
        }
        chain.replies.clear();
        let all = whole.values().copied();
        let expected = match how {
            Merge::Sum => all.reduce(|sum, value| sum + value),
            Merge::Max => all.max(),
            Merge::Or => all.reduce(|bits, value| bits | value),
        };
        assert_eq!(merged(&chain), expected, "{how:?}, seed {seed}, step {step}: {whole:?}");
    }
    assert_eq!(chain.servers.len(), 4);
    assert_eq!(whole.len(), 4, "seed {seed}: not all have a whole snapshot");
    chain.assert_alike();
}
