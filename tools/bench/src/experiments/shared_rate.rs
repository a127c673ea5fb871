//! How long packets take that write with SRO, by how many there are, in a switch alone and in
//! chains of two and three (SwiSh Figures 5d and 5e).

use super::shared_chain::{READ, SET, settle, up};
use super::{Context, Experiment, Page};
use crate::labs::Running;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{quantile, ratio_summary, summary};
use anyhow::{Result, ensure};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use plot::{Axes, Line, distribution};
use serde::Serialize;
use serde_json::json;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-rate",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figures 5d and 5e",
        title: "how long updates with SRO take, by their rate",
        quick: "1 min",
        full: "4 min",
        shows: "\
            round trips of packets that write with SRO, from 1,000 a second to more than the \
            switches can take, in a switch alone and in chains of two and three; round trips of \
            a mixture of reads and writes",
        paper: "\
            SwiSh §9.1, Figure 5d: of a NAT's packets, those that only read take as long as \
            without replication, and updates about twice as long. §9.2, Figure 5e: with a second \
            switch, a switch takes 2.5 times fewer updates a second, and 20,000 at the most; \
            their latency grows with their rate, as packets wait in the control plane.",
        method: "\
            Real switches in namespaces, the program pairs.p4: a packet sets a key of two tables, \
            or reads both, and comes back. A host sends through one switch at a fixed rate, \
            whether packets come back or not, and times each; the chains' head is another switch. \
            In the mixture, 21 % of the packets write, as in the paper. A rate is carried if 99 % \
            of its packets are sent in time and come back, and within 10 ms at the median. The \
            sender itself cannot send 80,000 a second beside the switches, so a chain's own limit \
            is not seen here; its CPU time is in shared-chain. All switches and both ends \
            share two CPUs, where the paper's switches work side by side: a chain's members take \
            CPU time from each other, and round trips have the hosts' own part. The NAT itself is \
            in the lab tests; here its updates are those of a program that does nothing else.",
    },
};

/// Members of the chain.
const MEMBERS: [usize; 3] = [1, 2, 3];
/// Packets a second.
const RATES: [u32; 8] = [1_000, 2_000, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000];
/// At this rate round trips are compared.
const LOW: u32 = 1_000;
const MIXED: u32 = 5_000;
/// Of a mixture, so many of 100 packets write.
const WRITES: u32 = 21;
/// Keys that are written; as many others are read.
const KEYS: u32 = 128;
/// The switch that packets go through: never the head of a chain of several.
const SWITCH: usize = 2;
/// Packets that have not come back this long after the last one are lost.
const LATE: Duration = Duration::from_millis(300);
/// What a host's socket holds.
const SOCKET_BYTES: usize = 16 << 20;
/// Of the packets of a rate that is carried.
const BACK: f64 = 0.99;
const MOST_MEDIAN_US: f64 = 10_000.0;
/// No packet is in the way: what was sent at the sender's time 0.
const NOT_SENT: u64 = 0;

/// Round trips, in µs, in order.
#[derive(Default, Serialize)]
struct Trips {
    sent: usize,
    /// Packets a second that were sent, over those that were to be.
    offered: f64,
    reads: Vec<f64>,
    writes: Vec<f64>,
}

impl Trips {
    fn back(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 / self.sent.max(1) as f64
    }

    fn is_carried(&self) -> bool {
        self.offered >= BACK && self.back() >= BACK && quantile(&self.writes, 0.5) <= MOST_MEDIAN_US
    }
}

fn socket(lab: &Running) -> Result<UdpSocket> {
    let socket = lab.netns("inside")?.run(|| UdpSocket::bind("0.0.0.0:0"))?;
    socket.set_read_timeout(Some(LATE))?;
    // (Packets wait while the sender has the CPU.)
    setsockopt(&socket, RcvBufForce, &SOCKET_BYTES)?;
    // (No host has the port: the switch in front of it answers.)
    socket.connect(format!("10.8.0.{SWITCH}:4000"))?;
    Ok(socket)
}

/// Packets that are sent until a key is written.
const TRIES: u32 = 20;

/// The packet with this number. Its number is its value, and comes back with it.
fn packet(number: u32, writes: bool) -> [u8; 24] {
    let (op, key) = if writes { (SET, number % KEYS) } else { (READ, KEYS + number % KEYS) };
    let mut bytes = [0; 24];
    bytes[0] = op;
    bytes[4..8].copy_from_slice(&key.to_be_bytes());
    bytes[8..12].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Packets at a rate, for some time; of 100 of them so many write.
fn offer(lab: &Running, rate: u32, writes: u32, time: Duration) -> Result<Trips> {
    let socket = socket(lab)?;
    let count = (f64::from(rate) * time.as_secs_f64()) as u32;
    let sent: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(NOT_SENT)).collect();
    let begin = Instant::now();
    // (1: none is sent at NOT_SENT.)
    let now_ns = || begin.elapsed().as_nanos() as u64 + 1;
    let is_write = |number: u32| number.wrapping_mul(37) % 100 < writes;
    let mut trips = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut trips = Trips::default();
            let mut bytes = [0; 64];
            while socket.recv(&mut bytes).is_ok() {
                let number = bytes[8..12].first_chunk().copied().map_or(0, u32::from_be_bytes);
                let Some(at) = sent.get(number as usize) else { continue };
                let sent_ns = at.swap(NOT_SENT, Ordering::Relaxed);
                if sent_ns != NOT_SENT {
                    let us = now_ns().saturating_sub(sent_ns) as f64 / 1e3;
                    let of = if bytes[0] == SET { &mut trips.writes } else { &mut trips.reads };
                    of.push(us);
                }
            }
            trips
        });
        for (number, at) in (0..count).zip(&sent) {
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            while begin.elapsed() < due {
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            at.store(now_ns(), Ordering::Relaxed);
            // (What the socket has no room for is lost.)
            let _ = socket.send(&packet(number, is_write(number)));
        }
        let offered = time.as_secs_f64() / begin.elapsed().as_secs_f64().max(time.as_secs_f64());
        Trips { offered, ..receiver.join().unwrap_or_default() }
    });
    trips.sent = count as usize;
    trips.reads.sort_by(f64::total_cmp);
    trips.writes.sort_by(f64::total_cmp);
    ensure!(trips.back() > 0.0, "no packet came back");
    Ok(trips)
}

/// Of writes at a rate, in a round: median and 99th percentile in µs, what came back, whether the
/// rate is carried.
type AtRate = (f64, f64, f64, bool);

/// What a chain gave.
#[derive(Default, Serialize)]
struct Measured {
    /// By rate, then round.
    rates: Vec<(u32, Vec<AtRate>)>,
    /// By round, in µs: medians of a mixture's reads and writes.
    reads: Vec<f64>,
    writes: Vec<f64>,
    /// All of the mixture.
    #[serde(skip)]
    mixture: Trips,
}

impl Measured {
    fn at(&self, rate: u32, of: impl Fn(&AtRate) -> f64) -> Vec<f64> {
        let rounds = self.rates.iter().find(|(it, _)| *it == rate).map(|(_, rounds)| rounds);
        rounds.into_iter().flatten().map(of).collect()
    }

    /// By round: the highest rate that is carried, with all below it.
    fn most(&self) -> Vec<f64> {
        let rounds = self.rates.first().map_or(0, |(_, rounds)| rounds.len());
        let of = |round: usize| {
            let carried =
                |(_, rounds): &&(u32, Vec<AtRate>)| rounds.get(round).is_some_and(|it| it.3);
            self.rates.iter().take_while(carried).last().map_or(0.0, |(rate, _)| f64::from(*rate))
        };
        (0..rounds).map(of).collect()
    }
}

fn measure(context: &Context, lab: &Running, members: usize) -> Result<Measured> {
    let (rounds, time) = (context.pick(3, 7), Duration::from_millis(context.pick(400, 1_500)));
    let mut measured = Measured::default();
    // (All keys are there, and readers find them.)
    for number in 0..2 * KEYS {
        let socket = socket(lab)?;
        let mut bytes = packet(number, true);
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        // (The first ones may be lost until addresses are resolved.)
        let answered =
            (0..TRIES).any(|_| socket.send(&bytes).is_ok() && socket.recv(&mut [0; 64]).is_ok());
        ensure!(answered, "s{SWITCH} does not answer a packet that writes key {number}");
    }
    measured.rates = RATES.iter().map(|rate| (*rate, vec![])).collect();
    for round in 0..rounds {
        for (rate, found) in &mut measured.rates {
            let trips = offer(lab, *rate, 100, time)?;
            let at = |fraction| quantile(&trips.writes, fraction);
            found.push((at(0.5), at(0.99), trips.back(), trips.is_carried()));
            ensure!(!lab::interrupt::requested(), "interrupted");
        }
        let trips = offer(lab, MIXED, WRITES, 2 * time)?;
        measured.reads.push(quantile(&trips.reads, 0.5));
        measured.writes.push(quantile(&trips.writes, 0.5));
        measured.mixture.reads.extend(trips.reads);
        measured.mixture.writes.extend(trips.writes);
        context.progress(&format!("members: {members}, round"), round + 1, rounds);
    }
    measured.mixture.reads.sort_by(f64::total_cmp);
    measured.mixture.writes.sort_by(f64::total_cmp);
    Ok(measured)
}

fn rows(all: &[(usize, Measured)]) -> Vec<Row> {
    let mut rows = vec![];
    let alone = all.first().map(|(_, it)| it);
    for (members, it) in all {
        let name = if *members == 1 { "alone".into() } else { format!("{members} switches") };
        let value = |what: &str, paper: &str, of: &[f64], decimals, unit: &str| {
            Row::value(format!("{name}: {what}"), paper, summary(of), decimals, unit)
        };
        let paper = if *members == 1 { "" } else { "20 K/s" };
        rows.push(value("highest rate of writes that is carried", paper, &it.most(), 0, "/s"));
        let (median, high) = (it.at(LOW, |it| it.0), it.at(LOW, |it| it.1));
        rows.push(value("a write at 1,000/s: median", "", &median, 0, "µs"));
        rows.push(value("a write at 1,000/s: 99th percentile", "", &high, 0, "µs"));
        rows.push(value("of a mixture, reads: median", "", &it.reads, 0, "µs"));
        rows.push(value("of a mixture, writes: median", "", &it.writes, 0, "µs"));
        if let Some(alone) = alone.filter(|_| *members > 1) {
            let ratio = |what: &str, paper: &str, above: &[f64], below: &[f64]| {
                let what = format!("{name}: {what}");
                Row::value(what, paper, ratio_summary(above, below), 2, "")
            };
            let most = ratio("that rate, over alone", "0.4", &it.most(), &alone.most());
            let reads = ratio("reads, over alone", "1", &it.reads, &alone.reads);
            let writes = ratio("writes, over alone", "about 2", &it.writes, &alone.writes);
            rows.extend([most, reads, writes]);
        }
    }
    rows
}

fn name_of(members: usize) -> String {
    if members == 1 { "alone".into() } else { format!("{members} switches") }
}

fn figures(all: &[(usize, Measured)]) -> Result<Vec<Figure>> {
    let of_rate = |(members, it): &(usize, Measured)| {
        let point = |(rate, _): &(u32, Vec<_>)| {
            (f64::from(*rate), summary(&it.at(*rate, |it| it.0)).median)
        };
        Line::new(name_of(*members), it.rates.iter().map(point).collect())
    };
    let axes = Axes {
        title: "SRO: round trips of writes by their rate".into(),
        x: "writes a second".into(),
        y: "µs at the median".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let rates = plot::lines(&axes, &all.iter().map(of_rate).collect::<Vec<_>>())?;
    let of_kind = |(members, it): &(usize, Measured)| {
        let line = |what: &str, of: &[f64]| {
            Line::new(format!("{}, {what}", name_of(*members)), distribution(of))
        };
        [line("reads", &it.mixture.reads), line("writes", &it.mixture.writes)]
    };
    let axes = Axes {
        title: "SRO: round trips of a mixture of reads and writes".into(),
        x: "µs".into(),
        y: "part of the packets".into(),
        x_log: true,
        ..Axes::default()
    };
    let mixture = plot::lines(&axes, &all.iter().flat_map(of_kind).collect::<Vec<_>>())?;
    let figure = |name: &str, svg| Figure { name: name.into(), svg };
    Ok(vec![figure("shared-rate", rates), figure("shared-rate-mixture", mixture)])
}

fn run(context: &Context) -> Result<Outcome> {
    let mut all = vec![];
    for members in MEMBERS {
        let lab = up(context, members)?;
        settle(&lab, SWITCH)?;
        all.push((members, measure(context, &lab, members)?));
    }
    let data: Vec<_> =
        all.iter().map(|(members, it)| json!({ "members": members, "rounds": it })).collect();
    let (rows, figures) = (rows(&all), figures(&all)?);
    Ok(Outcome { rows, figures, data: json!(data), ..Outcome::default() })
}
