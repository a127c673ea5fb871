//! Packets that set a flow twice, and look up another one in between: all takes effect at the
//! packet's end, or nothing does. Needs root.

mod flow_rig;

use dataplane::Verdict;
use flow_rig::*;
use state_protocol::{Message, MessageType};
use wire::{Batch, MOST_RECORDS_BYTES};

const WORDS: u32 = (MOST_RECORDS_BYTES / 8) as u32;
/// Words of a record of counter.p4.
const RECORD_WORDS: u32 = 3 + 2 + 1;
const EPOCH: u32 = 5;
/// Flows are here.
const LATER: u64 = START + 10;
/// Ports of counter.p4 that take two numbers; what becomes of the packet.
const LEAVES: u16 = 87;
const IS_DROPPED: u16 = 88;
const GOES_TO_HOST: u16 = 89;

/// A packet that takes two numbers of a flow, and looks up another one.
fn takes_two(rig: &Rig, port: u16, flow: u32, other: u32, now_ns: u64) -> (Verdict, Vec<u8>) {
    let mut frame = frame(flow, 0);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[42..46].copy_from_slice(&other.to_be_bytes());
    let outcome = rig.dataplane.run(&frame, HOST_PORT, now_ns).unwrap();
    (outcome.verdict, outcome.frame)
}

/// The switch has the flow, and all that it has counted, `count`, is acknowledged.
fn settle(rig: &Rig, flow: u32, now_ns: u64) {
    let update = rig.own(flow, EPOCH, 1, now_ns);
    rig.reply(&acknowledged(&Message::decode(&update).unwrap()), now_ns + 1);
}

fn update_of(rig: &Rig, (verdict, frame): (Verdict, Vec<u8>)) -> Vec<u8> {
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    rig.datagram(&frame)
}

/// Seq and count of an UPDATE.
fn content(update: &[u8]) -> (u64, u64) {
    let update = Message::decode(update).unwrap();
    assert_eq!(update.message_type, MessageType::Update);
    (update.seq, u64::from_be_bytes(update.value.try_into().unwrap()))
}

#[test]
fn a_packet_that_waits_for_a_second_lease_has_set_nothing() {
    let rig = rig(&["TWO_SETS"]);
    settle(&rig, 1, START);
    for _ in 0..3 {
        let request = update_of(&rig, takes_two(&rig, LEAVES, 1, 2, LATER));
        let request = Message::decode(&request).unwrap();
        assert_eq!(request.message_type, MessageType::LeaseRequest);
        assert_eq!(request.key[4..8], 2u32.to_be_bytes());
    }
    let request = update_of(&rig, takes_two(&rig, LEAVES, 1, 2, LATER));
    let update = update_of(&rig, rig.grant(&request, EPOCH, 1, 7, LATER + 1));
    assert_eq!(content(&update), (2, 3), "one update, of both");
    let update = Message::decode(&update).unwrap();
    assert_eq!(update.key[4..8], 1u32.to_be_bytes());
    assert_eq!(count_of(update.packet), 3);
    let (verdict, frame) = rig.reply(&acknowledged(&update), LATER + 2);
    assert_eq!((verdict, count_of(&frame)), (Verdict::Forward { port: 3 }, 3));
    assert_eq!(rig.count("commit_conflicts"), 0);
}

/// Also the plain packets of such a program, and those that nobody else gets to see.
#[test]
fn sets_take_effect_whatever_becomes_of_the_packet() {
    let rig = rig(&["TWO_SETS"]);
    settle(&rig, 1, START);
    settle(&rig, 2, START);
    for (turn, port) in [IS_DROPPED, GOES_TO_HOST, LEAVES].into_iter().enumerate() {
        let expected = (2 + 2 * turn as u64, 3 + 3 * turn as u64);
        let left = takes_two(&rig, port, 1, 2, LATER);
        let update = update_of(&rig, left);
        assert_eq!(content(&update), expected, "port {port}");
        let update = Message::decode(&update).unwrap();
        assert_eq!(update.packet.is_empty(), port != LEAVES);
        rig.reply(&acknowledged(&update), LATER);
        let update = update_of(&rig, rig.packet(1, 0, LATER));
        assert_eq!(content(&update), (expected.0 + 1, expected.1 + 1));
        rig.reply(&acknowledged(&Message::decode(&update).unwrap()), LATER);
    }
}

/// The other flow has an update under way: one message carries one dependency. The packet is
/// dropped, and its own flow is as it was.
#[test]
fn a_packet_that_is_dropped_has_set_nothing() {
    let rig = rig(&["TWO_SETS"]);
    settle(&rig, 1, START);
    rig.own(2, EPOCH, 1, START);
    for (conflicts, port) in (1..).zip([LEAVES, IS_DROPPED, GOES_TO_HOST]) {
        assert_eq!(takes_two(&rig, port, 1, 2, LATER).0, Verdict::Drop);
        assert_eq!(rig.count("commit_conflicts"), conflicts);
    }
    assert_eq!(content(&update_of(&rig, rig.packet(1, 0, LATER))), (2, 2));
}

/// Records in batches: two numbers are one record, and a full batch changes nothing.
#[test]
fn packets_that_wait_in_the_switch() {
    let rig = waiting_rig(&["TWO_SETS"], WORDS.min(2 * RECORD_WORDS - 1));
    let now_ns = START;
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
    let other = (2..).find(|flow| shard(*flow) == shard(1)).unwrap();
    let mut batches = Vec::new();
    let third = 1000;
    for flow in [1, other, third] {
        let request = rig.asks(flow, 0, now_ns);
        batches.push(request_batch(&rig, rig.grant(&request, EPOCH, 1, 10, now_ns), now_ns));
        acknowledge(&rig, batches.last().unwrap(), now_ns);
    }
    let parked = takes_two(&rig, LEAVES, 1, third, now_ns);
    // The batch has this record, and room for no other.
    assert_eq!(takes_two(&rig, LEAVES, other, third, now_ns).0, Verdict::Drop);
    let batch = request_batch(&rig, parked, now_ns);
    let records: Vec<(u64, Vec<u8>)> = Batch::decode(&batch)
        .unwrap()
        .records()
        .map(|record| (record.seq, record.content[record.content.len() - 8..].to_vec()))
        .collect();
    assert_eq!(records, [(2, 13u64.to_be_bytes().to_vec())]);
    assert_eq!(rig.dataplane.commit_count("batch_full").unwrap(), Some(1));
    assert_eq!(acknowledge(&rig, &batch, now_ns), Some(13));
    let batch = request_batch(&rig, takes_two(&rig, LEAVES, other, third, now_ns), now_ns);
    assert_eq!(acknowledge(&rig, &batch, now_ns), Some(13), "the dropped one took no number");
}

/// The batch that a frame became, by the loop or at once.
fn request_batch(rig: &Rig, (verdict, frame): (Verdict, Vec<u8>), now_ns: u64) -> Vec<u8> {
    if verdict == (Verdict::Forward { port: TO_STORE }) {
        return rig.genuine(&frame);
    }
    let outcome = rig.dataplane.run_looped(&frame, now_ns).unwrap();
    assert_eq!(outcome.verdict, Verdict::Forward { port: TO_STORE });
    rig.genuine(&outcome.frame)
}

/// A batch is durable: the count of the packet that leaves.
fn acknowledge(rig: &Rig, batch: &[u8], now_ns: u64) -> Option<u64> {
    let batch = Batch::decode(batch).unwrap();
    let count = batch.records().count() as u16;
    let mut ack = Vec::new();
    wire::BatchAck { head: batch.head, count, refused: 0 }.append_to(&mut ack);
    assert!(rig.ring.sign(&mut ack, SERVER, PROTOCOL_ADDRESS));
    let (verdict, frame) = rig.raw(&ack, now_ns);
    (verdict == (Verdict::Forward { port: 3 })).then(|| count_of(&frame))
}
