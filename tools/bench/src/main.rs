//! `stateplane-bench`: the paper's evaluation, repeated. `make bench` runs all of it.

use anyhow::{Context, Result, bail};
use bench::build::Places;
use bench::experiments::{self, Asked, Experiment};
use bench::page;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeats the evaluations of RedPlane, SwiSh and NetChain: each experiment writes JSON and SVG,
/// and a page shows the papers' figures and ours side by side.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists the experiments: what each shows, and how long it takes
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
        /// Also this page, for the repository; results and figures are copied to its folder
        #[arg(long, value_name = "FILE", requires = "paper")]
        markdown: Option<PathBuf>,
        /// The paper of which that page shows the figures
        #[arg(long, value_parser = bench::markdown::PAPERS, requires = "markdown")]
        paper: Option<String>,
    },
}

#[derive(Args, Debug)]
struct How {
    /// Fewer rounds and shorter runs: about eight minutes for all, with wide spreads
    #[arg(long)]
    quick: bool,
    /// Only this application, by its folder in systems/redplane/p4, where an experiment has
    /// several; may be given again
    #[arg(long = "app", value_name = "FOLDER", value_parser = clap::builder::PossibleValuesParser::new(bench::apps::folders()))]
    apps: Vec<String>,
    /// Play this capture's conversations (pcap or pcapng) instead of the packets of fig08, fig09,
    /// fig10 and fig12
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
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
    if !root.join("systems/redplane/p4").is_dir() {
        bail!("{}: no systems/redplane/p4 here; give the repository with --root", root.display());
    }
    let beside =
        std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("stateplane")));
    let stateplane = match &how.stateplane {
        Some(path) => path.clone(),
        None => beside
            .filter(|path| path.exists())
            .unwrap_or_else(|| root.join("target/release/stateplane")),
    };
    let stateplane = stateplane.canonicalize().with_context(|| {
        format!("{}: build it with `cargo build --release`", stateplane.display())
    })?;
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
    let asked = Asked { quick: how.quick, apps: how.apps.clone(), pcap: how.pcap.clone() };
    let mut failed = Vec::new();
    for experiment in chosen {
        if let Err(error) = experiment.execute(&places, &asked) {
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

fn list() {
    for Experiment { name, page, .. } in experiments::ALL {
        let times = format!("{}; --quick: {}", page.full, page.quick);
        println!("{name}: {}, {} ({times})\n    {}\n", page.figure, page.title, page.shows);
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run { names, how } => run_all(chosen(names), how),
        Command::All { how } => run_all(experiments::ALL.iter(), how),
        Command::Page { how, markdown, paper } => {
            let output = places(how)?.output;
            if let (Some(file), Some(paper)) = (markdown, paper) {
                bench::markdown::write(&output, paper, file)?;
            }
            page::write(&output)
        }
    }
}

fn chosen(names: &[String]) -> impl Iterator<Item = &'static Experiment> {
    experiments::ALL.iter().filter(move |e| names.iter().any(|n| n == e.name))
}

/// What no single option's type says: wrong usage.
fn check(arguments: &Arguments) -> std::result::Result<(), String> {
    let (how, refusal) = match &arguments.command {
        Command::List => return Ok(()),
        Command::Run { names, how } => (how, experiments::refuse_capture(chosen(names))),
        Command::All { how } => (how, experiments::refuse_capture(experiments::ALL.iter())),
        Command::Page { how, .. } => {
            (how, Err("--pcap has no meaning for `page`, which measures nothing".to_owned()))
        }
    };
    if how.pcap.is_some() { refusal } else { Ok(()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(refused) = check(&arguments) {
        Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, refused).exit();
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stateplane-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
