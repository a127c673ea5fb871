//! A NAT with static routes only: its agent keeps the routers' MACs known, whatever happens to
//! them. Needs root. Waits for timers.

mod common;
#[path = "common/datagrams.rs"]
mod datagrams;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, udp_echo, wait_for};
use datagrams::{ANSWER, Datagrams};
use std::net::Ipv4Addr;

/// Answers that are waited for; what is lost in between is counted.
const ANSWERS: u32 = 5;

/// How many of some datagrams the network lost, until [`ANSWERS`] were answered.
fn lost(lab: &TestLab, port: u16) -> usize {
    let to = (OUTSIDE.parse::<Ipv4Addr>().expect("address"), port).into();
    let from = INSIDE.parse().expect("address");
    Datagrams { lab, node: "inside", from, to, bytes: 6 }.lost(ANSWERS)
}

/// Gives a router's interface to the switch another MAC.
fn move_router(lab: &TestLab, router: &str, last: u8) {
    lab.must_run(router, &format!("ip link set dev s1 address 02:00:00:00:00:{last:02x}"));
}

fn mac_of(lab: &TestLab, router: &str, address: &str) -> String {
    lab.must_run("s1", &format!("ip neigh show {address} dev {router}"))
}

/// Waits until the kernel takes another MAC for an address: not within a second after a change
/// (`net.ipv4.neigh.*.locktime`), so that of several answers the first one counts.
fn wait_for_locktime(lab: &TestLab, router: &str, address: &str) {
    wait_for("the entry is older than locktime", || {
        let said = lab.must_run("s1", &format!("ip -s neigh show {address} dev {router}"));
        let (_, used) = said.split_once(" used ").unwrap_or_else(|| panic!("{said}"));
        // Seconds since it was used, confirmed and changed.
        let changed = used.split(['/', 'p', ' ']).nth(2).and_then(|it| it.parse::<u32>().ok());
        changed.unwrap_or_else(|| panic!("{said}")) > 1
    });
}

#[test]
fn routers_are_known_from_start_after_a_flush_and_with_another_mac() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("next-hop", "next_hop.toml", &[]);
    udp_echo(&lab, 9000);
    assert!(lost(&lab, 9000) <= 1, "from the start");
    let managed = mac_of(&lab, "core", "10.0.1.2");
    assert!(managed.contains("managed"), "the kernel keeps it, also without an agent: {managed}");

    lab.must_run("s1", "ip neigh flush all");
    assert!(lost(&lab, 9000) <= 1, "after a flush");

    for router in ["core", "tor"] {
        // The new owner of the address says so.
        lab.must_run(router, "sysctl -qw net.ipv4.conf.s1.arp_notify=1");
        move_router(&lab, router, 1);
        assert!(lost(&lab, 9000) <= 1, "{router} has moved and said so");

        // It says nothing: nothing that arrives tells, so it has to be asked.
        let address = if router == "core" { "10.0.1.2" } else { "10.0.2.2" };
        wait_for_locktime(&lab, router, address);
        lab.must_run(router, "sysctl -qw net.ipv4.conf.s1.arp_notify=0");
        move_router(&lab, router, 2);
        let lost = lost(&lab, 9000);
        println!("{router} moved without a word: {lost} datagrams lost, one every {ANSWER:?}");
        let now = mac_of(&lab, router, address);
        assert!(now.contains("02:00:00:00:00:02"), "{now}");
    }

    // A link that was down flushes its neighbours, too.
    lab.must_run("core", "ip link set dev s1 down");
    lab.must_run("core", "ip link set dev s1 up");
    lab.must_run("core", "ip route replace 203.0.113.0/28 via 10.0.1.1");
    lab.must_run("s1", "ip route replace default via 10.0.1.2");
    wait_for("the router is known again", || {
        mac_of(&lab, "core", "10.0.1.2").contains("02:00:00:00:00:02")
    });
    assert!(lost(&lab, 9000) <= 1, "the link was down");

    // What no route names is left to the kernel.
    lab.must_run("s1", "ip route del default");
    wait_for("it is released", || !mac_of(&lab, "core", "10.0.1.2").contains("managed"));
    lab.down();
}

#[test]
fn ipv6_routers_are_known_too() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("next-hop6", "next_hop.toml", &[]);
    let known =
        |mac: &str| mac_of(&lab, "core", "2001:db8:1::2").contains(&format!("lladdr {mac}"));
    wait_for("it is known from the start", || known(""));
    lab.must_run("s1", "ip neigh flush all");
    wait_for("it is known after a flush", || known(""));
    move_router(&lab, "core", 7);
    wait_for("it is known where it has moved to", || known("02:00:00:00:00:07"));

    // A router that is gone is said to be.
    wait_for("all are known", || {
        lab.metrics("s1").contains("stateplane_next_hops{state=\"unresolved\"} 0\n")
    });
    lab.must_run("s1", "ip route add 192.0.2.0/24 via 10.0.1.77");
    let unresolved = "stateplane_next_hops{state=\"unresolved\"} 1\n";
    wait_for("the metrics say so", || lab.metrics("s1").contains(unresolved));
    lab.down();
}
