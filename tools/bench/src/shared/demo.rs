//! `stateplane demo shared`: an attack that is spread over four switches, each too little to see
//! alone.

use crate::shared::control::{Way, Work, beside};
use crate::shared::figure::{draw, note, watch};
use crate::shared::network::Network;
use crate::shared::plan::Plan;
use crate::shared::traffic::{self, Live};
use crate::shared::verdict::{Outcome, lost, outcomes};
use crate::statistics::quantile;
use anyhow::{Context, Result, anyhow, ensure};
use clap::{CommandFactory, FromArgMatches, Parser};
use command_line::{Plug, outln, print_table};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Command line of `stateplane demo shared`.
#[derive(Parser, Debug)]
#[command(
    name = "shared",
    about = "Detect an attack spread over four switches, by shared state and by controllers",
    after_help = "Examples:
  stateplane demo shared                       out/demo/shared.json and shared.svg
  stateplane demo shared --only sdw            without the controllers
  stateplane demo shared --period-us 10000     windows of 10 ms
  stateplane demo shared --attackers 8 --benign 8 --seed 7

The same packets are sent in each run. `sdw`: the switches share a sketch. `pull`: a controller
asks all switches for their sketches, again and again. `push`: agents on the switches tell it what
changed. What a single switch that sees all packets would block is computed from the packets that
the hosts sent, and what is blocked is seen where they come out.

Exit code 0: measured, and the sharing switches block what a single one would; 1: not so; 2: wrong
usage."
)]
pub struct Args {
    /// Folder for the results.
    #[arg(long, default_value = "out/demo")]
    out: PathBuf,
    /// Only these.
    #[arg(long, value_delimiter = ',', value_parser = ["sdw", "pull", "push"])]
    only: Vec<String>,
    /// Sources with more than 1000 destinations.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=400))]
    attackers: u16,
    /// Sources with 500 to 950 destinations.
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u16).range(0..=400))]
    benign: u16,
    /// Of the random traffic.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A window of shared state takes at least so long.
    #[arg(long, default_value_t = 2000, value_parser = window_us)]
    period_us: u32,
    /// The controller pulls this often, if it can.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pull_ms: u32,
    /// Agents look for changes to push this often.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    push_ms: u32,
}

fn window_us(text: &str) -> Result<u32, String> {
    let value = text.parse().ok().filter(|us| (100..=1_000_000).contains(us));
    value.ok_or_else(|| "write 100 to 1000000".to_owned())
}

/// The word that it adds to `stateplane demo`.
pub fn plug() -> Plug {
    let run = |given: &clap::ArgMatches| match Args::from_arg_matches(given) {
        Ok(args) => run(&args),
        Err(error) => error.exit(),
    };
    Plug { under: Some("demo"), command: Args::command(), run }
}

/// Runs it; the exit code.
pub fn run(args: &Args) -> u8 {
    command_line::interrupt::install();
    match act(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stateplane demo shared: {error:#}");
            1
        }
    }
}

/// A middle and a high value; null if there are none.
#[derive(Serialize)]
struct Spread {
    p50: Option<f64>,
    p99: Option<f64>,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |share| {
            let value = quantile(&values, share);
            (!values.is_empty()).then(|| (value * 1000.0).round() / 1000.0)
        };
        Spread { p50: at(0.5), p99: at(0.99) }
    }

    fn text(&self) -> String {
        let text = |it: Option<f64>| it.map_or("-".to_owned(), |it| format!("{it:.1}"));
        format!("{} / {}", text(self.p50), text(self.p99))
    }
}

/// What `shared.json` says of a run.
#[derive(Serialize)]
struct Figures {
    attackers: usize,
    detected: usize,
    false_alarms: usize,
    detect_ms: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<Spread>,
}

/// A run.
struct Told {
    name: &'static str,
    outcomes: Vec<Outcome>,
    windows_us: Option<Vec<f64>>,
    lost: u64,
    work: Work,
}

impl Told {
    fn count(&self, which: impl Fn(&Outcome) -> bool) -> usize {
        self.outcomes.iter().filter(|it| which(it)).count()
    }

    fn detect_ms(&self) -> Vec<f64> {
        self.outcomes.iter().filter(|it| it.attacks).filter_map(Outcome::detect_ms).collect()
    }

    fn figures(&self) -> Figures {
        Figures {
            attackers: self.count(|it| it.attacks),
            detected: self.count(|it| it.attacks && it.everywhere()),
            false_alarms: self.count(|it| !it.attacks && it.somewhere()),
            detect_ms: Spread::of(self.detect_ms()),
            window_us: self.windows_us.clone().map(Spread::of),
        }
    }

    /// Sources of which the switches do not all do what one would.
    fn differs(&self) -> usize {
        self.count(|it| match it.omniscient_ns {
            Some(_) => !it.everywhere(),
            None => it.somewhere(),
        })
    }

    fn details(&self, plan: &Plan) -> Value {
        let source = |(outcome, source): (&Outcome, &crate::shared::plan::Source)| {
            json!({
                "source": Ipv4Addr::from(source.address).to_string(),
                "attacks": outcome.attacks,
                "destinations": outcome.destinations,
                "one_switch_blocks": outcome.omniscient_ns.is_some(),
                "blocked": outcome.blocked_ns.map(|it| it.is_some()),
                "detect_ms": outcome.detect_ms(),
            })
        };
        let sources = self.outcomes.iter().zip(&plan.sources).map(source);
        json!({
            "packets": plan.count(),
            "lost": self.lost,
            "differs_from_one_switch": self.differs(),
            "controller_bytes": self.work.bytes.load(Ordering::Relaxed),
            "controller_messages": self.work.messages.load(Ordering::Relaxed),
            "sources": sources.collect::<Vec<Value>>(),
        })
    }
}

fn act(args: &Args) -> Result<u8> {
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let plan = Plan::new(args.seed, args.attackers.into(), args.benign.into());
    note(&format!(
        "{} attackers with 2400 to 3600 destinations, {} benign sources with 500 to 950; none has \
         more than 950 at one switch",
        args.attackers, args.benign
    ));
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let ways = [
        ("sdw", None),
        ("pull", Some(Way::Pull(ms(args.pull_ms)))),
        ("push", Some(Way::Push(ms(args.push_ms)))),
    ];
    let mut told = vec![];
    for (name, way) in ways {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            told.push(one(name, way, &plan, args.period_us)?);
        }
    }
    write(args, &plan, &told)
}

fn one(name: &'static str, way: Option<Way>, plan: &Plan, period_us: u32) -> Result<Told> {
    ensure!(!lab::interrupt::requested(), "interrupted");
    note(&format!("{name}: four switches come up"));
    let stateplane = std::env::current_exe().context("finding this program's path")?;
    let mode = if way.is_some() { "alone" } else { "shared" };
    let network = Network::up(&stateplane, mode, &[("period_us", period_us.to_string())])?;
    let (live, work, over) = (Live::default(), Work::default(), AtomicBool::new(false));
    let ledger = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(name, &live, || over.load(Ordering::Relaxed)));
        let send = || traffic::run(&network, plan, &live);
        let ledger = match way {
            Some(way) => beside(&network, way, &work, send),
            None => send(),
        };
        over.store(true, Ordering::Relaxed);
        watching.join().map_err(|_| anyhow!("the picture's thread panicked"))?;
        ledger
    })?;
    let told = Told {
        name,
        outcomes: outcomes(plan, &ledger),
        windows_us: way.is_none().then(|| network.windows_us()).transpose()?,
        lost: lost(&ledger, network.blocked_packets()?),
        work,
    };
    if told.lost > 0 {
        note(&format!("  {} of {} packets were lost on the way", told.lost, plan.count()));
    }
    Ok(told)
}

fn write(args: &Args, plan: &Plan, told: &[Told]) -> Result<u8> {
    let (mut figures, mut details) = (Map::new(), Map::new());
    for it in told {
        figures.insert(it.name.to_owned(), serde_json::to_value(it.figures())?);
        details.insert(it.name.to_owned(), it.details(plan));
    }
    let runs: Vec<(String, Vec<f64>)> =
        told.iter().map(|it| (it.name.to_owned(), it.detect_ms())).collect();
    for (name, text) in [
        ("shared.json", serde_json::to_string_pretty(&figures)? + "\n"),
        ("shared-details.json", serde_json::to_string_pretty(&details)? + "\n"),
        ("shared.svg", draw(&runs)?),
    ] {
        let path = args.out.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        outln!("{}", path.display());
    }
    table(told);
    let mut code = 0;
    for it in told.iter().filter(|it| it.differs() > 0) {
        eprintln!(
            "stateplane demo shared: {}: {} sources are not blocked as one switch would",
            it.name,
            it.differs()
        );
        code |= u8::from(it.name == "sdw");
    }
    Ok(code)
}

fn table(told: &[Told]) {
    let columns =
        ["", "attackers", "detected", "false alarms", "detect ms, 50/99 %", "window us", "lost"];
    let row = |it: &Told| {
        let figures = it.figures();
        vec![
            it.name.to_owned(),
            figures.attackers.to_string(),
            figures.detected.to_string(),
            figures.false_alarms.to_string(),
            figures.detect_ms.text(),
            figures.window_us.map_or(String::new(), |it| it.text()),
            it.lost.to_string(),
        ]
    };
    let mut rows: Vec<Vec<String>> = told.iter().map(row).collect();
    // (Of the first run: the order of packets of different switches may differ a little.)
    rows.extend(told.first().map(|it| {
        let blocks = |attacks| it.count(|it| it.attacks == attacks && it.omniscient_ns.is_some());
        let attackers = it.count(|it| it.attacks).to_string();
        vec!["one switch".into(), attackers, blocks(true).to_string(), blocks(false).to_string()]
    }));
    print_table(&columns, rows);
}
