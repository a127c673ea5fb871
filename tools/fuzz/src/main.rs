//! `stateplane-fuzz`: long runs of random and mutated inputs. `scripts/soak.sh` runs all of them.

use anyhow::Result;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, value_parser};
use fuzz::programs::{self, Plan};
use fuzz::{differential, fresh_seed};
use fuzz_door::Campaign;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Of generated programs; so that numbers of programs stay numbers.
const MOST_RUNS: u64 = 1 << 40;

/// Random and mutated inputs against stateplane. Prints the seed; --seed replays it. Exit code 1 on
/// any finding.
#[derive(Parser)]
struct CommandLine {
    /// Replays a run.
    #[arg(long, global = true)]
    seed: Option<u64>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random texts and mutated P4 programs through `stateplane check` and the back end.
    Check {
        /// Random texts, and as many mutated programs.
        #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
        count: u32,
        /// One input in so many goes through the preprocessor.
        #[arg(long, default_value_t = 20)]
        preprocess_every: usize,
        /// The `stateplane` binary; without one, no processes are tried.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Inputs that run through the binary.
        #[arg(long, default_value_t = 300)]
        processes: usize,
    },
    /// Generated P4 programs, compiled and run in the kernel, against the reference interpreter.
    /// Needs root.
    Programs {
        /// Programs.
        #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=MOST_RUNS))]
        runs: u64,
        /// The number of the first one: goes on with a run that was ended.
        #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(..=MOST_RUNS))]
        first: u64,
        /// Packets for each.
        #[arg(long, default_value_t = 60, value_parser = value_parser!(u32).range(1..))]
        packets: u32,
        /// Programs that share an object.
        #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
        batch: u32,
        /// One object in so many is a program that runs on two CPUs at once; 0: none.
        #[arg(long, default_value_t = 6)]
        two_cpus_every: u64,
        /// Goes on after a mismatch, and counts.
        #[arg(long)]
        keep_going: bool,
        /// Writes programs that are refused there, each with what refused it.
        #[arg(long)]
        save: Option<PathBuf>,
        /// Repeats one program from a file; --seed is that of its packets.
        #[arg(long)]
        replay: Option<PathBuf>,
    },
    /// Generated P4 programs as written against the same as elaborated: no clang, no kernel, no
    /// root.
    Lowering {
        /// Programs.
        #[arg(long, default_value_t = 20_000, value_parser = value_parser!(u64).range(1..=MOST_RUNS))]
        runs: u64,
        /// The number of the first one: repeats one, or goes on with a run that was ended.
        #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(..=MOST_RUNS))]
        first: u64,
        /// Packets for each.
        #[arg(long, default_value_t = 60, value_parser = value_parser!(u32).range(1..))]
        packets: u32,
        /// Goes on after a mismatch, and counts.
        #[arg(long)]
        keep_going: bool,
    },
}

/// The words of the registered systems.
fn campaigns() -> impl Iterator<Item = &'static Campaign> {
    systems::campaigns().iter().flat_map(|system| system.campaigns())
}

/// A system's word, beside those of [`Command`].
fn word(campaign: &Campaign) -> clap::Command {
    let count = Arg::new("count")
        .long("count")
        .value_parser(value_parser!(u64).range(1..))
        .help(format!("{} [default: {}]", campaign.counts, campaign.count));
    clap::Command::new(campaign.name).about(campaign.about).arg(count)
}

/// Runs a system's word, if this is one.
fn campaign(matches: &ArgMatches) -> Option<Result<()>> {
    let (name, given) = matches.subcommand()?;
    let campaign = campaigns().find(|campaign| campaign.name == name)?;
    let seed = matches.get_one("seed").or_else(|| given.get_one("seed")).copied();
    let count = given.get_one("count").copied().unwrap_or(campaign.count);
    let run = || {
        dataplane::check_permitted()?;
        (campaign.run)(seed.unwrap_or_else(fresh_seed), count)
    };
    Some(run())
}

fn run(line: CommandLine) -> Result<()> {
    let seed = line.seed.unwrap_or_else(fresh_seed);
    if !matches!(line.command, Command::Check { .. }) {
        dataplane::check_permitted()?;
    }
    match line.command {
        Command::Check { count, preprocess_every, binary, processes } => {
            let binary = binary.map(|binary| (binary, processes));
            println!(
                "check: {}",
                programs::run(&Plan { seed, count: count as usize, preprocess_every, binary })?
            );
        }
        Command::Programs { replay: Some(path), packets, .. } => {
            println!("programs: {}", differential::replay(&path, seed, packets as usize)?);
        }
        Command::Programs {
            runs,
            first,
            packets,
            batch,
            two_cpus_every,
            keep_going,
            save,
            replay: None,
        } => {
            let (packets, batch) = (packets as usize, batch as usize);
            let summary = differential::campaign(&differential::Plan {
                seed,
                first,
                runs,
                packets,
                batch,
                keep_going,
                two_cpus_every,
                save,
                ..Default::default()
            })?;
            println!("programs: {summary}");
            anyhow::ensure!(summary.mismatches == 0, "{} mismatches", summary.mismatches);
        }
        Command::Lowering { runs, first, packets, keep_going } => {
            let packets = packets as usize;
            let plan =
                differential::Plan { seed, first, runs, packets, keep_going, ..Default::default() };
            let compared = differential::lowering(&plan)?;
            println!("lowering: {compared}");
            anyhow::ensure!(compared.mismatches == 0, "{} mismatches", compared.mismatches);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let started = Instant::now();
    let matches = campaigns().map(word).fold(CommandLine::command(), clap::Command::subcommand);
    let matches = matches.get_matches();
    let done = campaign(&matches).unwrap_or_else(|| {
        run(CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
    });
    match done {
        Ok(()) => {
            println!("no finding in {} s", started.elapsed().as_secs());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stateplane-fuzz: {error:#}");
            ExitCode::from(1)
        }
    }
}
