//! Real hosts at a network's edge: static routes only, links of unequal MTUs, and a router that is
//! replaced. Nobody sends anything beforehand: the switch itself has to know its neighbours. Needs
//! root. Waits for timers.

mod common;
#[path = "common/datagrams.rs"]
mod datagrams;

use common::{OUTSIDE, TestLab, skip, tcp_echo, udp_echo, wait_for};
use datagrams::Datagrams;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Long enough that TCP's windows are full of packets of the largest size.
const BYTES: usize = 1_000_000;

fn connect(lab: &TestLab, node: &str, to: SocketAddr) -> TcpStream {
    let stream = lab.netns(node).run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
    let stream = stream.unwrap_or_else(|e| panic!("{node} to {to}: {e}"));
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    stream
}

/// Sends much to an echo server, and gets it all back.
fn transfer(lab: &TestLab, node: &str, to: SocketAddr) {
    let mut stream = connect(lab, node, to);
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut sender = stream.try_clone().expect("clone");
    let sent = data.clone();
    let thread = std::thread::spawn(move || {
        sender.write_all(&sent).and_then(|()| sender.shutdown(Shutdown::Write))
    });
    let mut back = vec![];
    stream
        .read_to_end(&mut back)
        .unwrap_or_else(|e| panic!("{node}: {} of {BYTES} bytes, then {e}", back.len()));
    thread.join().expect("the sender ends").expect("all is sent");
    assert!(back == data, "{node}: {} bytes came back, not those that were sent", back.len());
}

/// How many of some datagrams the network lost, until `wanted` were answered.
fn lost(lab: &TestLab, node: &str, to: SocketAddr, bytes: usize, wanted: u32) -> usize {
    Datagrams { lab, node, from: Ipv4Addr::UNSPECIFIED, to, bytes }.lost(wanted)
}

/// Both MTUs of the way are smaller than what hosts begin with: out of in1 towards the router, and
/// back towards in2.
fn unequal_mtus(mode: &str) {
    let lab =
        TestLab::up(&format!("edge-{}", mode.replace('_', "")), "edge.toml", &["--mode", mode]);
    let datagrams = udp_echo(&lab, 9000);
    // Fragments of a datagram without "don't fragment" come back in fragments of the same.
    assert!(lost(&lab, "in1", datagrams, 100, 5) <= 1, "{mode}: from the start");
    assert!(lost(&lab, "in2", datagrams, 100, 5) <= 1, "{mode}: from the start");
    for (node, bytes) in [("in1", 1472), ("in2", 1272), ("in2", 1472), ("in1", 2000)] {
        assert!(lost(&lab, node, datagrams, bytes, 3) <= 1, "{mode}: {node}, {bytes} bytes");
    }
    let stream = tcp_echo(&lab, 8000);
    for node in ["in1", "in2"] {
        transfer(&lab, node, stream);
    }
    // The same by hand, as an administrator does it.
    let (good, said) = lab.run("in1", &format!("ping -c2 -W2 -M do -s 1440 {OUTSIDE}"));
    assert!(!good && said.contains("mtu = 1400") | said.contains("mtu=1400"), "{mode}: {said}");
    let (good, said) = lab.run("in1", &format!("ping -c1 -W2 -M do -s 1372 {OUTSIDE}"));
    assert!(good, "{mode}: {said}");
    lab.down();
}

#[test]
fn hosts_talk_over_unequal_mtus_through_nftables() {
    if !skip() {
        unequal_mtus("nft_nat");
    }
}

#[test]
fn hosts_talk_over_unequal_mtus_through_the_nat() {
    if !skip() {
        unequal_mtus("nat");
    }
}

#[test]
fn hosts_talk_over_unequal_mtus_through_the_nat_without_store() {
    if !skip() {
        unequal_mtus("nat_local");
    }
}

#[test]
fn hosts_talk_over_unequal_mtus_through_the_firewall() {
    if !skip() {
        unequal_mtus("firewall");
    }
}

/// Another machine takes the router's place: the link was down, its address has another MAC, and it
/// knows nobody.
#[test]
fn the_router_is_replaced() {
    if skip() {
        return;
    }
    let lab = TestLab::up("replaced", "edge.toml", &["--mode", "nat"]);
    let datagrams = udp_echo(&lab, 9000);
    assert!(lost(&lab, "in1", datagrams, 100, 5) <= 1, "from the start");
    let mut stream = connect(&lab, "in1", tcp_echo(&lab, 8000));
    let mut exchange = |what: &str| {
        let mut back = [0; 4];
        stream.write_all(b"here").unwrap_or_else(|e| panic!("{what}: {e}"));
        stream.read_exact(&mut back).unwrap_or_else(|e| panic!("{what}: {e}"));
    };
    exchange("before");
    for last in [1, 2] {
        lab.must_run("router", "ip link set dev gw down");
        lab.must_run("router", "ip neigh flush all");
        lab.must_run("router", &format!("ip link set dev gw address 02:00:00:00:00:{last:02x}"));
        lab.must_run("router", "ip link set dev gw up");
        for prefix in ["203.0.113.0/28", "10.1.0.0/16"] {
            lab.must_run("router", &format!("ip route replace {prefix} via 192.0.2.2"));
        }
        let up = |node: &str, port: &str| {
            lab.must_run(node, &format!("ip -br link show dev {port}")).contains(" UP ")
        };
        wait_for("both ends have their carrier", || up("gw", "router") && up("router", "gw"));
        let lost = lost(&lab, "in1", datagrams, 100, 5);
        assert!(lost <= 1, "{lost} datagrams lost after the router was replaced");
        exchange("the connection goes on");
    }
    lab.down();
}

/// RFC 5382, REQ-5: what nobody answered is forgotten soon, what was answered is not.
#[test]
fn a_connection_that_nobody_answers_is_forgotten() {
    if skip() {
        return;
    }
    // The switch gives the store back what has been idle for two seconds, and that counts from
    // then.
    let set = [
        "--mode",
        "nat",
        "--set",
        "timers=half_open_s = 3",
        "--set",
        "more=[idle]\nrelease_after_s = 2",
    ];
    let lab = TestLab::up("half-open", "edge.toml", &set);
    let mut answered = connect(&lab, "in1", tcp_echo(&lab, 8000));
    lab.must_run("outside", "nft add table ip silent");
    lab.must_run("outside", "nft add chain ip silent input { type filter hook input priority 0; }");
    lab.must_run("outside", "nft add rule ip silent input tcp dport 8001 drop");
    let silent: SocketAddr = (OUTSIDE.parse::<IpAddr>().expect("address"), 8001).into();
    let tried =
        lab.netns("in1").run(|| TcpStream::connect_timeout(&silent, Duration::from_millis(500)));
    assert!(tried.is_err(), "nobody answers there");

    let bindings = |port: u16| {
        let listed = lab.state(0, "nat.json", "list --limit 1000");
        let port = port.to_string();
        let is_to = |record: &&Value| record["key"]["destination_port"] == port.as_str();
        listed.as_array().expect("records").iter().filter(is_to).count()
    };
    assert_eq!((bindings(8000), bindings(8001)), (1, 1));
    let begin = Instant::now();
    while bindings(8001) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is still there after a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(bindings(8000), 1, "the other connection's is there");
    answered.write_all(b"here").expect("send");
    answered.read_exact(&mut [0; 4]).expect("it goes on");
    lab.down();
}
