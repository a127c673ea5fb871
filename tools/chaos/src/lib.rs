//! Chaos: rounds of random failures in labs with traffic, and the judgement whether what must never
//! happen has happened.
//!
//! A round: faults that the seed has drawn ([`plan`]) begin, last a while and are repaired, some of
//! them at the same time; then the lab becomes whole again ([`whole`]: daemons ready, BGP and BFD
//! up, routes, processes and pinned objects as before the first fault); then everything that
//! happened is judged; then the next round begins. Traffic never stops but for the judgement. A
//! round's **failure window** lasts from the moment before its first fault begins until the lab is
//! found whole again.
//!
//! These are **violations**:
//!
//! - A TCP connection that was established (`connect` succeeded) gets a reset, a time-out, an early
//!   end or wrong bytes, *whenever it was opened and whenever that happens*: that its packets were
//!   lost in a failure window is no excuse, as TCP sends them again. Nor may it be silent: within
//!   [`SETTLE_LIMIT`] after the failure window each has to answer a message that was sent after it.
//! - An attempt to connect fails that no failure window overlaps. (Those are the only connections
//!   that "had no traffic outside the failure window": they are counted as excused. So are attempts
//!   while routing went down by itself, which BIRD's times of change tell: on a busy machine BFD
//!   misses its 100 ms now and then.)
//! - The far end sees a UDP flow come from another address or port than before.
//! - The history of a translated flow, captured at both hosts, is not linearizable ([`bindings`]),
//!   or an outside address and port is two flows' at the same time.
//! - The history of the counted packets, with the counter that is read at a round's end, is not
//!   linearizable, flow by flow: two packets with the same count, a count above the number of
//!   packets sent until then, a packet that was sent after another had come out and that has a
//!   smaller count, or a counter that does not fit ([`::history`]). An acknowledged update that is
//!   lost shows so.
//! - A counter is not *exactly* the packets that got out and those that were lost after they were
//!   counted where something was broken then, each by its number (`ledger`).
//! - After all faults are repaired, no counted packet at all gets out for longer than
//!   [`outage::OUTAGE_LIMIT_MS`] while a router hands some to the switches all the time. (While it
//!   has no route to them it does not: then routing is what is away, and each packet's account says
//!   so. How long nothing got out, whatever the reason, is in the report.)
//! - After the failure window, a flow of counted packets gets no packet through, or the switch that
//!   owns it has another count than the store.
//! - The lab does not become whole again, a daemon does not start again, or something is left over
//!   in it.
//!
//! Faults are never more than what must be survived: one switch goes on forwarding, and of a
//! chain's f + 1 store servers at the most f are hurt in a round.

pub mod bindings;
mod client;
pub mod connections;
pub mod counts;
mod echo;
mod ends;
mod held;
pub mod inject;
mod ledger;
pub mod outage;
pub mod plan;
mod random;
mod record;
pub mod report;
mod round;
mod tap;
pub mod whole;

use lab::error::{Error, Result};
use lab::instance::{Lab, Options, Running, require_program};
use lab::interrupt;
use lab::topology::{Topology, Workload};
use report::{LabReport, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long after the failure window an established connection may take to answer.
pub const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// Violations that are kept with their words; more are counted.
const VIOLATIONS_KEPT: usize = 1_000;
/// A lab with so many has made its point.
const VIOLATIONS_ENOUGH: u64 = 100;

/// What to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The networks, each with the folder that `${topology_dir}` stands for.
    pub topologies: Vec<(Topology, PathBuf)>,
    /// The first round's number.
    pub from: u64,
    /// Rounds in each lab.
    pub rounds: u64,
    /// No round begins later than this after the first.
    pub limit: Option<Duration>,
    /// What the faults are drawn from.
    pub seed: u64,
    /// The mode of all of them; by default each one's first.
    pub mode: Option<String>,
    /// Values for the topologies' `${name}`.
    pub vars: BTreeMap<String, String>,
    /// Connections in a lab that carries connections.
    pub connections: connections::Load,
    /// Counted packets in a lab that counts.
    pub counts: counts::Load,
    /// Where the results go.
    pub out: PathBuf,
}

/// Something that must not happen, and did.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// In which round.
    pub round: u64,
    /// Seconds since the lab's first round began.
    pub at_s: f64,
    /// What.
    pub what: String,
}

/// Whom a lab's threads tell what they see.
pub struct Judge {
    lab: String,
    zero: Instant,
    round: AtomicU64,
    /// Beginning and end of the last failure window.
    window: Mutex<Option<(Instant, Option<Instant>)>>,
    violations: Mutex<Vec<Violation>>,
    count: AtomicU64,
    /// What is a violation unless routing went down by itself.
    suspicions: Mutex<Vec<String>>,
}

impl Judge {
    fn new(lab: &str) -> Self {
        Self {
            lab: lab.to_string(),
            zero: Instant::now(),
            round: AtomicU64::new(0),
            window: Mutex::new(None),
            violations: Mutex::new(Vec::new()),
            count: AtomicU64::new(0),
            suspicions: Mutex::new(Vec::new()),
        }
    }

    /// Reports what is a violation unless routing went down by itself since the lab was whole.
    pub fn suspicion(&self, what: String) {
        self.suspicions.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Judges the suspicions; how many were excused.
    fn judge_suspicions(&self, routing_went_down: bool) -> u64 {
        let suspicions =
            std::mem::take(&mut *self.suspicions.lock().unwrap_or_else(PoisonError::into_inner));
        if routing_went_down {
            return suspicions.len() as u64;
        }
        suspicions.into_iter().for_each(|what| self.violation(what));
        0
    }

    /// Reports a violation.
    pub fn violation(&self, what: String) {
        let round = self.round.load(Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut violations = self.violations();
        if violations.len() < VIOLATIONS_KEPT {
            eprintln!("{} round {round}: VIOLATION: {what}", self.lab);
            violations.push(Violation { round, at_s: self.zero.elapsed().as_secs_f64(), what });
        }
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn violations(&self) -> MutexGuard<'_, Vec<Violation>> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self) -> MutexGuard<'_, Option<(Instant, Option<Instant>)>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a failure window overlaps the time from `since` until now.
    pub fn excuses(&self, since: Instant) -> bool {
        // An earlier window is over before the last begins, and attempts are shorter than what lies
        // between.
        self.window().is_some_and(|(_, end)| end.is_none_or(|end| end >= since))
    }
}

/// Runs it, in all labs at the same time, and writes the results. Each lab goes down at the end,
/// whatever happens. `progress` is told every round.
///
/// # Errors
/// A lab does not come up, its traffic does not start, a result cannot be written, or the process
/// is to stop. Violations are no error: they are in the report.
pub fn run(config: &Config, progress: &(dyn Fn(&str) + Sync)) -> Result<Report> {
    require_program("nft", "nftables")?;
    for (topology, _) in &config.topologies {
        if topology.chaos.is_empty() {
            return Err(Error::Run(format!(
                "topology {} does not say what to send through it: write chaos = [\"connections\"] or [\"counts\"]",
                topology.name
            )));
        }
    }
    let known = |name: &String| {
        config.topologies.iter().any(|(topology, _)| topology.variables().contains(name))
    };
    if let Some(name) = config.vars.keys().find(|name| !known(name)) {
        return Err(Error::Run(format!("--set {name}: no topology has a variable of this name")));
    }
    std::fs::create_dir_all(&config.out).map_err(Error::io(&config.out))?;
    let began = Instant::now();
    let files_before = report::open_files();
    // One after the other: each takes both processors to come up.
    let mut labs = Vec::new();
    for (topology, folder) in &config.topologies {
        labs.push(up(config, topology, folder, progress)?);
    }
    let results: Vec<Result<LabReport>> = std::thread::scope(|scope| {
        let threads: Vec<_> = labs
            .iter()
            .map(|lab| scope.spawn(|| round::rounds(config, &lab.0, progress)))
            .collect();
        let gone = || Err(Error::Run("the rounds' thread panicked".to_string()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    for lab in labs {
        let name = lab.0.name().to_string();
        drop(lab);
        if Lab::open(&name).is_ok() {
            return Err(Error::Run(format!("lab {name} cannot be taken down")));
        }
    }
    let labs = results.into_iter().collect::<Result<Vec<LabReport>>>()?;
    let report = Report {
        seed: config.seed,
        seconds: began.elapsed().as_secs_f64(),
        interrupted: interrupt::requested(),
        open_files: [files_before, report::open_files()],
        labs,
    };
    report.write(&config.out)?;
    Ok(report)
}

fn up(
    config: &Config,
    topology: &Topology,
    folder: &std::path::Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Running> {
    let options = Options {
        name: Some(format!("chaos-{}-{}", topology.name, std::process::id())),
        mode: config
            .mode
            .clone()
            .or_else(|| topology.chaos_service.as_ref().map(|service| service.mode.clone())),
        // Of several topologies' variables its own ([`run`] has checked that each is somebody's).
        vars: config
            .vars
            .clone()
            .into_iter()
            .filter(|(name, _)| topology.variables().contains(name))
            .collect(),
        prefer: None,
        owned: true,
    };
    progress(&format!("{}: building the lab", topology.name));
    Lab::up(topology.clone(), folder, options, &|_| {}).map(Running)
}

/// The traffic of a lab.
struct Traffic {
    connections: Option<(connections::Connections, Vec<echo::Echo>)>,
    bindings: Option<bindings::Bindings>,
    counts: Option<counts::Counts>,
}

impl Traffic {
    fn start(config: &Config, lab: &Lab, judge: &Arc<Judge>) -> Result<Self> {
        let topology = lab.topology();
        let far = topology.ports("outside").find_map(|(_, own, _, _)| own.ip().parse().ok());
        let far: std::net::Ipv4Addr = far.ok_or_else(|| {
            Error::Run(format!(
                "topology {}: chaos needs a node \"outside\" with a link",
                topology.name
            ))
        })?;
        let mut traffic = Self { connections: None, bindings: None, counts: None };
        if topology.chaos.contains(&Workload::Connections) {
            let ends = ends::Ends::of(topology, far)?;
            let path = config.out.join(format!("history-{}.jsonl", topology.name));
            traffic.bindings = Some(bindings::Bindings::start(lab, &ends, &path, judge)?);
            let listen =
                |(node, address): &(String, _)| echo::Echo::start(&lab.netns(node)?, *address);
            let servers = ends.servers.iter().map(listen).collect::<Result<Vec<_>>>()?;
            let connections = connections::Connections::start(
                lab,
                &ends,
                config.connections,
                config.seed,
                judge,
            )?;
            traffic.connections = Some((connections, servers));
        }
        if topology.chaos.contains(&Workload::Counts) {
            let to = std::net::SocketAddrV4::new(far, 7_001);
            let path = config.out.join(format!("history-{}.jsonl", topology.name));
            traffic.counts = Some(counts::Counts::start(lab, to, config.counts, &path, judge)?);
        }
        Ok(traffic)
    }
}
