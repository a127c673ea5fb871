//! Microbursts for real: a flow's burst takes four switches, so each sees too little of it. All of
//! them find it in the next window. As much from several flows, or more slowly, is no burst. Needs
//! root. Waits for timers.

mod common;

use common::{TestLab, json, must, skip, wait_for};
use std::net::UdpSocket;
use std::time::Duration;

/// The flow's addresses, at each switch; they take the way of the hosts' own.
const FROM: &str = "10.66.0.1";
const TO: &str = "10.77.0.1";
const PORT: u16 = 7000;
/// Both addresses, as switches note them.
const HOSTS: u64 = 0x0a42_0001_0a4d_0001;
/// Bytes of a flow in a window that are a burst. A burst may fall into two windows: the larger part
/// is one, too.
const THRESHOLD: usize = 20_000;
const PACKETS: usize = 10;
/// With its headers.
const PACKET: usize = 1042;
const SWITCHES: usize = 4;
/// Small packets after a burst, ten in a window.
const PROBES: usize = 40;
const WINDOW: Duration = Duration::from_millis(200);
const _: () = assert!(PACKETS * PACKET < THRESHOLD, "one switch alone sees no burst");
const _: () = assert!(SWITCHES * PACKETS * PACKET / 2 >= THRESHOLD, "half of it is a burst");

/// Hosts on both sides of a switch.
struct Pair {
    netns: netns::Netns,
    flow: UdpSocket,
    to: UdpSocket,
}

fn bound(netns: &netns::Netns, address: &str, port: u16) -> UdpSocket {
    netns.run(|| UdpSocket::bind((address, port))).expect("a socket")
}

impl Pair {
    fn of(lab: &TestLab, number: usize) -> Pair {
        let (a, v) = (format!("a{number}"), format!("v{number}"));
        for (node, own, other) in [(&a, FROM, TO), (&v, TO, FROM)] {
            lab.must_run(node, &format!("ip address add {own}/32 dev lo"));
            lab.must_run(node, &format!("ip route replace {other}/32 dev s{number}"));
        }
        // (The switch between them is none that they know of, and ARP goes up to its kernel.)
        let link = lab.must_run(&v, &format!("ip -br link show s{number}"));
        let mac = link.split_whitespace().nth(2).expect("name, state, address");
        let command = format!("ip neigh replace {TO} lladdr {mac} dev s{number} nud permanent");
        lab.must_run(&a, &command);
        let to = bound(&lab.netns(&v), TO, PORT);
        to.set_nonblocking(true).expect("no wait");
        let netns = lab.netns(&a);
        Pair { flow: bound(&netns, FROM, PORT), netns, to }
    }

    fn sends(&self, flow: &UdpSocket, packets: usize, bytes: usize) {
        for _ in 0..packets {
            let sent = flow.send_to(&vec![0; bytes - 42], (TO, PORT)).expect("sent");
            assert_eq!(sent, bytes - 42);
        }
    }

    /// Packets that came through since the last call.
    fn received(&self) -> usize {
        let mut bytes = [0; 2048];
        std::iter::from_fn(|| self.to.recv(&mut bytes).ok()).count()
    }
}

fn bursts(lab: &TestLab) -> Vec<u64> {
    let of = |number| lab.counter(&format!("s{number}"), "MicroburstIngress.bursts");
    (1..=SWITCHES).map(of).collect()
}

/// What the ledger must have: each packet comes through.
fn all_come(pairs: &[Pair], each: usize) {
    for (at, pair) in pairs.iter().enumerate() {
        let mut came = 0;
        wait_for("packets come through", || {
            came += pair.received();
            came >= each
        });
        assert_eq!(came, each, "s{}", at + 1);
    }
}

#[test]
fn a_burst_over_four_switches_is_one() {
    if skip() {
        return;
    }
    let define = format!("define=THRESHOLD={THRESHOLD}");
    let period = format!("period_us={}", WINDOW.as_micros());
    let vars = ["--set", "program=microburst", "--set", &define, "--set", &period];
    let lab = TestLab::up("microburst", "functions.toml", &vars);
    let pairs: Vec<Pair> = (1..=SWITCHES).map(|number| Pair::of(&lab, number)).collect();
    for pair in &pairs {
        wait_for("a packet comes through", || {
            pair.sends(&pair.flow, 1, 64);
            std::thread::sleep(Duration::from_millis(20));
            pair.received() > 0
        });
    }
    std::thread::sleep(WINDOW);
    for pair in &pairs {
        pair.received();
    }

    // As much at once, but of four flows.
    for (port, pair) in (PORT + 1..).zip(&pairs) {
        pair.sends(&bound(&pair.netns, FROM, port), PACKETS, PACKET);
    }
    all_come(&pairs, PACKETS);
    // As much of one flow, in five windows and more. (These packets would tell of the others, too.)
    for _ in 0..PACKETS {
        pairs.iter().for_each(|pair| pair.sends(&pair.flow, 1, PACKET));
        std::thread::sleep(WINDOW / 2);
    }
    all_come(&pairs, PACKETS);
    assert_eq!(bursts(&lab), [0; SWITCHES], "no flow has burst");
    std::thread::sleep(WINDOW * 2);

    // A burst; small packets of the flow find it, at each switch.
    pairs.iter().for_each(|pair| pair.sends(&pair.flow, PACKETS, PACKET));
    for _ in 0..PROBES {
        std::thread::sleep(WINDOW / 10);
        pairs.iter().for_each(|pair| pair.sends(&pair.flow, 1, 64));
    }
    all_come(&pairs, PACKETS + PROBES);
    let found = bursts(&lab);
    assert!(found.iter().all(|count| *count > 0), "each switch finds the burst: {found:?}");
    for number in 1..=SWITCHES {
        let name = format!("{}-s{number}", lab.name);
        let words = ["register", "read", "MicroburstIngress.hosts", "--switch", &name, "--json"];
        let noted = json(&must(&words));
        let flow = format!("{HOSTS:#x}");
        let elements = noted["elements"].as_array().expect("elements");
        assert!(elements.iter().any(|it| it[1] == flow.as_str()), "s{number}: {noted}");
    }

    // Operators read all of the sketch, in one window, and the same on all switches in it.
    let sketch = |number: usize| {
        let name = format!("{}-s{number}", lab.name);
        json(&must(&["shared", "get", "bytes", "--switch", &name, "--json"]))
    };
    let mut probes = 0;
    wait_for("two switches are asked in one window", || {
        pairs.iter().for_each(|pair| pair.sends(&pair.flow, 1, 64));
        probes += 1;
        let (one, other) = (sketch(1), sketch(3));
        let same = one["window"].as_u64() > Some(0) && one["window"] == other["window"];
        assert!(!same || one["entries"] == other["entries"], "{one} and {other}");
        same && one["entries"].as_array().is_some_and(|it| !it.is_empty())
    });
    all_come(&pairs, probes);

    // It is over: a window later the flow is one as others.
    std::thread::sleep(WINDOW * 3);
    let before = bursts(&lab);
    pairs.iter().for_each(|pair| pair.sends(&pair.flow, 1, 64));
    all_come(&pairs, 1);
    assert_eq!(bursts(&lab), before);
    lab.down();
}
