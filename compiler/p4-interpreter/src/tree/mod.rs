//! What a program means as it is written: an interpreter of the checked tree (`p4_check::hir`),
//! before elaboration, inlining and copy-in/copy-out, to hold these against.
//!
//! It is written from the P4-16 specification (1.2.5; "spec §" in the comments), simple_switch.md
//! and `docs/p4-support.md`, not from the lowering: it knows calls, frames and l-values, and no IR.
//! What the specification leaves open and the page does not settle is [`Stop::Undefined`], as soon
//! as a result (what leaves, where to, a branch, what is stored) depends on it.

mod bits;
mod call;
mod data;
mod expr;
mod externs;
mod instance;
mod number;
mod parser;
mod place;
mod reject;
mod state_object;
mod statement;
mod switch;
mod table;

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_check::hir::{Hir, LocalId, TableDefId};
use p4_check::ty::{Substitution, Ty};
use p4_ir::ActionCall;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::gateway::Gateway;
use crate::network::Network;
use crate::object::Objects;
use crate::{Count, RuntimeEntry, Stop, Verdict};
use data::Data;
use externs::External;
use instance::{Instance, Pipeline};
use table::TableState;

/// Statements and expressions that one packet may take.
const MAX_STEPS: u64 = 2_000_000;
/// Levels of nesting of what runs: calls, statements, expressions.
const MAX_DEPTH: u32 = 800;
/// Most elements of a register or counter.
const MAX_ELEMENTS: usize = 1 << 20;

/// What ends an execution early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Spec §12.5.
    Exit,
    /// The parser goes to `reject`; an index into the errors.
    Reject(usize),
    /// Up to the kernel.
    ToHost,
    /// An extern has decided.
    Ended(Verdict),
    /// An extern has dropped the packet, which changes no state that waits for its end.
    Abandoned,
    /// There is no defined outcome.
    Stop(Stop),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Stop(stop)
    }
}

/// A result inside.
pub(crate) type Run<T> = Result<T, Halt>;

pub(crate) fn broken<T>(what: impl Into<String>) -> Run<T> {
    Err(Halt::Stop(Stop::Broken(what.into())))
}

pub(crate) fn undefined<T>(what: impl Into<String>) -> Run<T> {
    Err(Halt::Stop(Stop::Undefined(what.into())))
}

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Run<T> {
    Err(Halt::Stop(Stop::Unsupported(what.into())))
}

/// What one execution of a function, action, parser or control has.
#[derive(Clone, Default)]
pub(crate) struct Frame {
    /// Its parameters and local variables, as far as declared.
    pub values: HashMap<LocalId, Data>,
    /// Type arguments of a generic function.
    pub types: Substitution,
    /// Whose constructor parameters and instances are in scope.
    pub instance: Option<Rc<Instance>>,
    /// The frame of the parser or control around it.
    pub outer: Option<usize>,
}

/// The packet under way.
#[derive(Clone, Default)]
pub(crate) struct Packet {
    /// As it came in.
    pub bytes: Vec<u8>,
    /// Bits that the parser has taken.
    pub cursor: usize,
    /// What the deparser has emitted.
    pub emitted: bits::Bits,
    /// What `truncate` asked for.
    pub truncate: Option<BigInt>,
    /// Whether a checksum that was verified is wrong.
    pub checksum_error: bool,
    /// How often states on cycles were entered.
    pub rounds: u32,
    /// The state that runs is on a cycle.
    pub in_loop: bool,
    /// Variables and `out` parameters that began.
    pub declared: HashSet<LocalId>,
    /// The table and entry whose action runs: for direct counters.
    pub matched: Option<(usize, Option<usize>)>,
}

/// A switch that runs one checked program: its registers, counters and tables live from packet to
/// packet.
#[derive(Clone)]
pub struct Tree<'h> {
    pub(crate) hir: &'h Hir,
    /// Kinds of state objects that the program may have.
    pub(crate) objects: Objects,
    /// Top-level instances.
    pub(crate) globals: HashMap<LocalId, Data>,
    pub(crate) pipeline: Option<Pipeline>,
    pub(crate) externals: Vec<External>,
    pub(crate) tables: Vec<TableState<'h>>,
    /// Tables by the instance that they are in.
    pub(crate) table_index: HashMap<(usize, TableDefId), usize>,
    /// How many parsers and controls there are.
    pub(crate) instances: usize,
    pub(crate) frames: Vec<Frame>,
    pub(crate) packet: Packet,
    pub(crate) gateway: Gateway,
    pub(crate) steps: u64,
    pub(crate) depth: u32,
}

impl<'h> Tree<'h> {
    /// A switch as it starts: all state zero, the source's entries in the tables. The error says
    /// what of the program is not interpreted.
    pub fn new(hir: &'h Hir, objects: Objects) -> Result<Tree<'h>, Stop> {
        let mut tree = Tree {
            hir,
            objects,
            globals: HashMap::new(),
            pipeline: None,
            externals: Vec::new(),
            tables: Vec::new(),
            table_index: HashMap::new(),
            instances: 0,
            frames: Vec::new(),
            packet: Packet::default(),
            gateway: Gateway::default(),
            steps: 0,
            depth: 0,
        };
        match tree.instantiate_main() {
            Ok(pipeline) => tree.pipeline = Some(pipeline),
            Err(Halt::Stop(stop)) => return Err(stop),
            Err(other) => return Err(Stop::Broken(format!("{other:?} while instantiating"))),
        }
        tree.frames.clear();
        Ok(tree)
    }

    /// A register's elements by its control-plane name, as their bits (not negative).
    pub fn register(&self, name: &str) -> Option<Vec<u128>> {
        self.externals.iter().find_map(|one| match one {
            External::Register { name: known, width, values, .. } if known == name => {
                let bits =
                    |value: &BigInt| number::pattern(value, *width).to_u128().unwrap_or(u128::MAX);
                Some(values.iter().map(bits).collect())
            }
            _ => None,
        })
    }

    /// A counter's elements by its control-plane name.
    pub fn counter(&self, name: &str) -> Option<&[Count]> {
        self.externals.iter().find_map(|one| match one {
            External::Counter { name: known, counts } if known == name => Some(counts.as_slice()),
            _ => None,
        })
    }

    /// What a table's direct counter has counted: for the entries, in the order in which they came
    /// (the source's first), and for the default action.
    pub fn direct_counters(&self, table: &str) -> (Vec<Count>, Count) {
        match self.table_named(table) {
            Some(index) => {
                let table = &self.tables[index];
                (table.entries.iter().map(|entry| entry.count).collect(), table.default_count)
            }
            None => (Vec::new(), Count::default()),
        }
    }

    /// The keys, as bits, that a table was looked up with: the first few different ones.
    pub fn keys_seen(&self, table: &str) -> &[Vec<BigInt>] {
        self.table_named(table).map_or(&[], |index| self.tables[index].seen.as_slice())
    }

    /// Tells the switch of the network around it. Without it there are no routes.
    pub fn set_network(&mut self, network: Network) {
        self.gateway.network = Some(network);
    }

    /// Where random numbers begin; the same in both interpreters. Without it there are none.
    pub fn set_seed(&mut self, seed: u64) {
        self.gateway.random = Some(seed);
    }

    /// One of the gateway's counts (`dataplane::GATEWAY_DROPS`, `GATEWAY_EVENTS`).
    pub fn gateway_count(&self, name: &str) -> u64 {
        self.gateway.counted(name)
    }

    /// Gives a state object what it draws from (its system says what that is), by its name or a
    /// last part of it.
    ///
    /// # Errors
    /// There is no such object, or it takes no such thing.
    pub fn supply(&mut self, object: &str, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        let found = self.externals.iter_mut().find_map(|one| match one {
            External::State { name, object: found, .. }
                if crate::object::is_named(name, object) =>
            {
                Some(found)
            }
            _ => None,
        });
        match found {
            Some(found) => found.supply(what, numbers),
            None => Err(Stop::Broken(format!("there is no object {object}"))),
        }
    }

    /// Adds an entry to a table, by its control-plane name.
    pub fn add_entry(&mut self, table: &str, entry: &RuntimeEntry) -> Result<(), Stop> {
        let index = self.table_named(table).ok_or_else(|| no_table(table))?;
        self.insert(index, entry)
    }

    /// Changes a table's default action.
    pub fn set_default(&mut self, table: &str, action: &ActionCall) -> Result<(), Stop> {
        let index = self.table_named(table).ok_or_else(|| no_table(table))?;
        let call = self.runtime_call(index, action)?;
        self.tables[index].default = Some(call);
        Ok(())
    }

    fn table_named(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }

    /// A type with the type arguments of the function that runs put in.
    pub(crate) fn ty(&self, ty: &Ty) -> Ty {
        match self.frames.last() {
            Some(frame) => ty.substitute(&frame.types),
            None => ty.clone(),
        }
    }

    /// Counts what runs, so that nothing runs for ever.
    pub(crate) fn step(&mut self) -> Run<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return unsupported(format!("a packet that takes more than {MAX_STEPS} steps"));
        }
        Ok(())
    }

    /// Runs something one level deeper.
    pub(crate) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        self.step()?;
        if self.depth >= MAX_DEPTH {
            return unsupported(format!("more than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }
}

fn no_table(name: &str) -> Stop {
    Stop::Broken(format!("there is no table {name}"))
}
