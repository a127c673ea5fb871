//! A SnapshotState whose overdue action is CONTINUE or MARK goes on with the switch's own copy when
//! its lease is over and the store does not answer (systems/redplane/docs/snapshots.md, "Without a
//! lease"). The store is played by the test; systems/redplane/sim has the real one. Needs root.

mod snapshot_rig;

use dataplane::Verdict;
use snapshot_rig::{EPOCH, MILLISECOND, OUT, Rig, START, TO_STORE, carried, rig};
use state_protocol::{Flags, Message, MessageType};

const LEASE_US: u32 = 250_000;
/// The lease is over by then, whatever the margin.
const OVER: u64 = START + 300 * MILLISECOND;
const ZEROS: [u64; 192] = [0; 192];
/// Events, by their place in `enum sp_flow_stat`.
const WITHOUT_LEASE: u32 = 37;
const UPDATES_LOST: u32 = 38;
/// As the runtime has them: how often the generator asks at most, and when a packet does instead.
const ASK_NS: u64 = 20 * MILLISECOND;
const PATIENCE_NS: u64 = 1000 * MILLISECOND;

/// Tenant 1 is the switch's, with zeros and one packet counted (four times in slot 0); all of it is
/// saved, and the lease is over at `OVER`.
fn with_lease_over(overdue: &str) -> Rig {
    let rig = rig(&[&format!("OVERDUE={overdue}"), "ASK_OVERDUE"], true);
    rig.own_for(LEASE_US, 1, [0; 4], (EPOCH, 0), &ZEROS, START);
    let part = rig.part(rig.generate(START + MILLISECOND).unwrap());
    rig.acknowledge(&part, 1, 1, START + 2 * MILLISECOND);
    let (verdict, frame) = rig.packet(1, [1; 4], START + 200 * MILLISECOND);
    assert_eq!((verdict, carried(&frame)), (OUT, ([1, 2, 3, 4], false)), "the lease lives");
    let part = rig.part(rig.generate(START + 201 * MILLISECOND).unwrap());
    rig.acknowledge(&part, 2, 1, START + 202 * MILLISECOND);
    assert!(rig.generate(START + 203 * MILLISECOND).is_none());
    assert_eq!(rig.queued(), 0);
    rig
}

/// What a packet of tenant 1 carries out: its sums, and whether it is marked.
fn passes(rig: &Rig, indices: [u32; 4], now_ns: u64) -> ([u64; 4], bool) {
    let (verdict, frame) = rig.packet(1, indices, now_ns);
    assert_eq!(verdict, OUT);
    carried(&frame)
}

/// A message of the store about tenant 1, answering `about`.
fn says(rig: &Rig, message_type: MessageType, epoch: u32, about: &[u8], now_ns: u64) -> Verdict {
    let about = Message::decode(about).unwrap();
    // `seq` makes each another message.
    let message = Message {
        message_type,
        epoch,
        seq: now_ns,
        session: 1,
        value: &[],
        packet: &[],
        flags: Flags::NONE,
        ..about
    };
    rig.reply(&message, now_ns).0
}

fn message_type(datagram: &[u8]) -> MessageType {
    Message::decode(datagram).unwrap().message_type
}

#[test]
fn packets_go_on_and_are_marked_and_counted() {
    for overdue in ["CONTINUE", "MARK"] {
        let rig = with_lease_over(overdue);
        for number in 0..50 {
            // Nothing is unsaved at first: the mark says that there is no lease.
            let (sums, marked) = passes(&rig, [2, 3, 2, 3], OVER + number);
            assert_eq!(
                (sums, marked),
                ([2 * number + 1, 2 * number + 1, 2 * number + 2, 2 * number + 2], true)
            );
        }
        assert_eq!(rig.event(WITHOUT_LEASE), 50, "{overdue}");
        assert_eq!(rig.event(UPDATES_LOST), 0, "{overdue}");
    }
}

#[test]
fn with_drop_they_wait_for_the_store() {
    let rig = with_lease_over("DROP");
    assert_eq!(rig.packet(1, [2; 4], OVER).0, Verdict::Forward { port: TO_STORE });
    assert_eq!(rig.event(WITHOUT_LEASE), 0);
}

/// There is no copy of what a switch never had, nor of what it gave back: those packets wait.
#[test]
fn what_is_not_there_must_come_first() {
    let rig = with_lease_over("CONTINUE");
    assert_eq!(rig.packet(2, [0; 4], OVER).0, Verdict::Forward { port: TO_STORE }, "never granted");
    // A grant that comes when its lease is over: another switch may have had the tenant since.
    let late = rig.ask(4, [0; 4], OVER);
    rig.state_part(&late, EPOCH, 0, &ZEROS, 0, OVER + 300 * MILLISECOND);
    let (verdict, _) = rig.grant_for(LEASE_US, &late, EPOCH, 0, OVER + 300 * MILLISECOND);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "granted too late");
    let about = rig.ask(3, [0; 4], OVER);
    let about = Message { key: &[0, 1], packet: &[], ..Message::decode(&about).unwrap() };
    let mut recalled = Vec::new();
    about.append_to(&mut recalled).unwrap();
    says(&rig, MessageType::Recall, EPOCH, &recalled, OVER + 1);
    assert_eq!(
        rig.packet(1, [0; 4], OVER + 2).0,
        Verdict::Forward { port: TO_STORE },
        "given back"
    );
}

/// The snapshot of what was counted without a lease asks for it: acknowledged, the copy goes on and
/// nothing is lost.
#[test]
fn acknowledged_the_copy_goes_on() {
    let rig = with_lease_over("MARK");
    passes(&rig, [7; 4], OVER);
    let first = rig.part(rig.generate(OVER + MILLISECOND).unwrap());
    assert_eq!((first.seq, first.slots[7]), (3, 4));
    // No answer: again and again, and no LEASE_REQUEST beside it.
    for again in 1..100 {
        let now_ns = OVER + MILLISECOND + again * 3 * MILLISECOND;
        passes(&rig, [8; 4], now_ns);
        let part = rig.part(rig.generate(now_ns).unwrap());
        assert_eq!((part.seq, &part.slots), (3, &first.slots));
    }
    let now_ns = OVER + 400 * MILLISECOND;
    let sent = rig.part(rig.generate(now_ns).unwrap());
    let about = Message::decode(&sent.datagram).unwrap();
    let (value, lease_us) = (1u64.to_be_bytes(), LEASE_US);
    let acknowledged = Message {
        message_type: MessageType::SnapshotAck,
        value: &value,
        packet: &[],
        session: 2,
        lease_us,
        ..about
    };
    assert_eq!(rig.reply(&acknowledged, now_ns + 1).0, Verdict::Drop);
    let (sums, marked) = passes(&rig, [7; 4], now_ns + 2);
    assert_eq!(sums, [5, 6, 7, 8]);
    assert!(marked, "what was counted since the flip is overdue");
    let part = rig.part(rig.generate(now_ns + MILLISECOND).unwrap());
    assert_eq!((part.seq, part.slots[7], part.slots[8]), (4, 8, 4 * 99));
    rig.acknowledge(&part, 4, 1, now_ns + 2 * MILLISECOND);
    assert_eq!(passes(&rig, [7; 4], now_ns + 3 * MILLISECOND), ([9, 10, 11, 12], false));
    assert_eq!((rig.event(WITHOUT_LEASE), rig.event(UPDATES_LOST)), (100, 0));
}

/// Between two snapshots nothing is under way: then the generator asks, without a packet and not
/// too often. The same grant again: the copy goes on.
#[test]
fn granted_again_the_copy_goes_on() {
    // A period so long that no snapshot is due.
    let rig =
        rig(&["OVERDUE=MARK", "ASK_OVERDUE", "PERIOD_US=10000000", "EPSILON_US=20000000"], true);
    rig.own_for(LEASE_US, 1, [0; 4], (EPOCH, 0), &ZEROS, START);
    let taken = rig.part(rig.generate(START + MILLISECOND).unwrap());
    rig.acknowledge(&taken, 1, 1, START + 2 * MILLISECOND);
    let mut asked = Vec::new();
    for number in 1..=200 {
        let now_ns = OVER + number * MILLISECOND;
        assert_eq!(passes(&rig, [1, 2, 3, 4], now_ns), ([number; 4], true));
        if let Some(datagram) = rig.generate(now_ns) {
            let message = Message::decode(&datagram).unwrap();
            assert_eq!(
                (message.message_type, message.packet.len()),
                (MessageType::LeaseRequest, 0)
            );
            assert!(message.flags.contains(Flags::ALLOCATE));
            asked.push((now_ns, datagram));
        }
    }
    assert_eq!(asked.len() as u64, 200 * MILLISECOND / ASK_NS);
    assert!(asked.windows(2).all(|pair| pair[1].0 - pair[0].0 >= ASK_NS));
    // The store's parts come first, of the snapshot that it has: nothing of them is taken.
    let (now_ns, request) = asked.pop().unwrap();
    rig.state_part(&request, EPOCH, 1, &[99; 192], 0, now_ns + 1);
    assert_eq!(
        rig.grant_for(LEASE_US, &request, EPOCH, 1, now_ns + 2).0,
        Verdict::Drop,
        "there is no packet in it"
    );
    assert_eq!(passes(&rig, [1, 2, 3, 4], now_ns + 3).0, [201; 4]);
    assert!(!passes(&rig, [5, 6, 7, 8], now_ns + 4).1);
    assert_eq!((rig.event(WITHOUT_LEASE), rig.event(UPDATES_LOST)), (200, 0));
    // With a lease nobody asks.
    for later in 1..100 {
        assert!(rig.generate(now_ns + later * MILLISECOND).is_none());
    }
}

/// Another switch has it now: what was counted since the last snapshot goes with the copy, and is
/// counted.
#[test]
fn refused_the_copy_is_dropped() {
    let rig = with_lease_over("CONTINUE");
    for number in 0..5 {
        passes(&rig, [3; 4], OVER + number);
    }
    let part = rig.part(rig.generate(OVER + MILLISECOND).unwrap());
    passes(&rig, [3; 4], OVER + 2 * MILLISECOND);
    says(&rig, MessageType::Refused, EPOCH, &part.datagram, OVER + 3 * MILLISECOND);
    assert_eq!(rig.event(UPDATES_LOST), 6, "five in flight, one since");
    let request = rig.ask(1, [3; 4], OVER + 4 * MILLISECOND);
    assert_eq!(message_type(&request), MessageType::LeaseRequest);
    // What the other one has counted is gone on from.
    let state = [1000; 192];
    rig.state_part(&request, EPOCH + 1, 9, &state, 0, OVER + 5 * MILLISECOND);
    let (verdict, frame) = rig.grant_for(LEASE_US, &request, EPOCH + 1, 9, OVER + 5 * MILLISECOND);
    assert_eq!((verdict, carried(&frame)), (OUT, ([1001, 1002, 1003, 1004], false)));
    assert_eq!(rig.event(UPDATES_LOST), 6);
}

/// A newer grant brings the store's snapshot. From its first part on the copy is not used: of two
/// states nothing is ever mixed.
#[test]
fn a_newer_grant_is_never_mixed_with_the_copy() {
    // Two parts; a period so long that the generator asks by LEASE_REQUEST.
    let rig =
        rig(&["OVERDUE=CONTINUE", "SLOTS=640", "PERIOD_US=10000000", "EPSILON_US=20000000"], true);
    rig.own_for(LEASE_US, 1, [0; 4], (EPOCH, 0), &[0; 640], START);
    let part = rig.part(rig.generate(START + MILLISECOND).unwrap());
    rig.acknowledge(&part, 1, 3, START + 2 * MILLISECOND);
    assert_eq!(passes(&rig, [0, 1, 638, 639], OVER).0, [5, 1, 1, 1]);
    let request = rig.generate(OVER + ASK_NS).unwrap();
    assert_eq!(message_type(&request), MessageType::LeaseRequest);
    let state = vec![50; 640];
    rig.state_part(&request, EPOCH + 1, 4, &state, 1, OVER + 30 * MILLISECOND);
    let (verdict, frame) = rig.packet(1, [0, 1, 638, 639], OVER + 31 * MILLISECOND);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "half of it is the other's");
    assert_eq!(rig.event(UPDATES_LOST), 1);
    // The grant without the other part: nothing either.
    rig.grant_for(LEASE_US, &request, EPOCH + 1, 4, OVER + 32 * MILLISECOND);
    assert_eq!(
        rig.packet(1, [0; 4], OVER + 33 * MILLISECOND).0,
        Verdict::Forward { port: TO_STORE }
    );
    let again = rig.datagram(&frame);
    rig.state_part(&again, EPOCH + 1, 4, &state, 0, OVER + 34 * MILLISECOND);
    let (verdict, frame) = rig.grant_for(LEASE_US, &again, EPOCH + 1, 4, OVER + 34 * MILLISECOND);
    assert_eq!((verdict, carried(&frame).0), (OUT, [51; 4]));
    assert_eq!(rig.event(UPDATES_LOST), 1);
}

/// A recall under the switch's own epoch: the store still has it for the owner, so what is unsaved
/// is taken along as ever.
#[test]
fn recalled_what_is_unsaved_goes_along() {
    let rig = with_lease_over("CONTINUE");
    passes(&rig, [3; 4], OVER);
    let sent = rig.generate(OVER + MILLISECOND).unwrap();
    let part = rig.part(sent.clone());
    passes(&rig, [4; 4], OVER + 2 * MILLISECOND);
    let about = Message { packet: &[], ..Message::decode(&sent).unwrap() };
    let mut recalled = Vec::new();
    about.append_to(&mut recalled).unwrap();
    says(&rig, MessageType::Recall, EPOCH, &recalled, OVER + 3 * MILLISECOND);
    rig.acknowledge(&part, part.seq, 1, OVER + 4 * MILLISECOND);
    let rest = rig.part(rig.generate(OVER + 5 * MILLISECOND).unwrap());
    assert_eq!((rest.seq, rest.slots[3], rest.slots[4]), (part.seq + 1, 4, 4));
    rig.acknowledge(&rest, rest.seq, 1, OVER + 6 * MILLISECOND);
    assert_eq!(message_type(&rig.generate(OVER + 20 * MILLISECOND).unwrap()), MessageType::Release);
    // A recall of a newer epoch says that this switch was granted it anew, and does not know: the
    // copy is of an epoch that is over.
    let rig = with_lease_over("CONTINUE");
    passes(&rig, [3; 4], OVER);
    let part = rig.part(rig.generate(OVER + MILLISECOND).unwrap());
    let about = Message { packet: &[], ..Message::decode(&part.datagram).unwrap() };
    let mut recalled = Vec::new();
    about.append_to(&mut recalled).unwrap();
    says(&rig, MessageType::Recall, EPOCH + 2, &recalled, OVER + 2 * MILLISECOND);
    assert_eq!(rig.event(UPDATES_LOST), 1);
    assert_eq!(
        rig.packet(1, [3; 4], OVER + 3 * MILLISECOND).0,
        Verdict::Forward { port: TO_STORE }
    );
}

/// With its agent dead no generator asks: then one packet a second does, and waits.
#[test]
fn without_a_generator_packets_ask() {
    let rig = with_lease_over("CONTINUE");
    let (mut asked, mut out) = (Vec::new(), 0);
    for number in 0..350 {
        let now_ns = OVER + number * 10 * MILLISECOND;
        match rig.packet(1, [5; 4], now_ns) {
            (OUT, frame) => {
                out += 1;
                assert_eq!(carried(&frame).0[3], 4 * out);
            }
            (_, frame) => asked.push((now_ns, rig.datagram(&frame))),
        }
    }
    assert_eq!(asked.len(), 3);
    assert!(
        asked[0].0 > OVER + PATIENCE_NS
            && asked.windows(2).all(|pair| pair[1].0 - pair[0].0 > PATIENCE_NS)
    );
    let (now_ns, request) = asked.pop().unwrap();
    let (verdict, frame) = rig.grant_for(LEASE_US, &request, EPOCH, 2, now_ns + 1);
    assert_eq!((verdict, carried(&frame).0[3]), (OUT, 4 * (out + 1)));
}
