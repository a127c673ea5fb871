//! What the commands of `stateplane` have in common, and where a system adds its own.
//!
//! It owns: printing, logs and questions of commands that run daemons, signals, and the seams of
//! the command line ([`System`], [`state::Source`]). It must not know: systems, or what a command
//! does.

pub mod daemon;
pub mod interrupt;
mod output;
pub mod state;
mod system;

pub use output::{json, print_table, say, written};
pub use system::{Plug, Sizes, StoreView, SwitchView, System};
