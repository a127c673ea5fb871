//! P4-16 text to syntax tree: preprocessing, tokens, grammar, and the form of every message about a program.
//!
//! This crate knows the language's grammar (P4-16 1.2.5) and nothing of its meaning: names are not resolved and
//! types not checked here, see `p4-check`.

pub mod ast;
pub mod span;

pub use span::Span;
