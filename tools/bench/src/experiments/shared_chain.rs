//! What writes and reads cost with SRO, in chains of two and three switches (SwiSh §8.1).

use super::{Context, Experiment, Page};
use crate::labs::{Running, Wanted};
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::statistics::{Summary, quantile, summary};
use crate::xdp_time::{Counting, Programs};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::net::UdpSocket;
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
            CPU time of all members for a packet that writes, in chains of two and three switches; \
            what a write adds to a packet's round trip; CPU time of a packet that reads",
        paper: "\
            SwiSh §8.1: a switch's control plane carries each write of SRO, up to some 20 K a second.",
        method: "\
            Real switches in namespaces, the program pairs.p4: each packet reads a key of two tables \
            and comes back, and a write sets both, together. Hosts send through all switches at \
            once, each socket 16 packets at a time, to keys of its own. CPU time is that of the \
            switches' XDP programs, as the kernel counts it: the kernel's own part of a packet (its \
            softirq, the driver) is not in it, and is the same without stateplane. Reads are of keys \
            that nobody writes. Round trips are of one packet at a time, writes and reads by turns.",
    },
};

/// SwiSh's part of a switch's CPU second.
const WRITES_PER_S: f64 = 200_000.0;
/// Packets of a socket on their way at once.
const WINDOW: u32 = 16;
/// Sockets for each switch.
const SOCKETS: u32 = 2;
/// Operations of pairs.p4.
const READ: u8 = 0;
const SET_AND_READ: u8 = 3;
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

/// Three switches, the first ones of which share; another one is alone.
fn up(context: &Context, members: usize) -> Result<Running> {
    let file = "systems/swish/lab/paths.toml";
    let wanted = Wanted { file, mode: "shared", prefer: None, vars: &[("program", "pairs")] };
    let quoted = |number: usize| format!("\"10.9.0.{number}\"");
    let chain: Vec<String> = (1..=members).map(quoted).collect();
    Running::up_changed(context, wanted, |topology| {
        for number in 1..=3 {
            let own = if number > members { quoted(number) } else { chain.join(", ") };
            if let Some(node) = topology.node.get_mut(&format!("s{number}")) {
                node.vars.insert("members".into(), own);
            }
        }
    })
}

/// What packets of an operation cost.
struct Cost {
    packets: u64,
    /// XDP programs of all switches, in ns.
    run_ns: u64,
}

fn load(lab: &Running, members: usize, op: u8, time: Duration) -> Result<Cost> {
    let programs: Vec<Programs> =
        (1..=members).map(|it| Programs::of(lab, &format!("s{it}"))).collect::<Result<_>>()?;
    let run_ns = || programs.iter().map(Programs::run_ns).sum::<Result<u64>>();
    let senders: Vec<Sender> = (0..members as u32 * SOCKETS)
        .map(|number| Sender::of(lab, number as usize % members + 1, number))
        .collect::<Result<_>>()?;
    let before = run_ns()?;
    let until = Instant::now() + time;
    let packets = std::thread::scope(|scope| {
        let threads: Vec<_> =
            senders.iter().map(|sender| scope.spawn(move || sender.run(op, until))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    ensure!(packets > 0, "no packet came back");
    Ok(Cost { packets, run_ns: run_ns()? - before })
}

/// Round trips of writes and of reads by turns: what the median of the first adds, in µs.
fn added_us(lab: &Running, rounds: u32) -> Result<f64> {
    let sender = Sender::of(lab, 2, 60)?;
    let (mut writes, mut reads) = (vec![], vec![]);
    for _ in 0..rounds {
        writes.extend(sender.ask(SET_AND_READ));
        // (The read is of a key that is settled by then.)
        reads.extend(sender.ask(NOTHING));
    }
    writes.sort_by(f64::total_cmp);
    reads.sort_by(f64::total_cmp);
    ensure!(!writes.is_empty() && !reads.is_empty(), "no packet came back");
    Ok(quantile(&writes, 0.5) - quantile(&reads, 0.5))
}

fn run(context: &Context) -> Result<Outcome> {
    let _counting = Counting::begin()?;
    let (rounds, time) = (context.pick(3, 7), Duration::from_millis(context.pick(1_000, 2_000)));
    let mut outcome = Outcome::default();
    let mut data = vec![];
    for (done, members) in [2, 3].into_iter().enumerate() {
        let lab = up(context, members)?;
        lab.run("s1", &["true"]).context("the lab")?;
        load(&lab, members, SET_AND_READ, Duration::from_millis(200))?;
        let (mut writes, mut reads, mut nothing, mut added) = (vec![], vec![], vec![], vec![]);
        for _ in 0..rounds {
            let cost = load(&lab, members, SET_AND_READ, time)?;
            writes.push(cost.packets as f64 * 1e9 / cost.run_ns as f64);
            for (op, of) in [(READ, &mut reads), (NOTHING, &mut nothing)] {
                let cost = load(&lab, members, op, time / 4)?;
                of.push(cost.run_ns as f64 / cost.packets as f64);
            }
            added.push(added_us(&lab, 2_000)?);
        }
        let chain = format!("{members} switches");
        let value =
            |what: &str, of: Summary, unit| Row::value(format!("{chain}: {what}"), "", of, 0, unit);
        let what = "packets that write, for a second of all members' XDP";
        let paper = "20 K/s, by the control plane";
        let row = Row { paper: paper.into(), ..value(what, summary(&writes), "") };
        outcome.rows.push(row.with_goal(Goal::AtLeast(WRITES_PER_S)));
        outcome.rows.push(value("a write adds to the round trip", summary(&added), "µs"));
        outcome.rows.push(value("packet that reads two keys", summary(&reads), "ns"));
        outcome.rows.push(value("packet without state", summary(&nothing), "ns"));
        data.push(json!({ "members": members, "writes_per_cpu_s": writes, "read_ns": reads,
                          "nothing_ns": nothing, "added_us": added }));
        context.progress("chains", done as u32 + 1, 2);
    }
    outcome.data = json!(data);
    Ok(outcome)
}
