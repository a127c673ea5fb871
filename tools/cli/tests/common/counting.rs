//! Packets of several flows through the counter, which writes the count into each, and what must be
//! true of the counts.

use super::{INSIDE, OUTSIDE, TestLab};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const PORT: u16 = 7000;
pub const FLOWS: usize = 16;
/// Each flow's packets, one in so long: all flows together 1600 packets/s.
const PERIOD: Duration = Duration::from_millis(10);

/// A packet that `outside` received.
pub struct Arrival {
    /// Which of all packets it is, as its sender numbered them.
    pub number: usize,
    /// The count that a switch gave it.
    pub count: u16,
    pub at: Instant,
}

/// What `outside` received of each flow (by source port), in order of arrival.
pub struct Receiver {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<u16, Vec<Arrival>>>,
}

impl Receiver {
    /// A raw UDP socket sees the IPv4 header, whose identification field carries the count.
    pub fn start(lab: &TestLab) -> Self {
        let socket = lab.netns("outside").run(lab::raw::udp_with_headers).expect("raw socket");
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
                        let number =
                            (28..36).fold(0, |number, at| number << 8 | usize::from(packet[at]));
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

    pub fn finish(self) -> BTreeMap<u16, Vec<Arrival>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the receiver ends")
    }
}

/// What was sent.
#[derive(Default)]
pub struct Sent {
    /// When, by number.
    pub at: Vec<Instant>,
    /// How many packets of each flow.
    pub of_flow: BTreeMap<u16, u64>,
}

/// Sends on `FLOWS` flows at a steady rate until it is stopped.
pub struct Sender {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Sent>,
}

impl Sender {
    pub fn start(lab: &TestLab) -> Self {
        let bind = || {
            (0..FLOWS)
                .map(|_| UdpSocket::bind((INSIDE, 0)))
                .collect::<std::io::Result<Vec<UdpSocket>>>()
        };
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
                    *sent
                        .of_flow
                        .entry(socket.local_addr().expect("address").port())
                        .or_default() += 1;
                }
                let due = PERIOD.mul_f64((n + 1) as f64 / FLOWS as f64);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            sent
        });
        Self { stop, thread }
    }

    pub fn finish(self) -> Sent {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sender ends")
    }
}

/// The count of each flow that the two switches hold: the larger where both hold one (one may be of
/// an earlier lease).
pub fn held(lab: &TestLab) -> BTreeMap<u16, u64> {
    let mut counts = held_by(lab, "s1");
    for (port, other) in held_by(lab, "s2") {
        let count = counts.entry(port).or_default();
        *count = other.max(*count);
    }
    counts
}

/// The count of each flow that this switch holds. One that it does not own any more may be above
/// the store's: of updates that were refused, whose packets did not leave.
pub fn held_by(lab: &TestLab, switch: &str) -> BTreeMap<u16, u64> {
    let name = format!("{}-{switch}", lab.name);
    let text = super::must(&["switch", "flows", "--switch", &name, "--json", "--limit", "1000"]);
    let reply: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut counts = BTreeMap::new();
    for flow in reply["flows"].as_array().expect("flows") {
        let field = |part: &str, name: &str| {
            let pairs = flow[part].as_array().expect("fields");
            let pair = pairs
                .iter()
                .find(|p| p[0] == name)
                .unwrap_or_else(|| panic!("no {name} in {flow}"));
            number(pair[1].as_str().expect("text"))
        };
        if field("key", "destination_port") == u64::from(PORT) {
            counts.insert(field("key", "source_port") as u16, field("value", "packets"));
        }
    }
    counts
}

pub fn number(text: &str) -> u64 {
    let parsed =
        text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What linearizable means here: no count twice, none that no packet took, and a packet that was
/// sent after another had arrived has the higher count. (Packets on their way at the same time may
/// overtake each other: two CPUs forward.)
pub fn check(lab: &TestLab, sent: &Sent, seen: &BTreeMap<u16, Vec<Arrival>>) {
    let held = held(lab);
    assert_eq!(seen.len(), FLOWS, "flows that came through");
    let (mut through, mut overtaken) = (0, 0);
    for (port, arrivals) in seen {
        let mut counts: Vec<u16> = arrivals.iter().map(|it| it.count).collect();
        overtaken += counts.windows(2).filter(|w| w[1] < w[0]).count();
        through += counts.len();
        counts.sort_unstable();
        let twice: Vec<u16> = counts.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert!(twice.is_empty(), "flow {port}: counts {twice:?} were given twice");
        let (last, packets) = (u64::from(*counts.last().unwrap_or(&0)), sent.of_flow[port]);
        assert!(counts[0] > 0 && last <= packets, "flow {port}: count {last} of {packets} packets");
        assert!(
            held[port] >= last && held[port] <= packets,
            "flow {port}: {} held, {last} seen",
            held[port]
        );
        in_real_time_order(*port, arrivals, sent);
    }
    println!(
        "{} packets sent, {through} came through, {overtaken} overtaken on the way",
        sent.at.len()
    );
    // A failure and lost messages cost packets, not the flow.
    assert!(
        through * 10 >= sent.at.len() * 7,
        "{through} of {} packets came through",
        sent.at.len()
    );
}

fn in_real_time_order(port: u16, arrivals: &[Arrival], sent: &Sent) {
    let mut by_sending: Vec<&Arrival> = arrivals.iter().collect();
    by_sending.sort_by_key(|a| a.number);
    let (mut highest, mut before) = (0, arrivals.iter().peekable());
    for later in by_sending {
        while let Some(earlier) = before.next_if(|a| a.at < sent.at[later.number]) {
            highest = highest.max(earlier.count);
        }
        assert!(
            later.count > highest,
            "flow {port}: count {} was given after {highest} had arrived",
            later.count
        );
    }
}
