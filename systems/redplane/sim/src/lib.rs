//! The deterministic simulator: the real compiled XDP objects (through BPF_PROG_RUN, with a virtual
//! clock), the real store servers in chains by views, and the real controller, with a simulated
//! network between them. The same seed gives the same run. `systems/redplane/docs/correctness.md`
//! says what is checked.
//!
//! It owns: virtual time, the network and its faults, what must hold. It must not know: the
//! protocol's rules.

#![forbid(unsafe_code)]

mod agent;
mod alive;
mod bindings;
mod chart;
mod checks;
pub mod envelope;
mod fast;
mod faults;
mod frames;
mod namespace;
mod network;
mod operations;
mod outputs;
mod program;
mod resume;
mod run;
mod scenario;
pub mod seeded;
mod sketch;
mod store;
mod switch;
mod world;

pub use chart::Chart;
pub use checks::Violation;
pub use faults::Faults;
pub use operations::Operations;
pub use program::{Kind, Program};
pub use resume::Resumed;
pub use run::{Bench, Outcome, Plan, Summary, kind_of_seed, run_many};
pub use scenario::{AGENT, Action, Fault, Machine, SERVERS, SWITCHES, Scenario, Step, Workload};
pub use seeded::SeededBug;
pub use sketch::SketchChecker;
pub use switch::{Became, Identity, Switch};
pub use world::World;
