//! The program as it is written against the program as it was elaborated: no clang, no kernel.
//!
//! Errors of elaboration are on both sides of every comparison that begins with the IR; here they
//! are on one.

use super::coverage;
use super::plan::Plan;
use super::program::generate;
use super::run::{NOW_US, prelude, seed_of};
use super::traffic::{entry_mask, entry_priority, next_keys, scalar_width, traffic};
use anyhow::{Result, bail};
use fuzz_door::hex;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::tree::Tree;
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, Stop};
use p4_ir::{ActionCall, ExternId, Program, TableId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Programs compared to the end.
    pub programs: u64,
    /// Programs with something that one of the two does not interpret.
    pub skipped: u64,
    /// Of the programs, those with packets that came to something undefined: these packets were
    /// taken back.
    pub undefined: u64,
    /// Such packets.
    pub undefined_packets: u64,
    /// Packets compared.
    pub packets: u64,
    /// Entries added to tables.
    pub entries: u64,
    /// Programs that differ.
    pub mismatches: u64,
    /// Constructs that programs have (coverage.rs), and how many programs have each.
    pub kinds: BTreeMap<String, u64>,
    /// Why programs or packets were not compared, and how often.
    pub reasons: BTreeMap<String, u64>,
}

impl Compared {
    /// Notes a reason, without the places in it.
    fn note(&mut self, reason: &str) {
        let line = reason.lines().next().unwrap_or_default();
        let words: Vec<&str> =
            line.split(' ').filter(|word| !word.contains("generated.p4:")).collect();
        *self.reasons.entry(words.join(" ")).or_default() += 1;
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs compared, {} mismatches ({} not interpreted); {} packets ({} undefined, in {} programs), {} entries",
            self.programs,
            self.mismatches,
            self.skipped,
            self.packets,
            self.undefined_packets,
            self.undefined,
            self.entries
        )
    }
}

/// Runs the plan. The error has the seed and the program that differs.
pub fn lowering(plan: &Plan) -> Result<Compared> {
    println!("lowering: seed {}", plan.seed);
    let prelude = prelude()?;
    let mut compared = Compared::default();
    for number in plan.first..plan.first + plan.runs {
        let seed = seed_of(plan, number);
        let text = generate(&[seed]).text;
        if let Err(story) = program(&format!("{prelude}{text}"), seed, plan.packets, &mut compared)
        {
            compared.mismatches += 1;
            let told = format!("seed {}, program {number}: {story}", plan.seed);
            if !plan.keep_going {
                let same = kind_of(&story);
                let again = |text: String| {
                    let text = format!("{prelude}{text}");
                    let story =
                        program(&text, seed, plan.packets, &mut Compared::default()).err()?;
                    (kind_of(&story) == same).then_some(story)
                };
                let shortest =
                    if plan.shrink { super::shrink::shorten(&text, &again) } else { text };
                bail!("{told}\n{shortest}");
            }
            println!("lowering: MISMATCH {told}");
        }
        if (number - plan.first + 1).is_multiple_of(1000) {
            println!("lowering: {} of {}: {compared}", number - plan.first + 1, plan.runs);
        }
    }
    for (reason, count) in &compared.reasons {
        println!("lowering: not compared {count} times: {reason}");
    }
    coverage::tell("lowering", &compared.kinds);
    Ok(compared)
}

/// What a story says is wrong, without what depends on the program.
fn kind_of(story: &str) -> &'static str {
    let known =
        ["front end", "Undefined", "Broken", "Err(", "as elaborated", "differs", "as written"];
    known.into_iter().find(|kind| story.contains(kind)).unwrap_or("other")
}

/// Compares one text; the error tells what differs.
pub fn program(
    text: &str,
    seed: u64,
    packets: usize,
    compared: &mut Compared,
) -> Result<(), String> {
    let outcome = p4_check::check_preprocessed("generated.p4", text);
    let (Some(program), Some(hir)) = (&outcome.program, &outcome.checked) else {
        let reason = outcome.render(false);
        // Two writings of one value make entries with equal keys, which the generator does not see.
        if reason.contains("not supported") || reason.contains("has the same key") {
            compared.skipped += 1;
            compared.note(&reason);
            return Ok(());
        }
        return Err(format!("the front end refused it: {reason}"));
    };
    for kind in coverage::kinds(hir) {
        *compared.kinds.entry(kind).or_default() += 1;
    }
    let (mut lowered, mut tree) = match (
        Interpreter::new(program, systems::interpreter()),
        Tree::new(hir, systems::interpreter()),
    ) {
        (Ok(lowered), Ok(tree)) => (lowered, tree),
        (Err(Stop::Unsupported(what)), _) | (_, Err(Stop::Unsupported(what))) => {
            compared.skipped += 1;
            compared.note(&what);
            return Ok(());
        }
        (lowered, tree) => return Err(format!("{:?} {:?}", lowered.err(), tree.err())),
    };
    let mut random = StdRng::seed_from_u64(seed ^ 0x7ac_e75);
    let frames = traffic(0, packets, &mut random);
    let mut history = Vec::new();
    compared.entries += fill(program, &frames, &mut lowered, &mut tree, &mut random, &mut history)?;
    let undefined_before = compared.undefined_packets;
    for (port, frame) in &frames {
        let before = tree.clone();
        let expected = match tree.run(frame, *port, NOW_US) {
            Ok(verdict) => verdict,
            Err(Stop::Undefined(what)) => {
                // What it did is taken back; the packets behind it are compared.
                tree = before;
                compared.undefined_packets += 1;
                compared.note(&what);
                continue;
            }
            Err(stop) => {
                return Err(format!(
                    "as written: {stop}\n{}\npacket {port} {}",
                    history.join("\n"),
                    hex(frame)
                ));
            }
        };
        history.push(format!("packet {port} {}", hex(frame)));
        let found = lowered.run(frame, *port, NOW_US);
        compared.packets += 1;
        if found.as_ref() != Ok(&expected) {
            let place = match &found {
                Err(stop) => source_line(text, &stop.to_string()),
                Ok(_) => String::new(),
            };
            let story = format!("as written {expected:x?}, as elaborated {found:x?}{place}");
            return Err(format!("{story}\n{}", history.join("\n")));
        }
    }
    state(program, &lowered, &tree).map_err(|story| format!("{story}\n{}", history.join("\n")))?;
    compared.programs += 1;
    compared.undefined += u64::from(compared.undefined_packets > undefined_before);
    Ok(())
}

/// The line of the text that a message begins with, as `generated.p4:LINE:COLUMN`.
fn source_line(text: &str, message: &str) -> String {
    let number = message
        .split("generated.p4:")
        .nth(1)
        .and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
    let line = number.and_then(|number| text.lines().nth(number.saturating_sub(1)));
    line.map_or_else(String::new, |line| format!(" in `{}`", line.trim()))
}

/// Gives tables that can be changed entries which some packets hit.
fn fill(
    program: &Program,
    frames: &[(u32, Vec<u8>)],
    lowered: &mut Interpreter<'_>,
    tree: &mut Tree<'_>,
    random: &mut StdRng,
    history: &mut Vec<String>,
) -> Result<u64, String> {
    let mut scout =
        Interpreter::new(program, systems::interpreter()).map_err(|stop| stop.to_string())?;
    for (port, frame) in frames.iter().step_by(2) {
        // What is undefined there is seen again when it is compared.
        let _ = scout.run(frame, *port, NOW_US);
    }
    let mut added = 0;
    for (index, table) in program.tables.iter().enumerate() {
        let id = TableId(index as u32);
        let seen = scout.keys_seen(id);
        let actions: Vec<usize> =
            (0..table.actions.len()).filter(|at| !table.actions[*at].default_only).collect();
        if table.const_entries || seen.is_empty() || table.keys.is_empty() || actions.is_empty() {
            continue;
        }
        let mut keys = &seen[random.random_range(0..seen.len())];
        for rank in 0..random.random_range(0..6u32) {
            keys = next_keys(keys, seen, random);
            let action = actions[random.random_range(0..actions.len())];
            let parameters = &program.actions[table.actions[action].action.index()].parameters;
            let arguments = parameters
                .iter()
                .map(|p| {
                    BigInt::from(super::types::number(
                        scalar_width(program, &program.variables[p.index()].ty),
                        random,
                    ))
                })
                .collect();
            let matches = keys.iter().zip(&table.keys).map(|(value, key)| {
                let width = scalar_width(program, &key.expr.ty);
                let mask = entry_mask(&key.match_kind, width, random);
                KeyMatch {
                    value: BigInt::from(value.to_u128().unwrap_or(0) & mask),
                    mask: BigInt::from(mask),
                }
            });
            let matches: Vec<KeyMatch> = matches.collect();
            let call = ActionCall { action: action as u32, arguments };
            let told = format!("add {} {matches:?} {call:?}", table.name);
            let entry = RuntimeEntry::new(matches, entry_priority(rank, random), call);
            match tree.add_entry(&table.name, &entry) {
                Ok(()) => history.push(told),
                // It is there already.
                Err(Stop::Unsupported(_)) => continue,
                Err(stop) => return Err(stop.to_string()),
            }
            lowered.add_entry(id, entry);
            added += 1;
        }
    }
    Ok(added)
}

/// Registers, counters and direct counters after the last packet.
pub(super) fn state(
    program: &Program,
    lowered: &Interpreter<'_>,
    tree: &Tree<'_>,
) -> Result<(), String> {
    for (index, object) in program.externs.iter().enumerate() {
        let id = ExternId(index as u32);
        let same = match object.extern_type.as_str() {
            "register" => lowered.register(id) == tree.register(&object.name),
            "counter" => lowered.counter(id) == tree.counter(&object.name),
            _ => true,
        };
        if !same {
            return Err(format!("{} {} differs", object.extern_type, object.name));
        }
    }
    for (index, table) in program.tables.iter().enumerate() {
        let (found, expected) =
            (lowered.direct_counters(TableId(index as u32)), tree.direct_counters(&table.name));
        if found != expected {
            return Err(format!(
                "direct counters of {}: as written {expected:?}, as elaborated {found:?}",
                table.name
            ));
        }
    }
    Ok(())
}
