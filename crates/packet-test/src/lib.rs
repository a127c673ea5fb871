//! Packet tests: STF files run through a compiled object in the kernel.
//!
//! It owns: the STF format ([`stf`]), the ports and routes around a case ([`Environment`]), running it ([`Runner`]) and saying
//! what went wrong ([`report`]). It must not know: how objects are compiled.

#![forbid(unsafe_code)]

mod network;
pub mod environment;
pub mod report;
mod run;
pub pub mod stf;

pub use environment::Environment;
pub use report::{CaseReport, Failure};
pub use run::{Runner, run_case};
pub use stf::{Case, Command, Pattern, StfError};
