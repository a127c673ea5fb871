//! The XDP back end: typed IR → restricted C → `clang -target bpf` → an object and its manifest.
//!
//! It owns: v1model's behaviour on XDP (simple_switch.md), the layout of maps, the emitted C and
//! its runtime headers (`bpf/`). It must not know: P4 syntax, how objects are run on ports.
//!
//! The pipeline is one function of labels and gotos over local variables; clang keeps what is hot
//! in registers, and what nobody reads vanishes. Headers are values, as P4 says; the packet is only
//! written by the deparser, in place where its layout stays.

#![forbid(unsafe_code)]

mod atomic;
mod clang;
mod const_entries;
mod contracts;
mod decision_tree;
mod deparser;
mod emit;
mod expr;
mod externs;
mod facts;
mod field_list;
mod gateway;
mod generator;
mod layout;
mod limits;
mod map_limit;
mod merge;
pub mod mutations;
mod packet;
mod parser;
mod registers;
mod statement;
pub mod system;
mod table;
mod ternary;
mod tree_table;
mod updates;
mod verifier;
pub mod walk;
mod wire;

pub use clang::{CompileError, Compiled, compile, compile_for_kernel, write_headers};
pub use system::{Rule, Systems};
pub use verifier::{VerifierReport, explain};

use manifest::Manifest;
use p4_ir::{Location, Program};
use std::collections::HashSet;

/// Where headers and metadata live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Locals: registers and the 512 bytes of stack. The fastest.
    #[default]
    Registers,
    /// Headers that are first extracted more than so many parser states behind `start`, or never,
    /// in a per-CPU scratch map; the rest as above.
    Partial(u32),
    /// Headers and user metadata in the scratch map.
    Scratch,
    /// All P4 variables in the scratch map.
    AllScratch,
    /// The same, and read from there anew in each statement. The verifier does not know what a map
    /// holds, so that all ways through the program are one to it: for programs with too many.
    Forgotten,
}

/// How to generate.
#[derive(Clone, Debug)]
pub struct Options {
    /// The P4 program's file name, for the manifest and the first comment.
    pub program_name: String,
    /// Where storage goes.
    pub placement: Placement,
    /// Macros of the emitted C (`NAME` or `NAME=VALUE`): seeded bugs, for tests that must find
    /// them.
    pub defines: Vec<String>,
    /// The systems whose state objects programs may use.
    pub systems: Systems,
}

impl Options {
    /// A program without a name, in the fastest placement, without macros.
    pub fn new(systems: Systems) -> Options {
        Options {
            program_name: String::new(),
            placement: Placement::default(),
            defines: Vec::new(),
            systems,
        }
    }

    /// The ladder of placements that [`compile`] climbs when the stack is too small or the verifier
    /// finds fault, and to the top when the verifier has too many ways to follow. (Measured on the
    /// NAT: with more than the outermost headers in registers most of them are spilled, and each
    /// parser path sets all the others' slots: 448 bytes of stack and 5 % slower.)
    pub(crate) const PLACEMENTS: [Placement; 5] = [
        Placement::Registers,
        Placement::Partial(0),
        Placement::Scratch,
        Placement::AllScratch,
        Placement::Forgotten,
    ];
}

/// The P4 place of each line of the emitted C.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    /// Index 0 is line 1.
    pub lines: Vec<Option<Location>>,
}

impl LineMap {
    /// The place that C line `line` (from 1) comes from: its own, or that of the nearest line
    /// before it within a few lines.
    pub fn place(&self, line: usize) -> Option<Location> {
        let last = line.min(self.lines.len());
        (last.saturating_sub(8)..last).rev().find_map(|index| self.lines[index])
    }
}

/// What [`generate`] makes.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The C program; it includes `stateplane_xdp.h`.
    pub c_source: String,
    /// For the runtime.
    pub manifest: Manifest,
    /// From C lines to P4.
    pub line_map: LineMap,
    /// What systems have found out about merges of the program.
    pub kept_laws: KeptLaws,
}

/// Of functions that a program names with `@merge`: laws that hold, by the names that the system
/// gives them. To try a law takes thousands of calls, so each is tried once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptLaws(HashSet<(String, &'static str)>);

impl KeptLaws {
    /// Is the law known to hold?
    pub fn has(&self, function: &str, law: &'static str) -> bool {
        self.0.contains(&(function.to_owned(), law))
    }

    /// The law holds.
    pub fn add(&mut self, function: &str, law: &'static str) {
        self.0.insert((function.to_owned(), law));
    }
}

/// Something that the XDP target cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// Where in the P4 program.
    pub location: Location,
    /// What.
    pub message: String,
    /// What to do instead.
    pub help: Option<String>,
    /// Another place that matters, and why.
    pub note: Option<(Location, String)>,
}

/// Generates C and manifest. All errors of the program at once.
pub fn generate(program: &Program, options: &Options) -> Result<Generated, Vec<BackendError>> {
    generator::Generator::new(program, options).run(options)
}
