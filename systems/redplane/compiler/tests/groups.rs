//! Packets that set flows of two LINEARIZABLE objects (systems/redplane/docs/groups.md), one frame
//! at a time: counter.p4 with the total of a source beside each count. Needs root.

mod flow_rig;

use dataplane::Verdict;
use flow_rig::*;
use state_protocol::{Flags, Message, MessageType};
use wire::{Batch, BatchAck, MOST_RECORDS_BYTES, RecordFlags};

const WORDS: u32 = (MOST_RECORDS_BYTES / 8) as u32;
/// Words of both records: of a count and of a total.
const GROUP_WORDS: u32 = (3 + 2 + 1) + (3 + 1 + 1);
const EPOCH: u32 = 5;
/// Key of the total.
const SOURCE: [u8; 4] = [192, 0, 2, 1];

fn grouped(words: u32) -> Rig {
    waiting_rig(&["GROUPED"], words)
}

fn request(rig: &Rig, (verdict, frame): (Verdict, Vec<u8>)) -> Vec<u8> {
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let datagram = rig.datagram(&frame);
    assert_eq!(Message::decode(&datagram).unwrap().message_type, MessageType::LeaseRequest);
    datagram
}

/// The batch that a frame became, by the loop or at once.
fn batch_of(rig: &Rig, (verdict, frame): (Verdict, Vec<u8>), now_ns: u64) -> Vec<u8> {
    if verdict == (Verdict::Forward { port: TO_STORE }) {
        return rig.genuine(&frame);
    }
    let outcome = rig.dataplane.run_looped(&frame, now_ns).unwrap();
    assert_eq!(outcome.verdict, Verdict::Forward { port: TO_STORE });
    rig.genuine(&outcome.frame)
}

fn acknowledge(rig: &Rig, batch: &[u8], refused: u64, now_ns: u64) -> (Verdict, Vec<u8>) {
    let batch = Batch::decode(batch).unwrap();
    let count = batch.records().count() as u16;
    let mut ack = Vec::new();
    BatchAck { head: batch.head, count, refused }.append_to(&mut ack);
    assert!(rig.ring.sign(&mut ack, SERVER, PROTOCOL_ADDRESS));
    rig.raw(&ack, now_ns)
}

/// Records of a batch: of the total or of which flow, seq, value, whether the group goes on.
fn records(batch: &[u8]) -> Vec<(Option<u32>, u64, u64, bool)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let batch = Batch::decode(batch).unwrap();
    let read = batch.records().map(|record| {
        let total = record.key_and_value(4, 8);
        let flow = record.key_and_value(13, 8).map(|(key, _)| number(&key[4..8]) as u32);
        let value = &record.content[record.content.len() - 8..];
        let goes_on = record.flags.contains(RecordFlags::GROUP);
        (if total.is_some() { None } else { flow }, record.seq, number(value), goes_on)
    });
    read.collect()
}

/// The switch gets a flow, and the total if it has not got it; the first packet has left.
fn own(rig: &Rig, flow: u32, now_ns: u64) {
    let asked = request(rig, rig.packet(flow, 0, now_ns));
    let mut left = rig.grant(&asked, EPOCH, 1, 0, now_ns);
    if left.0 == (Verdict::Forward { port: TO_STORE })
        && Message::decode(&rig.genuine(&left.1)).is_ok()
    {
        let asked = request(rig, left);
        assert_eq!(Message::decode(&asked).unwrap().key, SOURCE);
        left = rig.grant(&asked, EPOCH, 1, 0, now_ns);
    }
    let batch = batch_of(rig, left, now_ns);
    let (verdict, frame) = acknowledge(rig, &batch, 0, now_ns);
    assert_eq!((verdict, count_of(&frame)), (Verdict::Forward { port: 3 }, 1));
}

/// Bytes of a frame for the loop.
const TOKEN_BYTES: usize = 60;

/// Datagrams that the generator sends.
fn generated(rig: &Rig, now_ns: u64) -> Vec<Vec<u8>> {
    let queued = 2 * rig.dataplane.generator_work().unwrap();
    let frames = (0..queued).filter_map(|_| rig.dataplane.run_generator(now_ns).unwrap());
    frames.filter(|it| it.len() > TOKEN_BYTES).map(|frame| rig.genuine(&frame)).collect()
}

#[test]
fn both_halves_are_in_one_batch_which_comes_again_whole() {
    let rig = grouped(WORDS);
    let now_ns = START;
    own(&rig, 1, now_ns);
    own(&rig, 2, now_ns);
    // The first request takes the loop, so the second packet is in it too.
    let first = rig.packet(1, 0, now_ns);
    assert_eq!(rig.packet(2, 0, now_ns).0, Verdict::Drop, "its frame is free");
    let batch = batch_of(&rig, first, now_ns);
    // By object: the program sets the total first, and the count is declared first.
    let expected = vec![(Some(1), 2, 2, true), (None, 4, 4, true), (Some(2), 2, 2, false)];
    assert_eq!(records(&batch), expected, "one total, of both");
    // Lost: it is sent again as it was.
    let later = now_ns + 100_000_000;
    let again = generated(&rig, later);
    assert_eq!(again.iter().map(|batch| records(batch)).collect::<Vec<_>>(), [expected]);
    let (verdict, frame) = acknowledge(&rig, &again[0], 0, later);
    let copies = matches!(verdict, Verdict::Forward { port } if port != TO_STORE);
    assert!(copies, "two packets leave by the loop: {verdict:?}");
    let counts: Vec<u64> = (0..2)
        .map(|_| rig.dataplane.run_looped(&frame, later).unwrap())
        .map(|left| count_of(&left.frame))
        .collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(rig.count("commit_conflicts"), 0);
}

/// Without room for both nothing changes.
#[test]
fn half_of_a_group_finds_no_room() {
    let rig = grouped(GROUP_WORDS + 5);
    let now_ns = START;
    own(&rig, 1, now_ns);
    own(&rig, 2, now_ns);
    let first = rig.packet(1, 0, now_ns);
    // The total has its place, and the other count needs six words.
    assert_eq!(rig.packet(2, 0, now_ns).0, Verdict::Drop);
    let batch = batch_of(&rig, first, now_ns);
    assert_eq!(records(&batch), [(Some(1), 2, 2, true), (None, 3, 3, false)]);
    assert_eq!(rig.dataplane.commit_count("batch_full").unwrap(), Some(1));
    acknowledge(&rig, &batch, 0, now_ns);
    let batch = batch_of(&rig, rig.packet(2, 0, now_ns), now_ns);
    assert_eq!(records(&batch), [(Some(2), 2, 2, true), (None, 4, 4, false)]);
}

/// A refused batch takes the open one along: its packets may have read what was refused.
#[test]
fn what_is_open_when_a_batch_is_refused_is_refused() {
    let rig = grouped(WORDS);
    let now_ns = START;
    own(&rig, 1, now_ns);
    own(&rig, 2, now_ns);
    let refused = batch_of(&rig, rig.packet(1, 0, now_ns), now_ns);
    rig.packet(2, 0, now_ns);
    let (verdict, _) = acknowledge(&rig, &refused, 0b11, now_ns);
    assert_ne!(verdict, Verdict::Forward { port: TO_STORE }, "no batch goes on");
    let commit = |name| rig.dataplane.commit_count(name).unwrap().unwrap();
    assert_eq!(commit("records_refused"), 4, "two, and the two that were open");
    // The refused ones are the head's to know. Of the others the switch tells it: the total was in
    // both, and is over already.
    let later = now_ns + 100_000_000;
    let releases = generated(&rig, later);
    let told: Vec<_> = releases.iter().map(|sent| Message::decode(sent).unwrap()).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].message_type, MessageType::Release);
    assert!(told[0].flags.contains(Flags::UNKNOWN) && told[0].value.is_empty());
    assert_eq!(told[0].key[4..8], 2u32.to_be_bytes());
    // Both flows are asked for anew.
    for flow in [1, 2] {
        request(&rig, rig.packet(flow, 0, later));
    }
}

/// A recall of a total that is not durable is not answered, but no packet uses it any more; the
/// next recall gets it.
#[test]
fn a_recall_waits_until_the_group_is_durable() {
    let rig = grouped(WORDS);
    let now_ns = START;
    own(&rig, 1, now_ns);
    let about = request_about_total(&rig, now_ns);
    let about = Message::decode(&about).unwrap();
    let batch = batch_of(&rig, rig.packet(1, 0, now_ns), now_ns);
    let asks = Message { seq: 1, ..recall(&about, EPOCH) };
    assert_eq!(rig.reply(&asks, now_ns).0, Verdict::Drop, "its batch is under way");
    let asked = request(&rig, rig.packet(1, 0, now_ns));
    assert_eq!(Message::decode(&asked).unwrap().key, SOURCE);
    acknowledge(&rig, &batch, 0, now_ns);
    let (verdict, frame) = rig.reply(&Message { seq: 2, ..asks }, now_ns);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let release = rig.datagram(&frame);
    let release = Message::decode(&release).unwrap();
    assert_eq!((release.message_type, release.key), (MessageType::Release, &SOURCE[..]));
    assert_eq!((release.seq, release.value), (2, &2u64.to_be_bytes()[..]));
}

/// A count stays until a packet has set it and the total, which takes another grant; the total
/// itself does not stay. But nothing stays for long.
#[test]
fn a_flow_is_kept_until_its_group_is_set() {
    const KEPT_NS: u64 = 16_000_000;
    let rig = grouped(WORDS);
    let now_ns = START;
    let asked = request(&rig, rig.packet(1, 0, now_ns));
    let wants_total = request(&rig, rig.grant(&asked, EPOCH, 1, 0, now_ns));
    let about = Message::decode(&asked).unwrap();
    let recalled = |about: &Message<'_>, seq: u64, now_ns: u64| {
        let (verdict, frame) = rig.reply(&Message { seq, ..recall(about, EPOCH) }, now_ns);
        (verdict == Verdict::Forward { port: TO_STORE }).then(|| {
            let sent = rig.datagram(&frame);
            let release = Message::decode(&sent).unwrap();
            assert_eq!(release.message_type, MessageType::Release);
            (release.key.to_vec(), release.seq)
        })
    };
    assert_eq!(recalled(&about, 1, now_ns + KEPT_NS - 1), None, "the total is on its way");
    let batch = batch_of(&rig, rig.grant(&wants_total, EPOCH, 1, 0, now_ns), now_ns);
    acknowledge(&rig, &batch, 0, now_ns);
    assert_eq!(recalled(&about, 2, now_ns), Some((about.key.to_vec(), 1)), "it was set");
    // Of another flow, whose packet does not come back.
    let asked = request(&rig, rig.packet(2, 0, now_ns));
    let others = Message::decode(&asked).unwrap();
    let no_packet: &[u8] = &[];
    let grant = Message { packet: no_packet, ..granted(&others, EPOCH, 1, &[0; 8]) };
    rig.reply(&grant, now_ns);
    assert_eq!(recalled(&others, 3, now_ns + KEPT_NS - 1), None);
    assert_eq!(recalled(&others, 4, now_ns + KEPT_NS), Some((others.key.to_vec(), 0)));
    // The total, as soon as it is granted.
    let total = Message::decode(&wants_total).unwrap();
    assert_eq!(recalled(&total, 5, now_ns), Some((SOURCE.to_vec(), 1)));
    let grant = Message { packet: no_packet, ..granted(&total, EPOCH + 1, 1, &[0; 8]) };
    rig.reply(&grant, now_ns);
    let asks = Message { seq: 6, ..recall(&total, EPOCH + 1) };
    assert_eq!(rig.reply(&asks, now_ns).0, Verdict::Forward { port: TO_STORE });
}

/// Another CPU's packet does not go on with a total that is not durable: it asks, and runs again.
#[test]
fn another_cpus_packet_asks_and_runs_again() {
    let rig = grouped(WORDS);
    let now_ns = START;
    own(&rig, 1, now_ns);
    own(&rig, 2, now_ns);
    let batch = batch_of(&rig, rig.packet(1, 0, now_ns), now_ns);
    rig.dataplane.set_test_cpu(1);
    // (Else the grants would be copies.)
    let now_ns = now_ns + 1000;
    let asked = request(&rig, rig.packet(2, 0, now_ns));
    assert_eq!(Message::decode(&asked).unwrap().key, SOURCE);
    // The same grant again: still not durable.
    let asked = request(&rig, rig.grant(&asked, EPOCH, 1, 2, now_ns));
    acknowledge(&rig, &batch, 0, now_ns);
    let batch = batch_of(&rig, rig.grant(&asked, EPOCH, 1, 3, now_ns), now_ns);
    assert_eq!(records(&batch), [(Some(2), 2, 2, true), (None, 4, 4, false)]);
}

/// A LEASE_REQUEST for the total, as the switch sent it when it had none.
fn request_about_total(rig: &Rig, now_ns: u64) -> Vec<u8> {
    let flow = 77;
    let asked = request(rig, rig.packet(flow, 0, now_ns));
    let asked = Message::decode(&asked).unwrap();
    let message = Message { key: &SOURCE, object_id: 2, ..asked };
    let mut bytes = Vec::new();
    message.append_to(&mut bytes).unwrap();
    bytes
}
