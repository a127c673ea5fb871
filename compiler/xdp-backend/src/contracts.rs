//! Rules that a system has for programs that use its state objects, on each way of a packet through
//! them. A system asks [`Question`]s of the ways (`paths`), which compare keys (`values`).
//!
//! docs/p4-support.md shows all rules. Where it cannot be decided whether a rule is broken (keys
//! that are computed, conditions that belong together), the program is accepted, but for rules that
//! hold on any path, and for keys that were written between two calls.

mod assumed;
mod paths;
mod values;

use p4_ir::{ExternId, Location, Program, StatementKind};
pub use paths::{Call, Question, Seen, Verdict, Walk};
pub use values::Storage;

/// Something that a program must not do with a state object.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// A name that does not change.
    pub id: &'static str,
    /// What the program does, in the words of the error.
    pub broken: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
    /// What is said of the earlier call that this one collides with, if there is one.
    pub note: Option<&'static str>,
    /// Is it enough that one way breaks the rule, unless its own conditions exclude it? Else ways
    /// that a condition may tell apart have the benefit of the doubt.
    pub on_any_path: bool,
}

/// A broken rule.
pub struct Witness {
    /// Which.
    pub rule: &'static Rule,
    /// The object that is called, or declared.
    pub object: ExternId,
    /// Where.
    pub location: Location,
    /// The call that it collides with.
    pub earlier: Option<Location>,
}

impl Witness {
    /// With the object's name.
    pub fn message(&self, program: &Program) -> String {
        let object = &program.externs[self.object.index()];
        format!("{} {}: {}", object.extern_type, object.name, self.rule.broken)
    }

    /// The earlier call, and what is said of it.
    pub fn note(&self) -> Option<(Location, String)> {
        Some((self.earlier?, self.rule.note?.to_string()))
    }
}

/// Calls of objects of these types in other blocks than ingress and egress.
pub fn calls_outside(program: &Program, types: &[&str]) -> Vec<(ExternId, Location)> {
    struct Finder<'a>(&'a Program, &'a [&'a str], Vec<(ExternId, Location)>);
    impl Finder<'_> {
        fn is_asked(&self, object: ExternId) -> bool {
            self.1.contains(&self.0.externs[object.index()].extern_type.as_str())
        }
    }
    impl crate::walk::Visitor for Finder<'_> {
        fn statement(&mut self, statement: &p4_ir::Statement) {
            match &statement.kind {
                StatementKind::Extern { instance: Some(object), .. } if self.is_asked(*object) => {
                    self.2.push((*object, statement.location));
                }
                StatementKind::Apply { table, .. } => {
                    for action in &self.0.tables[table.index()].actions {
                        crate::walk::block(&self.0.actions[action.action.index()].body, self);
                    }
                }
                _ => {}
            }
        }
    }
    let mut finder = Finder(program, types, Vec::new());
    let states = program.parser.states.iter().map(|state| &state.body);
    let controls = [&program.verify_checksum, &program.compute_checksum, &program.deparser];
    let bodies = states.chain(controls.map(|control| &control.body));
    for body in std::iter::once(&program.parser.prologue).chain(bodies) {
        crate::walk::block(body, &mut finder);
    }
    finder.2
}

/// A verdict, with the earlier call if the rule is broken.
pub fn verdict(broken: bool, earlier: Option<&Seen>) -> Verdict {
    match broken {
        true => Verdict::Broken(earlier.map(|seen| seen.location)),
        false => Verdict::Good,
    }
}
