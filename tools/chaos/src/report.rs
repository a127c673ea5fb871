//! What a run of chaos leaves: `chaos.json`, the histories of counted packets, and, for each round
//! with a violation, the logs and the state of the lab then.

use crate::plan::{Fault, Step};
use crate::{Violation, bindings, connections, counts};
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::status;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// A round.
#[derive(Clone, Debug, Serialize)]
pub struct RoundReport {
    /// Its number.
    pub round: u64,
    /// When it began, in seconds since the lab's traffic began.
    pub began_s: f64,
    /// Its faults.
    pub steps: Vec<Step>,
    /// When all repairs were done, in milliseconds from its beginning.
    pub repaired_ms: u64,
    /// When the lab was whole again.
    pub whole_ms: u64,
    /// When everything was judged.
    pub judged_ms: u64,
}

/// A lab.
#[derive(Clone, Debug, Serialize)]
pub struct LabReport {
    /// The topology's name.
    pub lab: String,
    /// Its rounds.
    pub rounds: Vec<RoundReport>,
    /// Connections, if it carried any.
    pub connections: Option<connections::Figures>,
    /// The connections' histories, recorded at both ends.
    pub bindings: Option<bindings::Figures>,
    /// Counted packets, if it carried any.
    pub counts: Option<counts::Figures>,
    /// How often routing went down by itself between rounds: the machine is too busy for BFD.
    pub routing_went_down: u64,
    /// Attempts to connect that failed then.
    pub excused_by_routing: u64,
    /// Resident memory of each daemon, in KiB: after the first round, and after the last.
    pub memory_kib: BTreeMap<String, [u64; 2]>,
    /// How many violations there were.
    pub violations: u64,
    /// The first of them.
    pub violation: Vec<Violation>,
}

impl LabReport {
    pub(super) fn new(lab: &str) -> Self {
        Self {
            lab: lab.to_string(),
            rounds: Vec::new(),
            connections: None,
            bindings: None,
            counts: None,
            routing_went_down: 0,
            excused_by_routing: 0,
            memory_kib: BTreeMap::new(),
            violations: 0,
            violation: Vec::new(),
        }
    }

    /// Notes the daemons' memory.
    pub(super) fn memory(&mut self, lab: &Lab) {
        for node in lab.topology().node.keys() {
            for (daemon, identity) in lab.daemons(node) {
                let status = std::fs::read_to_string(format!("/proc/{}/status", identity.pid))
                    .unwrap_or_default();
                let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
                let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse().ok())
                else {
                    continue;
                };
                self.memory_kib.entry(format!("{node} {daemon}")).or_insert([kib, kib])[1] = kib;
            }
        }
    }
}

/// All labs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the faults were drawn from.
    pub seed: u64,
    /// How long it took, in seconds, with building the labs.
    pub seconds: f64,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Files and sockets that this process had open: before the labs, and after them.
    pub open_files: [usize; 2],
    /// Each lab.
    pub labs: Vec<LabReport>,
}

impl Report {
    /// How many violations there were.
    pub fn violations(&self) -> u64 {
        self.labs.iter().map(|lab| lab.violations).sum()
    }

    /// The run in a line.
    pub fn line(&self) -> String {
        let rounds: usize = self.labs.iter().map(|lab| lab.rounds.len()).sum();
        let steps = || self.labs.iter().flat_map(|lab| &lab.rounds).flat_map(|round| &round.steps);
        let count = |wanted: fn(&Fault) -> bool| steps().filter(|step| wanted(&step.fault)).count();
        let mut line = format!(
            "chaos: seed {}, {rounds} rounds in {:.0} s: {} power cuts, {} links cut, {} processes killed, {} times messages lost",
            self.seed,
            self.seconds,
            count(|fault| matches!(fault, Fault::Crash { .. })),
            count(|fault| matches!(fault, Fault::Cut(_))),
            count(|fault| matches!(fault, Fault::Process { .. })),
            count(|fault| matches!(fault, Fault::Links(_))),
        );
        for figures in self.labs.iter().filter_map(|lab| lab.connections) {
            line.push_str(&format!(
                "; {} connections established, {} broken",
                figures.established, figures.broken
            ));
        }
        for figures in self.labs.iter().filter_map(|lab| lab.bindings) {
            line.push_str(&format!(
                "; {} flows translated, {} histories of {} operations checked in {} ms",
                figures.flows, figures.histories, figures.operations, figures.checked_ms
            ));
        }
        for figures in self.labs.iter().filter_map(|lab| lab.counts.as_ref()) {
            line.push_str(&format!(
                "; {} packets counted and out, {} counters checked: {} equal, the others larger by what was counted and lost ({} packets, each named); {} histories of {} operations checked in {} ms; after repairs nothing got out for {} ms at most, and for {} ms while packets came to the switches",
                figures.out,
                figures.counters,
                figures.equal,
                figures.counted_and_lost,
                figures.histories,
                figures.operations,
                figures.checked_ms,
                figures.silent_after_repairs_ms,
                figures.unserved_after_repairs_ms
            ));
        }
        format!("{line}; {} violations", self.violations())
    }

    /// Writes `chaos.json`.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join("chaos.json");
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::io(&path)(std::io::Error::other(e)))?;
        text.push('\n');
        std::fs::write(&path, text).map_err(Error::io(&path))
    }
}

/// Copies logs and configurations of a lab, and writes its status.
pub(super) fn evidence(lab: &Lab, folder: &Path) -> Result<()> {
    for node in lab.topology().node.keys() {
        let to = folder.join(node);
        std::fs::create_dir_all(&to).map_err(Error::io(&to))?;
        for entry in std::fs::read_dir(lab.node_dir(node)).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "log" || e == "toml" || e == "conf") {
                let copy = to.join(entry.file_name());
                std::fs::copy(&path, &copy).map_err(Error::io(&copy))?;
                write_metrics(lab, node, &path, &copy);
            }
        }
    }
    let path = folder.join("status.txt");
    std::fs::write(&path, status::status(lab)?.render()).map_err(Error::io(&path))
}

/// Beside the copy of a daemon's configuration, the metrics that it shows, if it does. One that is
/// dead shows none, and what is left of the lab is worth no less.
fn write_metrics(lab: &Lab, node: &str, configuration: &Path, copy: &Path) {
    let Ok(text) = std::fs::read_to_string(configuration) else { return };
    let address = text
        .lines()
        .find_map(|line| line.strip_prefix("metrics = \"")?.strip_suffix('"')?.parse().ok());
    let (Some(address), Ok(netns)) = (address, lab.netns(node)) else { return };
    let page = netns.run(|| {
        let patience = Duration::from_secs(2);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    });
    // Evidence for people: nothing is decided by it.
    let _ = page.and_then(|page| std::fs::write(copy.with_extension("metrics"), page));
}

/// How many files and sockets this process has open.
pub(super) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
