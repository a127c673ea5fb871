//! Packets that wait in the switch until their records are durable (docs/output-commit.md), one
//! frame at a time. Needs root.

mod flow_rig;

use dataplane::{Verdict, copies_by_loop};
use flow_rig::*;
use libbpf_rs::{MapCore, MapFlags};
use redplane_switch::runtime::entry_at;
use state_protocol::{Flags, Message, MessageType};
use wire::{Batch, BatchAck, MOST_RECORDS_BYTES};

/// Words of the longest batch.
const WORDS: u32 = (MOST_RECORDS_BYTES / 8) as u32;
/// Words of a record of counter.p4: header, key, value.
const RECORD_WORDS: u32 = 3 + 2 + 1;
/// Packets that may wait for one batch (`SP_COMMIT_BATCH_SLOTS`).
const BATCH_SLOTS: u64 = 256;
const EPOCH: u32 = 5;
/// Longer than uses of a flow go unnoted; twice that is shorter than a lease.
const SETTLES_NS: u64 = 101_000_000;

/// What frames became.
#[derive(Default)]
struct Left {
    /// Counts in packets that left the switch, in order.
    counts: Vec<u64>,
    /// Batches, as datagrams; and messages around one packet.
    batches: Vec<Vec<u8>>,
    messages: Vec<Vec<u8>>,
    /// Frames that come in again by the loop.
    copies: Vec<Vec<u8>>,
}

impl Left {
    fn add(&mut self, rig: &Rig, (verdict, frame): (Verdict, Vec<u8>)) {
        match verdict {
            Verdict::Forward { port: 3 } => self.counts.push(count_of(&frame)),
            Verdict::Forward { port: TO_STORE } => {
                let datagram = rig.genuine(&frame);
                let is_batch = Batch::decode(&datagram).is_ok();
                if is_batch { &mut self.batches } else { &mut self.messages }.push(datagram);
            }
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

/// One flow's record fills the batch, and another flow's update comes.
#[test]
fn what_finds_no_room_in_a_batch_goes_in_messages() {
    let rig = full_rig(&[], 2 * RECORD_WORDS - 1, true);
    let mut now_ns = START;
    let [one, two] = same_shard(&rig);
    for flow in [one, two] {
        own(&rig, flow, now_ns);
    }
    let mut left = Left::default();
    for (flow, port) in [(one, 80), (two, 80), (two, 84), (two, 81)] {
        left.add(&rig, rig.packet_to(port, flow, 0, now_ns));
    }
    let sent: Vec<_> = left.messages.iter().map(|sent| Message::decode(sent).unwrap()).collect();
    let kinds = sent.iter().map(|sent| (sent.message_type, sent.seq));
    let wrapped =
        [(MessageType::Update, 2), (MessageType::ReadCommit, 2), (MessageType::Update, 3)];
    assert_eq!(kinds.collect::<Vec<_>>(), wrapped);
    let phases = [&sent[0], &sent[2]].map(|sent| sent.flags.contains(Flags::HALF_CLOSED));
    assert_eq!(phases, [false, true], "the message says what the program says");
    let count = |name| rig.dataplane.commit_count(name).unwrap().unwrap();
    assert_eq!((count("batch_full"), count("batch_full_wrapped")), (0, 3));
    // The batch's acknowledgement says nothing about them.
    left.messages.clear();
    left.drain(&rig, now_ns);
    let batch = left.batches.pop().unwrap();
    left.add(&rig, acknowledge(&rig, &batch, 0, now_ns));
    assert_eq!(left.counts, [2], "the first flow's");
    now_ns += 4_000_000;
    assert_eq!(resent(&rig, now_ns), [3], "the newest update, without its packet");
    // There is room again: a read's record travels in the next batch, and that suffices.
    left.add(&rig, rig.packet_to(84, two, 0, now_ns));
    left.drain(&rig, now_ns);
    let batch = left.batches.pop().unwrap();
    assert_eq!(Batch::decode(&batch).unwrap().records().map(|record| record.seq).max(), Some(3));
    left.add(&rig, acknowledge(&rig, &batch, 0, now_ns));
    left.drain(&rig, now_ns);
    assert_eq!(left.counts, [2, 3]);
    assert!(left.messages.is_empty());
    assert!(resent(&rig, now_ns + 100_000_000).is_empty(), "its batch says that it is durable");
}

/// An acknowledgement of an update in a message is enough, too.
#[test]
fn an_update_in_a_message_is_acknowledged() {
    let rig = full_rig(&[], 2 * RECORD_WORDS - 1, true);
    let [one, two] = same_shard(&rig);
    for flow in [one, two] {
        own(&rig, flow, START);
    }
    let mut left = Left::default();
    for flow in [one, two] {
        left.add(&rig, rig.packet(flow, 0, START));
    }
    let update = left.messages.pop().unwrap();
    let reply = acknowledged(&Message::decode(&update).unwrap());
    left.add(&rig, rig.reply(&reply, START + 1));
    assert_eq!(left.counts, [2], "the second flow's, while the first one's waits");
    left.add(&rig, rig.packet_to(84, two, 0, START + 1));
    assert_eq!(left.counts, [2, 2], "a read waits for nothing");
}

/// Of the only flow: its newest update, and the last one of which the entry says that it is durable.
fn settled(rig: &Rig) -> (u64, u64) {
    let map = rig.dataplane.map(&rig.map).unwrap();
    let key = map.keys().next().unwrap();
    let entry = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    let number = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap());
    (number(entry_at::SEQ), number(entry_at::ACKED_SEQ))
}

/// Once in a while a read notes in the entry that the flow's update is durable, and only then.
#[test]
fn a_read_settles_what_is_durable() {
    let rig = waiting_rig(&[], WORDS);
    own(&rig, 1, START);
    let before = settled(&rig);
    assert!(before.0 > before.1, "{before:?}: an acknowledgement writes to no entry");
    let mut left = Left::default();
    left.add(&rig, rig.packet_to(84, 1, 0, START + SETTLES_NS / 2));
    assert_eq!((settled(&rig), left.counts.len()), (before, 1), "it was used just now");
    left.add(&rig, rig.packet_to(84, 1, 0, START + SETTLES_NS));
    assert_eq!((settled(&rig), left.counts.len()), ((before.0, before.0), 2));

    let batch = two_wait(&rig, 1, START + SETTLES_NS);
    left.add(&rig, rig.packet_to(84, 1, 0, START + 2 * SETTLES_NS));
    let (seq, durable) = settled(&rig);
    assert_eq!((durable, left.counts.len()), (before.0, 2), "of {seq}: the read waits");
    left.add(&rig, acknowledge(&rig, &batch, 0, START + 2 * SETTLES_NS));
    left.drain(&rig, START + 2 * SETTLES_NS);
    assert_eq!(left.counts, [1, 1, 2, 3, 3]);
}

/// Sequence numbers of the updates that the generator sends.
fn resent(rig: &Rig, now_ns: u64) -> Vec<u64> {
    let queued = rig.dataplane.generator_work().unwrap();
    let frames = (0..2 * queued).filter_map(|_| rig.dataplane.run_generator(now_ns).unwrap());
    let datagrams: Vec<_> = frames.map(|frame| rig.genuine(&frame)).collect();
    let messages = datagrams.iter().filter_map(|datagram| Message::decode(datagram).ok());
    messages
        .map(|sent| (sent.message_type, sent.seq))
        .map(|(kind, seq)| {
            assert_eq!(kind, MessageType::Update);
            seq
        })
        .collect()
}

/// A switch with some asynchronous flows of one shard, each with an update that the store lacks.
fn asynchronous(flows: usize, most_words: u32) -> (Rig, Vec<u32>) {
    let rig = waiting_rig(&["ASYNC"], most_words);
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
    let first = shard(1);
    let alike: Vec<u32> = (1..).filter(|flow| shard(*flow) == first).take(flows).collect();
    for flow in &alike {
        let request = rig.asks(*flow, 0, START);
        let (verdict, frame) = rig.grant(&request, EPOCH, 1, 0, START);
        assert_eq!((verdict, count_of(&frame)), (Verdict::Forward { port: 3 }, 1), "at once");
    }
    (rig, alike)
}

/// The generator looks through all that is queued.
fn looks(rig: &Rig, left: &mut Left, now_ns: u64) {
    for _ in 0..2 * rig.dataplane.generator_work().unwrap() {
        if let Some(frame) = rig.dataplane.run_generator(now_ns).unwrap() {
            left.add(rig, (Verdict::Forward { port: TO_STORE }, frame));
        }
    }
}

/// Keys' flows and sequence numbers in a batch.
fn recorded(batch: &[u8]) -> Vec<u64> {
    Batch::decode(batch).unwrap().records().map(|record| record.seq).collect()
}

/// Updates of asynchronous flows share a message; their packets are long gone.
#[test]
fn asynchronous_updates_share_messages() {
    let (rig, flows) = asynchronous(12, WORDS);
    let mut now_ns = START;
    let mut left = Left::default();
    looks(&rig, &mut left, now_ns);
    now_ns += 2_000_000;
    looks(&rig, &mut left, now_ns);
    assert_eq!(left.batches.len(), 1, "one message");
    let first = left.batches.pop().unwrap();
    assert_eq!(recorded(&first), [1; 12]);
    // Newer updates wait for the next one, and each flow for its time.
    for flow in &flows[..3] {
        let (verdict, frame) = rig.packet(*flow, 0, now_ns);
        assert_eq!((verdict, count_of(&frame)), (Verdict::Forward { port: 3 }, 2));
    }
    looks(&rig, &mut left, now_ns);
    assert!(left.batches.is_empty());
    now_ns += 4_000_000;
    looks(&rig, &mut left, now_ns);
    let again = left.batches.pop().unwrap();
    assert_eq!(recorded(&again), [1; 12], "the first one is sent again: it is not acknowledged");
    assert!(left.batches.is_empty());
    left.add(&rig, acknowledge(&rig, &first, 0, now_ns));
    let second = left.batches.pop().unwrap();
    assert_eq!(recorded(&second), [2; 3], "the answer's frame takes the next one along");
    left.add(&rig, acknowledge(&rig, &second, 0, now_ns));
    assert!(left.batches.is_empty());
    looks(&rig, &mut left, now_ns + 100_000_000);
    assert_eq!((rig.dataplane.generator_work().unwrap(), left.batches.len()), (0, 0), "all clean");
    assert!(left.messages.is_empty() && left.copies.is_empty());
    assert_eq!(rig.dataplane.commit_count("parked").unwrap(), Some(0));
}

/// What finds no room in the open batch stays in the ring; nothing is dropped.
#[test]
fn asynchronous_updates_wait_for_room() {
    let (rig, _) = asynchronous(3, RECORD_WORDS);
    let (mut left, mut now_ns) = (Left::default(), START);
    let mut sent = 0;
    while rig.dataplane.generator_work().unwrap() > 0 {
        assert!(now_ns < START + 100_000_000, "{sent} are sent");
        looks(&rig, &mut left, now_ns);
        if let Some(batch) = left.batches.pop() {
            assert!(left.batches.is_empty(), "one is in flight");
            sent += recorded(&batch).len();
            left.add(&rig, acknowledge(&rig, &batch, 0, now_ns));
        }
        now_ns += 1_000_000;
    }
    assert_eq!((sent, rig.dataplane.commit_count("batch_full").unwrap()), (3, Some(0)));
}

/// A flow of which an asynchronous record is refused is asked for anew.
#[test]
fn a_refused_asynchronous_record_ends_its_flow() {
    let (rig, flows) = asynchronous(2, WORDS);
    let mut left = Left::default();
    looks(&rig, &mut left, START);
    looks(&rig, &mut left, START + 2_000_000);
    let batch = left.batches.pop().unwrap();
    assert_eq!(recorded(&batch).len(), 2);
    left.add(&rig, acknowledge(&rig, &batch, 0b10, START + 2_000_000));
    let (verdict, frame) = rig.packet(flows[0], 0, START + 2_000_000);
    assert_eq!((verdict, count_of(&frame)), (Verdict::Forward { port: 3 }, 2));
    rig.asks(flows[1], 0, START + 2_000_000);
}

/// Packets of one stream may take half of the slots, those of the next one half of what is left.
#[test]
fn a_full_lot_drops_or_wraps() {
    for wraps in [false, true] {
        let rig = full_rig(&[], WORDS, wraps);
        let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
        let first = shard(1);
        let other = (2..).find(|flow| shard(*flow) != first).unwrap();
        for flow in [1, other] {
            own(&rig, flow, START);
        }
        let mut left = Left::default();
        // Twice what waits for one batch: one in flight, one open.
        for (flow, batches) in [(1, 2), (other, 1)] {
            for _ in 0..batches {
                (0..BATCH_SLOTS).for_each(|_| left.add(&rig, rig.packet(flow, 0, START)));
                left.drain(&rig, START);
            }
        }
        assert_eq!((left.batches.len(), left.messages.len(), left.counts.len()), (2, 0, 0));
        left.add(&rig, rig.packet(other, 0, START));
        let count = |name| rig.dataplane.commit_count(name).unwrap().unwrap();
        let counts = (count("lot_full"), count("lot_full_wrapped"));
        assert_eq!(counts, if wraps { (0, 1) } else { (1, 0) });
        assert_eq!((count("batch_full"), count("batch_full_wrapped")), (0, 0));
        let sent = left.messages.iter().map(|sent| Message::decode(sent).unwrap().seq);
        let wrapped = if wraps { vec![BATCH_SLOTS + 2] } else { vec![] };
        assert_eq!(sent.collect::<Vec<_>>(), wrapped);
    }
}

/// Two flows whose records travel in one batch.
fn same_shard(rig: &Rig) -> [u32; 2] {
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
    let first = shard(1);
    let second = (2..).find(|flow| shard(*flow) == first);
    [1, second.expect("one of any few")]
}
