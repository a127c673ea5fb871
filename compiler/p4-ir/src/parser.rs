//! Parsers: states, and the ways between them.

use crate::{Block, Expr, Location, Match};
use serde::{Deserialize, Serialize};

/// Where a parser state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// Parsing is done.
    Accept,
    /// Parsing failed (v1model: ingress runs all the same, with parser_error set).
    Reject,
    /// Index into [`Parser::states`].
    State(u32),
}

/// A parser state's transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transition {
    /// Unconditional.
    To(Target),
    /// First matching case; none: error.NoMatch and reject.
    Select {
        /// Scalars.
        keys: Vec<Expr>,
        /// One match a key.
        cases: Vec<(Vec<Match>, Target, Location)>,
    },
}

/// A parser state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Unique and C-safe; states of sub-parsers are prefixed by the instance's name.
    pub name: String,
    /// What it does.
    pub body: Block,
    /// Where it goes.
    pub transition: Transition,
    /// The state is the rest of a state of the source, behind a sub-parser or in a branch. Entering
    /// it does not count as a round.
    pub continues: bool,
    /// Where declared.
    pub location: Location,
}

/// A packet may enter states on cycles so many times in all; the next time is error.ParserTimeout.
/// The kernel's verifier wants a bound.
pub const MAX_PARSER_ROUNDS: u32 = 128;

/// Whether each node of a graph lies on a cycle; `successors` has the nodes behind each.
pub fn on_cycles(successors: &[Vec<u32>]) -> Vec<bool> {
    let reaches_itself = |start: usize| {
        let mut seen = vec![false; successors.len()];
        let mut open = vec![start];
        while let Some(node) = open.pop() {
            for next in successors[node].iter().map(|next| *next as usize) {
                if next == start {
                    return true;
                }
                if seen.get(next).is_some_and(|seen| !seen) {
                    seen[next] = true;
                    open.push(next);
                }
            }
        }
        false
    };
    (0..successors.len()).map(reaches_itself).collect()
}

impl Transition {
    /// The states that may be next.
    pub fn states(&self) -> Vec<u32> {
        let state = |target: &Target| match target {
            Target::State(index) => Some(*index),
            Target::Accept | Target::Reject => None,
        };
        match self {
            Transition::To(target) => state(target).into_iter().collect(),
            Transition::Select { cases, .. } => {
                cases.iter().filter_map(|(_, target, _)| state(target)).collect()
            }
        }
    }
}

/// The parser, sub-parsers inlined. May have cycles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parser {
    /// As declared.
    pub name: String,
    /// Runs before the start state (declarations with initialisers).
    pub prologue: Block,
    /// The states that can be reached; state 0 is `start`.
    pub states: Vec<State>,
}

impl Parser {
    /// Whether each state lies on a cycle.
    pub fn states_on_cycles(&self) -> Vec<bool> {
        let successors: Vec<Vec<u32>> =
            self.states.iter().map(|state| state.transition.states()).collect();
        on_cycles(&successors)
    }
}
