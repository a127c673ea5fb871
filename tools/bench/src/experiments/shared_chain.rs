//! What writes and reads cost with SRO, in chains of two and three switches (SwiSh §8.1).

use super::{Context, Experiment, Page};
use crate::labs::{Running, Wanted};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{quantile, summary};
use crate::xdp_time::{Counting, information};
use anyhow::{Result, ensure};
use dataplane::Dataplane;
use manifest::Manifest;
use plot::{Axes, Group};
use serde::Serialize;
use serde_json::json;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-chain",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, SRO",
        title: "what tables that are the same on all switches cost",
        quick: "30 s",
        full: "2 min",
        shows: "\
            writes for a second of CPU of all members, in chains of two and three switches; what a \
            write adds to a packet's round trip; CPU time of a packet that reads; reads of a key that \
            is being written, which wait, beside reads at the tail, which do not",
        paper: "\
            SwiSh §8.1: a switch's control plane carries each write of SRO, up to some 20 K a \
            second.",
        method: "\
            Real switches in namespaces, the program pairs.p4: each packet sets a key of two \
            tables, together, or reads both, or both reads and sets them, and comes back. Hosts \
            send through all switches at once, each socket 16 packets at a time, to keys of its \
            own. CPU time is that of all programs of the switches, the generated frames' too, as \
            the kernel counts it: the kernel's own part of a packet (its softirq, the driver) is \
            not in it, and is the same without stateplane. Reads are of keys that nobody writes. \
            Round trips are of one packet at a time, writes and packets without state by turns.\n\n\
            A packet that reads a key of which a write is not at all switches yet waits at its \
            switch. SwiSh §6.1 lets the tail serve it instead. For both ways, one socket writes a \
            key through the head, one write at a time without a pause, and another one reads it, \
            through the last switch but one and through the tail. A read that the tail serves for \
            another switch has the way to the tail and back, too: half of what a write adds, as a \
            write goes twice as far.\n\n\
            A packet that reads two keys runs again when a batch is written in between.",
    },
};

/// For a second of all members' CPU.
const WRITES_PER_S: f64 = 200_000.0;
/// Packets of a socket on their way at once.
const WINDOW: u32 = 16;
/// Sockets for each switch.
const SOCKETS: u32 = 2;
/// For a lab that has just come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// What runs in a switch, but for what these call.
const PROGRAMS: [&str; 3] = ["sp_main", "sp_loop", "sp_generator"];
/// Operations of pairs.p4.
pub(super) const READ: u8 = 0;
pub(super) const SET: u8 = 2;
const READ_AND_SET: u8 = 3;
/// None: the packet comes back as it is.
const NOTHING: u8 = 9;

/// A host's socket towards a switch, with keys of its own.
struct Sender {
    socket: UdpSocket,
    first_key: u32,
}

impl Sender {
    fn of(lab: &Running, switch: usize, number: u32) -> Result<Sender> {
        let socket = lab.netns("inside")?.run(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        // (No host has the port: the switch in front of it answers.)
        socket.connect(format!("10.8.0.{switch}:4000"))?;
        Ok(Sender { socket, first_key: number * WINDOW })
    }

    fn send(&self, op: u8, at: u32) -> std::io::Result<()> {
        let mut packet = vec![op, 0, 0, 0];
        packet.extend((self.first_key + at).to_be_bytes());
        packet.extend(1u32.to_be_bytes());
        packet.extend([0; 12]);
        self.socket.send(&packet).map(drop)
    }

    /// Packets that came back until the time is over.
    fn run(&self, op: u8, until: Instant) -> u64 {
        let (mut back, mut bytes) = (0, [0; 64]);
        while Instant::now() < until {
            let sent = (0..WINDOW).filter(|at| self.send(op, *at).is_ok()).count();
            back += (0..sent).take_while(|_| self.socket.recv(&mut bytes).is_ok()).count() as u64;
        }
        back
    }

    /// A round trip, in µs; `None`: nothing came back.
    fn ask(&self, op: u8) -> Option<f64> {
        let begin = Instant::now();
        self.send(op, 0).ok()?;
        self.socket.recv(&mut [0; 64]).ok()?;
        Some(begin.elapsed().as_secs_f64() * 1e6)
    }
}

/// Waits until a switch knows its neighbours. (What it does not know the kernel would have to send,
/// and a packet that writes cannot wait for that.)
pub(super) fn settle(lab: &Running, switch: usize) -> Result<()> {
    for network in [1, 3] {
        let host = format!("10.{network}.{switch}.10");
        let ping = ["ping", "-q", "-c1", "-W1", &host];
        let begin = Instant::now();
        while let Err(error) = lab.run(&format!("s{switch}"), &ping) {
            ensure!(begin.elapsed() < PATIENCE, "{error}");
        }
    }
    let sender = Sender::of(lab, switch, 0)?;
    let begin = Instant::now();
    while sender.ask(SET).is_none() {
        ensure!(begin.elapsed() < PATIENCE, "no write at s{switch} comes back");
    }
    Ok(())
}

/// By round.
#[derive(Default, Serialize)]
struct Measured {
    /// For a second of all members' CPU.
    writes: Vec<f64>,
    read_and_written: Vec<f64>,
    /// See [`Cost::balance`].
    balance: Vec<f64>,
    balance_read: Vec<f64>,
    read_ns: Vec<f64>,
    nothing_ns: Vec<f64>,
    added_us: Vec<f64>,
    /// Reads of a key that is being written, at a switch where they wait and at the tail: medians
    /// and 99th percentiles.
    waiting_us: Vec<f64>,
    waiting_high_us: Vec<f64>,
    tail_us: Vec<f64>,
    tail_high_us: Vec<f64>,
}

/// Three switches, the first ones of which share; another one is alone.
pub(super) fn up(context: &Context, members: usize) -> Result<Running> {
    let file = "systems/swish/lab/paths.toml";
    let wanted = Wanted { file, mode: "shared", prefer: None, vars: &[("program", "pairs")] };
    let quoted = |number: usize| format!("\"10.9.0.{number}\"");
    let chain: Vec<String> = (1..=members).map(quoted).collect();
    let lab = Running::up_changed(context, wanted, |topology| {
        for number in 1..=3 {
            let own = if number > members { quoted(number) } else { chain.join(", ") };
            if let Some(node) = topology.node.get_mut(&format!("s{number}")) {
                node.vars.insert("members".into(), own);
            }
        }
    })?;
    (1..=members).try_for_each(|switch| settle(&lab, switch))?;
    Ok(lab)
}

/// What packets of an operation cost.
struct Cost {
    /// That came back, of each member's hosts.
    packets: Vec<u64>,
    /// Of all members' programs, in ns.
    run_ns: u64,
}

impl Cost {
    fn all(&self) -> f64 {
        self.packets.iter().sum::<u64>() as f64
    }

    /// Packets of the member that has the fewest, over those of the one that has the most.
    fn balance(&self) -> f64 {
        let [least, most] = [self.packets.iter().min(), self.packets.iter().max()];
        *least.unwrap_or(&0) as f64 / *most.unwrap_or(&0) as f64
    }
}

/// The members' data planes.
fn open(lab: &Running, members: usize) -> Result<Vec<Dataplane>> {
    let each = |number| {
        let folder = PathBuf::from(format!("/run/stateplane/{}-s{number}", lab.name()));
        // (The agents are new: their first generation runs.)
        let manifest = Manifest::read(&folder.join("manifest-1.json"))?;
        Ok(Dataplane::open_pinned(&folder.join("bpf/g1"), manifest)?)
    };
    (1..=members).map(each).collect()
}

fn run_ns(members: &[Dataplane]) -> Result<u64> {
    let programs = members.iter().flat_map(|it| PROGRAMS.map(|name| it.program(name)));
    programs.flatten().map(|program| Ok(information(program)?.run_time_ns)).sum()
}

fn load(lab: &Running, members: &[Dataplane], op: u8, time: Duration) -> Result<Cost> {
    let each = |member: usize| {
        (0..SOCKETS).map(move |at| Sender::of(lab, member + 1, member as u32 * SOCKETS + at))
    };
    let senders: Vec<Vec<Sender>> =
        (0..members.len()).map(|member| each(member).collect()).collect::<Result<_>>()?;
    let before = run_ns(members)?;
    let until = Instant::now() + time;
    let packets: Vec<u64> = std::thread::scope(|scope| {
        let spawn = |sender| scope.spawn(move || Sender::run(sender, op, until));
        let threads: Vec<Vec<_>> =
            senders.iter().map(|each| each.iter().map(spawn).collect()).collect();
        let sum = |each: Vec<ScopedJoinHandle<'_, u64>>| {
            each.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
        };
        threads.into_iter().map(sum).collect()
    });
    let cost = Cost { packets, run_ns: run_ns(members)? - before };
    ensure!(cost.all() > 0.0, "no packet came back");
    Ok(cost)
}

/// Round trips of writes and of reads by turns: what the median of the first adds, in µs.
fn added_us(lab: &Running, rounds: u32) -> Result<f64> {
    let sender = Sender::of(lab, 2, 60)?;
    let (mut writes, mut reads) = (vec![], vec![]);
    for _ in 0..rounds {
        writes.extend(sender.ask(READ_AND_SET));
        // (The read is of a key that is settled by then.)
        reads.extend(sender.ask(NOTHING));
    }
    writes.sort_by(f64::total_cmp);
    reads.sort_by(f64::total_cmp);
    ensure!(!writes.is_empty() && !reads.is_empty(), "no packet came back");
    Ok(quantile(&writes, 0.5) - quantile(&reads, 0.5))
}

/// Sockets have keys by this number: one that is written while it is read.
const BUSY: u32 = 61;

/// Round trips of reads, in µs, of a key that is written through the head: median and 99th
/// percentile.
fn busy_reads(lab: &Running, switch: usize, time: Duration) -> Result<(f64, f64)> {
    let (writer, reader) = (Sender::of(lab, 1, BUSY)?, Sender::of(lab, switch, BUSY)?);
    let until = Instant::now() + time;
    let (writes, mut reads) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            std::iter::from_fn(|| (Instant::now() < until).then(|| writer.ask(SET)))
                .flatten()
                .count()
        });
        let reads = std::iter::from_fn(|| (Instant::now() < until).then(|| reader.ask(READ)));
        let reads: Vec<f64> = reads.flatten().collect();
        (writing.join().unwrap_or_default(), reads)
    });
    ensure!(writes > 0 && !reads.is_empty(), "no packet came back at s{switch}");
    reads.sort_by(f64::total_cmp);
    Ok((quantile(&reads, 0.5), quantile(&reads, 0.99)))
}

fn measure(context: &Context, lab: &Running, switches: usize) -> Result<Measured> {
    let (rounds, time) = (context.pick(3, 7), Duration::from_millis(context.pick(1_000, 2_000)));
    let members = open(lab, switches)?;
    for op in [SET, READ_AND_SET] {
        load(lab, &members, op, time / 5)?;
    }
    let mut measured = Measured::default();
    for round in 0..rounds {
        for (op, rates, balances) in [
            (SET, &mut measured.writes, &mut measured.balance),
            (READ_AND_SET, &mut measured.read_and_written, &mut measured.balance_read),
        ] {
            let cost = load(lab, &members, op, time)?;
            rates.push(cost.all() * 1e9 / cost.run_ns as f64);
            balances.push(cost.balance());
        }
        for (op, of) in [(READ, &mut measured.read_ns), (NOTHING, &mut measured.nothing_ns)] {
            let cost = load(lab, &members, op, time / 4)?;
            of.push(cost.run_ns as f64 / cost.all());
        }
        measured.added_us.push(added_us(lab, 2_000)?);
        for (switch, medians, highs) in [
            (switches - 1, &mut measured.waiting_us, &mut measured.waiting_high_us),
            (switches, &mut measured.tail_us, &mut measured.tail_high_us),
        ] {
            let (median, high) = busy_reads(lab, switch, time / 2)?;
            medians.push(median);
            highs.push(high);
        }
        context.progress(&format!("{switches} switches, round"), round + 1, rounds);
    }
    Ok(measured)
}

fn rows(switches: usize, measured: &Measured, rows: &mut Vec<Row>) {
    let value = |what: &str, paper: &str, of: &[f64], decimals, unit| {
        Row::value(format!("{switches} switches: {what}"), paper, summary(of), decimals, unit)
    };
    let paper = "20 K/s, by the control plane";
    let writes = value("writes for a second of all members' CPU", paper, &measured.writes, 0, "");
    rows.push(writes.with_goal(Goal::AtLeast(WRITES_PER_S)));
    let both = "writes of what was read, for the same";
    rows.push(value(both, "", &measured.read_and_written, 0, ""));
    let balance = "writes through the slowest switch over the fastest one";
    rows.push(value(balance, "", &measured.balance, 2, ""));
    let balance = "the same for writes of what was read";
    rows.push(value(balance, "", &measured.balance_read, 2, ""));
    rows.push(value("a write adds to the round trip", "", &measured.added_us, 0, "µs"));
    let busy = "read of a key that is being written";
    for (way, medians, highs) in [
        ("which waits", &measured.waiting_us, &measured.waiting_high_us),
        ("at the tail", &measured.tail_us, &measured.tail_high_us),
    ] {
        rows.push(value(&format!("{busy}, {way}: median"), "", medians, 0, "µs"));
        rows.push(value(&format!("{busy}, {way}: 99th percentile"), "", highs, 0, "µs"));
    }
    rows.push(value("packet that reads two keys", "", &measured.read_ns, 0, "ns"));
    rows.push(value("packet without state", "", &measured.nothing_ns, 0, "ns"));
}

fn figure(all: &[(usize, Measured)]) -> Result<Figure> {
    let bar = |of: &[f64]| {
        let it = summary(of);
        Some((it.median / 1e3, it.low / 1e3, it.high / 1e3))
    };
    let groups: Vec<Group> = all
        .iter()
        .map(|(switches, it)| Group {
            name: format!("{switches} switches"),
            bars: vec![bar(&it.writes), bar(&it.read_and_written)],
        })
        .collect();
    let axes = Axes {
        title: "SRO: writes for a second of all members' CPU".into(),
        y: "thousands".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["written", "read and written"], &groups)?;
    Ok(Figure { name: "shared-chain".into(), svg })
}

fn run(context: &Context) -> Result<Outcome> {
    let _counting = Counting::begin()?;
    let mut outcome = Outcome::default();
    let mut all = vec![];
    for switches in [2, 3] {
        let lab = up(context, switches)?;
        let measured = measure(context, &lab, switches)?;
        rows(switches, &measured, &mut outcome.rows);
        all.push((switches, measured));
    }
    outcome.figures.push(figure(&all)?);
    outcome.data = json!(
        all.iter()
            .map(|(switches, it)| json!({ "switches": switches, "rounds": it }))
            .collect::<Vec<_>>()
    );
    Ok(outcome)
}
