//! Counted packets through the lab: numbered datagrams of many flows go from `inside` to `outside`,
//! and on the way a switch puts the flow's packet count into each.
//!
//! Every packet that was sent and every one that came out is kept with its time, in a file of JSON
//! lines and, for the flows of the present *generation*, in memory. Each round's end judges the
//! whole history of the generation, with the counter that is read then, by Wing and Gong's search
//! ([`history::linearizable`]) and by [`history::History::check`], and each packet's account
//! ([`crate::ledger`]).

mod judge;

use crate::Judge;
use crate::held::{Held, held};
use crate::ledger::{Account, Ledger, Lost, Outage, Sighting};
use crate::outage::{self, OUTAGE_LIMIT_MS};
use crate::record::{lock, wall_ns};
use crate::tap::{self, Tap};
use history::linearizable::{self, Counter};
use history::{Event, History, Timed, operations, write_lines};
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::interrupt;
use lab::topology::Role;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first flow's source port is the next.
const FIRST_PORT: u16 = 2_000;
/// IPv4 and UDP headers and the datagram's eight bytes: flow and packet.
const PACKET_BYTES: usize = 36;
/// Rounds that a flow lives for: its count must fit the 16 bits that a packet shows of it.
const GENERATION_ROUNDS: u64 = 20;
/// How long a flow's closing packet may take until another is sent.
const CLOSING_PATIENCE: Duration = Duration::from_millis(300);
/// Closing packets of a flow.
const CLOSING_MOST: u32 = 30;
/// Within so long of a whole network each packet's account must come out even: the store holds a
/// request for 0.9 s at the most.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How many packets there are.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Flows that last for a generation.
    pub flows: usize,
    /// Flows that begin with each round, and end with it.
    pub fresh: usize,
    /// Packets in a second, of all flows.
    pub packets_per_s: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self { flows: 16, fresh: 4, packets_per_s: 500 }
    }
}

/// What has become of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Flows that there were.
    pub flows: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that got out, each with a count of its own.
    pub out: u64,
    /// Counters compared with the packets that got out: each flow's at the end of every round that
    /// it was there in.
    pub counters: u64,
    /// Of these, counters that equal the number of packets that got out; the others are larger by
    /// packets that were lost after they were counted, each of which is named.
    pub equal: u64,
    /// Packets lost after they were counted.
    pub counted_and_lost: u64,
    /// Packets lost before they were counted.
    pub lost: u64,
    /// How many of both, by place and cause.
    pub losses: BTreeMap<String, u64>,
    /// The longest time, in milliseconds, in which packets were sent all the time and none got out.
    pub silent_ms: u64,
    /// The same after all faults were repaired.
    pub silent_after_repairs_ms: u64,
    /// The same after all faults were repaired, while a router handed packets to the switches all
    /// the time.
    pub unserved_after_repairs_ms: u64,
    /// Histories of flows that the linearizability checker judged, one for each flow and round.
    pub histories: u64,
    /// Operations in them, those without an output too.
    pub operations: u64,
    /// Time that this took, in milliseconds.
    pub checked_ms: u64,
}

struct Flow {
    number: u32,
    socket: UdpSocket,
    port: u16,
}

/// What the threads and the rounds share.
struct Shared {
    zero: Instant,
    stop: AtomicBool,
    pause: AtomicBool,
    paused: AtomicBool,
    next_packet: AtomicU32,
    received: AtomicU64,
    flows: Mutex<Vec<Flow>>,
    /// What happened since it was last looked at.
    events: Mutex<Vec<Timed>>,
}

impl Shared {
    fn ns(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn record(&self, ns: u64, event: Event) {
        lock(&self.events).push(Timed { ns, event });
    }

    /// Sends a flow's next packet.
    fn send(&self, flow: &Flow, to: SocketAddrV4) {
        let packet = self.next_packet.fetch_add(1, Ordering::Relaxed);
        let ns = self.ns();
        let message = [flow.number.to_be_bytes(), packet.to_be_bytes()].concat();
        // While a route is away sending fails: then there was no input.
        if flow.socket.send_to(&message, to).is_ok() {
            self.record(ns, Event::Input { flow: flow.number, packet });
        }
    }
}

/// The accounts by flow, the counters that they were judged by, and the time before and after these
/// were read.
type Settled = (BTreeMap<u32, Account>, Held, (u64, u64));

/// The flows of a lab; they end with this value.
pub struct Counts {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    to: SocketAddrV4,
    load: Load,
    judge: Arc<Judge>,
    file: BufWriter<File>,
    path: PathBuf,
    /// The present generation's.
    events: Vec<Timed>,
    /// How many of them the ledger has.
    entered: usize,
    ledger: Ledger,
    /// What was seen in this round.
    seen: Vec<Sighting>,
    tap: Tap,
    tap_lost: u64,
    losses: BufWriter<File>,
    rounds: u64,
    /// When the last judgement was over.
    round_ns: u64,
    /// The accounts as they were judged last.
    accounts: BTreeMap<u32, Account>,
    next_flow: u32,
    figures: Figures,
}

impl Counts {
    /// Starts sending and receiving; the history goes to `path`.
    ///
    /// # Errors
    /// A socket or the file cannot be opened.
    pub fn start(
        lab: &Lab,
        to: SocketAddrV4,
        load: Load,
        path: &Path,
        judge: &Arc<Judge>,
    ) -> Result<Self> {
        let file = BufWriter::new(File::create(path).map_err(Error::io(path))?);
        let losses = path.with_file_name(format!("losses-{}.jsonl", lab.topology().name));
        let losses = BufWriter::new(File::create(&losses).map_err(Error::io(&losses))?);
        let nodes: Vec<String> = lab.topology().node.keys().cloned().collect();
        let (zero, zero_ns) = (Instant::now(), wall_ns());
        let tap = tap::start(lab, &nodes, to.port(), FIRST_PORT, zero_ns)?;
        let shared = Arc::new(Shared {
            zero,
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            next_packet: AtomicU32::new(1),
            received: AtomicU64::new(0),
            flows: Mutex::new(Vec::new()),
            events: Mutex::new(Vec::new()),
        });
        let socket = lab
            .netns("outside")?
            .run(lab::raw::udp_with_headers)
            .map_err(Error::system("a raw socket in outside"))?;
        // Without one at the port, the host answers each datagram with an ICMP error.
        let sink = lab
            .netns("outside")?
            .run(|| UdpSocket::bind(to))
            .map_err(Error::system(format!("binding {to}")))?;
        let (receiving, sending) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || {
                receive(&socket, to.port(), &receiving);
                drop(sink);
            }),
            std::thread::spawn(move || send(to, load.packets_per_s, &sending)),
        ];
        let mut counts = Self {
            shared,
            threads,
            to,
            load,
            judge: Arc::clone(judge),
            file,
            path: path.to_path_buf(),
            events: Vec::new(),
            entered: 0,
            ledger: ledger(lab, nodes),
            seen: Vec::new(),
            tap,
            tap_lost: 0,
            losses,
            rounds: 0,
            round_ns: 0,
            accounts: BTreeMap::new(),
            next_flow: 1,
            figures: Figures::default(),
        };
        counts.add_flows(lab, load.flows)?;
        Ok(counts)
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let sent = u64::from(self.shared.next_packet.load(Ordering::Relaxed)) - 1;
        Figures { sent, ..self.figures.clone() }
    }

    fn add_flows(&mut self, lab: &Lab, count: usize) -> Result<()> {
        let netns = lab.netns("inside")?;
        for _ in 0..count {
            // No port serves twice: the flow of its addresses and ports would go on where it was.
            let port = FIRST_PORT.saturating_add(u16::try_from(self.next_flow).unwrap_or(u16::MAX));
            let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
            let socket = netns
                .run(bind)
                .map_err(Error::system(format!("binding UDP port {port} in inside")))?;
            lock(&self.shared.flows).push(Flow { number: self.next_flow, socket, port });
            self.next_flow += 1;
            self.figures.flows += 1;
        }
        Ok(())
    }

    /// A round begins: fresh flows join.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn begin_round(&mut self, lab: &Lab) -> Result<()> {
        self.add_flows(lab, self.load.fresh)
    }

    /// The time since the recording began.
    pub fn ns(&self) -> u64 {
        self.shared.ns()
    }

    /// The network is whole, after these faults, of which the last was repaired at `repaired_ns`:
    /// each flow must get a packet through that was sent from now on, and then all that happened is
    /// judged. `routing` tells, up to a time, of routing that changed without a fault.
    ///
    /// # Errors
    /// A store or switch does not tell its counters, the history cannot be written, or the process
    /// is to stop.
    pub fn end_round(
        &mut self,
        lab: &Lab,
        (outages, repaired_ns): (Vec<Outage>, u64),
        routing: &dyn Fn(u64) -> Vec<Outage>,
    ) -> Result<()> {
        outages.into_iter().for_each(|outage| self.ledger.outage(outage));
        self.pause()?;
        let closing = self.close_flows()?;
        let (accounts, held, read) = self.settle(lab, routing)?;
        let before = self.judge.count();
        // First what is said once for a flow: of what is said of each packet only so much is kept.
        self.judge_histories(&held, read);
        self.judge_silence(repaired_ns);
        self.judge_accounts(&accounts, &held, &closing);
        let good = self.judge.count() == before;
        if !good {
            self.write_sightings(&accounts)?;
        }
        self.seen.clear();
        self.accounts = accounts;
        // What is wrong is said once.
        if good { self.end_flows(lab) } else { self.end_generation(lab) }
    }

    /// Ends all flows: what has become of their packets until the last judgement is noted. Call it
    /// before [`Counts::resume`].
    ///
    /// # Errors
    /// The file of lost packets cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        let ended = std::mem::take(&mut *lock(&self.shared.flows));
        self.end(&ended)
    }

    /// What was seen in this round of the flows with which something is wrong.
    fn write_sightings(&self, accounts: &BTreeMap<u32, Account>) -> Result<()> {
        let round = self.judge.round.load(Ordering::Relaxed);
        let path = self.path.with_extension(format!("round-{round}.sightings"));
        let wrong = |sighting: &&Sighting| {
            accounts.get(&sighting.flow).is_some_and(|it| !it.problems.is_empty())
        };
        let lines: Vec<String> =
            self.seen.iter().filter(wrong).map(|it| self.ledger.describe(it)).collect();
        std::fs::write(&path, lines.join("\n") + "\n").map_err(Error::io(&path))
    }

    /// Goes on after [`Counts::end_round`].
    pub fn resume(&self) {
        self.shared.pause.store(false, Ordering::SeqCst);
    }

    fn pause(&self) -> Result<()> {
        self.shared.pause.store(true, Ordering::SeqCst);
        while !self.shared.paused.load(Ordering::SeqCst) {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Moves what has happened into the generation's history and its file.
    fn take_events(&mut self) -> Result<()> {
        let mut new = std::mem::take(&mut *lock(&self.shared.events));
        new.sort_by_key(|timed| timed.ns);
        // Those of the file: what comes after its end is nobody's.
        self.figures.out +=
            new.iter().filter(|timed| matches!(timed.event, Event::Output { .. })).count() as u64;
        write_lines(&mut self.file, &new)
            .and_then(|()| self.file.flush())
            .map_err(Error::io(&self.path))?;
        // A packet of a flow that has ended may still come out: the file has it.
        let present: BTreeSet<u32> =
            lock(&self.shared.flows).iter().map(|flow| flow.number).collect();
        self.events
            .extend(new.into_iter().filter(|timed| present.contains(&flow_of(&timed.event))));
        Ok(())
    }

    /// Sends packets of each flow until one gets out; the count of that one, by flow.
    fn close_flows(&mut self) -> Result<BTreeMap<u32, u64>> {
        let began = self.shared.ns();
        let mut last = None;
        for _ in 0..CLOSING_MOST {
            let missing = {
                self.take_events()?;
                let through = self.through_since(began);
                let flows = lock(&self.shared.flows);
                let missing: Vec<u32> = flows
                    .iter()
                    .map(|flow| flow.number)
                    .filter(|flow| !through.contains_key(flow))
                    .collect();
                for flow in flows.iter().filter(|flow| missing.contains(&flow.number)) {
                    self.shared.send(flow, self.to);
                }
                last = Some((through, missing.clone()));
                missing
            };
            if missing.is_empty() {
                break;
            }
            let deadline = Instant::now() + CLOSING_PATIENCE;
            let received = || self.shared.received.load(Ordering::Relaxed);
            let wanted = received() + missing.len() as u64;
            while received() < wanted && Instant::now() < deadline {
                if interrupt::requested() {
                    return Err(Error::Interrupted);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let (through, missing) = last.unwrap_or_default();
        for flow in missing {
            let waited = CLOSING_PATIENCE.as_millis() * u128::from(CLOSING_MOST);
            self.judge.violation(format!(
                "flow {flow}: of {CLOSING_MOST} packets in {waited} ms of a whole network none got out"
            ));
        }
        Ok(through)
    }

    /// The highest count of each flow among packets that were sent since.
    fn through_since(&self, began: u64) -> BTreeMap<u32, u64> {
        let mut sent = BTreeSet::new();
        let mut through = BTreeMap::new();
        for timed in &self.events {
            match timed.event {
                Event::Input { packet, .. } if timed.ns >= began => drop(sent.insert(packet)),
                Event::Output { flow, packet, count } if sent.contains(&packet) => {
                    let highest: &mut u64 = through.entry(flow).or_default();
                    *highest = count.max(*highest);
                }
                _ => {}
            }
        }
        through
    }

    /// Reads the counters until all accounts come out even, or for [`SETTLED_WITHIN`]: packets may
    /// still be on their way. With the time before and after the last reading.
    fn settle(&mut self, lab: &Lab, routing: &dyn Fn(u64) -> Vec<Outage>) -> Result<Settled> {
        let deadline = Instant::now() + SETTLED_WITHIN;
        loop {
            let before = self.shared.ns();
            let held = held(lab, self.to.port())?;
            let after = self.shared.ns();
            // What a router's thread has not fetched yet is lost on the way, as far as an account
            // goes.
            self.tap.catch_up()?;
            self.take_events()?;
            self.enter_events();
            let counter =
                |flow: &Flow| held.recorded.get(&flow.port).map_or(0, |(count, _)| *count);
            let accounts: BTreeMap<u32, Account> = lock(&self.shared.flows)
                .iter()
                .map(|flow| (flow.number, self.ledger.account(flow.number, counter(flow))))
                .collect();
            let even = accounts.values().all(|account| account.problems.is_empty())
                && self.owners_agree(&held).is_none();
            if even || Instant::now() > deadline {
                return Ok((accounts, held, (before, after)));
            }
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let changes = routing(self.shared.ns());
            changes.into_iter().for_each(|outage| self.ledger.outage(outage));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Tells the ledger what has happened since it was last told.
    fn enter_events(&mut self) {
        for timed in &self.events[self.entered..] {
            match timed.event {
                Event::Input { flow, packet } => self.ledger.sent(flow, packet),
                Event::Output { flow, packet, count } => self.ledger.got_out(flow, packet, count),
            }
        }
        self.entered = self.events.len();
        for sighting in self.tap.take() {
            self.ledger.see(sighting);
            self.seen.push(sighting);
        }
    }

    /// Ends the flows that joined with this round, and from time to time all.
    fn end_flows(&mut self, lab: &Lab) -> Result<()> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(GENERATION_ROUNDS) {
            return self.end_generation(lab);
        }
        let ended = {
            let mut flows = lock(&self.shared.flows);
            let stay = self.load.flows.min(flows.len());
            flows.split_off(stay)
        };
        self.end(&ended)?;
        let stays: BTreeSet<u32> =
            lock(&self.shared.flows).iter().map(|flow| flow.number).collect();
        self.events.retain(|timed| stays.contains(&flow_of(&timed.event)));
        self.entered = self.events.len();
        Ok(())
    }

    fn end_generation(&mut self, lab: &Lab) -> Result<()> {
        let ended = std::mem::take(&mut *lock(&self.shared.flows));
        self.end(&ended)?;
        self.events.clear();
        self.entered = 0;
        self.add_flows(lab, self.load.flows)
    }

    /// Notes what has become of the packets of flows that end.
    fn end(&mut self, ended: &[Flow]) -> Result<()> {
        for flow in ended {
            self.ledger.forget(flow.number);
            for lost in self.accounts.remove(&flow.number).unwrap_or_default().lost {
                self.note(&lost).map_err(Error::io(&self.path))?;
            }
        }
        self.losses.flush().map_err(Error::io(&self.path))
    }
}

/// An empty ledger for a lab.
fn ledger(lab: &Lab, nodes: Vec<String>) -> Ledger {
    let role = |name: &String| lab.topology().node.get(name).map_or(Role::Host, |node| node.role);
    let id =
        |name: &String| lab.variables(name).get("switch_id").and_then(|id| id.parse::<u32>().ok());
    let switches =
        nodes.iter().enumerate().filter_map(|(at, name)| Some((id(name)?, at))).collect();
    let nodes = nodes.into_iter().map(|name| (name.clone(), role(&name))).collect();
    Ledger::new(nodes, switches)
}

fn flow_of(event: &Event) -> u32 {
    match event {
        Event::Input { flow, .. } | Event::Output { flow, .. } => *flow,
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // They have nothing to say.
            let _ = thread.join();
        }
    }
}

/// Sends on all flows in turn, at a steady rate.
fn send(to: SocketAddrV4, packets_per_s: u64, shared: &Shared) {
    let period = Duration::from_secs(1) / u32::try_from(packets_per_s.max(1)).unwrap_or(u32::MAX);
    let (mut due, mut turn) = (Instant::now(), 0_usize);
    while !shared.stop.load(Ordering::Relaxed) {
        let pause = shared.pause.load(Ordering::SeqCst);
        shared.paused.store(pause, Ordering::SeqCst);
        if !pause {
            let flows = lock(&shared.flows);
            if let Some(flow) = turn.checked_rem(flows.len()).and_then(|at| flows.get(at)) {
                shared.send(flow, to);
                turn += 1;
            }
        }
        // Not made up for when the machine was busy: that would be a burst.
        due = (due + period).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

fn receive(socket: &UdpSocket, port: u16, shared: &Shared) {
    let mut buffer = [0; 2048];
    while !shared.stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let ns = shared.ns();
        if let Some((flow, packet, count)) = parse(&buffer[..length], port) {
            shared.record(ns, Event::Output { flow, packet, count: count.into() });
            shared.received.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Flow, packet and count of a datagram to `port`, with its IPv4 header.
fn parse(packet: &[u8], port: u16) -> Option<(u32, u32, u16)> {
    let packet: &[u8; PACKET_BYTES] = packet.try_into().ok()?;
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    (word(22) == port).then(|| (long(28), long(32), word(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_switch_has_numbered() {
        let mut packet = [0; PACKET_BYTES];
        packet[4..6].copy_from_slice(&513_u16.to_be_bytes());
        packet[22..24].copy_from_slice(&7000_u16.to_be_bytes());
        packet[28..32].copy_from_slice(&3_u32.to_be_bytes());
        packet[32..36].copy_from_slice(&70_000_u32.to_be_bytes());
        assert_eq!(parse(&packet, 7000), Some((3, 70_000, 513)));
        assert_eq!(parse(&packet, 7001), None);
        assert_eq!(parse(&packet[1..], 7000), None);
    }
}
