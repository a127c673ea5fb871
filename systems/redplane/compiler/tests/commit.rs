//! Packets that wait in the switch until their records are durable (docs/output-commit.md), one
//! frame at a time. Needs root.

mod flow_rig;

use dataplane::{Verdict, copies_by_loop};
use flow_rig::*;
use state_protocol::Message;
use wire::{Batch, BatchAck, MOST_RECORDS_BYTES};

/// Words of the longest batch.
const WORDS: u32 = (MOST_RECORDS_BYTES / 8) as u32;
/// Words of a record of counter.p4: header, key, value.
const RECORD_WORDS: u32 = 3 + 2 + 1;
const EPOCH: u32 = 5;

/// What frames became.
#[derive(Default)]
struct Left {
    /// Counts in packets that left the switch, in order.
    counts: Vec<u64>,
    /// Batches, as datagrams.
    batches: Vec<Vec<u8>>,
    /// Frames that come in again by the loop.
    copies: Vec<Vec<u8>>,
}

impl Left {
    fn add(&mut self, rig: &Rig, (verdict, frame): (Verdict, Vec<u8>)) {
        match verdict {
            Verdict::Forward { port: 3 } => self.counts.push(count_of(&frame)),
            Verdict::Forward { port: TO_STORE } => self.batches.push(rig.genuine(&frame)),
            Verdict::Forward { port } => {
                let copies = copies_by_loop(port).unwrap_or_else(|| panic!("port {port}"));
                self.copies.extend((0..copies).map(|_| frame.clone()));
            }
            Verdict::Drop => {}
            Verdict::ToHost => panic!("to the host"),
        }
    }

    /// Copies come in until there are none.
    fn drain(&mut self, rig: &Rig, now_ns: u64) {
        while !self.copies.is_empty() {
            let copy = self.copies.remove(0);
            let outcome = rig.dataplane.run_looped(&copy, now_ns).unwrap();
            self.add(rig, (outcome.verdict, outcome.frame));
        }
    }
}

/// The head acknowledges a batch, and refuses these of its records.
fn acknowledge(rig: &Rig, batch: &[u8], refused: u64, now_ns: u64) -> (Verdict, Vec<u8>) {
    let batch = Batch::decode(batch).unwrap();
    let count = batch.records().count() as u16;
    let mut ack = Vec::new();
    BatchAck { head: batch.head, count, refused }.append_to(&mut ack);
    assert!(rig.ring.sign(&mut ack, SERVER, PROTOCOL_ADDRESS));
    rig.raw(&ack, now_ns)
}

/// The switch gets a flow, whose first packet leaves with count 1.
fn own(rig: &Rig, flow: u32, now_ns: u64) {
    let request = rig.asks(flow, 0, now_ns);
    let mut left = Left::default();
    left.add(rig, rig.grant(&request, EPOCH, 1, 0, now_ns));
    left.drain(rig, now_ns);
    assert!(left.counts.is_empty(), "it left before its count was durable");
    let batch = left.batches.pop().unwrap();
    left.add(rig, acknowledge(rig, &batch, 0, now_ns));
    assert_eq!(left.counts, [1]);
}

/// Two packets of a flow wait for one record: its batch.
fn two_wait(rig: &Rig, flow: u32, now_ns: u64) -> Vec<u8> {
    let mut left = Left::default();
    for _ in 0..2 {
        left.add(rig, rig.packet(flow, 0, now_ns));
    }
    left.drain(rig, now_ns);
    assert!(left.counts.is_empty());
    let batch = left.batches.pop().unwrap();
    assert_eq!(Batch::decode(&batch).unwrap().records().count(), 1);
    batch
}

/// A packet that reads durable updates of two flows leaves behind the packets that waited for them,
/// and is no conflict: it depends on no batch.
#[test]
fn a_packet_lines_up_for_two_flows() {
    let rig = waiting_rig(&["TWO_FLOWS"], WORDS);
    let now_ns = START;
    for flow in [1, 2] {
        own(&rig, flow, now_ns);
    }
    let batches = [1, 2].map(|flow| two_wait(&rig, flow, now_ns));
    let mut left = Left::default();
    for batch in &batches {
        left.add(&rig, acknowledge(&rig, batch, 0, now_ns));
    }
    assert_eq!((left.counts.len(), left.copies.len()), (0, 4), "all go by the loop");
    let mut sum = frame(1, 0);
    sum[36..38].copy_from_slice(&86u16.to_be_bytes());
    sum[42..46].copy_from_slice(&2u32.to_be_bytes());
    let outcome = rig.dataplane.run(&sum, HOST_PORT, now_ns).unwrap();
    left.add(&rig, (outcome.verdict, outcome.frame));
    left.drain(&rig, now_ns);
    assert_eq!(left.counts, [2, 3, 2, 3, 6]);
    assert_eq!(rig.count("commit_conflicts"), 0);
}

/// The same where one of the two flows waits for a batch still: the packet waits for that.
#[test]
fn a_packet_lines_up_for_one_flow_and_waits_for_another() {
    for (first, second) in [(1, 2), (2, 1)] {
        let rig = waiting_rig(&["TWO_FLOWS"], WORDS);
        let now_ns = START;
        for flow in [1, 2] {
            own(&rig, flow, now_ns);
        }
        let [one, two] = [1, 2].map(|flow| two_wait(&rig, flow, now_ns));
        let mut left = Left::default();
        left.add(&rig, acknowledge(&rig, &one, 0, now_ns));
        let mut sum = frame(first, 0);
        sum[36..38].copy_from_slice(&86u16.to_be_bytes());
        sum[42..46].copy_from_slice(&u32::to_be_bytes(second));
        let outcome = rig.dataplane.run(&sum, HOST_PORT, now_ns).unwrap();
        left.add(&rig, (outcome.verdict, outcome.frame));
        left.drain(&rig, now_ns);
        assert_eq!(left.counts, [2, 3], "flow {first} first");
        left.add(&rig, acknowledge(&rig, &two, 0, now_ns));
        left.drain(&rig, now_ns);
        assert_eq!(left.counts, [2, 3, 2, 3, 6], "flow {first} first");
        assert_eq!(rig.count("commit_conflicts"), 0);
    }
}

/// Packets of a refused record go; those of other records of its batch leave.
#[test]
fn a_refused_record_takes_only_its_own_packets_along() {
    let rig = waiting_rig(&[], WORDS);
    let now_ns = START;
    let [one, two] = same_shard(&rig);
    for flow in [one, two] {
        own(&rig, flow, now_ns);
    }
    let mut left = Left::default();
    for flow in [one, two, one, two] {
        left.add(&rig, rig.packet(flow, 0, now_ns));
    }
    left.drain(&rig, now_ns);
    let batch = left.batches.pop().unwrap();
    assert_eq!(Batch::decode(&batch).unwrap().records().count(), 2);
    left.add(&rig, acknowledge(&rig, &batch, 0b01, now_ns));
    left.drain(&rig, now_ns);
    assert_eq!(left.counts, [2, 3], "those of the second flow");
    // The refused flow is asked for anew.
    rig.asks(one, 0, now_ns);
}

/// A batch gets no longer than the links to the store take; what finds no room changes nothing.
#[test]
fn a_batch_is_no_longer_than_it_may_be() {
    let rig = waiting_rig(&[], 2 * RECORD_WORDS - 1);
    let now_ns = START;
    let [one, two] = same_shard(&rig);
    for flow in [one, two] {
        own(&rig, flow, now_ns);
    }
    let mut left = Left::default();
    for flow in [one, two, one] {
        left.add(&rig, rig.packet(flow, 0, now_ns));
    }
    left.drain(&rig, now_ns);
    let batch = left.batches.pop().unwrap();
    assert_eq!(Batch::decode(&batch).unwrap().records().count(), 1);
    assert_eq!(rig.dataplane.commit_count("batch_full").unwrap(), Some(1));
    left.add(&rig, acknowledge(&rig, &batch, 0, now_ns));
    left.drain(&rig, now_ns);
    assert_eq!(left.counts, [2, 3], "both of the first flow");
    left.add(&rig, rig.packet(two, 0, now_ns));
    left.drain(&rig, now_ns);
    let batch = left.batches.pop().unwrap();
    left.add(&rig, acknowledge(&rig, &batch, 0, now_ns));
    assert_eq!(left.counts, [2, 3, 2], "the dropped one took no count");
}

/// Two flows whose records travel in one batch.
fn same_shard(rig: &Rig) -> [u32; 2] {
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
    let first = shard(1);
    let second = (2..).find(|flow| shard(*flow) == first);
    [1, second.expect("one of any few")]
}
