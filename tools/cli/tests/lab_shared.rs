//! Shared variables for real: the compiled program on four switches, or on seven with an
//! aggregation tree, hosts that send to all of them at once, and a link that goes down and up.
//! Truth is what the hosts sent and got back. Needs root. Waits for timers.

mod common;

use common::{TestLab, one_at_a_time, scrambled, skip, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "../../systems/swish/lab/probe.toml";
const TREE: &str = "../../systems/swish/lab/tree.toml";
/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Variables that the hosts use.
const INDEXES: u32 = 600;

/// What a packet came back with. (`probe_t` in systems/swish/p4/probe/probe.p4.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Probe {
    index: u32,
    amount: u32,
    window: u64,
    counter: u32,
    bits: u32,
}

impl Probe {
    fn bytes(index: u32, amount: u32) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&index.to_be_bytes());
        bytes[4..8].copy_from_slice(&amount.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Probe {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a word"));
        Probe {
            index: word(0),
            amount: word(4),
            window: u64::from_be_bytes(bytes[8..16].try_into().expect("a long word")),
            counter: word(16),
            bits: word(20),
        }
    }
}

/// A host's socket.
struct Host(UdpSocket);

impl Host {
    fn of(lab: &TestLab, node: &str) -> Host {
        let socket = lab.netns(node).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        Host(socket)
    }

    /// Sends, and waits for the answer. `None`: it was lost.
    fn ask(&self, index: u32, amount: u32) -> Option<Probe> {
        self.0.send_to(&Probe::bytes(index, amount), SWITCH).expect("sent");
        let mut bytes = [0; 64];
        let length = self.0.recv(&mut bytes).ok()?;
        assert_eq!(length, 32);
        Some(Probe::read(&bytes))
    }
}

/// A host writes and reads until `until`; all that came back.
fn write(lab: &TestLab, number: u64, until: Instant) -> JoinHandle<Vec<Probe>> {
    let host = Host::of(lab, &format!("h{number}"));
    std::thread::spawn(move || {
        let mut back = vec![];
        for round in 0.. {
            if Instant::now() >= until {
                break;
            }
            let random = (scrambled(round << 8 | number) >> 33) as u32;
            let amount = random >> 20 & 7;
            let index = random % INDEXES * 7 % 4096;
            back.push(host.ask(index, amount).expect("an answer"));
        }
        back
    })
}

/// All packets that saw a window read the same of a variable in it.
fn agree(seen: &[Probe]) -> usize {
    let mut values = BTreeMap::new();
    for probe in seen {
        let read = (probe.counter, probe.bits);
        let first = values.entry((probe.window, probe.index)).or_insert(read);
        assert_eq!(*first, read, "window {} cell {}", probe.window, probe.index);
    }
    values.len()
}

/// What all updates that were seen come to, by variable: sum and union.
fn truth(seen: &[Probe]) -> BTreeMap<u32, (u32, u32)> {
    let mut all = BTreeMap::new();
    for probe in seen {
        let of: &mut (u32, u32) = all.entry(probe.index).or_default();
        *of = (of.0.wrapping_add(probe.amount), of.1 | probe.amount);
    }
    all
}

/// Every host reads the truth, as soon as two windows have turned.
fn all_have(lab: &TestLab, hosts: u64, seen: &[Probe]) {
    let truth = truth(seen);
    for number in 1..=hosts {
        let host = Host::of(lab, &format!("h{number}"));
        let window = host.ask(0, 0).expect("an answer").window;
        wait_for("two windows", || host.ask(0, 0).is_some_and(|it| it.window >= window + 2));
        for (index, (sum, union)) in &truth {
            let read = host.ask(*index, 0).expect("an answer");
            assert_eq!((read.counter, read.bits), (*sum, *union), "h{number} reads {read:?}");
        }
    }
}

fn all_write(lab: &TestLab, hosts: u64, time: Duration) -> Vec<Probe> {
    let until = Instant::now() + time;
    let hosts: Vec<_> = (1..=hosts).map(|number| write(lab, number, until)).collect();
    hosts.into_iter().flat_map(|host| host.join().expect("a host")).collect()
}

/// Hosts write to all switches at once; all switches read the same in each window, and lose
/// nothing. While a link is down, windows stand still and packets go on.
fn share_counters(lab: &TestLab, hosts: u64) {
    let mut seen = all_write(lab, hosts, Duration::from_secs(2));
    let cells = agree(&seen);
    assert!(cells > 1000, "{cells} cells were read in {} packets", seen.len());
    all_have(lab, hosts, &seen);

    lab.link("down", "s1", "s2");
    let stalled = all_write(lab, hosts, Duration::from_millis(500));
    let windows: Vec<u64> = stalled.iter().map(|it| it.window).collect();
    let (first, last) = (windows.iter().min(), windows.iter().max());
    let spread = last.zip(first).map(|(last, first)| last - first);
    assert!(spread.is_some_and(|it| it <= 5), "windows {first:?} to {last:?} without a link");
    seen.extend(stalled);
    lab.link("up", "s1", "s2");
    seen.extend(all_write(lab, hosts, Duration::from_millis(500)));
    agree(&seen);
    all_have(lab, hosts, &seen);
    for switch in 1..=hosts {
        let text = lab.metrics(&format!("s{switch}"));
        for reason in ["forged", "foreign", "faults", "line_stuck", "full_dropped"] {
            let none = format!("stateplane_drops_total{{part=\"swish\",reason=\"{reason}\"}} 0");
            assert!(text.contains(&none), "{switch}: {text}");
        }
    }
}

#[test]
fn four_switches_share_counters() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("shared", TOPOLOGY, &["--set", "period_us=2000"]);
    share_counters(&lab, 4);
    lab.down();
}

/// Switches need their neighbours in the tree only: to others they have no route.
#[test]
fn seven_switches_share_counters_over_a_tree() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("tree", TREE, &["--set", "period_us=2000"]);
    share_counters(&lab, 7);
    for switch in 1..=7 {
        let text = lab.metrics(&format!("s{switch}"));
        let members = "stateplane_switch_shared_members{group=\"main\"} 7\n";
        assert!(text.contains(members), "{switch}: {text}");
    }
    lab.down();
}
