//! Packet tests: STF files run through a compiled object in the kernel.
//!
//! It owns: the STF format ([`stf`]), running a case ([`Runner`]) and saying what went wrong ([`report`]). It must not know: how objects are compiled.

#![forbid(unsafe_code)]

pub mod report;
mod run;
pub mod stf;

pub use report::{CaseReport, Failure};
pub use run::Runner;
pub use stf::{Case, Command, Pattern, StfError};
