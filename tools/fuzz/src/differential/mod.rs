//! Differential testing of the compiler: generated P4 programs as they are written, against the
//! same as they were elaborated, and compiled and run in the kernel.
//!
//! It owns: a grammar-based generator of well-typed v1model programs, packets and entries for them,
//! the comparison, and shrinking. It must not know: what the compiler does inside.
//!
//! One compilation takes a third of a second whatever the program, so several generated programs
//! share an object: the port that a packet comes in on says which of them it is for. Every fourth
//! object has only one, for what the compiler does only to programs of one layout.

mod constructs;
mod control;
mod coverage;
mod effects;
mod expression;
mod lowering;
mod moves;
mod object;
mod parser;
mod plan;
mod program;
mod run;
mod shape;
mod shared;
mod shrink;
mod standard;
mod state;
mod statement;
mod table;
mod traffic;
mod two_cpus;
mod types;
mod whole;

pub use lowering::{Compared, lowering};
pub use plan::{Plan, Summary};
pub use program::{Generated, generate};
pub use run::{campaign, replay};
