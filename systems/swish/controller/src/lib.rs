//! The controller of shared variables: members of each group (systems/swish/README.md,
//! "Membership"). Rules without IO: `(now, input) -> outputs`.
//!
//! It owns: membership, attempts (seal, reports, state that a decision needs), decisions. It
//! must not know: the data plane, sockets, databases.

#![forbid(unsafe_code)]

mod attempt;
mod controller;
mod decide;
mod exclusion;
mod group;
pub mod mutation;
mod state;

pub use controller::{Controller, Event, GroupSettings, Input, Outputs, Settings};
pub use decide::{Plan, plan};
pub use group::{MemberStatus, Stage};
pub use state::{Counted, Decided, GroupState, State};
