//! Linearizable `set` over a real network: every packet of a flow takes the next count, on two switches that die and return,
//! with and without lost messages. Needs root.

mod common;

use common::counting::{FLOWS, Receiver, Sender, check, held, number};
use common::{TestLab, one_at_a_time, skip, wait_for};

/// How many counted packets the switches have sent on.
fn numbered(lab: &TestLab, switch: &str) -> u64 {
    lab.counter(switch, "numbered")
}

fn moves(lab: &TestLab, switch: &str, packets: u64) {
    let before = numbered(lab, switch);
    wait_for(&format!("{switch} counts {packets} packets"), || numbered(lab, switch) >= before + packets);
}

/// `stateplane state`: each flow has the count that a switch holds, on any server, and who owns it.
fn the_store_has_what_the_switches_hold(lab: &TestLab) {
    let held = held(lab);
    for (n, (port, packets)) in held.iter().enumerate() {
        let found = lab.state(n % 3, "flow_counter.json", &format!("get source_port={port}"));
        let one = found.as_array().filter(|all| all.len() == 1).unwrap_or_else(|| panic!("{found}"));
        assert_eq!(number(one[0]["value"]["packets"].as_str().expect("text")), *packets, "{found}");
    }
    let list = |arguments: &str| lab.state(0, "flow_counter.json", arguments).as_array().expect("a list").len();
    let (all, by_owner) = (list("list --limit 1000"), ["1", "2"].map(|id| list(&format!("list --owner {id}"))));
    assert!(all >= held.len() && by_owner.iter().sum::<usize>() <= all && by_owner[0] > 0, "{all}: {by_owner:?}");
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
    the_store_has_what_the_switches_hold(lab);
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
