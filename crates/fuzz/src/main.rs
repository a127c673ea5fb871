//! `stateplane-fuzz`: long runs of random and mutated inputs. `scripts/soak.sh` runs all of them.

use anyhow::Result;
use clap::{Args, Parser, Subcommand, value_parser};
use fuzz::campaign;
use fuzz::differential::{self, Plan, Tested};
use fuzz::fresh_seed;
use fuzz::programs;
use fuzz::rig::{Counts, Mode};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Of generated programs; so that numbers of programs stay numbers.
const MOST_RUNS: u64 = 1 << 40;

/// Random and mutated inputs against stateplane. Prints the seed; --seed replays it. Exit code 1 on any finding.
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
    /// Generated P4 programs, compiled and run in the kernel, against an interpreter of their text. Needs root.
    Programs {
        #[command(flatten)]
        generated: Generated,
        /// Programs that share an object.
        #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
        batch: u32,
    },
    /// Generated P4 programs, lowered and interpreted, against an interpreter of their text: no clang, no kernel.
    Lowering {
        #[command(flatten)]
        generated: Generated,
    },
    /// Random and mutated frames through both NATs, against an oracle. Needs root.
    Frames {
        /// Frames through each of the two.
        #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
        count: u64,
    },
    /// Random and mutated state messages through the linearizable NAT, against a model of its state. Needs root.
    Messages {
        /// Steps; four in five are messages.
        #[arg(long, default_value_t = 300_000, value_parser = value_parser!(u64).range(1..))]
        count: u64,
    },
}

/// Of campaigns of generated programs.
#[derive(Args)]
struct Generated {
    /// Programs.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=MOST_RUNS))]
    runs: u64,
    /// The number of the first one: goes on with a run that was ended.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u64).range(..=MOST_RUNS))]
    first: u64,
    /// Packets for each.
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u32).range(1..))]
    packets: u32,
    /// Goes on after a mismatch, and counts.
    #[arg(long)]
    keep_going: bool,
    /// Writes programs that are refused there, each with what refused it.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Repeats one program from a file; --seed is that of its packets.
    #[arg(long)]
    replay: Option<PathBuf>,
}

impl Generated {
    fn run(self, tested: Tested, seed: u64, batch: u32) -> Result<()> {
        let packets = self.packets as usize;
        if let Some(path) = self.replay {
            println!("programs: {}", differential::replay(&path, tested, seed, packets)?);
            return Ok(());
        }
        let Generated { runs, first, keep_going, save, .. } = self;
        let plan = Plan { tested, seed, first, runs, packets, batch: batch as usize, keep_going, save };
        let summary = differential::campaign(&plan)?;
        println!("features: {}", summary.features());
        println!("programs: {summary}");
        anyhow::ensure!(summary.mismatches == 0, "{} mismatches", summary.mismatches);
        Ok(())
    }
}

fn tell(name: &str, counts: Counts) {
    println!(
        "{name}: {} frames: {} translated, {} routed, {} to the host, {} dropped; {} bindings made, {} packets waited at the store, {} heartbeats; {} messages took effect, {} refused",
        counts.frames,
        counts.translated,
        counts.routed,
        counts.to_host,
        counts.dropped,
        counts.bindings,
        counts.parked,
        counts.renewed,
        counts.taken,
        counts.refused
    );
}

fn run(line: CommandLine) -> Result<()> {
    let seed = line.seed.unwrap_or_else(fresh_seed);
    if !matches!(line.command, Command::Check { .. } | Command::Lowering { .. }) {
        dataplane::check_permitted()?;
    }
    match line.command {
        Command::Check { count, preprocess_every, binary, processes } => {
            let binary = binary.map(|binary| (binary, processes));
            println!(
                "check: {}",
                programs::run(&programs::Plan { seed, count: count as usize, preprocess_every, binary })?
            );
        }
        Command::Programs { generated, batch } => generated.run(Tested::Kernel, seed, batch)?,
        Command::Lowering { generated } => generated.run(Tested::Lowered, seed, 1)?,
        Command::Frames { count } => {
            for (name, mode) in [("frames, local", Mode::Local), ("frames, linearizable", Mode::Linearizable)] {
                tell(name, campaign::frames(seed, count, mode)?);
            }
        }
        Command::Messages { count } => tell("messages", campaign::messages(seed, count)?),
    }
    Ok(())
}

fn main() -> ExitCode {
    let started = Instant::now();
    match run(CommandLine::parse()) {
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
