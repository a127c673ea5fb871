//! `stateplane-bench`: the paper's evaluation, repeated. `make bench` runs all of it.

use anyhow::{Context, Result, bail};
use bench::build::Places;
use bench::experiments::{self, Experiment};
use bench::page;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeats RedPlane's evaluation: each experiment writes JSON and SVG, and a page shows the paper's figures and ours side by side.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Names the experiments
    List,
    /// Runs some of them
    Run {
        /// Their names
        #[arg(required = true, value_parser = clap::builder::PossibleValuesParser::new(experiments::ALL.iter().map(|e| e.name)))]
        names: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// Runs all of them
    All {
        #[command(flatten)]
        how: How,
    },
    /// Writes index.html again from the results that are there
    Page {
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args, Debug)]
struct How {
    /// Fewer rounds and shorter runs: about five minutes for all, with wide spreads
    #[arg(long)]
    quick: bool,
    /// Only this application, by its folder in p4/apps, where an experiment has several; may be given again
    #[arg(long = "app", value_name = "FOLDER", value_parser = clap::builder::PossibleValuesParser::new(bench::apps::ALL.iter().map(|app| app.folder)))]
    apps: Vec<String>,
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// The stateplane program [default: beside this program, then target/release/stateplane]
    #[arg(long)]
    stateplane: Option<PathBuf>,
    /// Where results and objects go [default: out/bench in the repository]
    #[arg(long)]
    output: Option<PathBuf>,
}

fn places(how: &How) -> Result<Places> {
    let root = how.root.canonicalize().with_context(|| how.root.display().to_string())?;
    if !root.join("p4/apps").is_dir() {
        bail!("{}: no p4/apps here; give the repository with --root", root.display());
    }
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("stateplane")));
    let stateplane = match &how.stateplane {
        Some(path) => path.clone(),
        None => beside.filter(|path| path.exists()).unwrap_or_else(|| root.join("target/release/stateplane")),
    };
    let stateplane = stateplane
        .canonicalize()
        .with_context(|| format!("{}: build it with `cargo build --release`", stateplane.display()))?;
    let output = how.output.clone().unwrap_or_else(|| root.join("out/bench"));
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let output = output.canonicalize().with_context(|| output.display().to_string())?;
    Ok(Places { root, stateplane, output })
}

/// Runs experiments one after another; one that fails does not keep the others from running.
fn run_all<'a>(chosen: impl Iterator<Item = &'a Experiment>, how: &How) -> Result<()> {
    lab::interrupt::install();
    let _first = bench::contention::go_first();
    let places = places(how)?;
    let mut failed = Vec::new();
    for experiment in chosen {
        if let Err(error) = experiment.execute(&places, how.quick, &how.apps) {
            eprintln!("bench: {}: {error:#}", experiment.name);
            failed.push(experiment.name);
        }
        if lab::interrupt::requested() {
            bail!("interrupted");
        }
    }
    bench::labs::remove_compiled(&places.output);
    page::write(&places.output)?;
    println!("\nwritten: {}", places.output.join("index.html").display());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::List => {
            for experiment in experiments::ALL {
                let page = experiment.descriptor()?;
                println!("{:<8} {}: {}", experiment.name, page.figure, page.title);
            }
            Ok(())
        }
        Command::Run { names, how } => {
            run_all(experiments::ALL.iter().filter(|e| names.iter().any(|n| n == e.name)), how)
        }
        Command::All { how } => run_all(experiments::ALL.iter(), how),
        Command::Page { how } => page::write(&places(how)?.output),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stateplane-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
