//! Packet tests: STF files run through a compiled object in the kernel.
//!
//! It owns: the STF format ([`stf`]), the ports and routes around a case ([`setup`]), running it
//! ([`run_case`]) and saying what went wrong ([`report`]). It must not know: how objects are
//! compiled.

#![forbid(unsafe_code)]

mod comparison;
mod network;
pub mod report;
mod run;
pub mod setup;
pub mod stf;

pub use report::{CaseReport, Failure};
pub use run::{Runner, run_case};
pub use setup::Setup;
pub use stf::{Case, Command, Pattern, StfError};
