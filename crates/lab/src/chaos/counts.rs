//! Counted packets through the lab: numbered datagrams of many flows go from `inside` to `outside`, and on the way a switch puts the flow's packet count into each.
//!
//! Every packet that was sent and every one that came out is kept with its time, in a file of JSON lines and, for the flows of the present *generation*, in
//! memory. Each round's end judges the whole history of the generation: [`history::History::check`].

use crate::chaos::Judge;
use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::interrupt;
use crate::process;
use history::{Event, History, Timed, write_lines};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Flows that there were.
    pub flows: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that got out, each with a count of its own.
    pub out: u64,
    /// Counters compared with the packets that got out.
    pub counters: u64,
    /// Of these, counters that equal the number of packets that got out; the others count packets too that were lost after they were counted.
    pub equal: u64,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    rounds: u64,
    next_flow: u32,
    figures: Figures,
}

impl Counts {
    /// Starts sending and receiving; the history goes to `path`.
    ///
    /// # Errors
    /// A socket or the file cannot be opened.
    pub fn start(lab: &Lab, to: SocketAddrV4, load: Load, path: &Path, judge: &Arc<Judge>) -> Result<Self> {
        let file = BufWriter::new(File::create(path).map_err(Error::io(path))?);
        let shared = Arc::new(Shared {
            zero: Instant::now(),
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
            .run(crate::raw::udp_with_headers)
            .map_err(Error::system("a raw socket in outside"))?;
        // Without one at the port, the host answers each datagram with an ICMP error.
        let sink = lab.netns("outside")?.run(|| UdpSocket::bind(to)).map_err(Error::system(format!("binding {to}")))?;
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
            rounds: 0,
            next_flow: 1,
            figures: Figures::default(),
        };
        counts.add_flows(lab, load.flows)?;
        Ok(counts)
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        let sent = u64::from(self.shared.next_packet.load(Ordering::Relaxed)) - 1;
        Figures { sent, ..self.figures }
    }

    fn add_flows(&mut self, lab: &Lab, count: usize) -> Result<()> {
        let netns = lab.netns("inside")?;
        for _ in 0..count {
            // No port serves twice: the flow of its addresses and ports would go on where it was.
            let port = FIRST_PORT.saturating_add(u16::try_from(self.next_flow).unwrap_or(u16::MAX));
            let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
            let socket = netns.run(bind).map_err(Error::system(format!("binding UDP port {port} in inside")))?;
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

    /// The network is whole: each flow must get a packet through that was sent from now on, and then all that happened is judged.
    ///
    /// # Errors
    /// A switch does not tell its counters, the history cannot be written, or the process is to stop.
    pub fn end_round(&mut self, lab: &Lab) -> Result<()> {
        self.pause()?;
        let closing = self.close_flows()?;
        let held = held(lab, self.to.port())?;
        self.take_events()?;
        self.judge_counters(&held, &closing);
        if let Err(violation) = History::of(self.events.clone()).check() {
            self.judge.violation(format!("{violation:?} (history in {})", self.path.display()));
            return self.end_generation(lab);
        }
        self.end_flows(lab)
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
        self.figures.out += new.iter().filter(|timed| matches!(timed.event, Event::Output { .. })).count() as u64;
        write_lines(&mut self.file, &new).and_then(|()| self.file.flush()).map_err(Error::io(&self.path))?;
        // A packet of a flow that has ended may still come out: the file has it.
        let present: BTreeSet<u32> = lock(&self.shared.flows).iter().map(|flow| flow.number).collect();
        self.events.extend(new.into_iter().filter(|timed| present.contains(&flow_of(&timed.event))));
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
                let missing: Vec<u32> =
                    flows.iter().map(|flow| flow.number).filter(|flow| !through.contains_key(flow)).collect();
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

    /// A flow's counter is at least each count that got out, and at most the number of its packets. What lies between was counted and then lost.
    fn judge_counters(&mut self, held: &BTreeMap<u16, u64>, closing: &BTreeMap<u32, u64>) {
        let mut tally: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        for timed in &self.events {
            match timed.event {
                Event::Input { flow, .. } => tally.entry(flow).or_default().0 += 1,
                Event::Output { flow, count, .. } => {
                    let (_, out, highest) = tally.entry(flow).or_default();
                    *out += 1;
                    *highest = count.max(*highest);
                }
            }
        }
        for flow in lock(&self.shared.flows).iter() {
            // A flow that is stuck is reported already.
            let (Some(_), Some((sent, out, highest))) = (closing.get(&flow.number), tally.get(&flow.number)) else {
                continue;
            };
            let counter = held.get(&flow.port).copied().unwrap_or(0);
            self.figures.counters += 1;
            if counter < *highest || counter > *sent {
                self.judge.violation(format!(
                    "flow {}: its counter is {counter}, but {sent} packets were sent, and count {highest} got out",
                    flow.number
                ));
            } else if counter == *out {
                self.figures.equal += 1;
            }
        }
    }

    /// Ends the flows that joined with this round, and from time to time all.
    fn end_flows(&mut self, lab: &Lab) -> Result<()> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(GENERATION_ROUNDS) {
            return self.end_generation(lab);
        }
        lock(&self.shared.flows).truncate(self.load.flows);
        let stays: BTreeSet<u32> = lock(&self.shared.flows).iter().map(|flow| flow.number).collect();
        self.events.retain(|timed| stays.contains(&flow_of(&timed.event)));
        Ok(())
    }

    fn end_generation(&mut self, lab: &Lab) -> Result<()> {
        lock(&self.shared.flows).clear();
        self.events.clear();
        self.add_flows(lab, self.load.flows)
    }
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

/// The count of each flow, by source port, that the switches hold: the larger where both hold one (one may be of an earlier lease).
fn held(lab: &Lab, port: u16) -> Result<BTreeMap<u16, u64>> {
    let mut counts = BTreeMap::new();
    for (node, spec) in &lab.topology().node {
        if spec.role != crate::topology::Role::Switch {
            continue;
        }
        let binary = lab.variables(node).get("stateplane").cloned().unwrap_or_default();
        let name = format!("{}-{node}", lab.name());
        let command =
            [&binary, "switch", "flows", "--switch", &name, "--json", "--limit", "100000"].map(str::to_string);
        let (good, said) = process::run(None, &command)?;
        let reply: Value = if good { serde_json::from_str(&said).unwrap_or_default() } else { Value::Null };
        let Some(flows) = reply["flows"].as_array() else {
            return Err(Error::Command { command: command.join(" "), reason: said });
        };
        for flow in flows {
            let field = |part: &str, name: &str| {
                let pair = flow[part].as_array()?.iter().find(|pair| pair[0] == name)?;
                number(pair[1].as_str()?)
            };
            let key = (field("key", "source_port"), field("key", "destination_port"));
            if let ((Some(source), Some(destination)), Some(count)) = (key, field("value", "packets"))
                && destination == u64::from(port)
                && let Ok(source) = u16::try_from(source)
            {
                let held: &mut u64 = counts.entry(source).or_default();
                *held = count.max(*held);
            }
        }
    }
    Ok(counts)
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
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
        assert_eq!((number("0x10"), number("12"), number("x")), (Some(16), Some(12), None));
    }
}
