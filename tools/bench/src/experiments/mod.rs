//! The experiments: one module each, with what the page says of it.
//!
//! An experiment is one entry in [`ALL`]. It gets a [`Context`] and gives an [`Outcome`]; what
//! becomes of that (files, the page, the terminal) is the same for all.

mod cores;
mod fig08;
mod fig09;
pub mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
pub mod fig15;
mod kv;
mod nat;
mod redis;
mod sessions;
mod shared_chain;
mod shared_control;
mod shared_cpus;
mod shared_limiter;
mod shared_load;
mod shared_members;
mod shared_packets;
mod shared_rate;
mod shared_recovery;
mod shared_sizes;
mod shared_spread;
mod shared_tree;
mod shared_visible;
mod shared_windows;
mod table2;

use crate::build::Places;
use crate::results::{Outcome, Record, Row};
use anyhow::{Context as _, Result, bail};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line and of its files.
    pub name: &'static str,
    /// Whether a capture can be given, to be played instead of its own packets.
    pub plays_a_trace: bool,
    /// What is said of it.
    pub page: Page,
    run: fn(&Context) -> Result<Outcome>,
}

/// What is said of an experiment, by `stateplane-bench list` and in index.html.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Which figure or table of the paper, such as `Figure 8`.
    pub figure: &'static str,
    /// One line.
    pub title: &'static str,
    /// How long `--quick` takes, about.
    pub quick: &'static str,
    /// How long all of it takes, about.
    pub full: &'static str,
    /// What it shows, for `list`.
    pub shows: &'static str,
    /// What the paper measured and found. Blank lines part paragraphs.
    pub paper: &'static str,
    /// What is done here, and what differs.
    pub method: &'static str,
}

/// All experiments, in the order of the page.
pub const ALL: &[Experiment] = &[
    nat::EXPERIMENT,
    cores::EXPERIMENT,
    fig08::EXPERIMENT,
    fig09::EXPERIMENT,
    fig10::EXPERIMENT,
    fig11::EXPERIMENT,
    fig12::EXPERIMENT,
    fig13::EXPERIMENT,
    sessions::EXPERIMENT,
    fig14::EXPERIMENT,
    fig15::EXPERIMENT,
    table2::EXPERIMENT,
    redis::EXPERIMENT,
    shared_windows::EXPERIMENT,
    shared_sizes::EXPERIMENT,
    shared_members::EXPERIMENT,
    shared_tree::EXPERIMENT,
    shared_visible::EXPERIMENT,
    shared_control::EXPERIMENT,
    shared_spread::EXPERIMENT,
    shared_limiter::EXPERIMENT,
    shared_recovery::EXPERIMENT,
    shared_packets::EXPERIMENT,
    shared_cpus::OF_PACKETS,
    shared_cpus::OF_WINDOWS,
    shared_load::EXPERIMENT,
    shared_chain::EXPERIMENT,
    shared_rate::EXPERIMENT,
    kv::packets::EXPERIMENT,
    kv::sweeps::VALUES,
    kv::sweeps::STORE,
    kv::sweeps::WRITES,
    kv::sweeps::LOSS,
    kv::latency::EXPERIMENT,
    kv::scale::EXPERIMENT,
    kv::echo::EXPERIMENT,
    kv::failures::EXPERIMENT,
    kv::locks::EXPERIMENT,
];

/// Says why a capture cannot be given to these experiments, if it cannot.
///
/// # Errors
/// One of them plays no trace.
pub fn refuse_capture<'a>(
    chosen: impl Iterator<Item = &'a Experiment>,
) -> std::result::Result<(), String> {
    let names = |of: &mut dyn Iterator<Item = &Experiment>| {
        of.map(|e| e.name).collect::<Vec<_>>().join(", ")
    };
    let without = names(&mut chosen.filter(|e| !e.plays_a_trace));
    if without.is_empty() {
        return Ok(());
    }
    let with = names(&mut ALL.iter().filter(|e| e.plays_a_trace));
    Err(format!(
        "--pcap has no meaning for {without}: their packets are not a trace; it is for {with}"
    ))
}

/// What is asked for on the command line.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Fewer rounds and shorter runs: for a look, not for a claim.
    pub quick: bool,
    /// Folders of the only applications to run; empty: all.
    pub apps: Vec<String>,
    /// A capture to play instead of an experiment's own packets.
    pub pcap: Option<PathBuf>,
}

/// What an experiment runs with.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where things are.
    pub places: Places,
    /// Fewer rounds and shorter runs: for a look, not for a claim.
    pub quick: bool,
    /// Folders of the only applications to run; empty: all.
    pub apps: Vec<String>,
    /// A capture to play instead of an experiment's own packets.
    pub pcap: Option<PathBuf>,
    name: &'static str,
}

impl Context {
    /// One of two amounts.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// One line that counts up in a terminal, and one a quarter elsewhere.
    pub fn progress(&self, what: &str, done: u32, of: u32) {
        let end = done == of;
        if std::io::stderr().is_terminal() {
            eprint!(
                "\r\x1b[Kbench: {}: {what}: {done} of {of}{}",
                self.name,
                if end { "\n" } else { "" }
            );
        } else if end || done.is_multiple_of(of.div_ceil(4).max(1)) {
            eprintln!("bench: {}: {what}: {done} of {of}", self.name);
        }
    }

    /// One line.
    pub fn say(&self, what: &str) {
        eprintln!("bench: {}: {what}", self.name);
    }
}

/// What reproduces an experiment.
pub fn command(name: &str, asked: &Asked) -> String {
    let mut command = format!(
        "target/release/stateplane-bench run {name}{}",
        if asked.quick { " --quick" } else { "" }
    );
    command.extend(asked.apps.iter().map(|app| format!(" --app {app}")));
    command.extend(asked.pcap.iter().map(|path| format!(" --pcap {}", path.display())));
    command
}

impl Experiment {
    /// Runs it, writes its files, and prints its rows.
    ///
    /// # Errors
    /// The experiment fails or is interrupted, or a file cannot be written. What an earlier run has
    /// written is there no more then, so that nobody takes it for this one's.
    pub fn execute(&self, places: &Places, asked: &Asked) -> Result<()> {
        let page = &self.page;
        eprintln!("bench: {}: {} ({})", self.name, page.title, page.figure);
        let start = Instant::now();
        remove(&places.output.join(format!("{}.json", self.name)))?;
        let Asked { quick, apps, pcap } = asked.clone();
        let context =
            Context { places: places.clone(), quick, apps, pcap: pcap.clone(), name: self.name };
        let outcome = (self.run)(&context)?;
        if lab::interrupt::requested() {
            bail!("interrupted: nothing is written");
        }
        let (kernel, cpu) = machine();
        let mut figures = Vec::new();
        for figure in &outcome.figures {
            let file = format!("{}.svg", figure.name);
            write(places, &file, &figure.svg)?;
            figures.push(file);
        }
        let record = Record {
            name: self.name.to_owned(),
            quick,
            command: command(self.name, asked),
            pcap: pcap.map(|path| path.display().to_string()),
            kernel,
            cpu,
            seconds: start.elapsed().as_secs_f64(),
            rows: outcome.rows,
            notes: outcome.notes,
            figures,
            data: outcome.data,
        };
        write(
            places,
            &format!("{}.json", self.name),
            &(serde_json::to_string_pretty(&record)? + "\n"),
        )?;
        print(page, &record);
        Ok(())
    }
}

/// Removes a file, if there is one.
///
/// # Errors
/// It stays.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn write(places: &Places, file: &str, text: &str) -> Result<()> {
    let path = places.output.join(file);
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

fn print(page: &Page, record: &Record) {
    println!("\n{}: {} ({:.0} s)", page.figure, page.title, record.seconds);
    let width = |of: fn(&Row) -> &str| {
        record.rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (what, paper, measured) =
        (width(|r| &r.what), width(|r| &r.paper).max(5), width(|r| &r.measured).max(4));
    println!("  {:what$}  {:paper$}  {:measured$}  goal", "", "paper", "here");
    for row in &record.rows {
        println!(
            "  {:what$}  {:paper$}  {:measured$}  {}",
            row.what,
            row.paper,
            row.measured,
            row.verdict()
        );
    }
    for note in &record.notes {
        println!("  {note}");
    }
}

/// The kernel's release and the processor's name.
pub fn machine() -> (String, String) {
    let kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    (
        kernel,
        model
            .map_or("unknown processor", |text| text.trim_start_matches([' ', '\t', ':']))
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_experiment_has_a_page_and_a_name_of_its_own() {
        let mut names = HashSet::new();
        for experiment in ALL {
            let page = experiment.page;
            assert!(
                [page.title, page.shows, page.paper, page.method].iter().all(|it| !it.is_empty()),
                "{}",
                experiment.name
            );
            assert!(names.insert(experiment.name), "{} twice", experiment.name);
        }
    }
}
