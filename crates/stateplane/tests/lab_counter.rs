//! Linearizable `set` over a real network: every packet of a flow takes the next count, on two switches that die and return,
//! with and without lost messages. Needs root.

mod common;

use common::counting::{FLOWS, Receiver, Sender, check};
use common::{TestLab, one_at_a_time, skip, wait_for};

/// How many counted packets the switches have sent on.
fn numbered(lab: &TestLab, switch: &str) -> u64 {
    lab.counter(switch, "numbered")
}

fn moves(lab: &TestLab, switch: &str, packets: u64) {
    let before = numbered(lab, switch);
    wait_for(&format!("{switch} counts {packets} packets"), || numbered(lab, switch) >= before + packets);
}

fn count_over_a_failover(lab: &TestLab) {
    wait_for("both switches are used", || lab.both_used("10.1.0.0/24"));
    let receiver = Receiver::start(lab);
    let sender = Sender::start(lab);
    moves(lab, "s1", 500);
    moves(lab, "s2", 500);
    lab.fail("s1");
    moves(lab, "s2", 1500);
    lab.restore("s1");
    moves(lab, "s1", 1000);
    let sent = sender.finish();
    // What still waits for a lease or an acknowledgement comes through or is given up.
    let records = lab.equal_stores();
    let seen = receiver.finish();
    assert!(records >= FLOWS as u64, "{records} records");
    check(lab, &sent, &seen);
    for switch in ["s1", "s2"] {
        assert!(lab.event(switch, "updates") > 0 && lab.event(switch, "acks") > 0);
    }
}

#[test]
fn every_packet_takes_the_next_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("count", "flow_counter.toml", &[]);
    count_over_a_failover(&lab);
    lab.down();
}

#[test]
fn lost_messages_cost_packets_but_no_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("loss", "flow_counter.toml", &[]);
    // Two of a hundred messages of the state protocol, in each direction and between the stores.
    lab.must_run("tor", "nft add table ip lossy");
    lab.must_run("tor", "nft add chain ip lossy forward { type filter hook forward priority 0; }");
    lab.must_run("tor", "nft add rule ip lossy forward udp dport 5407 numgen random mod 100 < 2 counter drop");
    count_over_a_failover(&lab);
    let lost = lab.must_run("tor", "nft list table ip lossy");
    assert!(!lost.contains("packets 0 "), "{lost}");
    assert!(["s1", "s2"].iter().any(|s| lab.event(s, "resent") > 0), "nothing was re-sent");
    lab.down();
}
