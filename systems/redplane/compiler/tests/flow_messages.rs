//! The state protocol's messages as the compiled object makes and takes them, against the codec's
//! own reading of systems/redplane/docs/state-protocol.md: tags over packets of all sizes, shards,
//! sessions, recall and release. Needs root.

mod flow_rig;

use dataplane::Verdict;
use flow_rig::*;
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{SweepBefore, Swept};
use state_protocol::{Flags, Message, MessageType};
use std::net::Ipv4Addr;
use wire::{HEADER_BYTES, KeyRing, Secret, shard_of, tag_of};

/// shard_fields: 4 bytes of the key, which the other fields follow in the same word.
#[test]
fn the_first_fields_pick_the_shard() {
    let rig = rig(&["GROUPED"]);
    assert_eq!(rig.shard_bytes, Some(4));
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START)).unwrap().shard;
    let first = shard(1);
    assert!((2..40).all(|flow| shard(flow) == first));
}

#[test]
fn tags_of_packets_of_every_size() {
    let rig = rig(&[]);
    let mut now_ns = START;
    // Around words, chunks of 256 bytes, a page, and the longest.
    let sizes =
        (0..300).chain((300..2000).step_by(13)).chain([3000, 4000, 4096, 8950, 9001, 16_330]);
    for (flow, extra) in sizes.enumerate() {
        now_ns += 1_000_000;
        let request = rig.asks(flow as u32, extra, now_ns);
        let message = Message::decode(&request).unwrap();
        assert_eq!(message.packet, frame(flow as u32, extra));
        let (verdict, sent) = rig.grant(&request, 5, 1, 0, now_ns);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "{extra} bytes more");
        let update = rig.datagram(&sent);
        let message = Message::decode(&update).unwrap();
        assert_eq!(
            (message.message_type, message.seq, message.session),
            (MessageType::Update, 1, 1)
        );
        let (verdict, out) = rig.reply(&acknowledged(&message), now_ns);
        assert_eq!(verdict, Verdict::Forward { port: 3 });
        assert_eq!(out, message.packet, "{extra} bytes more");
    }
    assert_eq!((rig.count("malformed"), rig.count("bad_tag"), rig.count("late")), (0, 0, 0));
}

/// The kernel takes only what has the address of the interface that it comes in on.
#[test]
fn the_hosts_packet_comes_back_with_the_address_of_the_interface_that_it_comes_to() {
    let rig = rig(&[]);
    let first_mac = [2, 0, 0, 0, 0, 0x77];
    let fabric_mac = [2, 0, 0, 0, 0, 2]; // `raw` sends to it
    for (flow, destination, expected) in [(1, first_mac, fabric_mac), (2, [255; 6], [255; 6])] {
        let mut frame = frame(flow, 30);
        frame[..6].copy_from_slice(&destination);
        frame[36..38].copy_from_slice(&83u16.to_be_bytes());
        let parked = rig.dataplane.run(&frame, HOST_PORT, START).unwrap();
        assert_eq!(parked.verdict, Verdict::Forward { port: TO_STORE });
        let (verdict, back) = rig.grant(&rig.datagram(&parked.frame), 5, 1, 0, START + 1);
        assert_eq!(verdict, Verdict::ToHost);
        assert_eq!((&back[..6], &back[6..]), (&expected[..], &frame[6..]));
        // With the lease here it goes up from where it came in: as it is.
        let direct = rig.dataplane.run(&frame, HOST_PORT, START + 2).unwrap();
        assert_eq!((direct.verdict, direct.frame), (Verdict::ToHost, frame));
    }
}

#[test]
fn what_is_not_genuine_changes_nothing() {
    let rig = rig(&[]);
    let request = rig.asks(1, 700, START);
    let value = 9u64.to_be_bytes();
    let message = Message::decode(&request).unwrap();
    let mut good = Vec::new();
    granted(&message, 5, 1, &value).append_to(&mut good).unwrap();
    assert!(rig.ring.sign(&mut good, SERVER, PROTOCOL_ADDRESS));
    let mut refused = 0;
    // Each bit of the header that is not of its form, and some of the rest.
    for bit in (8 * 4..8 * 12)
        .chain(8 * 24..8 * 28)
        .chain(8 * 32..8 * 46)
        .chain(8 * 48..8 * 64)
        .chain((8 * 64..8 * good.len()).step_by(37))
    {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(rig.raw(&bad, START + 1).0, Verdict::Drop, "bit {bit}");
        refused += 1;
    }
    // Another secret under the same number; another number; from another address (by another's
    // tag).
    for ring in [KeyRing::new(1, Secret(secret(2))), KeyRing::new(2, Secret(secret(1)))] {
        let mut bad = good.clone();
        assert!(ring.unwrap().sign(&mut bad, SERVER, PROTOCOL_ADDRESS));
        assert_eq!(rig.raw(&bad, START + 1).0, Verdict::Drop);
        refused += 1;
    }
    let mut bad = good.clone();
    assert!(rig.ring.sign(&mut bad, Ipv4Addr::new(10, 2, 3, 11), PROTOCOL_ADDRESS));
    assert_eq!(rig.raw(&bad, START + 1).0, Verdict::Drop);
    assert_eq!(rig.count("bad_tag") + rig.count("malformed"), refused + 1);
    assert!(rig.count("bad_tag") > 200);
    assert_eq!(rig.dataplane.session(u32::from(message.shard)).unwrap().number, 0);
    assert_eq!(rig.raw(&good, START + 2).0, Verdict::Forward { port: TO_STORE });
    assert_eq!(rig.dataplane.session(u32::from(message.shard)).unwrap().number, 1);
}

/// systems/redplane/docs/state-protocol.md, "Replays".
#[test]
fn a_reply_is_known_again_until_seven_others_came_into_its_set() {
    let rig = rig(&[]);
    let update = rig.own(1, 5, 1, START);
    let update = Message::decode(&update).unwrap();
    let reply = rig.signed(&acknowledged(&update));
    let out = Verdict::Forward { port: 3 };
    assert_eq!(rig.raw(&reply, START + 2).0, out);
    // SP_SEEN_SETS.
    let set = |datagram: &[u8]| {
        Message::decode(datagram).unwrap().reply_name(tag_of(datagram)) % (1 << 17)
    };
    let (nothing, now_ns): (&[u8], u64) = (&[], START + SECOND / 2);
    let beat = Message {
        message_type: MessageType::HeartbeatAck,
        key: nothing,
        value: nothing,
        packet: nothing,
        ..update
    };
    let mut others = (START..now_ns)
        .map(|request_ns| rig.signed(&Message { request_ns, ..beat }))
        .filter(|other| set(other) == set(&reply));
    let first = others.next().unwrap();
    rig.raw(&first, now_ns);
    others.by_ref().take(5).for_each(|other| assert_eq!(rig.raw(&other, now_ns).0, Verdict::Drop));
    assert_eq!(rig.count("replayed"), 0);
    // A copy takes no place, however often it comes.
    (0..10).for_each(|_| assert_eq!(rig.raw(&first, now_ns).0, Verdict::Drop));
    assert_eq!((rig.raw(&reply, now_ns).0, rig.count("replayed")), (Verdict::Drop, 11));
    rig.raw(&others.next().unwrap(), now_ns);
    assert_eq!((rig.raw(&reply, now_ns).0, rig.count("replayed")), (out, 11));
}

/// When a chain changes, the old tail and the new one may both answer
/// (core/chain/docs/protocol.md, rule 3): the packet goes on once.
#[test]
fn of_two_tails_answers_the_first_is_taken() {
    let rig = rig(&[]);
    let other_tail = Ipv4Addr::new(10, 2, 3, 11);
    // A packet that runs again.
    let request = rig.asks(1, 0, START);
    let grant = granted(&Message::decode(&request).unwrap(), 5, 1, &[0; 8]);
    assert_eq!(rig.reply(&grant, START + 1).0, Verdict::Forward { port: TO_STORE });
    assert_eq!(rig.reply_from(other_tail, &grant, START + 2).0, Verdict::Drop);
    assert_eq!(rig.count("replayed"), 1);
    // A packet that leaves.
    let update = rig.own(2, 5, 1, START + 3);
    let update = Message::decode(&update).unwrap();
    let answer = acknowledged(&update);
    assert_eq!(rig.reply(&answer, START + 5).0, Verdict::Forward { port: 3 });
    assert_eq!(rig.reply_from(other_tail, &answer, START + 6).0, Verdict::Drop);
    assert_eq!(rig.count("replayed"), 2);
    // Two packets of a flow at one time are two updates, and both leave.
    let sent = [rig.packet(2, 0, START + 6), rig.packet(2, 0, START + 6)];
    for update in sent.map(|(_, frame)| rig.genuine(&frame)) {
        let update = Message::decode(&update).unwrap();
        let out = Verdict::Forward { port: 3 };
        assert_eq!(rig.reply(&acknowledged(&update), START + 8).0, out, "seq {}", update.seq);
    }
    assert_eq!(rig.count("replayed"), 2);
    // Without a packet each counts: what it says is said again.
    let beat = Message {
        message_type: MessageType::HeartbeatAck,
        key: b"",
        value: b"",
        packet: b"",
        ..update
    };
    rig.reply(&beat, START + 7);
    rig.reply_from(other_tail, &beat, START + 8);
    assert_eq!(rig.count("replayed"), 2);
}

#[test]
fn secrets_change_without_a_gap() {
    let mut rig = rig(&[]);
    let request = rig.asks(1, 0, START);
    rig.secrets(&[(1, 1), (2, 2)], 1);
    rig.asks(1, 0, START);
    rig.secrets(&[(1, 1), (2, 2)], 2);
    // What was signed before still counts.
    assert_eq!(rig.grant(&request, 5, 1, 0, START + 1).0, Verdict::Forward { port: TO_STORE });
    rig.ring = KeyRing::new(2, Secret(secret(2))).unwrap();
    rig.asks(2, 0, START);
    rig.secrets(&[(2, 2)], 2);
    let request = rig.asks(3, 0, START);
    rig.ring = KeyRing::new(1, Secret(secret(1))).unwrap();
    assert_eq!(
        rig.reply(&granted(&Message::decode(&request).unwrap(), 5, 1, &[0; 8]), START + 1).0,
        Verdict::Drop
    );
    assert_eq!(rig.count("bad_tag"), 1);
}

#[test]
fn a_heartbeat_prolongs_all_flows_of_the_shard() {
    let rig = rig(&[]);
    let update = rig.own(1, 5, 44, START);
    let update = Message::decode(&update).unwrap();
    rig.reply(&acknowledged(&update), START + 2);
    let shard = u32::from(update.shard);
    let later = START + 240_000_000;
    assert_eq!(rig.dataplane.session(shard).unwrap().lease_end_ns, START + 240_000_000 + 1);
    rig.dataplane.push_heartbeat(shard).unwrap();
    rig.dataplane.push_heartbeat((shard + 1) % u32::from(SHARDS)).unwrap(); // no session there: nothing leaves
    let sent = rig.generate(later);
    let [beat] = &sent[..] else { panic!("{} messages", sent.len()) };
    let beat = Message::decode(beat).unwrap();
    assert_eq!(
        (beat.message_type, beat.session, u32::from(beat.shard)),
        (MessageType::Heartbeat, 44, shard)
    );
    let answer = Message { message_type: MessageType::HeartbeatAck, lease_us: LEASE_US, ..beat };
    rig.reply(&answer, later + 5);
    assert_eq!(rig.dataplane.session(shard).unwrap().lease_end_ns, later + 240_000_000);
    // The flow goes on without a request, although its own last message is long ago.
    let goes_on = rig.asks(1, 0, later + 200_000_000);
    assert_eq!(Message::decode(&goes_on).unwrap().message_type, MessageType::Update);
    // An answer of an older session, or a late one, prolongs nothing.
    let end = rig.dataplane.session(shard).unwrap();
    rig.reply(&Message { session: 43, ..answer }, later + 6);
    rig.reply(&Message { lease_us: u32::MAX, ..answer }, later + SECOND + 6);
    assert_eq!((rig.dataplane.session(shard).unwrap(), rig.count("late")), (end, 1));
    // A newer one is another session: the flow is not of it.
    rig.reply(&Message { session: 45, ..answer }, later + 100_000_000);
    assert_eq!(
        Message::decode(&rig.asks(1, 0, later + 200_000_001)).unwrap().message_type,
        MessageType::LeaseRequest
    );
}

#[test]
fn a_recalled_flow_is_released_with_its_newest_state_and_stays_so() {
    let rig = rig(&[]);
    let update = rig.own(1, 5, 44, START);
    let update = Message::decode(&update).unwrap();
    let (verdict, frame) = rig.reply(&recall(&update, 5), START + 3_000_000);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let release = rig.datagram(&frame);
    let release = Message::decode(&release).unwrap();
    let expected = (MessageType::Release, 5, 1, &1u64.to_be_bytes()[..], Flags::NONE);
    assert_eq!(
        (release.message_type, release.epoch, release.seq, release.value, release.flags),
        expected
    );
    // Not the switch's any more: a packet asks, and neither an old acknowledgement nor a repeated
    // grant brings the flow back.
    rig.reply(&acknowledged(&update), START + 3_000_001);
    let request = rig.asks(1, 0, START + 3_000_002);
    assert_eq!(Message::decode(&request).unwrap().message_type, MessageType::LeaseRequest);
    let (_, again) = rig.grant(&request, 5, 44, 0, START + 3_000_003);
    assert_eq!(
        Message::decode(&rig.datagram(&again)).unwrap().message_type,
        MessageType::LeaseRequest
    );
    // Released again and again until the store says that it knows; the update is not sent any more.
    let sent = rig.generate(START + 10_000_000);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        Message { request_ns: 0, lease_us: 0, ..Message::decode(&sent[0]).unwrap() },
        Message { request_ns: 0, lease_us: 0, ..release }
    );
    assert_eq!(
        rig.sweep(SweepBefore { released_ns: u64::MAX, ..Default::default() }),
        [Swept::Kept]
    );
    rig.reply(
        &Message { message_type: MessageType::ReleaseAck, value: &[], lease_us: 0, ..release },
        START + 11_000_000,
    );
    assert_eq!(rig.generate(START + 20_000_000).len(), 0);
    // The next grant is a new one.
    let request = rig.asks(1, 0, START + 29_000_000);
    let (_, sent) = rig.grant(&request, 6, 44, 7, START + 30_000_000);
    let update = rig.datagram(&sent);
    assert_eq!(Message::decode(&update).unwrap().value, 8u64.to_be_bytes());
    // And another recall of the old epoch says nothing, nor does one that was heard long ago.
    let late = rig.reply(&recall(&Message::decode(&update).unwrap(), 6), START + 2 * SECOND);
    assert_eq!((late.0, rig.count("late")), (Verdict::Drop, 1));
    assert_eq!(rig.reply(&recall(&release, 5), START + 31_000_000).0, Verdict::Drop);
}

#[test]
fn a_recall_that_overtakes_its_grant_keeps_the_grant_out() {
    let rig = rig(&[]);
    // Of a flow that the switch knows nothing of, and of one that it has had under an older epoch.
    let old = rig.own(2, 5, 44, START);
    let refused = Message {
        message_type: MessageType::Refused,
        value: &[],
        packet: &[],
        ..Message::decode(&old).unwrap()
    };
    rig.reply(&refused, START + 1_000_000);
    for flow in [1, 2] {
        let request = rig.asks(flow, 0, START + 2_000_000);
        let message = Message::decode(&request).unwrap();
        let (verdict, frame) = rig.reply(&recall(&message, 9), START + 3_000_000);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
        let release = rig.datagram(&frame);
        let release = Message::decode(&release).unwrap();
        assert_eq!(
            (release.epoch, release.flags, release.value),
            (9, Flags::UNKNOWN, &[][..]),
            "flow {flow}"
        );
        let (_, again) = rig.grant(&request, 9, 45, 0, START + 4_000_000);
        assert_eq!(
            Message::decode(&rig.datagram(&again)).unwrap().message_type,
            MessageType::LeaseRequest
        );
        // One asked for later, and granted anew, is taken.
        let later = rig.asks(flow, 0, START + 5_000_000);
        let (_, taken) = rig.grant(&later, 10, 45, 0, START + 6_000_000);
        assert_eq!(
            Message::decode(&rig.datagram(&taken)).unwrap().message_type,
            MessageType::Update,
            "flow {flow}"
        );
    }
}

#[test]
fn a_probe_takes_nothing_that_the_switch_has() {
    let rig = rig(&[]);
    let update = rig.own(1, 5, 44, START);
    let update = Message::decode(&update).unwrap();
    rig.reply(&acknowledged(&update), START + 1_000_000);
    let probe = |epoch, seq| Message { flags: Flags::PROBE, seq, ..recall(&update, epoch) };
    let (verdict, frame) = rig.reply(&probe(5, 1), START + 2_000_000);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let held = rig.datagram(&frame);
    let held = Message::decode(&held).unwrap();
    assert_eq!(
        (held.message_type, held.epoch, held.seq, held.flags),
        (MessageType::ReadCommit, 5, 1, Flags::NONE)
    );
    assert_eq!((held.value, held.packet), (&[][..], &[][..]));
    // The answer lets no packet go, and the flow is the switch's as before.
    let ack = Message { message_type: MessageType::UpdateAck, lease_us: LEASE_US, ..held };
    assert_eq!(rig.reply(&ack, START + 3_000_000).0, Verdict::Drop);
    let next = rig.asks(1, 0, START + 4_000_000);
    assert_eq!(Message::decode(&next).unwrap().message_type, MessageType::Update);
    // Of an older epoch it says nothing; a newer one, and what it released, it does not have.
    assert_eq!(rig.reply(&probe(4, 2), START + 5_000_000).0, Verdict::Drop);
    for (epoch, flags, at) in [(9, Flags::UNKNOWN, 6_000_000), (9, Flags::UNKNOWN, 7_000_000)] {
        let (_, frame) = rig.reply(&probe(epoch, at), START + at);
        let release = rig.datagram(&frame);
        let release = Message::decode(&release).unwrap();
        assert_eq!(
            (release.message_type, release.epoch, release.flags),
            (MessageType::Release, epoch, flags)
        );
    }
}

#[test]
fn what_a_full_table_has_no_room_for_is_told_and_never_taken_later() {
    let rig = rig(&["FLOWS=2"]);
    let owned: Vec<Vec<u8>> = [1, 2].into_iter().map(|flow| rig.own(flow, 5, 44, START)).collect();
    let request = rig.asks(3, 0, START + 1_000_000);
    assert_eq!(rig.grant(&request, 7, 44, 0, START + 2_000_000).0, Verdict::Drop, "no room");
    let asked = Message::decode(&request).unwrap();
    let unheld = |reply: (Verdict, Vec<u8>), epoch: u32| {
        assert_eq!(reply.0, Verdict::Forward { port: TO_STORE });
        let release = rig.datagram(&reply.1);
        let release = Message::decode(&release).unwrap();
        assert_eq!((release.message_type, release.flags), (MessageType::Release, Flags::UNKNOWN));
        assert_eq!((release.epoch, release.key, release.value), (epoch, asked.key, &[][..]));
    };
    // A recall and a probe, each also when it comes again.
    for (flags, at) in [(Flags::NONE, 3), (Flags::NONE, 4), (Flags::PROBE, 5), (Flags::PROBE, 6)] {
        let recalled = Message { flags, seq: at, ..recall(&asked, 7) };
        unheld(rig.reply(&recalled, START + at * 1_000_000), 7);
    }
    // Now there is room. A copy of the grant, late, is not taken: the switch has said that it does
    // not have it, and says so again.
    let about = Message::decode(&owned[0]).unwrap();
    rig.reply(&acknowledged(&about), START + 7_000_000);
    rig.reply(&recall(&about, 5), START + 8_000_000);
    let done = Message {
        message_type: MessageType::ReleaseAck,
        value: &[],
        lease_us: 0,
        packet: &[],
        ..about
    };
    rig.reply(&done, START + 9_000_000);
    rig.generate(START + 10_000_000);
    let swept = rig.sweep(SweepBefore { released_ns: START + SECOND, ..Default::default() });
    assert!(swept.contains(&Swept::Removed), "{swept:?}");
    let again = rig.asks(3, 0, START + 11_000_000);
    unheld(rig.grant(&again, 7, 44, 0, START + 12_000_000), 7);
    assert_eq!(
        Message::decode(&rig.asks(3, 0, START + 13_000_000)).unwrap().message_type,
        MessageType::LeaseRequest
    );
    // A later epoch is another grant.
    let later = rig.asks(3, 0, START + 14_000_000);
    let (_, taken) = rig.grant(&later, 8, 44, 0, START + 15_000_000);
    assert_eq!(Message::decode(&rig.datagram(&taken)).unwrap().message_type, MessageType::Update);
}

#[test]
fn idle_flows_are_released_and_then_removed() {
    let rig = rig(&[]);
    let update = rig.own(1, 5, 44, START);
    let update = Message::decode(&update).unwrap();
    let idle = SweepBefore { idle_ns: START + SECOND, ..Default::default() };
    assert_eq!(rig.sweep(idle), [Swept::Kept], "its update is not acknowledged");
    rig.reply(&acknowledged(&update), START + 2);
    assert_eq!(rig.generate(START + 1_000_000).len(), 0);
    assert_eq!(
        rig.sweep(SweepBefore { idle_ns: START, ..Default::default() }),
        [Swept::Kept],
        "used since then"
    );
    assert_eq!(rig.sweep(idle), [Swept::Released]);
    assert_eq!(rig.sweep(idle), [Swept::Kept]);
    let sent = rig.generate(START + 60 * SECOND + 1);
    let release = Message::decode(&sent[0]).unwrap();
    assert_eq!(
        (sent.len(), release.message_type, release.epoch, release.seq),
        (1, MessageType::Release, 5, 1)
    );
    // Idle milliseconds.
    assert_eq!(release.lease_us, 60_000);
    let acknowledged_ns = START + 61 * SECOND;
    rig.reply(
        &Message { message_type: MessageType::ReleaseAck, value: &[], lease_us: 0, ..release },
        acknowledged_ns,
    );
    assert_eq!(rig.generate(acknowledged_ns + 1).len(), 0);
    let released = |ns| SweepBefore { released_ns: ns, ..Default::default() };
    assert_eq!(rig.sweep(released(acknowledged_ns)), [Swept::Kept]);
    assert_eq!(rig.sweep(released(acknowledged_ns + 1)), [Swept::Removed]);
    assert_eq!(rig.sweep(released(u64::MAX)), []);
    assert_eq!(HEADER_BYTES, 64);
}

/// The count that the program wrote into a packet.
#[test]
fn closed_flows_are_released_soon_and_say_so() {
    let rig = rig(&[]);
    for (flow, port, flags) in [
        (1, 81, Flags::HALF_CLOSED),
        (2, 82, Flags::CLOSED),
        (3, 80, Flags::NONE),
        (4, 85, Flags::HALF_OPEN),
    ] {
        let now_ns = START + u64::from(flow) * SECOND;
        let update = rig.own(flow, 5, 44, now_ns);
        rig.reply(&acknowledged(&Message::decode(&update).unwrap()), now_ns + 2);
        let (_, frame) = rig.packet_to(port, flow, 0, now_ns + 3);
        let update = rig.datagram(&frame);
        // Stragglers, and the other direction's goodbye, leave it as it is.
        let (_, frame) = rig.packet_to(80, flow, 0, now_ns + 4);
        let later = rig.datagram(&frame);
        // The updates say so already, for a switch may die before it releases.
        let said = |datagram: &[u8]| Message::decode(datagram).unwrap().flags;
        assert_eq!((said(&update), said(&later)), (flags, flags), "port {port}");
        let sent = rig.generate(now_ns + 100_000_000);
        assert_eq!(
            sent.iter().map(|it| said(it)).collect::<Vec<_>>(),
            [flags],
            "sent again, port {port}"
        );
        rig.reply(&acknowledged(&Message::decode(&update).unwrap()), now_ns + 100_000_005);
        rig.reply(&acknowledged(&Message::decode(&later).unwrap()), now_ns + 100_000_006);
        assert_eq!(rig.generate(now_ns + 100_000_007).len(), 0);
        let before = SweepBefore {
            half_closed_ns: if port == 81 { u64::MAX } else { 0 },
            closed_ns: if port == 82 { u64::MAX } else { 0 },
            idle_ns: if port == 80 || port == 85 { u64::MAX } else { 0 },
            released_ns: 0,
        };
        assert_eq!(
            rig.sweep(before).iter().filter(|swept| **swept == Swept::Released).count(),
            1,
            "port {port}"
        );
        let sent = rig.generate(now_ns + 500_000_000);
        let release = Message::decode(&sent[0]).unwrap();
        assert_eq!(
            (sent.len(), release.message_type, release.flags),
            (1, MessageType::Release, flags),
            "port {port}"
        );
        rig.reply(
            &Message { message_type: MessageType::ReleaseAck, value: &[], lease_us: 0, ..release },
            now_ns + 600_000_000,
        );
        assert_eq!(rig.generate(now_ns + 700_000_000).len(), 0);
    }
}

#[test]
fn an_asynchronous_object_s_packets_leave_at_once() {
    let rig = rig(&["ASYNC"]);
    let request = rig.asks(1, 100, START);
    let (verdict, out) = rig.grant(&request, 5, 44, 7, START + 1);
    assert_eq!((verdict, count_of(&out)), (Verdict::Forward { port: 3 }, 8));
    for count in 9..20 {
        let (verdict, out) = rig.packet(1, 0, START + count);
        assert_eq!((verdict, count_of(&out)), (Verdict::Forward { port: 3 }, count));
    }
    // One update for them all, again until it is acknowledged.
    for time in [1_000_000, 5_000_000] {
        let sent = rig.generate(START + time);
        let update = Message::decode(&sent[0]).unwrap();
        let expected = (MessageType::Update, 12, &19u64.to_be_bytes()[..]);
        assert_eq!((sent.len(), (update.message_type, update.seq, update.value)), (1, expected));
        if time > 1_000_000 {
            rig.reply(&acknowledged(&update), START + time + 1);
        }
    }
    assert_eq!(rig.generate(START + 20_000_000).len(), 0);
    // A recall hands over the newest count, acknowledged or not.
    rig.packet(1, 0, START + 30_000_000);
    let (_, frame) = rig.reply(&recall(&Message::decode(&request).unwrap(), 5), START + 30_000_001);
    let release = rig.datagram(&frame);
    let release = Message::decode(&release).unwrap();
    assert_eq!(
        (release.message_type, release.seq, release.value),
        (MessageType::Release, 13, &20u64.to_be_bytes()[..])
    );
}

/// The store gives a binding's reverse along, before the switch has a packet of it.
#[test]
fn a_grant_that_nobody_asked_for_is_taken_and_answers_nothing() {
    let rig = rig_with(&[], 3_000_000, 1);
    let read = |flow, now_ns| rig.packet_to(84, flow, 0, now_ns);
    let (_, frame) = read(1, START);
    let asked = rig.datagram(&frame);
    let asked = Message::decode(&asked).unwrap();
    assert_eq!(asked.flags, Flags::ALLOCATE.with(Flags::REVERSE));
    let outstanding = || rig.dataplane.round_trips(u32::from(asked.shard)).unwrap().outstanding;
    // Of another flow of the shard.
    let key_of = |flow: u32| [&asked.key[..4], &flow.to_be_bytes(), &asked.key[8..]].concat();
    let other = (2..).find(|flow| shard_of(&key_of(*flow), SHARDS) == asked.shard).unwrap();
    let (key, value) = (key_of(other), 7u64.to_be_bytes());
    let flags = Flags::REVERSE.with(Flags::HALF_OPEN);
    let ahead = Message { flags, key: &key, packet: &[], ..granted(&asked, 9, 44, &value) };
    assert_eq!(rig.reply(&ahead, START + 1).0, Verdict::Drop, "no packet is in it");
    assert_eq!((rig.count("grants"), outstanding()), (1, 1));
    let (verdict, _) = rig.reply(&granted(&asked, 9, 44, &value), START + 2);
    assert_eq!((verdict, rig.count("grants"), outstanding()), (Verdict::Forward { port: 3 }, 2, 0));
    // The flow is this switch's.
    let (verdict, out) = read(other, START + 3);
    assert_eq!((verdict, count_of(&out)), (Verdict::Forward { port: 3 }, 7));
    let update = rig.asks(other, 0, START + 4);
    let update = Message::decode(&update).unwrap();
    assert_eq!((update.message_type, update.epoch), (MessageType::Update, 9));
    assert_eq!(update.flags, Flags::HALF_OPEN, "as it was granted");
}

/// So p4/include/stateplane/redplane.p4 says of `size` and of MISS.
#[test]
fn a_switch_without_room_drops_what_the_store_grants_and_the_program_sees_only_what_the_store_has_no_room_for()
 {
    let rig = rig(&["FLOWS=2"]);
    let missed = || {
        let counter = rig.dataplane.counter("CounterIngress.missed").unwrap();
        rig.dataplane.read_counter(counter, 0).unwrap().packets
    };
    for flow in [1, 2] {
        rig.own(flow, 5, 44, START + u64::from(flow));
    }
    let request = rig.asks(3, 0, START + 10);
    assert_eq!(rig.grant(&request, 6, 44, 0, START + 11).0, Verdict::Drop);
    assert_eq!((rig.count("flows_full"), rig.count("absent"), missed()), (1, 0, 0));

    let request = rig.asks(4, 0, START + 20);
    let request = Message::decode(&request).unwrap();
    let grant = granted(&request, 0, 44, &[]);
    let absent = Message { message_type: MessageType::Absent, flags: Flags::EXHAUSTED, ..grant };
    assert_eq!(rig.reply(&absent, START + 21).0, Verdict::Drop);
    assert_eq!((rig.count("flows_full"), rig.count("absent"), missed()), (1, 1, 1));
}
