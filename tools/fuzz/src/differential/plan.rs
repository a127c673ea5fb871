//! What a campaign is told, and what it tells.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// How much to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the run is repeated by.
    pub seed: u64,
    /// The first program's number: 0, or where a run before ended.
    pub first: u64,
    /// Programs to generate.
    pub runs: u64,
    /// Packets for each.
    pub packets: usize,
    /// Programs in one object, but for every fourth object, which has one.
    pub batch: usize,
    /// Go on after a mismatch (told at once, not made shorter).
    pub keep_going: bool,
    /// Make a program with a mismatch shorter, which takes minutes.
    pub shrink: bool,
    /// One object in so many is a program that runs on two CPUs at once; 0: none.
    pub two_cpus_every: u64,
    /// Where programs that are refused alone are written to: the P4 text, and what refused it.
    pub save: Option<PathBuf>,
}

impl Default for Plan {
    /// What the commands do if they are told nothing; no program yet.
    fn default() -> Plan {
        Plan {
            seed: 0,
            first: 0,
            runs: 0,
            packets: 60,
            batch: 4,
            keep_going: false,
            shrink: true,
            two_cpus_every: 6,
            save: None,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Programs compared to the end.
    pub programs: u64,
    /// Programs that the verifier refused as faulty.
    pub refused: u64,
    /// Programs beyond a limit that the compiler names, with the line in the program.
    pub limits: u64,
    /// Of the programs, those with packets that came to something undefined: these packets were
    /// taken back.
    pub undefined: u64,
    /// Such packets.
    pub undefined_packets: u64,
    /// Programs with a mismatch.
    pub mismatches: u64,
    /// Packets compared.
    pub packets: u64,
    /// Of these, those held against the program as it is written, too.
    pub written: u64,
    /// Of these, those that left.
    pub forwarded: u64,
    /// Of these, those that left with other bytes than they came with.
    pub changed: u64,
    /// Entries added to tables.
    pub entries: u64,
    /// Programs run on two CPUs at once and compared.
    pub shared: u64,
    /// Elements of registers and counters compared.
    pub elements: u64,
    /// Why programs were refused, and how often.
    pub reasons: BTreeMap<String, u64>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs compared, {} of them on two CPUs, {} mismatches ({} refused by the verifier, {} beyond a limit); {} packets ({} undefined, in {} programs): {} forwarded, {} changed; {} entries, {} registers and counters",
            self.programs,
            self.shared,
            self.mismatches,
            self.refused,
            self.limits,
            self.packets,
            self.undefined_packets,
            self.undefined,
            self.forwarded,
            self.changed,
            self.entries,
            self.elements
        )
    }
}
