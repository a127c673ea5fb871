//! Linearizable `set` over a real network: every packet of a flow takes the next count, on two switches that die and return,
//! with and without lost messages. Needs root.

mod common;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
const FLOWS: usize = 16;
/// Each flow's packets, one in so long: all flows together 1600 packets/s.
const PERIOD: Duration = Duration::from_millis(10);

/// A packet that `outside` received.
struct Arrival {
    /// Which of all packets it is, as its sender numbered them.
    number: usize,
    /// The count that a switch gave it.
    count: u16,
    at: Instant,
}

/// What `outside` received of each flow (by source port), in order of arrival.
struct Receiver {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<u16, Vec<Arrival>>>,
}

impl Receiver {
    /// A raw UDP socket sees the IPv4 header, whose identification field carries the count.
    fn start(lab: &TestLab) -> Self {
        let socket = lab.netns("outside").run(|| {
            // SAFETY: socket() takes no pointers; a descriptor that it returns belongs to nobody else.
            let fd = unsafe {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP);
                if fd < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            };
            let socket = UdpSocket::from(fd);
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(socket)
        });
        let socket = socket.expect("raw socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut arrivals: BTreeMap<u16, Vec<Arrival>> = BTreeMap::new();
            let mut packet = [0; 2048];
            loop {
                match socket.recv(&mut packet) {
                    Ok(36) if packet[22..24] == PORT.to_be_bytes() => {
                        let at = Instant::now();
                        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
                        let number = (28..36).fold(0, |number, at| number << 8 | usize::from(packet[at]));
                        let arrival = Arrival { number, count: word(4), at };
                        arrivals.entry(word(20)).or_default().push(arrival);
                    }
                    Err(_) if stopped.load(Ordering::Relaxed) => return arrivals,
                    _ => {}
                }
            }
        });
        Self { stop, thread }
    }

    fn finish(self) -> BTreeMap<u16, Vec<Arrival>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the receiver ends")
    }
}

/// What was sent.
#[derive(Default)]
struct Sent {
    /// When, by number.
    at: Vec<Instant>,
    /// How many packets of each flow.
    of_flow: BTreeMap<u16, u64>,
}

/// Sends on `FLOWS` flows at a steady rate until it is stopped.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Sent>,
}

impl Sender {
    fn start(lab: &TestLab) -> Self {
        let bind = || (0..FLOWS).map(|_| UdpSocket::bind((INSIDE, 0))).collect::<std::io::Result<Vec<UdpSocket>>>();
        let sockets = lab.netns("inside").run(bind).expect("bind");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sent = Sent::default();
            let start = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let n = sent.at.len();
                let socket = &sockets[n % FLOWS];
                sent.at.push(Instant::now());
                // While a route is away, sending fails.
                if socket.send_to(&(n as u64).to_be_bytes(), (OUTSIDE, PORT)).is_ok() {
                    *sent.of_flow.entry(socket.local_addr().expect("address").port()).or_default() += 1;
                }
                let due = PERIOD.mul_f64((n + 1) as f64 / FLOWS as f64);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            sent
        });
        Self { stop, thread }
    }

    fn finish(self) -> Sent {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sender ends")
    }
}

/// The count of each flow that the two switches hold: the larger where both hold one (one may be of an earlier lease).
fn held(lab: &TestLab) -> BTreeMap<u16, u64> {
    let mut counts = BTreeMap::new();
    for switch in ["s1", "s2"] {
        let name = format!("{}-{switch}", lab.name);
        let text = common::must(&["switch", "flows", "--switch", &name, "--json", "--limit", "1000"]);
        let reply: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for flow in reply["flows"].as_array().expect("flows") {
            let field = |part: &str, name: &str| {
                let pairs = flow[part].as_array().expect("fields");
                let pair = pairs.iter().find(|p| p[0] == name).unwrap_or_else(|| panic!("no {name} in {flow}"));
                number(pair[1].as_str().expect("text"))
            };
            if field("key", "destination_port") == u64::from(PORT) {
                let count: &mut u64 = counts.entry(field("key", "source_port") as u16).or_default();
                *count = field("value", "packets").max(*count);
            }
        }
    }
    counts
}

fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What linearizable means here: no count twice, none that no packet took, and a packet that was sent after another had
/// arrived has the higher count. (Packets on their way at the same time may overtake each other: two CPUs forward.)
fn check(lab: &TestLab, sent: &Sent, seen: &BTreeMap<u16, Vec<Arrival>>) {
    let held = held(lab);
    assert_eq!(seen.len(), FLOWS, "flows that came through");
    let (mut through, mut overtaken) = (0, 0);
    for (port, arrivals) in seen {
        let mut counts: Vec<u16> = arrivals.iter().map(|a| a.count).collect();
        overtaken += counts.windows(2).filter(|w| w[1] < w[0]).count();
        through += counts.len();
        counts.sort_unstable();
        let twice: Vec<u16> = counts.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert!(twice.is_empty(), "flow {port}: counts {twice:?} were given twice");
        let (last, packets) = (u64::from(*counts.last().unwrap_or(&0)), sent.of_flow[port]);
        assert!(counts[0] > 0 && last <= packets, "flow {port}: count {last} of {packets} packets");
        assert!(held[port] >= last && held[port] <= packets, "flow {port}: {} held, {last} seen", held[port]);
        in_real_time_order(*port, arrivals, sent);
    }
    println!("{} packets sent, {through} came through, {overtaken} overtaken on the way", sent.at.len());
    // A failure and lost messages cost packets, not the flow.
    assert!(through * 10 >= sent.at.len() * 7, "{through} of {} packets came through", sent.at.len());
}

fn in_real_time_order(port: u16, arrivals: &[Arrival], sent: &Sent) {
    let mut by_sending: Vec<&Arrival> = arrivals.iter().collect();
    by_sending.sort_by_key(|a| a.number);
    let (mut highest, mut before) = (0, arrivals.iter().peekable());
    for later in by_sending {
        while let Some(earlier) = before.next_if(|a| a.at < sent.at[later.number]) {
            highest = highest.max(earlier.count);
        }
        assert!(later.count > highest, "flow {port}: count {} was given after {highest} had arrived", later.count);
    }
}

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
