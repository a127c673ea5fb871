//! The failover demonstration: RedPlane §7.3 (Figure 14) in the lab.
//!
//! Real TCP (iperf3's long flows and a few hundred idle connections) passes through a NAT on one of
//! two switches. The switch is killed, the network reroutes, the switch comes back. The same is run
//! with replicated state, without it, and once with no failure. [`analysis`] says how the figures
//! are defined.

pub mod analysis;
pub mod figure;
pub mod picture;
pub mod report;
pub mod run;
pub mod sampler;
pub mod traffic;

use crate::error::Result;
use crate::instance::{Lab, Options, Running, require_program};
use crate::topology::Topology;
use picture::Picture;
use run::Outcome;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One of the three runs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Replicated state, no failure.
    Baseline,
    /// Replicated state, the switch fails.
    With,
    /// No fault tolerance, the switch fails.
    Without,
}

impl Kind {
    /// The run's name in files and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::With => "with",
            Self::Without => "without",
        }
    }

    /// What the run shows.
    pub fn title(self) -> &'static str {
        match self {
            Self::Baseline => "no failure",
            Self::With => "failure, state replicated",
            Self::Without => "failure, no fault tolerance",
        }
    }

    /// Whether the switch is killed in it.
    pub fn fails(self) -> bool {
        self != Self::Baseline
    }
}

/// The places of the demonstration in its topology.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The host that opens connections.
    pub client: String,
    /// The host they go to.
    pub server: String,
    /// The server's address.
    pub server_address: String,
    /// The router on the server's side of the switches.
    pub core: String,
    /// The router on the client's side.
    pub tor: String,
    /// The switches; the first is preferred, and is the one that dies.
    pub switches: Vec<String>,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            client: "inside".to_string(),
            server: "outside".to_string(),
            server_address: "198.51.100.10".to_string(),
            core: "core".to_string(),
            tor: "tor".to_string(),
            switches: vec!["s1".to_string(), "s2".to_string()],
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The network.
    pub topology: Topology,
    /// Folder that `${topology_dir}` stands for.
    pub topology_dir: PathBuf,
    /// Who is who in it.
    pub cast: Cast,
    /// The runs; those of one mode share a lab.
    pub runs: Vec<Kind>,
    /// The topology's mode with replicated state.
    pub with_mode: String,
    /// Its mode without.
    pub without_mode: String,
    /// Values for the topology's `${name}`.
    pub vars: BTreeMap<String, String>,
    /// Length of a run, in seconds.
    pub seconds: f64,
    /// Idle connections.
    pub connections: usize,
    /// Long flows.
    pub flows: usize,
    /// Rate of all long flows together, in Mbit/s; 0 for no limit.
    pub rate_mbps: u32,
    /// Where the results go.
    pub out: PathBuf,
}

/// When things happen in a run, in seconds from its start.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// Goodput counts as steady from here on.
    pub warm_up: f64,
    /// The switch is killed.
    pub fail: f64,
    /// The idle connections are used.
    pub check_after_fail: f64,
    /// The switch comes back.
    pub restore: f64,
    /// The idle connections are used again.
    pub check_after_return: f64,
    /// The run ends.
    pub end: f64,
}

impl Timeline {
    /// The paper's proportions in a run of `seconds`.
    pub fn of(seconds: f64) -> Self {
        let fail = 0.26 * seconds;
        let restore = 0.57 * seconds;
        Self {
            warm_up: 0.1 * seconds,
            fail,
            check_after_fail: fail + 0.6 * (restore - fail),
            restore,
            check_after_return: restore + 0.75 * (seconds - restore),
            end: seconds,
        }
    }
}

/// Runs the demonstration and writes its files. Returns the outcomes in the order of the runs.
///
/// # Errors
/// A lab does not come up, traffic does not start, or a result cannot be written; the labs are down
/// in any case.
pub fn demonstrate(config: &Config, picture: &mut Picture) -> Result<Vec<Outcome>> {
    require_program("iperf3", "iperf3")?;
    let mut runs = config.runs.clone();
    runs.sort();
    runs.dedup();
    let mut outcomes = Vec::new();
    for mode in [&config.with_mode, &config.without_mode] {
        let of_mode: Vec<Kind> = runs
            .iter()
            .copied()
            .filter(|kind| mode_of(config, *kind) == mode)
            .filter(|kind| !outcomes.iter().any(|o: &Outcome| o.kind == *kind))
            .collect();
        if !of_mode.is_empty() {
            run_mode(config, mode, &of_mode, runs.len(), picture, &mut outcomes)?;
        }
    }
    report::write(config, &outcomes)?;
    figure::write(&config.out.join("failover.svg"), config, &outcomes)?;
    Ok(outcomes)
}

fn mode_of(config: &Config, kind: Kind) -> &str {
    match kind {
        Kind::Baseline | Kind::With => &config.with_mode,
        Kind::Without => &config.without_mode,
    }
}

fn run_mode(
    config: &Config,
    mode: &str,
    kinds: &[Kind],
    total: usize,
    picture: &mut Picture,
    outcomes: &mut Vec<Outcome>,
) -> Result<()> {
    let options = Options {
        name: Some(format!("demo-{}", std::process::id())),
        mode: Some(mode.to_string()),
        vars: config.vars.clone(),
        prefer: config.cast.switches.first().cloned(),
        owned: true,
    };
    picture.note(&format!("building the lab ({mode})"));
    let lab = Lab::up(config.topology.clone(), &config.topology_dir, options, &|_| {})?;
    let running = Running(lab);
    let lab = &running.0;
    for kind in kinds {
        picture.begin(*kind, outcomes.len() + 1, total);
        outcomes.push(run::run(config, lab, *kind, picture)?);
    }
    Ok(())
}
