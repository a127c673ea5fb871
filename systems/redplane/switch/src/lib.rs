//! RedPlane's part of a switch: what the agent registers ([`RedPlane`]), and what tools see of it.
//!
//! It owns: its fields of `switch.toml`; access to RedPlane's maps ([`runtime`]); settings and
//! heads in them; heartbeats and time-outs; sweeps; and what `stateplane status`, metrics and the
//! control socket tell of flows and sessions. It must not know: how a switch starts, where its
//! views come from, or the store's rules.

mod allocators;
pub mod config;
mod events;
mod flows;
mod generator;
mod held;
mod load;
mod metrics;
pub mod runtime;
mod settings;
mod sweep;
mod system;

pub use config::SwitchConfig;
pub use events::events;
pub use flows::{Flow, Flows, FlowsRequest};
pub use generator::Work;
pub use load::{Load, SessionLoad};
pub use runtime::FlowRuntime;
pub use state_protocol::layouts::{BACKEND_PLACES, MAX_POOL_ADDRESSES};
pub use system::RedPlane;
