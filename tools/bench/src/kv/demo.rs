//! `stateplane demo kv`: a lock service under load on switches, etcd and ZooKeeper; what it costs,
//! how fast it answers, and what becomes of it when the head or leader dies.

use crate::kv::failure::{Live, Plan, Verdict};
use crate::kv::figure::{Shown, draw};
use crate::kv::labs::{Site, require};
use crate::kv::picture::{note, watch};
use crate::kv::workload::{Measured, Reading, Spread, Workload};
use crate::kv::{Service, System, up};
use anyhow::{Context, Result, bail, ensure};
use clap::{CommandFactory, FromArgMatches, Parser};
use command_line::{Plug, outln, print_table};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of the switches' founding.
const GROUPS: u16 = 100;
/// Keys of the load without a failure.
const KEYS: usize = 1000;
/// Locks that are held while a machine dies.
const LOCKS: usize = 200;
/// Of requests meanwhile.
const WRITES_SHARE: f64 = 0.1;
/// Of saturation, meanwhile.
const OFFERED: f64 = 0.3;
/// Requests under way at a time, for the most in each busy CPU second.
const OUTSTANDING: usize = 256;

/// Command line of `stateplane demo kv`.
#[derive(Parser, Debug)]
#[command(
    name = "kv",
    about = "Run a lock service on switches, etcd and ZooKeeper, and kill a machine of each",
    after_help = "Examples:
  stateplane demo kv                          out/demo/kv.json and kv.svg
  stateplane demo kv --only stateplane        one service
  stateplane demo kv --seconds 5              longer measurements

All have three servers of a key, linked to the clients' host and to each other, with their data on
tmpfs and values of 64 bytes. etcd is Debian's etcd-server, ZooKeeper is Debian's zookeeper
(make setup installs both).

Exit code 0: measured, and no acknowledged write was lost on the switches; 1: not so; 2: wrong
usage."
)]
pub struct Args {
    /// Folder for the results.
    #[arg(long, default_value = "out/demo")]
    out: PathBuf,
    /// Only these services.
    #[arg(long, value_delimiter = ',', value_parser = ["stateplane", "etcd", "zookeeper"])]
    only: Vec<String>,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("write 0.5 to 60".to_owned()),
    }
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
            eprintln!("stateplane demo kv: {error:#}");
            1
        }
    }
}

/// What one service came to.
struct Told {
    system: System,
    reads: Measured,
    plain: Option<Measured>,
    writes: Measured,
    read_us: Spread,
    write_us: Spread,
    plan: Plan,
    verdict: Verdict,
    events: Value,
}

/// What `kv.json` says of a service.
#[derive(Serialize)]
struct Figures {
    reads_per_cpu_s: f64,
    writes_per_cpu_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_reads_per_cpu_s: Option<f64>,
    read_us: Spread,
    write_us: Spread,
    acknowledged_lost: u64,
    failover_ms: f64,
    recovery_dip: f64,
}

impl Told {
    /// From the kill to the last lock's next write, in ms; at least the time that was watched, if
    /// there was none.
    fn failover_ms(&self) -> f64 {
        let watched = (self.plan.end - self.plan.kill).as_secs_f64() * 1e3;
        self.verdict.failover_ms.unwrap_or(watched)
    }

    fn figures(&self) -> Figures {
        let rounded = |it: f64, to: f64| (it * to).round() / to;
        let plain = self.plain.as_ref();
        Figures {
            reads_per_cpu_s: rounded(self.reads.per_busy_second(), 1.0),
            writes_per_cpu_s: rounded(self.writes.per_busy_second(), 1.0),
            plain_reads_per_cpu_s: plain.map(|plain| rounded(plain.per_busy_second(), 1.0)),
            read_us: self.read_us,
            write_us: self.write_us,
            acknowledged_lost: self.verdict.lost,
            failover_ms: rounded(self.failover_ms(), 10.0),
            recovery_dip: rounded(self.verdict.dip, 10_000.0),
        }
    }

    /// What is behind the figures.
    fn details(&self) -> Value {
        let of = |measured: &Measured| {
            json!({
                "requests": measured.answers(),
                "failed": measured.failed,
                "seconds": measured.seconds,
                "per_second": measured.per_second(),
                "busy_cpu_s": measured.cpu.busy,
                "clients_cpu_s": measured.cpu.client,
                "servers_processes_cpu_s": measured.cpu.lab,
            })
        };
        json!({
            "reads": of(&self.reads),
            "plain_reads": self.plain.as_ref().map(of),
            "writes": of(&self.writes),
            "offered_per_second": self.plan.rate,
            "first_write_after_ms": self.verdict.first_ms,
            "every_lock_written_after_ms": self.verdict.failover_ms,
            "deepest_dip": self.verdict.deepest,
            "answered_in_time": self.verdict.shares,
            "events": self.events,
        })
    }
}

fn act(args: &Args) -> Result<u8> {
    let chosen = |system: &System| {
        args.only.is_empty() || args.only.iter().any(|name| name == system.name())
    };
    let systems: Vec<System> = System::ALL.into_iter().filter(chosen).collect();
    // Before minutes of work.
    for system in &systems {
        require(*system)?;
    }
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let site = Site::of_this_program()?;
    let mut told = vec![];
    for system in systems {
        told.push(match one(&site, system, args.seconds) {
            // (With little CPU time, ZooKeeper's sessions may end one after the other.)
            Err(error) if system == System::ZooKeeper && !lab::interrupt::requested() => {
                eprintln!("stateplane demo kv: zookeeper: {error:#}; once more");
                one(&site, system, args.seconds)?
            }
            told => told?,
        });
    }
    write(args, &told)
}

fn write(args: &Args, told: &[Told]) -> Result<u8> {
    let (mut figures, mut details) = (Map::new(), Map::new());
    for it in told {
        figures.insert(it.system.name().to_owned(), serde_json::to_value(it.figures())?);
        details.insert(it.system.name().to_owned(), it.details());
    }
    details.insert("machine".into(), machine());
    let shown: Vec<Shown> = told
        .iter()
        .map(|it| Shown { system: it.system, plan: &it.plan, verdict: &it.verdict })
        .collect();
    for (name, text) in [
        ("kv.json", serde_json::to_string_pretty(&figures)? + "\n"),
        ("kv-details.json", serde_json::to_string_pretty(&details)? + "\n"),
        ("kv.svg", draw(&shown)?),
    ] {
        let path = args.out.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        outln!("{}", path.display());
    }
    table(told);
    let switches = || told.iter().filter(|it| it.system == System::Switches);
    let lost: u64 = switches().map(|it| it.verdict.lost).sum();
    if lost > 0 {
        eprintln!("stateplane demo kv: {lost} reads missed an acknowledged write");
    }
    for it in told.iter().filter(|it| it.verdict.failover_ms.is_none()) {
        eprintln!(
            "stateplane demo kv: {}: a lock was not written again within {:.0} s after the {} \
             died; kv.json has this time",
            it.system.name(),
            it.failover_ms() / 1e3,
            it.system.victim()
        );
    }
    Ok(u8::from(lost > 0 || switches().any(|it| it.verdict.failover_ms.is_none())))
}

/// What the figures are from.
fn machine() -> Value {
    let (kernel, cpu) = crate::experiments::machine();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({ "kernel": kernel, "cpu": cpu, "cores": cores, "load_at_the_end": load.trim() })
}

fn table(told: &[Told]) {
    let row = |it: &Told| {
        let plain =
            it.plain.as_ref().map_or(String::new(), |it| format!("{:.0}", it.per_busy_second()));
        let failover = it.verdict.failover_ms.map_or("never".into(), |ms| format!("{ms:.0}"));
        vec![
            it.system.name().to_owned(),
            format!("{:.0}", it.reads.per_busy_second()),
            plain,
            format!("{:.0}", it.writes.per_busy_second()),
            format!("{} / {}", it.read_us.p50, it.read_us.p99),
            format!("{} / {}", it.write_us.p50, it.write_us.p99),
            it.verdict.lost.to_string(),
            failover,
            format!("{:.1} %", it.verdict.dip * 100.0),
        ]
    };
    let columns = [
        "",
        "reads/CPU s",
        "plain reads",
        "writes/CPU s",
        "read µs, 50/99 %",
        "write µs",
        "lost",
        "failover ms",
        "dip after it",
    ];
    print_table(&columns, told.iter().map(row).collect());
}

fn one(site: &Site, system: System, seconds: f64) -> Result<Told> {
    ensure!(!lab::interrupt::requested(), "interrupted");
    note(&format!("{}: three servers of a key come up", system.name()));
    let mut service = up(site, system, GROUPS)?;
    let service = service.as_mut();
    service.fill(KEYS, 64)?;
    let length = Duration::from_secs_f64(seconds);
    let warm = Duration::from_millis(500);
    // (A virtual machine of Java compiles what it runs often.)
    measure(service, false, Reading::Newest, warm)?;
    measure(service, true, Reading::Newest, warm)?;
    let read_us = Spread::of(&alone(service, false, length)?.reads_us);
    let write_us = Spread::of(&alone(service, true, length)?.writes_us);
    note(&format!(
        "  one at a time: reads {} µs, writes {} µs (99 %: {}, {})",
        read_us.p50, write_us.p50, read_us.p99, write_us.p99
    ));
    let reads = measure(service, false, Reading::Newest, length)?;
    let writes = measure(service, true, Reading::Newest, length)?;
    let plain = match system {
        System::ZooKeeper => Some(measure(service, false, Reading::Plain, length)?),
        _ => None,
    };
    note(&format!(
        "  for each busy CPU second: {:.0} reads, {:.0} writes{}",
        reads.per_busy_second(),
        writes.per_busy_second(),
        plain
            .as_ref()
            .map_or(String::new(), |it| format!(", {:.0} plain reads", it.per_busy_second()))
    ));
    let mixed = (1.0 - WRITES_SHARE) / reads.per_second() + WRITES_SHARE / writes.per_second();
    let plan = Plan {
        rate: (OFFERED / mixed).round(),
        writes_share: WRITES_SHARE,
        locks: LOCKS,
        place: 0,
        kill: Duration::from_secs(2),
        restore: Duration::from_secs(6),
        end: Duration::from_secs(12),
    };
    note(&format!(
        "  {:.0} requests a second on {LOCKS} locks; the {} dies after {} s",
        plan.rate,
        system.victim(),
        plan.kill.as_secs()
    ));
    let live = Arc::new(Live::new(&plan));
    let (over, began) = (AtomicBool::new(false), Arc::clone(&live));
    let recorded = std::thread::scope(|scope| {
        scope.spawn(|| watch(system, &plan, &began, || over.load(Ordering::Relaxed)));
        let recorded = service.fail(&plan, &live);
        over.store(true, Ordering::Relaxed);
        recorded
    })?;
    let verdict = recorded.verdict(&plan);
    note(&format!(
        "  {} acknowledged writes lost; every lock written again after {}",
        verdict.lost,
        verdict.failover_ms.map_or("the end".into(), |ms| format!("{ms:.0} ms"))
    ));
    let at = |moment| recorded.at(moment).as_secs_f64();
    let events = json!({
        "victim": recorded.victim,
        "killed_s": at(recorded.killed.0),
        "links_down_s": at(recorded.killed.1),
        "restarted_s": recorded.restored.map(|it| at(it.0)),
        "ready_again_s": recorded.restored.map(|it| at(it.1)),
        "locks_led_by_it": recorded.led.iter().filter(|led| **led).count(),
    });
    Ok(Told { system, reads, plain, writes, read_us, write_us, plan, verdict, events })
}

fn alone(service: &mut dyn Service, writes: bool, length: Duration) -> Result<Measured> {
    answered(service, &Workload::one_at_a_time(writes, KEYS, length))
}

fn measure(
    service: &mut dyn Service,
    writes: bool,
    reading: Reading,
    length: Duration,
) -> Result<Measured> {
    let alone = Workload::one_at_a_time(writes, KEYS, length);
    answered(service, &Workload { reading, outstanding: OUTSTANDING, ..alone })
}

/// A load of which some was answered.
fn answered(service: &mut dyn Service, load: &Workload) -> Result<Measured> {
    ensure!(!lab::interrupt::requested(), "interrupted");
    let measured = service.run(load)?;
    if measured.answers() == 0.0 {
        bail!("{}: no request was answered, {} failed", service.system().name(), measured.failed);
    }
    if measured.failed > 0 {
        let (name, failed) = (service.system().name(), measured.failed);
        note(&format!("  {name}: {failed} requests failed of {}", measured.answers()));
    }
    Ok(measured)
}
