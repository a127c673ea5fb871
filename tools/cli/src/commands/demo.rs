//! `stateplane demo`: the failover demonstration.

use crate::commands::lab::read_topology;
use command_line::outln;
use lab::Result;
use lab::demo::picture::Picture;
use lab::demo::run::Outcome;
use lab::demo::{Cast, Config, Kind, demonstrate};
use std::path::PathBuf;

/// Command line of `stateplane demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  stateplane demo                               all three runs; out/demo/failover.svg, .json
  stateplane demo --runs with --seconds 20      one longer run
  stateplane demo --rate 0                      as fast as this machine can

Exit code 0: with replicated state no connection broke, and traffic came back after the failure
and after the return; without it connections broke. 1: any other outcome, or an error. 2: wrong
usage.")]
pub struct Args {
    /// Length of each run, in seconds.
    #[arg(long, default_value_t = 15.0, value_parser = seconds)]
    seconds: f64,
    /// Folder for the results.
    #[arg(long, default_value = "out/demo")]
    out: PathBuf,
    /// The runs to make. In `with` and `without` (fault tolerance) the switch dies; in `baseline`,
    /// with fault tolerance, nothing fails.
    #[arg(long, value_delimiter = ',', default_value = "baseline,with,without")]
    runs: Vec<RunName>,
    /// Idle connections, opened before the failure and used after it.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=4000))]
    connections: u16,
    /// iperf3's long flows.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    flows: u16,
    /// Rate of all long flows together, in Mbit/s; 0 for no limit.
    #[arg(long, default_value_t = 400)]
    rate: u32,
    /// Topology file; by default the NAT lab.
    #[arg(long)]
    topology: Option<PathBuf>,
    /// The topology's mode with replicated state.
    #[arg(long, default_value = "replicated")]
    with_mode: String,
    /// The topology's mode without fault tolerance.
    #[arg(long, default_value = "plain")]
    without_mode: String,
    /// Value of a variable of the topology.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::commands::lab::key_value)]
    vars: Vec<(String, String)>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum RunName {
    Baseline,
    With,
    Without,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (10.0..=600.0).contains(&s) => Ok(s),
        _ => Err("must be 10 to 600: a switch needs some seconds to die and to return".to_string()),
    }
}

/// Runs the command; returns the process exit code.
pub fn run(args: Args) -> u8 {
    match act(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stateplane demo: {error}");
            1
        }
    }
}

fn act(args: Args) -> Result<u8> {
    let (topology, topology_dir) = read_topology(args.topology.as_deref())?;
    command_line::interrupt::install();
    let config = Config {
        topology,
        topology_dir,
        cast: Cast::default(),
        runs: args
            .runs
            .iter()
            .map(|run| match run {
                RunName::Baseline => Kind::Baseline,
                RunName::With => Kind::With,
                RunName::Without => Kind::Without,
            })
            .collect(),
        with_mode: args.with_mode,
        without_mode: args.without_mode,
        vars: args.vars.into_iter().collect(),
        seconds: args.seconds,
        connections: usize::from(args.connections),
        flows: usize::from(args.flows),
        rate_mbps: args.rate,
        out: args.out,
    };
    let outcomes = demonstrate(&config, &mut Picture::default())?;
    outln!("{}", config.out.join("failover.svg").display());
    outln!("{}", config.out.join("failover.json").display());
    let faults = faults(&outcomes);
    for fault in &faults {
        eprintln!("stateplane demo: {fault}");
    }
    if let Some(line) = outcomes.iter().find(|outcome| outcome.kind == Kind::With).map(last_line) {
        outln!("{line}");
    }
    Ok(u8::from(!faults.is_empty()))
}

/// What the run with replicated state came to.
fn last_line(outcome: &Outcome) -> String {
    let back = |seconds: Option<f64>| {
        seconds.map_or("never".to_owned(), |seconds| format!("after {seconds:.2} s"))
    };
    format!(
        "traffic back {} (failure), {} (return); {} connections broken",
        back(outcome.recovery_fail_s),
        back(outcome.recovery_return_s),
        outcome.broken
    )
}

/// Where the outcomes are not what the demonstration is to show.
fn faults(outcomes: &[Outcome]) -> Vec<String> {
    let mut faults = Vec::new();
    for outcome in outcomes {
        let (name, broken) = (outcome.kind.name(), outcome.broken);
        let mut fault = |found: bool, what: &str| {
            if found {
                faults.push(format!("run \"{name}\": {what}"));
            }
        };
        match outcome.kind {
            Kind::Without => {
                fault(broken == 0, "no connection broke, so there is nothing to compare with")
            }
            Kind::Baseline => fault(broken > 0, &format!("{broken} connections broke")),
            Kind::With => {
                fault(broken > 0, &format!("{broken} connections broke"));
                fault(
                    outcome.recovery_fail_s.is_none(),
                    "goodput did not come back after the failure",
                );
                fault(
                    outcome.recovery_return_s.is_none(),
                    "goodput did not come back after the return",
                );
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_that_never_came_back_is_a_fault() {
        let outcome = |broken, fail, back| Outcome {
            kind: Kind::With,
            samples: Vec::new(),
            events: Vec::new(),
            failed_at: Some(5.0),
            restored_at: Some(9.0),
            returned_at: Some(9.5),
            connections: 200,
            broken,
            exchanges: Vec::new(),
            normal_mbps: 400.0,
            recovery_fail_s: fail,
            recovery_return_s: back,
        };
        assert!(faults(&[outcome(0, Some(0.3), Some(0.1))]).is_empty());
        for (case, expected) in [
            (outcome(0, None, Some(0.1)), 1),
            (outcome(0, Some(0.3), None), 1),
            (outcome(2, None, None), 3),
        ] {
            assert_eq!(faults(&[case]).len(), expected);
        }
        let line = last_line(&outcome(2, None, Some(0.1)));
        assert_eq!(
            line,
            "traffic back never (failure), after 0.10 s (return); 2 connections broken"
        );
    }
}
