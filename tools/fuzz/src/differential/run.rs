//! Compiles generated programs with the real pipeline, runs packets through the kernel and the
//! interpreters of the checked tree and of the IR, and compares.

mod pair;
pub(super) use pair::Pair;
use pair::keys_seen;

use super::plan::{Plan, Summary};
use super::program::{generate, keeps_layout};
use super::traffic::{entry_mask, entry_priority, next_keys, scalar_width, traffic};
use super::{Generated, shrink, two_cpus};
use anyhow::{Context, Result, bail, ensure};
use dataplane::{Dataplane, Object, Settings, Write};
use fuzz_door::hex;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_check::hir::Hir;
use p4_interpreter::tree::Tree;
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, Stop, Verdict};
use p4_ir::{Program, TableId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::path::Path;
use xdp_backend::{CompileError, Options, Placement};

/// The clock that both sides see, in microseconds.
pub(super) const NOW_US: u64 = 1_234_567;
/// Lines of a verifier's log that are kept.
const LOG_LINES: usize = 300;
/// Reasons of refusals that are told.
const MAX_REASONS: usize = 40;

/// Where a refusal is the compiler's fault: it let the program pass.
const VERIFIER: &str = "verifier";

/// What is wrong with a program.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    /// Compiler and interpreter differ, or clang rejects what the back end wrote.
    Wrong { kind: &'static str, story: String },
    /// Not compiled, with an error: by the verifier, which is a fault, or by a limit that the
    /// compiler names itself.
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
    // SplitMix64's steps (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    // OOPSLA 2014).
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
        if plan.two_cpus_every > 0
            && (object + 1).is_multiple_of(plan.two_cpus_every)
            && two_cpus::available()
        {
            let seed = seed_of(plan, number);
            told(plan, &prelude, &[seed], number, two_cpus::generated(seed), &mut summary)?;
            (number, object) = (number + 1, object + 1);
            continue;
        }
        let most = if object % 4 == 3 { 1 } else { plan.batch.max(1) as u64 }.min(end - number);
        let seeds: Vec<u64> = (number..number + most).map(|number| seed_of(plan, number)).collect();
        // What keeps its packets' layout is alone.
        let until =
            seeds.iter().position(|seed| keeps_layout(*seed)).map_or(seeds.len(), |at| at.max(1));
        let (seeds, count) = (&seeds[..until], until as u64);
        several(plan, &prelude, seeds, number, &mut summary)?;
        number += count;
        object += 1;
        if object % 100 == 0 {
            println!("differential: {} of {}: {summary}", number - plan.first, plan.runs);
        }
    }
    for (reason, count) in summary.reasons.iter().take(MAX_REASONS) {
        println!("differential: refused {count} times: {reason}");
    }
    println!("differential: {} packets held against the programs as written", summary.written);
    // Refusals are no evidence: a generator that is refused all the time tests nothing.
    ensure!(
        (summary.refused + summary.limits) * 5 <= plan.runs.max(20),
        "too many programs refused: {summary}"
    );
    Ok(summary)
}

/// The placement of storage is drawn too: each is a different program to clang and the verifier.
/// Several programs seldom fit in registers, and to try that first costs a run of clang.
pub(super) fn placement(seed: u64, programs: u32) -> Placement {
    match (programs, seed % 8) {
        (1, 0) => Placement::Partial(0),
        (1, 1) | (_, 0 | 1) => Placement::Scratch,
        (1, 2) | (_, 2..6) => Placement::AllScratch,
        (_, 6) => Placement::Forgotten,
        _ => Placement::Registers,
    }
}

/// Programs that share an object; one by one if that does not compile.
fn several(
    plan: &Plan,
    prelude: &str,
    seeds: &[u64],
    number: u64,
    summary: &mut Summary,
) -> Result<()> {
    told(plan, prelude, seeds, number, generate(seeds), summary)
}

/// What is wrong with these programs is told, or an error.
fn told(
    plan: &Plan,
    prelude: &str,
    seeds: &[u64],
    number: u64,
    generated: Generated,
    summary: &mut Summary,
) -> Result<()> {
    let Err(finding) = test(prelude, &generated, seeds[0], plan.packets, summary) else {
        return Ok(());
    };
    match finding {
        Finding::Refused { .. } if seeds.len() > 1 => {
            for (index, seed) in (0..).zip(seeds) {
                several(plan, prelude, &[*seed], number + index, summary)?;
            }
            Ok(())
        }
        Finding::Refused { by, reason, details } => {
            *if by == VERIFIER { &mut summary.refused } else { &mut summary.limits } += 1;
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
            // What the front end says it does not have is a refusal like any; else the generator
            // wrote what is no P4.
            if by == "front end"
                && !reason.contains("not supported")
                && !reason.contains("has the same key")
            {
                bail!(
                    "seed {}, program {number}: the front end refused it: {reason}\n{}",
                    plan.seed,
                    generated.text
                );
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
            if !plan.shrink {
                bail!("seed {}, program {number}: {kind}: {story}", plan.seed);
            }
            let report = shrink::report(prelude, seeds, plan.packets, kind, &generated);
            bail!(
                "seed {}, program {number} (and {} more): {story}\n{report}",
                plan.seed,
                seeds.len() - 1
            );
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

pub(super) fn wrong<T>(kind: &'static str, story: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Wrong { kind, story: story.into() })
}

/// A loaded program and what it was made from.
pub(super) struct Loaded<'p> {
    /// As it is written.
    pub(super) hir: &'p Hir,
    /// As it was elaborated.
    pub(super) program: &'p Program,
    pub(super) dataplane: Dataplane,
}

/// Compiles and runs programs; `seed` draws packets and entries.
pub(super) fn test(
    prelude: &str,
    generated: &Generated,
    seed: u64,
    packets: usize,
    summary: &mut Summary,
) -> Result<(), Finding> {
    let outcome =
        p4_check::check_preprocessed("generated.p4", &format!("{prelude}{}", generated.text));
    let (Some(program), Some(hir)) = (&outcome.program, &outcome.checked) else {
        return Err(Finding::Refused {
            by: "front end",
            reason: outcome.render(false),
            details: String::new(),
        });
    };
    let folder = tempfile::tempdir().map_err(|error| internal(&error))?;
    let dataplane = load(program, placement(seed, generated.programs), folder.path())?;
    let loaded = Loaded { hir, program, dataplane };
    if generated.on_two_cpus {
        return two_cpus::compare(&loaded, seed, summary);
    }
    compare(&loaded, generated.programs, seed, packets, summary)
}

pub(super) fn internal(error: &dyn fmt::Display) -> Finding {
    Finding::Wrong { kind: "environment", story: error.to_string() }
}

pub(super) fn load(
    program: &Program,
    placement: Placement,
    folder: &Path,
) -> Result<Dataplane, Finding> {
    let object = folder.join("generated.o");
    let options = Options {
        program_name: "generated.p4".into(),
        placement,
        ..Options::new(systems::compiler())
    };
    let mut loaded = None;
    let mut try_on_kernel = |compiled: &xdp_backend::Compiled| {
        let opened =
            Object::open(&object, compiled.generated.manifest.clone()).and_then(|mut opened| {
                opened.set(Settings {
                    test_mode: true,
                    virtual_clock: true,
                    ..Settings::default()
                })?;
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
            return match errors.iter().find(|error| error.location.line == 0) {
                Some(error) => wrong("an error without a line", error.message.clone()),
                None => Err(Finding::Refused { by: "back end", reason, details: String::new() }),
            };
        }
        Err(CompileError::Clang { log, .. }) => return wrong("clang", log),
        // What the verifier could not follow, told in words of the program, is a limit.
        Err(CompileError::Kernel { error, report, .. })
            if !report.is_fault() && error.location.line > 0 =>
        {
            let details = format!("{report:?}");
            return Err(Finding::Refused {
                by: "kernel's limits",
                reason: error.message.clone(),
                details,
            });
        }
        Err(CompileError::Kernel { report, log, compiled, .. }) => {
            // The verifier's last words, and the C behind them.
            let from = log.lines().count().saturating_sub(LOG_LINES);
            let end: Vec<&str> = log.lines().skip(from).collect();
            let (placement, source) = (compiled.placement, &compiled.generated.c_source);
            let details = format!("{report:?}, {placement:?}\n{}\n{source}", end.join("\n"));
            return Err(Finding::Refused { by: VERIFIER, reason: report.reason, details });
        }
        Err(other) => return Err(internal(&other)),
    }
    match loaded {
        Some(Ok(dataplane)) => Ok(dataplane),
        Some(Err(error)) => wrong("load", error.to_string()),
        None => wrong("load", "never tried"),
    }
}

fn compare(
    loaded: &Loaded<'_>,
    programs: u32,
    seed: u64,
    packets: usize,
    summary: &mut Summary,
) -> Result<(), Finding> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7ac_e75);
    let frames: Vec<(u32, Vec<u8>)> =
        (0..programs).flat_map(|port| traffic(port, packets, &mut random)).collect();
    let reference = match Interpreter::new(loaded.program, systems::interpreter()) {
        Ok(reference) => reference,
        Err(stop) => return wrong("interpreter", stop.to_string()),
    };
    let written = match Tree::new(loaded.hir, systems::interpreter()) {
        Ok(tree) => Some(tree),
        Err(Stop::Unsupported(_)) => None,
        Err(stop) => return wrong("as written", stop.to_string()),
    };
    let undefined = vec![false; programs as usize];
    let mut pair = Pair { loaded, written, reference, history: Vec::new(), undefined };
    let keys = keys_seen(loaded.program, &frames)?;
    for (index, keys) in keys.iter().enumerate() {
        summary.entries += pair.fill(TableId(index as u32), keys, &mut random)?;
    }
    for (port, frame) in &frames {
        pair.step(*port, frame, summary)?;
    }
    summary.elements += pair.state()?;
    summary.undefined += pair.undefined.iter().filter(|undefined| **undefined).count() as u64;
    summary.programs += u64::from(programs);
    Ok(())
}

/// One P4 text, and the seed that its packets come from: for repeating what a report says.
pub fn replay(path: &Path, seed: u64, packets: usize) -> Result<Summary> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let programs = (0..)
        .take_while(|number| text.contains(&format!("parser s{number}_Parser")))
        .count() as u32;
    let mut summary = Summary::default();
    let on_two_cpus = two_cpus::is_one(&text);
    let generated = Generated { text, programs: programs.max(1), on_two_cpus };
    match test(&prelude()?, &generated, seed, packets, &mut summary) {
        Ok(()) => Ok(summary),
        Err(Finding::Refused { by, reason, details }) => {
            bail!("refused by the {by}: {reason}\n{details}")
        }
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
        let ingress = format!(
            "{head}\n    register<bit<32>>(1) r;\n    apply {{ sm.egress_spec = 1; {statement} }}\n}}"
        );
        text.replace_range(start..end, &ingress);
        text
    }

    fn checked(prelude: &str, statement: &str) -> p4_check::Outcome {
        let outcome =
            p4_check::check_preprocessed("t.p4", &format!("{prelude}{}", text(statement)));
        assert!(outcome.program.is_some(), "{}", outcome.render(false));
        outcome
    }

    /// Compiles one, elaborates another, and holds both against a third as it is written.
    fn differ(compiled: &str, elaborated: &str, written: &str) -> Result<(), Finding> {
        let prelude = prelude().expect("prelude");
        let [compiled, elaborated, written] =
            [compiled, elaborated, written].map(|text| checked(&prelude, text));
        let (Some(compiled), Some(program), Some(hir)) =
            (&compiled.program, &elaborated.program, &written.checked)
        else {
            panic!("not checked");
        };
        let folder = tempfile::tempdir().expect("folder");
        let dataplane = load(compiled, Placement::Registers, folder.path())?;
        compare(&Loaded { hir, program, dataplane }, 1, 7, 20, &mut Summary::default())
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

    /// What is beyond a limit that the compiler names is told apart from what the verifier refuses.
    #[test]
    fn limits_are_counted_apart() {
        let text = text("@atomic { bit<32> i; r.read(i, 0); r.write(i, 1); }");
        let generated = Generated { text, programs: 1, on_two_cpus: false };
        let mut summary = Summary::default();
        let prelude = prelude().expect("prelude");
        told(&Plan::default(), &prelude, &[1], 0, generated, &mut summary).expect("no finding");
        assert_eq!((summary.limits, summary.refused), (1, 0), "{summary}: {:?}", summary.reasons);
    }

    /// What a wrong compiler would do is told.
    #[test]
    fn differences_are_seen() {
        let add = "r.write(0, sm.packet_length + 1);";
        assert_eq!(kind(differ(add, add, add)), None);
        let cases = [
            ("r.write(0, sm.packet_length + 2);", add, "register"),
            ("sm.egress_spec = 2;", "", "packet"),
            ("mark_to_drop(sm);", "", "packet"),
            ("truncate(20);", "", "packet"),
        ];
        for (wrong, right, fault) in cases {
            assert_eq!(kind(differ(wrong, right, right)), Some(fault), "{wrong}");
            // The same mistake before the back end.
            assert_eq!(kind(differ(wrong, wrong, right)), Some("front end"), "{wrong}");
        }
    }
}
