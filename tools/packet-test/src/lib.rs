//! Packet tests: STF files run through a compiled object in the kernel.
//!
//! It owns: the STF format ([`stf`]), the ports and routes around a case ([`setup`]), running it
//! ([`run_case`]) and saying what went wrong ([`report`]). A system brings setup lines of its own
//! and what stands behind the switch ([`System`]). It must not know: how objects are compiled,
//! which systems there are.

#![forbid(unsafe_code)]

mod comparison;
mod network;
pub mod report;
mod run;
pub mod setup;
pub mod stf;
mod system;

pub use report::{CaseReport, Failure};
pub use run::run_case;
pub use setup::Setup;
pub use stf::{Case, Command, Pattern, StfError};
pub use system::{
    Arrival, Backing, Fault, Identity, Line, Outcome, Supply, System, Systems, Words, copies,
};
