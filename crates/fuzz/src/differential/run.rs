//! Campaigns: many generated programs, each held against the tree, and what is told of them.

use super::compare::{self, Finding, Scenario, Summary};
use super::program::generate;
use super::{Generated, kernel, shrink};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// Reasons of refusals that are told.
const MAX_REASONS: usize = 40;
/// Programs between two lines of progress.
const TOLD_EVERY: u64 = 1000;

/// What is held against the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// The lowered form, interpreted: neither clang nor kernel.
    Lowered,
    /// The compiled form, in the kernel.
    Kernel,
}

/// How much to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is held against the tree.
    pub tested: Tested,
    /// What the run is repeated by.
    pub seed: u64,
    /// The first program's number: 0, or where a run before ended.
    pub first: u64,
    /// Programs to generate.
    pub runs: u64,
    /// Packets for each.
    pub packets: usize,
    /// Programs in one object, but for every fourth object, which has one. Of use in the kernel only, where a
    /// compilation takes a third of a second whatever the program.
    pub batch: usize,
    /// Go on after a mismatch (told at once, not made shorter).
    pub keep_going: bool,
    /// Where programs that are refused alone are written to: the P4 text, and what refused it.
    pub save: Option<PathBuf>,
}

impl Plan {
    /// So many programs, lowered.
    pub fn lowered(seed: u64, runs: u64) -> Plan {
        Plan { tested: Tested::Lowered, seed, first: 0, runs, packets: 30, batch: 1, keep_going: false, save: None }
    }
}

/// The include files, preprocessed, in which generated programs stand.
pub(super) fn prelude() -> Result<String> {
    let includes = "#include <core.p4>\n#include <v1model.p4>\n#include <stateplane.p4>\n";
    let outcome = p4_check::check_source("prelude.p4", includes, &p4_syntax::Options::default());
    let mut text = String::new();
    for line in outcome.source_map.text().lines().filter(|line| !line.starts_with('#')) {
        let line = line.split("//").next().unwrap_or_default().trim();
        if !line.is_empty() {
            text += line;
            text.push('\n');
        }
    }
    ensure!(text.contains("V1Switch"), "v1model.p4 was not found:\n{}", outcome.render(false));
    Ok(text)
}

/// A program's seed: the same whatever shares its object.
fn seed_of(plan: &Plan, number: u64) -> u64 {
    // SplitMix64's steps (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    let mut z = plan.seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Runs the plan. The error has the seed and the shortest program that fails.
pub fn campaign(plan: &Plan) -> Result<Summary> {
    println!("differential: {:?}, seed {}", plan.tested, plan.seed);
    let prelude = prelude()?;
    let mut summary = Summary::default();
    let (mut number, end, mut object) = (plan.first, plan.first + plan.runs, 0u64);
    let mut told = number;
    while number < end {
        let most = if object % 4 == 3 { 1 } else { plan.batch.max(1) as u64 };
        let count = most.min(end - number);
        let seeds: Vec<u64> = (number..number + count).map(|number| seed_of(plan, number)).collect();
        several(plan, &prelude, &seeds, number, &mut summary)?;
        number += count;
        object += 1;
        if number - told >= TOLD_EVERY {
            told = number;
            println!("differential: {} of {}: {summary}", number - plan.first, plan.runs);
        }
    }
    for (reason, count) in summary.reasons.iter().take(MAX_REASONS) {
        println!("differential: {count} times {reason}");
    }
    // Refusals are no evidence: a generator that is refused all the time tests nothing.
    ensure!(summary.refused * 5 <= plan.runs.max(20), "too many programs refused: {summary}");
    Ok(summary)
}

/// Checks programs and holds what is tested against the tree; `seed` draws packets and entries.
pub(super) fn test(
    prelude: &str,
    generated: &Generated,
    (tested, seed, packets): (Tested, u64, usize),
    summary: &mut Summary,
) -> Result<(), Finding> {
    let outcome = p4_check::check_preprocessed("generated.p4", &format!("{prelude}{}", generated.text));
    let (Some(program), Some(hir)) = (&outcome.program, &outcome.checked) else {
        return Err(Finding::Refused { by: "front end", reason: outcome.render(false), details: String::new() });
    };
    let scenario = Scenario { hir, program, programs: generated.programs, seed, packets };
    match tested {
        Tested::Lowered => compare::lowered(&scenario, summary),
        Tested::Kernel => kernel::compiled(&scenario, summary),
    }
}

/// Programs that share an object; one by one if that does not compile.
fn several(plan: &Plan, prelude: &str, seeds: &[u64], number: u64, summary: &mut Summary) -> Result<()> {
    let generated = generate(seeds);
    for feature in &generated.features {
        *summary.features.entry(feature).or_default() += 1;
    }
    let how = (plan.tested, seeds[0], plan.packets);
    let Err(finding) = test(prelude, &generated, how, summary) else { return Ok(()) };
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
                let name = format!("{}-{number}", plan.seed);
                save(folder, &name, &generated.text, &format!("{by}: {reason}\n{details}"))?;
            }
            // What the front end says it does not have is a refusal like any; else the generator wrote what is no P4.
            if by == "front end" && !reason.contains("not supported") {
                bail!("seed {}, program {number}: the front end refused it: {reason}\n{}", plan.seed, generated.text);
            }
            let told = reason.lines().find(|line| line.contains("error")).or(reason.lines().next());
            summary.note(&format!("refused by the {by}: {}", told.unwrap_or_default()));
            Ok(())
        }
        Finding::Wrong { kind, story } => {
            summary.mismatches += 1;
            if plan.keep_going {
                let count = seeds.len();
                println!("differential: MISMATCH seed {}, program {number} of {count} ({kind}): {story}", plan.seed);
                return Ok(());
            }
            let report = shrink::report(prelude, seeds, how, kind, &generated);
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

/// One P4 text, and the seed that its packets come from: for repeating what a report says.
pub fn replay(path: &Path, tested: Tested, seed: u64, packets: usize) -> Result<Summary> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let programs = (0..).take_while(|number| text.contains(&format!("parser s{number}_Parser"))).count() as u32;
    let mut summary = Summary::default();
    let generated = Generated { text, programs: programs.max(1), features: Default::default() };
    match test(&prelude()?, &generated, (tested, seed, packets), &mut summary) {
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

    fn checked(prelude: &str, statement: &str) -> p4_check::Outcome {
        let outcome = p4_check::check_preprocessed("t.p4", &format!("{prelude}{}", text(statement)));
        assert!(outcome.program.is_some(), "{}", outcome.render(false));
        outcome
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

    /// Holds one program's lowered and compiled forms against another one's tree.
    fn differ(tested: &str, tree: &str) -> Option<&'static str> {
        let prelude = prelude().expect("prelude");
        let (tested, tree) = (checked(&prelude, tested), checked(&prelude, tree));
        let (Some(program), Some(hir)) = (&tested.program, &tree.checked) else { panic!("not checked") };
        let scenario = Scenario { hir, program, programs: 1, seed: 7, packets: 20 };
        let lowered = kind(compare::lowered(&scenario, &mut Summary::default()));
        assert_eq!(kind(kernel::compiled(&scenario, &mut Summary::default())), lowered);
        lowered
    }

    /// What a wrong compiler would do is told.
    #[test]
    fn differences_are_seen() {
        let add = "r.write(0, sm.packet_length + 1);";
        assert_eq!(differ(add, add), None);
        assert_eq!(differ("r.write(0, sm.packet_length + 2);", add), Some("register"));
        assert_eq!(differ("sm.egress_spec = 2;", ""), Some("packet"));
        assert_eq!(differ("mark_to_drop(sm);", ""), Some("packet"));
        assert_eq!(differ("truncate(20);", ""), Some("packet"));
    }
}
