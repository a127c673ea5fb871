//! Hosts that ask the program systems/swish/p4/probe for shared variables, and what they sent and
//! got back.

use crate::common::{TestLab, scrambled, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// Cells of a host, which no other host writes.
const OWN_CELLS: u32 = 60;

/// What a packet came back with (`probe_t` in systems/swish/p4/probe/probe.p4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    pub index: u32,
    pub amount: u32,
    /// 0: the switch is no member, and counted nothing.
    pub window: u64,
    pub counter: u32,
    pub bits: u32,
    pub age: u32,
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
            window: u64::from(word(8)) << 32 | u64::from(word(12)),
            counter: word(16),
            bits: word(20),
            age: word(28),
        }
    }
}

/// A host's socket.
pub struct Host(UdpSocket);

impl Host {
    pub fn of(lab: &TestLab, number: u32) -> Host {
        let node = format!("h{number}");
        let socket = lab.netns(&node).run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        Host(socket)
    }

    /// Sends, and waits for the answer. `None`: it was lost.
    pub fn ask(&self, index: u32, amount: u32) -> Option<Probe> {
        self.0.send_to(&Probe::bytes(index, amount), SWITCH).ok()?;
        let mut bytes = [0; 64];
        let length = self.0.recv(&mut bytes).ok()?;
        assert_eq!(length, 32);
        let probe = Probe::read(&bytes);
        assert_eq!((probe.index, probe.amount), (index, amount), "another packet's answer");
        Some(probe)
    }

    /// Sends updates, and waits for no answer.
    pub fn send(&self, indexes: impl Iterator<Item = u32>) {
        for index in indexes {
            let _ = self.0.send_to(&Probe::bytes(index, 1), SWITCH);
        }
    }

    /// Asks until there is an answer.
    pub fn read(&self, index: u32) -> Probe {
        let answer = (0..50).find_map(|_| self.ask(index, 0));
        answer.expect("the switch answers")
    }
}

/// What a host sent and got back, in order of time.
pub struct Ledger {
    pub number: u32,
    pub probes: Vec<(Instant, Probe)>,
    /// Updates that were never answered, by cell: the switch has them or not.
    pub unknown: BTreeMap<u32, u32>,
}

/// Hosts that write to their own cells, and read those of all, until they are ended.
pub struct Hosts {
    stop: Arc<AtomicBool>,
    /// The newest window that each of them read.
    windows: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Ledger>>,
}

impl Hosts {
    /// Of switches 1 to `count`. What they write follows from the seed.
    pub fn begin(lab: &TestLab, count: u32, seed: u64) -> Hosts {
        let stop = Arc::new(AtomicBool::new(false));
        let windows: Vec<Arc<AtomicU64>> = (0..count).map(|_| Arc::default()).collect();
        let threads = (1..=count).zip(&windows).map(|(number, window)| {
            let writer = Writer {
                sockets: Sockets { name: lab.name.clone(), number },
                count,
                stop: Arc::clone(&stop),
                window: Arc::clone(window),
            };
            std::thread::spawn(move || writer.run(seed << 8 | u64::from(number)))
        });
        let threads = threads.collect();
        Hosts { stop, windows, threads }
    }

    /// No host.
    pub fn none() -> Hosts {
        Hosts { stop: Arc::default(), windows: vec![], threads: vec![] }
    }

    /// The newest window that a host read.
    pub fn window(&self, number: u32) -> u64 {
        self.windows[number as usize - 1].load(Ordering::Relaxed)
    }

    pub fn end(self) -> Vec<Ledger> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|it| it.join().expect("a host")).collect()
    }
}

struct Sockets {
    name: String,
    number: u32,
}

impl Sockets {
    fn open(&self) -> Host {
        let netns = lab::netns::Netns::open(&format!("sp-{}-h{}", self.name, self.number));
        let netns = netns.unwrap_or_else(|error| panic!("{error}"));
        let socket = netns.run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        Host(socket)
    }
}

struct Writer {
    sockets: Sockets,
    count: u32,
    stop: Arc<AtomicBool>,
    window: Arc<AtomicU64>,
}

impl Writer {
    fn run(&self, seed: u64) -> Ledger {
        let number = self.sockets.number;
        let mut ledger = Ledger { number, probes: vec![], unknown: BTreeMap::new() };
        let mut host = self.sockets.open();
        let mut answers = true;
        for round in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let random = (scrambled(seed << 32 | round) >> 33) as u32;
            // (Nothing is written to a switch that did not answer, until it does.)
            let writes = answers && !round.is_multiple_of(3);
            let of = if writes { number } else { 1 + random % self.count };
            let index = of * 100 + (random >> 8) % OWN_CELLS;
            let amount = if writes { 1 + (random >> 20) % 7 } else { 0 };
            if let Some(probe) = host.ask(index, amount) {
                answers = true;
                self.window.fetch_max(probe.window, Ordering::Relaxed);
                ledger.probes.push((Instant::now(), probe));
            } else {
                answers = false;
                *ledger.unknown.entry(index).or_default() += amount;
                // (A late answer is not taken for another packet's.)
                host = self.sockets.open();
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        ledger
    }
}

/// A host's switch died; all that lived on had read this window before.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    pub number: u32,
    pub window: u64,
    /// It begins its next life then. What was answered before is of this one.
    pub until: Instant,
}

/// What a cell must be at least, and what it may have besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub least: u32,
    pub more: u32,
}

/// By cell.
pub type Truth = BTreeMap<u32, Bounds>;

/// Adds what the hosts sent to what the cells must be. An update in window w is in rotation w or
/// w + 1. If its switch dies when all others read w + 2, they have merged that. What is newer they
/// may have or not.
pub fn add(truth: &mut Truth, ledgers: &[Ledger], deaths: &[Death]) {
    for ledger in ledgers {
        let mut own = deaths.iter().filter(|it| it.number == ledger.number).peekable();
        for (at, probe) in ledger.probes.iter().filter(|(_, it)| it.amount > 0 && it.window > 0) {
            while own.next_if(|death| death.until < *at).is_some() {}
            let bounds = truth.entry(probe.index).or_default();
            let sure = own.peek().is_none_or(|death| probe.window + 2 <= death.window);
            *if sure { &mut bounds.least } else { &mut bounds.more } += probe.amount;
        }
        for (index, amount) in &ledger.unknown {
            truth.entry(*index).or_default().more += amount;
        }
    }
}

/// All packets that saw a window read the same of a cell in it. (A switch that dies may have been
/// in a window that the others began anew without it.) How many values of two or more packets.
pub fn agree(ledgers: &[Ledger], deaths: &[Death]) -> usize {
    let mut values: BTreeMap<(u64, u32), (u32, u32)> = BTreeMap::new();
    let mut compared = 0;
    for ledger in ledgers {
        let own = |death: &&Death| death.number == ledger.number;
        for (at, probe) in ledger.probes.iter().filter(|(_, probe)| probe.window > 0) {
            let dies = |it: &Death| *at <= it.until && probe.window >= it.window;
            if deaths.iter().filter(own).any(dies) {
                continue;
            }
            let read = (ledger.number, probe.counter);
            let (first, value) = *values.entry((probe.window, probe.index)).or_insert(read);
            let at = (probe.window, probe.index);
            assert_eq!(value, probe.counter, "{at:?}: h{first} and h{}", ledger.number);
            compared += usize::from(first != ledger.number);
        }
    }
    compared
}

/// The longest time from `since` on in which a host read the same window.
pub fn longest_pause(ledger: &Ledger, since: Instant, until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last: Option<(Instant, u64)> = None;
    for (at, probe) in ledger.probes.iter().filter(|(_, probe)| probe.window > 0) {
        if last.is_none_or(|(_, window)| window != probe.window) {
            if let Some((from, _)) = last
                && *at >= since
                && from <= until
            {
                longest = longest.max(at.duration_since(from));
            }
            last = Some((*at, probe.window));
        }
    }
    longest
}

/// All these hosts read the same of all cells, and what must be there; what they read is what must
/// be there from now on.
pub fn all_have(lab: &TestLab, numbers: &[u32], truth: &mut Truth) {
    let hosts: Vec<Host> = numbers.iter().map(|number| Host::of(lab, *number)).collect();
    let first = hosts.iter().map(|host| host.read(0).window).max().expect("a host");
    wait_for("three windows", || hosts.iter().all(|host| host.read(0).window >= first + 3));
    for (index, bounds) in truth {
        let read: Vec<u32> = hosts.iter().map(|host| host.read(*index).counter).collect();
        let counter = read[0];
        assert!(read.iter().all(|it| *it == counter), "cell {index}: {numbers:?} read {read:?}");
        let more = counter.wrapping_sub(bounds.least);
        assert!(more <= bounds.more, "cell {index} of {bounds:?}: {counter}");
        *bounds = Bounds { least: counter, more: 0 };
    }
}
