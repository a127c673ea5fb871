//! The deterministic simulator of NetChain: the real switch program by the reference interpreter,
//! the real rules of clients, agents and the controller, with a simulated network between them. The
//! same seed gives the same run. README.md says what is checked.
//!
//! It owns: virtual time, the faults of a run, what must hold. It must not know: the protocol's
//! rules.

#![forbid(unsafe_code)]

mod chart;
mod checks;
mod client;
mod control;
mod faults;
mod follow;
mod frames;
mod history;
mod node;
mod program;
mod run;
mod scenario;
pub mod seeded;
mod world;

pub use chart::Chart;
pub use faults::Faults;
pub use history::History;
pub use run::{Bench, Outcome, Plan, Summary, run_many};
pub use scenario::{AGENT, Action, Ask, Fault, List, Machine, Scenario, Step};
pub use seeded::clients::ClientBug;
pub use seeded::{AgentBug, SeededBug};
pub use world::Violation;
