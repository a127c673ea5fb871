//! Runs packets through the tree and what is held against it, and compares what comes out and what stays.

use super::sides::{Lowered, Side};
use super::traffic::{self, Frame, NOW_US};
use crate::hex;
use p4_check::hir::Hir;
use p4_interpreter::{Interpreter, Stop, Tree, Verdict};
use p4_ir::Program;
use std::collections::BTreeMap;
use std::fmt;

/// Lines of a history that a report has.
const TOLD_LINES: usize = 60;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Programs compared to the end.
    pub programs: u64,
    /// Programs refused with an error.
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
    /// Why programs were refused, or what was undefined, and how often.
    pub reasons: BTreeMap<String, u64>,
    /// How many programs had each feature.
    pub features: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs compared, {} mismatches ({} refused, {} undefined somewhere); {} packets: {} forwarded, \
             {} changed; {} entries, {} registers and counters",
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

impl Summary {
    pub(super) fn note(&mut self, reason: &str) {
        let shown: String = reason.chars().take(200).collect();
        *self.reasons.entry(shown).or_default() += 1;
    }

    /// The features, the rarest first: so that none is rare unseen.
    pub fn features(&self) -> String {
        let mut list: Vec<(&&str, &u64)> = self.features.iter().collect();
        list.sort_by_key(|(_, count)| **count);
        let shown: Vec<String> = list.iter().map(|(name, count)| format!("{name} {count}")).collect();
        shown.join(", ")
    }
}

/// What is wrong with a program.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    /// Two sides differ, or clang rejects what the back end wrote.
    Wrong { kind: &'static str, story: String },
    /// Not compiled, with an error.
    Refused { by: &'static str, reason: String, details: String },
}

pub(super) fn wrong<T>(kind: &'static str, story: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Wrong { kind, story: story.into() })
}

/// A checked program, and what is done to it.
pub(super) struct Scenario<'a> {
    pub hir: &'a Hir,
    pub program: &'a Program,
    /// How many programs it consists of: the packets of ports 0, 1, … are theirs.
    pub programs: u32,
    /// Of packets and entries.
    pub seed: u64,
    /// For each program.
    pub packets: usize,
}

/// Both sides, and what was done to them.
struct Pair<'a, 's> {
    tree: Tree<'a>,
    tested: &'s mut dyn Side,
    history: Vec<String>,
    /// Programs that came to something undefined.
    open: Vec<bool>,
}

fn tree<'a>(hir: &'a Hir) -> Result<Tree<'a>, Finding> {
    Tree::new(hir).or_else(|stop| wrong("oracle", stop.to_string()))
}

/// A mended table, or a bug of the oracle: whatever it is, the story says what it cannot do.
fn oracle<T>(stop: &Stop, history: &str) -> Result<T, Finding> {
    wrong("oracle", format!("{stop}\n{history}"))
}

/// Holds a side against the tree.
pub(super) fn compare(of: &Scenario<'_>, tested: &mut dyn Side, summary: &mut Summary) -> Result<(), Finding> {
    let frames = traffic::frames(of.programs, of.packets, of.seed);
    let mut scout = tree(of.hir)?;
    for (port, frame) in frames.iter().step_by(2) {
        match scout.run(frame, *port, NOW_US) {
            Ok(_) | Err(Stop::Undefined(_)) => {}
            Err(stop) => return oracle(&stop, &format!("packet {port} {}", hex(frame))),
        }
    }
    let entries = traffic::entries(of.program, &scout, of.seed);
    let mut pair = Pair { tree: tree(of.hir)?, tested, history: Vec::new(), open: vec![false; of.programs as usize] };
    for entry in &entries {
        // Where the tested side has no room, neither has it.
        if pair.tested.add(entry) {
            pair.history.push(format!("add {entry:?}"));
            summary.entries += 1;
            if !Side::add(&mut pair.tree, entry) {
                return wrong("oracle", format!("the entry is refused\n{}", pair.told()));
            }
        }
    }
    for frame in &frames {
        if !pair.open[frame.0 as usize] {
            pair.step(frame, summary)?;
        }
    }
    summary.elements += pair.state(of.program)?;
    summary.undefined += pair.open.iter().filter(|open| **open).count() as u64;
    summary.programs += u64::from(of.programs);
    Ok(())
}

/// Holds the lowered form against the tree.
pub(super) fn lowered(of: &Scenario<'_>, summary: &mut Summary) -> Result<(), Finding> {
    match Interpreter::new(of.program) {
        Ok(interpreter) => compare(of, &mut Lowered { program: of.program, interpreter }, summary),
        Err(stop) => wrong("interpreter", stop.to_string()),
    }
}

impl Pair<'_, '_> {
    fn step(&mut self, (port, frame): &Frame, summary: &mut Summary) -> Result<(), Finding> {
        self.history.push(format!("packet {port} {}", hex(frame)));
        let expected = match Side::run(&mut self.tree, *port, frame) {
            Ok(expected) => expected,
            Err(Stop::Undefined(what)) => {
                self.open[*port as usize] = true;
                summary.note(&format!("undefined: {what}"));
                return Ok(());
            }
            Err(stop) => return oracle(&stop, &self.told()),
        };
        let found = match self.tested.run(*port, frame) {
            Ok(found) => found,
            Err(Stop::Undefined(what)) => {
                let told = format!("expected {}\nfound    undefined: {what}\n{}", shown(&expected), self.told());
                return wrong("packet", told);
            }
            Err(stop) => return wrong("interpreter", format!("{stop}\n{}", self.told())),
        };
        summary.packets += 1;
        if let Verdict::Forward { frame: out, .. } = &expected {
            summary.forwarded += 1;
            summary.changed += u64::from(out != frame);
        }
        if found == expected || self.tested.may_drop(&expected) && found == Verdict::Drop {
            return Ok(());
        }
        wrong("packet", format!("expected {}\nfound    {}\n{}", shown(&expected), shown(&found), self.told()))
    }

    fn told(&self) -> String {
        let from = self.history.len().saturating_sub(TOLD_LINES);
        self.history[from..].join("\n")
    }

    fn is_open(&self, name: &str) -> bool {
        let of = |program: usize| self.open.len() == 1 || name.contains(&format!(".c{program}."));
        self.open.iter().enumerate().any(|(program, open)| *open && of(program))
    }

    /// Registers and counters; how many elements.
    fn state(&self, program: &Program) -> Result<u64, Finding> {
        let mut elements = 0;
        for instance in program.externs.iter().filter(|instance| !self.is_open(&instance.name)) {
            elements += match instance.extern_type.as_str() {
                "register" => self.elements("register", &instance.name, |side, name| side.register(name))?,
                "counter" => self.elements("counter", &instance.name, |side, name| side.counter(name))?,
                _ => 0,
            };
        }
        let counted = |table: &&p4_ir::Table| {
            table.attached.iter().any(|(_, id)| program.externs[id.index()].extern_type == "direct_counter")
        };
        for table in program.tables.iter().filter(counted).filter(|table| !self.is_open(&table.name)) {
            let (expected, found) = (self.tree.direct(&table.name), self.tested.direct(&table.name));
            let (Ok(expected), Ok(found)) = (expected, found) else {
                return wrong("environment", format!("direct counter of {}", table.name));
            };
            if found != expected {
                let what = format!("direct counter of {}: expected {expected:?}, found {found:?}", table.name);
                return wrong("counter", format!("{what}\n{}", self.told()));
            }
            elements += expected.0.len() as u64 + 1;
        }
        Ok(elements)
    }

    fn elements<T: PartialEq + fmt::Debug>(
        &self,
        kind: &'static str,
        name: &str,
        read: impl Fn(&dyn Side, &str) -> Result<Option<Vec<T>>, String>,
    ) -> Result<u64, Finding> {
        let environment = |error: String| Finding::Wrong { kind: "environment", story: error };
        let expected = read(&self.tree, name).map_err(environment)?;
        let found = read(&*self.tested, name).map_err(environment)?;
        if found != expected {
            let what = format!("{kind} {name}: expected {expected:x?}, found {found:x?}");
            return wrong(kind, format!("{what}\n{}", self.told()));
        }
        Ok(expected.map_or(0, |list| list.len() as u64))
    }
}

fn shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Drop => "drop".into(),
        Verdict::ToHost => "to the host".into(),
        Verdict::Forward { port, frame } => format!("port {port} {}", hex(frame)),
    }
}
