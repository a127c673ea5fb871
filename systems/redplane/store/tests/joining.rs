//! Copies to a server that joins, of what only the core knows to make: snapshot objects, whose
//! records are long and change all the time. (Records of all kinds with crashes at random:
//! `systems/redplane/store/tests/cluster.rs`.) The seed is printed by a failure.

mod common;

use common::*;
use state_protocol::{Message, MessageType, SnapshotPart, snapshot_parts};
use state_store::core::{AllocatorSettings, ObjectSettings, Settings, SplitMix64};
use std::collections::BTreeMap;
use wire::{Joining, Member, ShardView, Views};

const SKETCH: u16 = 9;
const SLOTS: usize = 1_000;
const SLOT_BYTES: usize = 4;
/// More than a copy's window holds, four messages each.
const KEYS: u8 = 40;
const SWITCH: u32 = 1;

fn with_sketches(settings: &mut Settings) {
    settings.limits.unacked = 4_096;
    settings.objects.push(ObjectSettings {
        name: "sketch".to_owned(),
        id: SKETCH,
        key_bytes: 4,
        value_bytes: 4,
        allocator: AllocatorSettings::Snapshot {
            slots: SLOTS,
            slot_bytes: SLOT_BYTES,
            idle_ns: None,
            merge: None,
        },
        closed_ns: SECOND,
        half_open_ns: SECOND,
        shard_bytes: None,
    });
}

/// What the switch knows of a key's snapshots: all slots of number `n` are `n`.
#[derive(Default, Clone)]
struct Sent {
    epoch: u32,
    /// The newest snapshot, and its parts that were acknowledged.
    seq: u64,
    acked: u64,
    /// The newest snapshot that was acknowledged whole.
    whole: u64,
}

struct Switch {
    keys: BTreeMap<Vec<u8>, Sent>,
}

fn parts() -> usize {
    snapshot_parts(SLOTS, SLOT_BYTES)
}

/// The slots of a part of snapshot `seq`.
fn slots(part: usize, seq: u64) -> Vec<u8> {
    let bytes = (SLOTS * SLOT_BYTES - part * 1_280).min(1_280);
    (seq as u32).to_be_bytes().repeat(bytes / SLOT_BYTES)
}

impl Switch {
    fn new(chain: &mut Chain) -> Switch {
        let mut keys = BTreeMap::new();
        for key in 0..KEYS {
            let key = vec![0, 0, 0, key];
            chain.replies.clear();
            chain.send(&lease(SKETCH, owner(SWITCH, 1), &key));
            let grant = chain.replies.pop_back().map(Reply).expect("a grant");
            assert_eq!(grant.kind(), MessageType::LeaseGrant);
            keys.insert(key, Sent { epoch: grant.epoch(), ..Sent::default() });
        }
        Switch { keys }
    }

    /// Sends the next part of a key's snapshot to the head; the next snapshot begins when all parts
    /// are acknowledged.
    fn send(&mut self, chain: &mut Chain, head: usize, key: &[u8], random: &mut SplitMix64) {
        let all = (1 << parts()) - 1;
        let Some(sent) = self.keys.get_mut(key) else { return };
        if sent.seq == 0 || sent.acked == all {
            (sent.seq, sent.acked) = (sent.seq + 1, 0);
        }
        let missing: Vec<_> = (0..parts()).filter(|part| sent.acked >> part & 1 == 0).collect();
        let part = missing[random.draw() as usize % missing.len()];
        let packet =
            SnapshotPart::packet(part as u16, SLOTS, SLOT_BYTES, sent.seq, &slots(part, sent.seq));
        let (epoch, seq) = (sent.epoch, sent.seq);
        let snapshot = message(MessageType::Snapshot, SKETCH, owner(SWITCH, 1), key);
        chain.send_to(head, &Message { epoch, seq, packet: &packet, ..snapshot });
        self.receive(chain);
    }

    fn receive(&mut self, chain: &mut Chain) {
        let all = (1 << parts()) - 1;
        while let Some(reply) = chain.reply() {
            let reply = reply.message();
            assert_ne!(reply.message_type, MessageType::Refused);
            let Some(sent) = self
                .keys
                .get_mut(reply.key)
                .filter(|_| reply.message_type == MessageType::SnapshotAck)
            else {
                continue;
            };
            if (reply.epoch, reply.seq) == (sent.epoch, sent.seq) {
                sent.acked |= u64::from_be_bytes(reply.value.try_into().unwrap());
                sent.whole = if sent.acked == all { sent.seq } else { sent.whole };
            }
        }
    }
}

fn adopt(chain: &mut Chain, number: u64, members: &[usize], joining: Option<(usize, u64)>) {
    let member = |at: usize| Member { address: server_address(at), incarnation: at as u64 + 1 };
    let joining = joining.map(|(at, since)| Joining { member: member(at), since });
    let members = members.iter().copied().map(member).collect();
    let view = ShardView { number, founded: 1, members, joining, draining: false };
    let views = Views { version: number, shards: vec![view] };
    let all: Vec<_> = (0..chain.servers.len()).filter(|at| !chain.down.contains(at)).collect();
    chain.tell(&views, &all);
}

#[test]
fn snapshots_outlive_all_servers_that_were_there_when_they_were_taken() {
    for seed in 1..=12 {
        let result = std::panic::catch_unwind(|| join_and_lose_the_others(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

fn join_and_lose_the_others(seed: u64) {
    let random = &mut SplitMix64::new(seed);
    let mut chain = Chain::with(3, with_sketches);
    let mut switch = Switch::new(&mut chain);
    let keys: Vec<_> = switch.keys.keys().cloned().collect();
    let any = |random: &mut SplitMix64| keys[random.draw() as usize % keys.len()].clone();
    for _ in 0..400 {
        let key = any(random);
        switch.send(&mut chain, 0, &key, random);
    }

    // A fourth server joins. It is out of reach now and then, and parts come meanwhile: of keys
    // that the sweep has passed, and of others.
    let mut settings = settings();
    with_sketches(&mut settings);
    chain.servers.push(Server::new(settings, start(4, chain.now), 3));
    chain.down = vec![3];
    adopt(&mut chain, 2, &[0, 1, 2], Some((3, 2)));
    chain.down.clear();
    adopt(&mut chain, 2, &[0, 1, 2], Some((3, 2)));
    let whole = |chain: &Chain| {
        chain.servers[3].node.replica(0).is_some_and(|replica| replica.report(chain.now).synced)
    };
    let mut while_joining = 0;
    while !whole(&chain) || while_joining < 200 {
        chain.down = if random.draw().is_multiple_of(4) { vec![3] } else { vec![] };
        let key = any(random);
        switch.send(&mut chain, 0, &key, random);
        chain.advance(random.draw() % (4 * MS));
        switch.receive(&mut chain);
        while_joining += 1;
        assert!(while_joining < 20_000, "it is never whole");
    }
    chain.down.clear();
    chain.advance(SECOND);
    switch.receive(&mut chain);
    adopt(&mut chain, 3, &[0, 1, 2, 3], None);
    chain.advance(100 * MS);
    switch.receive(&mut chain);
    chain.assert_alike();
    for _ in 0..100 {
        let key = any(random);
        switch.send(&mut chain, 0, &key, random);
    }

    // One after the other dies, in any order; snapshots go on.
    let mut left = vec![0, 1, 2, 3];
    for number in 4..7 {
        let victim = left.remove(random.draw() as usize % (left.len() - 1));
        chain.down.push(victim);
        adopt(&mut chain, number, &left, None);
        chain.advance(100 * MS);
        switch.receive(&mut chain);
        for _ in 0..50 {
            let key = any(random);
            switch.send(&mut chain, left[0], &key, random);
        }
    }
    assert_eq!(left, [3]);

    // Another switch goes on from the newest whole snapshot, which is at least the newest that was
    // acknowledged.
    chain.advance(SECOND);
    switch.receive(&mut chain);
    let mut seen_whole = 0;
    for (key, sent) in &switch.keys {
        chain.replies.clear();
        chain.send_to(3, &lease(SKETCH, owner(2, 1), key));
        chain.advance(SECOND);
        let mut found: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        while let Some(reply) = chain.reply() {
            let reply = reply.message();
            if reply.message_type == MessageType::SnapshotState && reply.key == key {
                let part = SnapshotPart::decode_message(&reply, SLOTS, SLOT_BYTES).expect("a part");
                found.insert(part.part, part.slots.to_vec());
            }
        }
        assert_eq!(found.len(), parts(), "{key:?}");
        let seq = u32::from_be_bytes(found[&0][..4].try_into().unwrap()).into();
        assert!(
            seq >= sent.whole && seq <= sent.seq,
            "{key:?}: {seq}, of {} acknowledged whole",
            sent.whole
        );
        for (part, bytes) in &found {
            assert_eq!(*bytes, slots(usize::from(*part), seq), "{key:?}: part {part} of {seq}");
        }
        seen_whole += u64::from(sent.whole > 0);
    }
    assert!(seen_whole > u64::from(KEYS) / 2, "{seen_whole} keys had a whole snapshot");
}
