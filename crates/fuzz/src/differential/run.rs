//! Compiles generated programs with the real pipeline, runs packets through the kernel and the interpreter, and compares.

use super::program::generate;
use super::{Generated, shrink};
use crate::hex;
use anyhow::{Context, Result, bail, ensure};
use dataplane::{Dataplane, Object, Settings, Write};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, Stop, Verdict};
use p4_ir::{ExternId, Program, TableId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use xdp_backend::{CompileError, Options, Placement};

/// The clock that both sides see, in microseconds.
pub(super) const NOW_US: u64 = 1_234_567;
/// Lines of a verifier's log that are kept.
const LOG_LINES: usize = 300;
/// Reasons of refusals that are told.
const MAX_REASONS: usize = 40;

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
    /// Where programs that are refused alone are written to: the P4 text, and what refused it.
    pub save: Option<PathBuf>,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Programs compared to the end.
    pub programs: u64,
    /// Programs refused with an error, by the back end or the verifier.
    pub refused: u64,
    /// Programs that came to something undefined; until there they were compared.
    pub undefined: u64,
    /// Programs with a mismatch.
    pub mismatches: u64,
    /// Packets compared.
    pub packets: u64,
    /// Of these, those that left.
    pub forwarded: u64,
    /// Of these, those that left with other bytes than they came with.
    pub changed: u64,
    /// Entries added to tables.
    pub entries: u64,
    /// Elements of registers and counters compared.
    pub elements: u64,
    /// Why programs were refused, and how often.
    pub reasons: BTreeMap<String, u64>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs compared, {} mismatches ({} refused, {} undefined somewhere); {} packets: {} forwarded, {} changed; {} entries, {} registers and counters",
            self.programs,
            self.mismatches,
            self.refused,
            self.undefined,
            self.packets,
            self.forwarded,
            self.changed,
            self.entries,
            self.elements
        )
    }
}

/// What is wrong with a program.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    /// Compiler and interpreter differ, or clang rejects what the back end wrote.
    Wrong { kind: &'static str, story: String },
    /// Not compiled, with an error.
    Refused { by: &'static str, reason: String, details: String },
}

/// The include files, preprocessed, in which generated programs stand.
pub(super) fn prelude() -> Result<String> {
    let includes = "#include <core.p4>\n#include <v1model.p4>\n#include <stateplane.p4>\n";
    let outcome = p4_check::check_source("prelude.p4", includes, &p4_syntax::Options::default());
    let mut text = String::new();
    for line in outcome.source_map.text().lines().filter(|line| !line.starts_with('#')) {
        text += line;
        text.push('\n');
    }
    ensure!(text.contains("V1Switch"), "v1model.p4 was not found:\n{}", outcome.render(false));
    Ok(text)
}

/// A program's seed: the same whatever shares its object.
pub(super) fn seed_of(plan: &Plan, number: u64) -> u64 {
    // SplitMix64's steps (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    let mut z = plan.seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Runs the plan. The error has the seed and the shortest program that fails.
pub fn campaign(plan: &Plan) -> Result<Summary> {
    println!("differential: seed {}", plan.seed);
    let prelude = prelude()?;
    let mut summary = Summary::default();
    let (mut number, end, mut object) = (plan.first, plan.first + plan.runs, 0u64);
    while number < end {
        let count = if object % 4 == 3 { 1 } else { plan.batch.max(1) as u64 }.min(end - number);
        let seeds: Vec<u64> = (number..number + count).map(|number| seed_of(plan, number)).collect();
        several(plan, &prelude, &seeds, number, &mut summary)?;
        number += count;
        object += 1;
        if object % 100 == 0 {
            println!("differential: {} of {}: {summary}", number - plan.first, plan.runs);
        }
    }
    for (reason, count) in summary.reasons.iter().take(MAX_REASONS) {
        println!("differential: refused {count} times: {reason}");
    }
    // Refusals are no evidence: a generator that is refused all the time tests nothing.
    ensure!(summary.refused * 5 <= plan.runs.max(20), "too many programs refused: {summary}");
    Ok(summary)
}

/// The placement of storage is drawn too: each is a different program to clang and the verifier. Several programs seldom fit in registers, and to try that first
/// costs a run of clang.
fn placement(seed: u64, programs: u32) -> Placement {
    match (programs, seed % 8) {
        (1, 0) => Placement::Partial(0),
        (1, 1) | (_, 0 | 1) => Placement::Scratch,
        (1, 2) | (_, 2..6) => Placement::AllScratch,
        (_, 6) => Placement::Forgotten,
        _ => Placement::Registers,
    }
}

/// Programs that share an object; one by one if that does not compile.
fn several(plan: &Plan, prelude: &str, seeds: &[u64], number: u64, summary: &mut Summary) -> Result<()> {
    let generated = generate(seeds);
    let Err(finding) = test(prelude, &generated, seeds[0], plan.packets, summary) else { return Ok(()) };
    match finding {
        Finding::Refused { .. } if seeds.len() > 1 => {
            for (index, seed) in (0..).zip(seeds) {
                several(plan, prelude, &[*seed], number + index, summary)?;
            }
            Ok(())
        }
        Finding::Refused { by, reason, details } => {
            summary.refused += 1;
            if let Some(folder) = &plan.save {
                save(
                    folder,
                    &format!("{}-{number}", plan.seed),
                    &generated.text,
                    &format!("{by}: {reason}\n{details}"),
                )?;
            }
            let told = reason.lines().find(|line| line.contains("error")).or(reason.lines().next());
            let shown: String = told.unwrap_or_default().chars().take(200).collect();
            // What the front end says it does not have is a refusal like any; else the generator wrote what is no P4.
            if by == "front end" && !reason.contains("not supported") && !reason.contains("has the same key") {
                bail!("seed {}, program {number}: the front end refused it: {reason}\n{}", plan.seed, generated.text);
            }
            *summary.reasons.entry(format!("{by}: {shown}")).or_default() += 1;
            Ok(())
        }
        Finding::Wrong { kind, story } => {
            summary.mismatches += 1;
            if plan.keep_going {
                println!(
                    "differential: MISMATCH seed {}, program {number} of {} ({kind}): {story}",
                    plan.seed,
                    seeds.len()
                );
                return Ok(());
            }
            let report = shrink::report(prelude, seeds, plan.packets, kind, &generated);
            bail!("seed {}, program {number} (and {} more): {story}\n{report}", plan.seed, seeds.len() - 1);
        }
    }
}

/// Keeps a program, and what is to be said of it.
fn save(folder: &Path, name: &str, text: &str, story: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (ending, content) in [("p4", text), ("txt", story)] {
        let path = folder.join(format!("{name}.{ending}"));
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn wrong<T>(kind: &'static str, story: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Wrong { kind, story: story.into() })
}

/// A loaded program and what it was made from.
struct Loaded<'p> {
    program: &'p Program,
    dataplane: Dataplane,
}

/// Compiles and runs programs; `seed` draws packets and entries.
pub(super) fn test(
    prelude: &str,
    generated: &Generated,
    seed: u64,
    packets: usize,
    summary: &mut Summary,
) -> Result<(), Finding> {
    let outcome = p4_check::check_preprocessed("generated.p4", &format!("{prelude}{}", generated.text));
    let Some(program) = &outcome.program else {
        return Err(Finding::Refused { by: "front end", reason: outcome.render(false), details: String::new() });
    };
    let folder = tempfile::tempdir().map_err(|error| internal(&error))?;
    let dataplane = load(program, placement(seed, generated.programs), folder.path())?;
    compare(&Loaded { program, dataplane }, generated.programs, seed, packets, summary)
}

fn internal(error: &dyn fmt::Display) -> Finding {
    Finding::Wrong { kind: "environment", story: error.to_string() }
}

fn load(program: &Program, placement: Placement, folder: &Path) -> Result<Dataplane, Finding> {
    let object = folder.join("generated.o");
    let options = Options { program_name: "generated.p4".into(), placement, ..Options::default() };
    let mut loaded = None;
    let mut try_on_kernel = |compiled: &xdp_backend::Compiled| {
        let opened = Object::open(&object, compiled.generated.manifest.clone()).and_then(|mut opened| {
            opened.set(Settings { test_mode: true, virtual_clock: true, ..Settings::default() })?;
            Ok(opened)
        });
        match opened.and_then(Object::load) {
            Err(dataplane::Error::Verifier { log, .. }) => Some(log),
            other => {
                loaded = Some(other);
                None
            }
        }
    };
    match xdp_backend::compile_for_kernel(program, &options, &object, &mut try_on_kernel) {
        Ok(_) => {}
        Err(CompileError::Unsupported(errors)) => {
            let reason = errors.first().map_or_else(String::new, |error| error.message.clone());
            if reason.starts_with("internal") {
                return wrong("internal", reason);
            }
            return Err(Finding::Refused { by: "back end", reason, details: String::new() });
        }
        Err(CompileError::Clang { log, .. }) => return wrong("clang", log),
        Err(CompileError::Kernel { report, log, .. }) => {
            // The verifier's last words, and the C behind them.
            let (words, source) = log.split_once(xdp_backend::SOURCE_MARK).unwrap_or((&log, ""));
            let from = words.lines().count().saturating_sub(LOG_LINES);
            let end: Vec<&str> = words.lines().skip(from).collect();
            let details = format!("{report:?}\n{}\n{source}", end.join("\n"));
            return Err(Finding::Refused { by: "verifier", reason: report.reason, details });
        }
        Err(other) => return Err(internal(&other)),
    }
    match loaded {
        Some(Ok(dataplane)) => Ok(dataplane),
        Some(Err(error)) => wrong("load", error.to_string()),
        None => wrong("load", "never tried"),
    }
}

/// Both sides, and what was done to them.
struct Pair<'a> {
    loaded: &'a Loaded<'a>,
    reference: Interpreter<'a>,
    /// What was done, for the report.
    history: Vec<String>,
    /// Programs that came to something undefined.
    open: Vec<bool>,
}

fn compare(
    loaded: &Loaded<'_>,
    programs: u32,
    seed: u64,
    packets: usize,
    summary: &mut Summary,
) -> Result<(), Finding> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7ac_e75);
    let frames: Vec<(u32, Vec<u8>)> = (0..programs).flat_map(|port| traffic(port, packets, &mut random)).collect();
    let reference = match Interpreter::new(loaded.program) {
        Ok(reference) => reference,
        Err(stop) => return wrong("interpreter", stop.to_string()),
    };
    let mut pair = Pair { loaded, reference, history: Vec::new(), open: vec![false; programs as usize] };
    let keys = keys_seen(loaded.program, &frames)?;
    for (index, keys) in keys.iter().enumerate() {
        summary.entries += pair.fill(TableId(index as u32), keys, &mut random)?;
    }
    for (port, frame) in &frames {
        if !pair.open[*port as usize] {
            pair.step(*port, frame, summary)?;
        }
    }
    summary.elements += pair.state()?;
    summary.undefined += pair.open.iter().filter(|open| **open).count() as u64;
    summary.programs += u64::from(programs);
    Ok(())
}

/// Packets for one program: random ones of all lengths, and the same again, cut or with a bit changed.
pub(super) fn traffic(port: u32, count: usize, random: &mut StdRng) -> Vec<(u32, Vec<u8>)> {
    let mut frames: Vec<(u32, Vec<u8>)> = Vec::new();
    for _ in 0..count {
        let again = random.random_range(0..frames.len().max(1));
        let frame = match (random.random_range(0..8), frames.get(again)) {
            (0, Some((_, old))) if !old.is_empty() => old[..random.random_range(0..old.len())].to_vec(),
            (1 | 2, Some((_, old))) if !old.is_empty() => {
                let mut frame = old.clone();
                let bit = random.random_range(0..frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                frame
            }
            (kind, _) => {
                let length = if kind == 7 { random.random_range(0..24) } else { random.random_range(30..160) };
                let dull = random.random_bool(0.2);
                (0..length)
                    .map(|_| {
                        if dull && random.random_bool(0.7) {
                            [0, 0xff, 1, 0x80][random.random_range(0..4)]
                        } else {
                            random.random()
                        }
                    })
                    .collect()
            }
        };
        frames.push((port, frame));
    }
    frames
}

/// The keys that some of the packets look the tables up with: entries made of them are hit.
fn keys_seen(program: &Program, frames: &[(u32, Vec<u8>)]) -> Result<Vec<Vec<Vec<BigInt>>>, Finding> {
    let mut scout = Interpreter::new(program).map_err(|stop| internal(&stop))?;
    for (port, frame) in frames.iter().step_by(2) {
        match scout.run(frame, *port, NOW_US) {
            Ok(_) | Err(Stop::Undefined(_)) => {}
            Err(stop) => return wrong("interpreter", stop.to_string()),
        }
    }
    Ok((0..program.tables.len()).map(|index| scout.keys_seen(TableId(index as u32)).to_vec()).collect())
}

impl Pair<'_> {
    /// Gives a table that can be changed some entries; how many.
    fn fill(&mut self, id: TableId, seen: &[Vec<BigInt>], random: &mut StdRng) -> Result<u64, Finding> {
        let program = self.loaded.program;
        let table = &program.tables[id.index()];
        let actions: Vec<usize> =
            (0..table.actions.len()).filter(|index| !table.actions[*index].default_only).collect();
        if table.const_entries || table.keys.is_empty() || actions.is_empty() || seen.is_empty() {
            return Ok(0);
        }
        let mut added = 0;
        let handle = self.loaded.dataplane.table(&table.name).map_err(|error| internal(&error))?;
        let ternary = table.keys.iter().any(|key| key.match_kind == "ternary");
        for rank in 0..random.random_range(0..6) {
            let keys = &seen[random.random_range(0..seen.len())];
            let action = actions[random.random_range(0..actions.len())];
            let mut arguments = Vec::new();
            for parameter in &program.actions[table.actions[action].action.index()].parameters {
                let width = scalar_width(program, &program.variables[parameter.index()].ty);
                arguments.push(super::types::number(width, random));
            }
            let mut theirs = Vec::new();
            let mut ours = Vec::new();
            for (value, key) in keys.iter().zip(&table.keys) {
                let width = scalar_width(program, &key.expr.ty);
                let (value, mask) = (value.to_u128().unwrap_or(0), entry_mask(&key.match_kind, width, random));
                theirs.push(dataplane::Match::from_mask(value & mask, mask, width));
                ours.push(KeyMatch { value: BigInt::from(value & mask), mask: BigInt::from(mask) });
            }
            // Above those of the source's entries.
            let priority = if ternary { 1000 + rank * 7 } else { 0 };
            let call = dataplane::ActionCall { action, arguments: arguments.clone() };
            let entry = dataplane::Entry { matches: theirs, priority, action: call };
            if handle.write(&entry, Write::Add).is_err() {
                // It is there already.
                continue;
            }
            self.history.push(format!("add {} {entry:?}", table.name));
            let call = p4_ir::ActionCall {
                action: action as u32,
                arguments: arguments.into_iter().map(BigInt::from).collect(),
            };
            self.reference.add_entry(id, RuntimeEntry::new(ours, priority, call));
            added += 1;
        }
        Ok(added)
    }

    fn step(&mut self, port: u32, frame: &[u8], summary: &mut Summary) -> Result<(), Finding> {
        self.history.push(format!("packet {port} {}", hex(frame)));
        let expected = match self.reference.run(frame, port, NOW_US) {
            Ok(expected) => expected,
            Err(Stop::Undefined(_)) => {
                self.open[port as usize] = true;
                return Ok(());
            }
            Err(stop) => return wrong("interpreter", stop.to_string()),
        };
        let outcome = match self.loaded.dataplane.run(frame, port, NOW_US * 1000) {
            Ok(outcome) => outcome,
            Err(error) => return wrong("run", error.to_string()),
        };
        let found = match outcome.verdict {
            dataplane::Verdict::Drop => Verdict::Drop,
            dataplane::Verdict::ToHost => Verdict::ToHost,
            dataplane::Verdict::Forward { port } => Verdict::Forward { port, frame: outcome.frame },
        };
        summary.packets += 1;
        if let Verdict::Forward { frame: out, .. } = &found {
            summary.forwarded += 1;
            summary.changed += u64::from(out != frame);
        }
        if found == expected {
            return Ok(());
        }
        wrong("packet", format!("expected {}\nfound    {}\n{}", shown(&expected), shown(&found), self.told()))
    }

    fn told(&self) -> String {
        let from = self.history.len().saturating_sub(60);
        self.history[from..].join("\n")
    }

    fn is_open(&self, name: &str) -> bool {
        let of = |program: usize| self.open.len() == 1 || name.contains(&format!(".c{program}."));
        self.open.iter().enumerate().any(|(program, open)| *open && of(program))
    }

    /// Registers and counters; how many elements.
    fn state(&self) -> Result<u64, Finding> {
        let mut elements = 0;
        let known = |instance: &&(usize, &p4_ir::ExternInstance)| !self.is_open(&instance.1.name);
        let instances: Vec<(usize, &p4_ir::ExternInstance)> = self.loaded.program.externs.iter().enumerate().collect();
        for (index, instance) in instances.iter().filter(known) {
            let id = ExternId(*index as u32);
            elements += self.register(id, &instance.name)? + self.counter(id, &instance.name)?;
        }
        for (index, table) in (0..).zip(&self.loaded.program.tables) {
            if !self.is_open(&table.name) {
                elements += self.direct_counter(TableId(index), table)?;
            }
        }
        Ok(elements)
    }

    fn register(&self, id: ExternId, name: &str) -> Result<u64, Finding> {
        let Some(values) = self.reference.register(id) else { return Ok(0) };
        let register = self.loaded.dataplane.register(name).map_err(|error| internal(&error))?;
        for (index, expected) in (0..).zip(&values) {
            let found = self.loaded.dataplane.read_register(register, index).map_err(|error| internal(&error))?;
            if found != *expected {
                let what = format!("register {name}[{index}]: expected {expected:#x}, found {found:#x}");
                return wrong("register", format!("{what}\n{}", self.told()));
            }
        }
        Ok(values.len() as u64)
    }

    fn counter(&self, id: ExternId, name: &str) -> Result<u64, Finding> {
        let Some(counts) = self.reference.counter(id) else { return Ok(0) };
        let counter = self.loaded.dataplane.counter(name).map_err(|error| internal(&error))?;
        for (index, expected) in (0..).zip(counts) {
            let found = self.loaded.dataplane.read_counter(counter, index).map_err(|error| internal(&error))?;
            if (found.packets, found.bytes) != (expected.packets, expected.bytes) {
                let what = format!("counter {name}[{index}]: expected {expected:?}, found {found:?}");
                return wrong("counter", format!("{what}\n{}", self.told()));
            }
        }
        Ok(counts.len() as u64)
    }

    /// Counts of a table's entries, as a heap: which entry of the kernel is which of the interpreter's is not known.
    fn direct_counter(&self, id: TableId, table: &p4_ir::Table) -> Result<u64, Finding> {
        let is_counter =
            |one: &(String, ExternId)| self.loaded.program.externs[one.1.index()].extern_type == "direct_counter";
        if !table.attached.iter().any(is_counter) {
            return Ok(0);
        }
        let handle = self.loaded.dataplane.table(&table.name).map_err(|error| internal(&error))?;
        let listed = handle.list().map_err(|error| internal(&error))?;
        let (_, default) = handle.default_action().map_err(|error| internal(&error))?;
        let (entries, missed) = self.reference.direct_counters(id);
        let pair = |count: &p4_interpreter::Count| (count.packets, count.bytes);
        let sorted = |counts: &mut dyn Iterator<Item = (u64, u64)>| {
            let mut counts: Vec<(u64, u64)> = counts.filter(|count| count.0 > 0).collect();
            counts.sort_unstable();
            counts
        };
        let expected = (sorted(&mut entries.iter().map(pair)), pair(&missed));
        let found = (sorted(&mut listed.iter().filter_map(|one| one.counter)), default.unwrap_or_default());
        if found != expected {
            let what = format!("direct counter of {}: expected {expected:?}, found {found:?}", table.name);
            return wrong("counter", format!("{what}\n{}", self.told()));
        }
        Ok(entries.len() as u64 + 1)
    }
}

fn shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Drop => "drop".into(),
        Verdict::ToHost => "to the host".into(),
        Verdict::Forward { port, frame } => format!("port {port} {}", hex(frame)),
    }
}

pub(super) fn scalar_width(_program: &Program, ty: &p4_ir::Type) -> u32 {
    match ty {
        p4_ir::Type::Bits { width, .. } => *width,
        p4_ir::Type::Bool => 1,
        _ => 32,
    }
}

pub(super) fn entry_mask(kind: &str, width: u32, random: &mut StdRng) -> u128 {
    let all = u128::MAX >> (128 - width);
    match kind {
        "lpm" => {
            let length = random.random_range(0..=width);
            if length == 0 { 0 } else { (all >> (width - length)) << (width - length) }
        }
        "ternary" => super::types::number(width, random),
        _ => all,
    }
}

/// One P4 text, and the seed that its packets come from: for repeating what a report says.
pub fn replay(path: &Path, seed: u64, packets: usize) -> Result<Summary> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let programs = (0..).take_while(|number| text.contains(&format!("parser s{number}_Parser"))).count() as u32;
    let mut summary = Summary::default();
    let generated = Generated { text, programs: programs.max(1) };
    match test(&prelude()?, &generated, seed, packets, &mut summary) {
        Ok(()) => Ok(summary),
        Err(Finding::Refused { by, reason, details }) => bail!("refused by the {by}: {reason}\n{details}"),
        Err(Finding::Wrong { kind, story }) => bail!("{kind}: {story}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small program whose ingress does this.
    fn text(statement: &str) -> String {
        let mut text = generate(&[1]).text;
        let start = text.find("control s0_Ingress").expect("ingress");
        let end = start + text[start..].find("\ncontrol ").expect("egress");
        let head = &text[start..start + text[start..].find('{').expect("head") + 1];
        let ingress =
            format!("{head}\n    register<bit<32>>(1) r;\n    apply {{ sm.egress_spec = 1; {statement} }}\n}}");
        text.replace_range(start..end, &ingress);
        text
    }

    fn checked(prelude: &str, statement: &str) -> Program {
        let outcome = p4_check::check_preprocessed("t.p4", &format!("{prelude}{}", text(statement)));
        outcome.program.clone().unwrap_or_else(|| panic!("{}", outcome.render(false)))
    }

    /// Compiles one and interprets the other.
    fn differ(compiled: &str, interpreted: &str) -> Result<(), Finding> {
        let prelude = prelude().expect("prelude");
        let (compiled, interpreted) = (checked(&prelude, compiled), checked(&prelude, interpreted));
        let folder = tempfile::tempdir().expect("folder");
        let dataplane = load(&compiled, Placement::Registers, folder.path())?;
        compare(&Loaded { program: &interpreted, dataplane }, 1, 7, 20, &mut Summary::default())
    }

    fn kind(finding: Result<(), Finding>) -> Option<&'static str> {
        match finding {
            Err(Finding::Wrong { kind, .. }) => Some(kind),
            other => {
                assert!(other.is_ok(), "{other:?}");
                None
            }
        }
    }

    /// What a wrong compiler would do is told.
    #[test]
    fn differences_are_seen() {
        let add = "r.write(0, sm.packet_length + 1);";
        assert_eq!(kind(differ(add, add)), None);
        assert_eq!(kind(differ("r.write(0, sm.packet_length + 2);", add)), Some("register"));
        assert_eq!(kind(differ("sm.egress_spec = 2;", "")), Some("packet"));
        assert_eq!(kind(differ("mark_to_drop(sm);", "")), Some("packet"));
        assert_eq!(kind(differ("truncate(20);", "")), Some("packet"));
    }
}
