//! The simulator of shared variables: the real compiled object on each switch (through
//! BPF_PROG_RUN, with a virtual clock), and a faulty network between them. The same seed gives the
//! same run. README.md says what is checked.
//!
//! It owns: virtual time, packets and faults of a run, what must hold. It must not know: how a
//! window turns.

#![forbid(unsafe_code)]

mod caps;
pub mod chain;
pub mod eventual;
mod failures;
pub mod last;
mod model;
pub mod peers;
mod program;
mod run;
mod scenario;
pub mod seeded;
mod shares;
mod switch;
mod world;

pub use failures::{Failure, FailureOutcome, FailureScenario, run as run_failures};
pub use model::Violation;
pub use program::Program;
pub use run::{Bench, Outcome, Plan, Summary, run_many};
pub use scenario::{Action, Scenario, Step};
pub use seeded::SeededBug;
pub use switch::Switch;
