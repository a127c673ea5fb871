//! When the compiled object sends again what is not acknowledged, and how many packets it lets wait
//! for the store: systems/redplane/docs/state-protocol.md, "Re-sending" and "Window". Needs root.

mod flow_rig;

use dataplane::Verdict;
use flow_rig::*;
use redplane_switch::FlowRuntime;
use state_protocol::{Message, MessageType};

const MILLISECOND: u64 = 1_000_000;

/// Flows of one shard.
fn flows_of_a_shard(rig: &Rig, count: usize) -> (u16, Vec<u32>) {
    let shard_of = |flow: u32| Message::decode(&rig.asks(flow, 0, START)).unwrap().shard;
    let shard = shard_of(0);
    (shard, (0..).filter(|flow| shard_of(*flow) == shard).take(count).collect())
}

/// A reply to an update comes so much later.
fn acknowledge(rig: &Rig, update: &[u8], now_ns: u64) {
    let update = Message::decode(update).unwrap();
    let verdict = rig.reply(&acknowledged(&update), now_ns).0;
    let expected =
        if update.packet.is_empty() { Verdict::Drop } else { Verdict::Forward { port: 3 } };
    assert_eq!(verdict, expected);
}

fn timeout_ms(rig: &Rig, shard: u16) -> u64 {
    let trips = rig.dataplane.round_trips(u32::from(shard)).unwrap();
    trips.resend_timeout_ns(&rig.settings) / MILLISECOND
}

#[test]
fn the_time_out_follows_the_round_trips() {
    let rig = rig_with(&[], 60 * MILLISECOND, 0);
    let mut now_ns = START;
    let mut update = rig.own(1, 5, 1, now_ns);
    let shard = Message::decode(&update).unwrap().shard;
    assert_eq!(timeout_ms(&rig, shard), 3, "the least, before anything is measured");
    // The grant was none: a store may wait before it grants.
    assert_eq!(rig.dataplane.round_trips(u32::from(shard)).unwrap().smoothed_ns, 0);
    for _ in 0..40 {
        acknowledge(&rig, &update, now_ns + 20 * MILLISECOND);
        now_ns += 21 * MILLISECOND;
        update = rig.asks(1, 0, now_ns);
    }
    let trips = rig.dataplane.round_trips(u32::from(shard)).unwrap();
    assert!(trips.smoothed_ns.abs_diff(20 * MILLISECOND) < MILLISECOND / 10, "{trips:?}");
    assert!(
        (22..24).contains(&timeout_ms(&rig, shard)),
        "SRTT and the clock's granularity: {trips:?}"
    );
    assert_eq!(rig.generate(now_ns + 20 * MILLISECOND).len(), 0, "its answer may still come");
    // Doubled with each re-sending, to the most that is allowed; a newer update of the flow changes
    // nothing about that.
    let (mut times, mut last) = (Vec::new(), Vec::new());
    for after_ms in 20..260 {
        if after_ms == 70 {
            rig.asks(1, 0, now_ns + 70 * MILLISECOND);
        }
        if let Some(sent) = rig.generate(now_ns + after_ms * MILLISECOND).pop() {
            times.push(after_ms);
            last = sent;
        }
    }
    let trips = rig.dataplane.round_trips(u32::from(shard)).unwrap();
    let least = trips.resend_timeout_ns(&rig.settings).div_ceil(MILLISECOND);
    let second = least + (2 * trips.resend_timeout_ns(&rig.settings)).div_ceil(MILLISECOND);
    assert_eq!(times, [least, second, 70 + 60, 70 + 120, 70 + 180]);
    // What is acknowledged is over, and the next update begins without a back-off.
    acknowledge(&rig, &last, now_ns + 270 * MILLISECOND);
    now_ns += 400 * MILLISECOND;
    assert_eq!(rig.generate(now_ns).len(), 0);
    rig.asks(1, 0, now_ns);
    let soon = now_ns + (timeout_ms(&rig, shard) + 1) * MILLISECOND;
    assert_eq!(rig.generate(soon).len(), 1);
}

#[test]
fn a_held_read_measures_nothing() {
    let rig = rig_with(&[], 60 * MILLISECOND, 0);
    let update = rig.own(1, 5, 1, START);
    let (verdict, frame) = rig.packet_to(84, 1, 0, START + MILLISECOND);
    assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
    let read = rig.datagram(&frame);
    assert_eq!(Message::decode(&read).unwrap().message_type, MessageType::ReadCommit);
    acknowledge(&rig, &read, START + 50 * MILLISECOND);
    let shard = u32::from(Message::decode(&update).unwrap().shard);
    assert_eq!(rig.dataplane.round_trips(shard).unwrap().smoothed_ns, 0);
    acknowledge(&rig, &update, START + 50 * MILLISECOND);
    assert!(rig.dataplane.round_trips(shard).unwrap().smoothed_ns > 40 * MILLISECOND);
}

#[test]
fn what_went_to_another_head_is_sent_again_at_once() {
    let rig = rig_with(&[], 60 * MILLISECOND, 0);
    let update = rig.own(1, 5, 1, START);
    let shard = Message::decode(&update).unwrap().shard;
    assert_eq!(rig.generate(START + 2 * MILLISECOND).len(), 0, "not yet");
    rig.dataplane
        .change_shard_head(u32::from(shard), Some(head(shard)), START + 2 * MILLISECOND)
        .unwrap();
    assert_eq!(rig.generate(START + 2 * MILLISECOND).len(), 1);
    assert_eq!(rig.generate(START + 2 * MILLISECOND).len(), 0, "once");
}

#[test]
fn more_than_the_window_is_dropped_before_it_counts() {
    const WINDOW: usize = 4;
    let rig = rig_with(&[], 60 * MILLISECOND, WINDOW as u64);
    let (shard, flows) = flows_of_a_shard(&rig_with(&[], 60 * MILLISECOND, 0), 2);
    let shard = u32::from(shard);
    let (one, other) = (flows[0], flows[1]);
    for flow in [one, other] {
        acknowledge(&rig, &rig.own(flow, 5, 1, START), START + 1);
    }
    assert_eq!(rig.dataplane.round_trips(shard).unwrap().outstanding, 0);
    let now_ns = START + MILLISECOND;
    let sent: Vec<_> = (0..WINDOW as u64).map(|at| rig.asks(one, 0, now_ns + at)).collect();
    assert_eq!(rig.dataplane.round_trips(shard).unwrap().outstanding, 4);
    assert_eq!(rig.packet(other, 0, now_ns + 10).0, Verdict::Drop);
    assert_eq!(
        rig.packet_to(84, one, 0, now_ns + 10).0,
        Verdict::Drop,
        "a read that depends on an update waits, too"
    );
    assert!(rig.count("window_full") >= 2);
    assert_eq!(
        rig.packet_to(84, other, 0, now_ns + 10).0,
        Verdict::Forward { port: 3 },
        "what depends on nothing does not"
    );
    // One answer makes room for one.
    acknowledge(&rig, &sent[0], now_ns + 20);
    let next = rig.asks(other, 0, now_ns + 30);
    let count = Message::decode(&next).unwrap().value.to_vec();
    assert_eq!(count, 2u64.to_be_bytes(), "what was dropped was not counted");
    assert_eq!(rig.packet(other, 0, now_ns + 31).0, Verdict::Drop);
    // The answers of three are lost. A later one's, to a request that was sent after the first
    // came, tells.
    acknowledge(&rig, &next, now_ns + 40);
    assert_eq!(rig.dataplane.round_trips(shard).unwrap().outstanding, 0);
    // Nothing comes at all: after a time-out, the next ones may find out.
    let now_ns = START + 100 * MILLISECOND;
    (0..WINDOW as u64).for_each(|at| drop(rig.asks(one, 0, now_ns + at)));
    assert_eq!(rig.packet(one, 0, now_ns + 2 * MILLISECOND).0, Verdict::Drop);
    assert_eq!(
        (rig.packet(one, 0, now_ns + 4 * MILLISECOND).0, rig.count("window_lost")),
        (Verdict::Forward { port: TO_STORE }, 1)
    );
    // The store owes nothing more than a window.
    assert_eq!(rig.dataplane.round_trips(shard).unwrap().outstanding, 1);
}
