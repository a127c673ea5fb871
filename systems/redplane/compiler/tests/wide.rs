//! Keys and values of 256 bytes in the compiled object (counter.p4, WIDE): messages that XDP's
//! headroom has no room for, records in batches, recall, release, sending again. Needs root.

mod flow_rig;

use dataplane::Verdict;
use flow_rig::*;
use redplane_switch::runtime::{SweepBefore, Swept};
use state_protocol::{Flags, MAX_KEY_BYTES, MAX_VALUE_BYTES, Message, MessageType};
use wire::{Batch, BatchAck, MOST_RECORDS_BYTES};

const EPOCH: u32 = 5;
const WORDS: u32 = (MOST_RECORDS_BYTES / 8) as u32;

/// The value of a count: it repeats it.
fn value(count: u64) -> Vec<u8> {
    let count = count.to_be_bytes();
    let mut value = count.to_vec();
    for _ in 0..15 {
        value.extend([0; 8]);
        value.extend(count);
    }
    value.extend(count);
    assert_eq!(value.len(), MAX_VALUE_BYTES);
    value
}

/// A flow's key, as counter.p4 makes it.
fn key(flow: u32) -> Vec<u8> {
    let mut key = vec![192, 0, 2, 1];
    key.extend(flow.to_be_bytes());
    key.extend([0x30, 0x39, 0, 80, 17]);
    key.resize(MAX_KEY_BYTES, 0xa5);
    key
}

/// The grant of what a packet asked for, with so many packets counted.
fn grant(rig: &Rig, request: &[u8], count: u64, now_ns: u64) -> (Verdict, Vec<u8>) {
    let request = Message::decode(request).unwrap();
    assert_eq!(request.message_type, MessageType::LeaseRequest);
    rig.reply(&granted(&request, EPOCH, 1, &value(count)), now_ns)
}

/// A flow that the switch has; all is acknowledged.
fn settle(rig: &Rig, flow: u32, now_ns: u64) {
    let request = rig.asks(flow, 0, now_ns);
    let (_, frame) = grant(rig, &request, 0, now_ns);
    let update = rig.datagram(&frame);
    rig.reply(&acknowledged(&Message::decode(&update).unwrap()), now_ns + 1);
}

/// Around the chunks in which a packet moves, and up to what a frame in one page has room for.
#[test]
fn packets_of_every_size_wait_behind_a_long_key_and_value() {
    let rig = rig(&["WIDE"]);
    let mut now_ns = START;
    let sizes = (0..32).chain(190..215).chain((446..470).step_by(3)).chain([1000, 1446, 2500]);
    for (flow, extra) in sizes.enumerate() {
        let flow = flow as u32;
        now_ns += 1_000_000;
        let request = rig.asks(flow, extra, now_ns);
        let asked = Message::decode(&request).unwrap();
        assert_eq!((asked.key, asked.packet), (&key(flow)[..], &frame(flow, extra)[..]));
        let (verdict, sent) = grant(&rig, &request, 6, now_ns);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "{extra} bytes more");
        let update = rig.datagram(&sent);
        let message = Message::decode(&update).unwrap();
        assert_eq!((message.message_type, message.seq), (MessageType::Update, 1));
        assert_eq!((message.key, message.value), (&key(flow)[..], &value(7)[..]));
        let (verdict, out) = rig.reply(&acknowledged(&message), now_ns);
        assert_eq!((verdict, count_of(&out)), (Verdict::Forward { port: 3 }, 7));
        assert_eq!((&out[..46], &out[54..]), (&asked.packet[..46], &asked.packet[54..]));
    }
    assert_eq!((rig.count("malformed"), rig.count("too_big")), (0, 0));
}

/// Nothing is cut off when the packet itself is not there: what is sent again, and what a recall
/// and a sweep give back.
#[test]
fn updates_again_recalls_and_releases_carry_them_whole() {
    let rig = rig(&["WIDE"]);
    let (now_ns, later) = (START, START + SECOND);
    for flow in [1, 2] {
        settle(&rig, flow, now_ns);
    }
    let update = rig.asks(1, 0, now_ns + 2);
    let update = Message::decode(&update).unwrap();
    assert_eq!((update.seq, update.value), (2, &value(2)[..]));
    let again = rig.generate(now_ns + 10_000_000);
    assert_eq!(again.len(), 1, "the other flow's is acknowledged");
    let again = Message::decode(&again[0]).unwrap();
    assert_eq!((again.message_type, again.key), (MessageType::Update, &key(1)[..]));
    assert_eq!((again.seq, again.value, again.packet), (2, &value(2)[..], &[][..]));
    rig.reply(&acknowledged(&again), now_ns + 11_000_000);
    let (verdict, frame) = rig.reply(&recall(&again, EPOCH), now_ns + 12_000_000);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let release = rig.datagram(&frame);
    let release = Message::decode(&release).unwrap();
    assert_eq!((release.message_type, release.key), (MessageType::Release, &key(1)[..]));
    assert_eq!((release.seq, release.value), (2, &value(2)[..]));
    let before = SweepBefore { idle_ns: later, ..SweepBefore::default() };
    rig.set_clock(later);
    let mut swept = rig.sweep(before);
    swept.sort_by_key(|it| *it == Swept::Released);
    assert_eq!(swept, [Swept::Kept, Swept::Released]);
    let released = rig.generate(later);
    let released = released.iter().map(|it| Message::decode(it).unwrap());
    let own = released.into_iter().find(|it| it.key == key(2)).unwrap();
    assert_eq!((own.message_type, own.seq), (MessageType::Release, 1));
    assert_eq!(own.value, value(1));
}

/// Two records fill a batch. One is refused: its flow, by its whole key, is not this switch's any
/// more, and the other one's packet leaves.
#[test]
fn batches_have_room_for_two() {
    let rig = waiting_rig(&["WIDE"], WORDS);
    let now_ns = START;
    let shard = |flow| Message::decode(&rig.asks(flow, 0, START - 1)).unwrap().shard;
    let of_first = shard(1);
    let flows: Vec<u32> = (1..).filter(|flow| shard(*flow) == of_first).take(4).collect();
    for flow in &flows {
        let request = rig.asks(*flow, 0, now_ns);
        let batch = request_batch(&rig, grant(&rig, &request, 10, now_ns), now_ns);
        assert_eq!(acknowledge(&rig, &batch, 0, now_ns).1, Some(11));
    }
    // The first packet's batch is in flight; two more wait for the next one.
    let first = request_batch(&rig, rig.packet(flows[0], 0, now_ns), now_ns);
    for flow in &flows[1..3] {
        assert_eq!(rig.packet(*flow, 0, now_ns).0, Verdict::Drop, "it waits");
    }
    assert_eq!(rig.packet(flows[3], 0, now_ns).0, Verdict::Drop);
    assert_eq!(rig.dataplane.commit_count("batch_full").unwrap(), Some(1));
    let (left, _) = acknowledge(&rig, &first, 0, now_ns);
    let batch = request_batch(&rig, left, now_ns);
    let records: Vec<(Vec<u8>, Vec<u8>)> = Batch::decode(&batch)
        .unwrap()
        .records()
        .map(|it| it.key_and_value(MAX_KEY_BYTES, MAX_VALUE_BYTES).unwrap())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(records, [(key(flows[1]), value(12)), (key(flows[2]), value(12))]);
    acknowledge(&rig, &batch, 0b10, now_ns);
    assert_eq!(rig.count("refused"), 1);
    // A refused flow's next packet asks for it again.
    let asked = rig.asks(flows[2], 0, now_ns);
    assert_eq!(Message::decode(&asked).unwrap().message_type, MessageType::LeaseRequest);
}

/// Messages with keys that fit the protocol, but no object here.
#[test]
fn a_key_or_value_of_another_program_is_not_taken() {
    let narrow = rig(&[]);
    let request = narrow.asks(1, 0, START);
    let request = Message::decode(&request).unwrap();
    let (long_key, long_value) = (key(1), value(1));
    let taken = |rig: &Rig, key: &[u8], value: &[u8]| {
        let message = Message { key, ..granted(&request, EPOCH, 1, value) };
        rig.reply(&message, START + 1).0 != Verdict::Drop
    };
    assert!(!taken(&narrow, &long_key, &9u64.to_be_bytes()));
    assert!(!taken(&narrow, request.key, &long_value));
    assert_eq!((narrow.count("unknown_object"), narrow.count("grants")), (2, 0));
    let wide = rig(&["WIDE"]);
    assert!(!taken(&wide, request.key, &9u64.to_be_bytes()));
    assert!(!taken(&wide, &long_key, &long_value[1..]));
    assert_eq!((wide.count("unknown_object"), wide.count("grants")), (2, 0));
    assert_eq!(request.flags, Flags::ALLOCATE.with(Flags::REVERSE));
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

/// The head acknowledges a batch, and refuses these of its records: what the frame becomes, and the
/// count of the packet that leaves in it.
fn acknowledge(
    rig: &Rig,
    batch: &[u8],
    refused: u64,
    now_ns: u64,
) -> ((Verdict, Vec<u8>), Option<u64>) {
    let batch = Batch::decode(batch).unwrap();
    let count = batch.records().count() as u16;
    let mut ack = Vec::new();
    BatchAck { head: batch.head, count, refused }.append_to(&mut ack);
    assert!(rig.ring.sign(&mut ack, SERVER, PROTOCOL_ADDRESS));
    let (verdict, frame) = rig.raw(&ack, now_ns);
    let count = (verdict == Verdict::Forward { port: 3 }).then(|| count_of(&frame));
    ((verdict, frame), count)
}
