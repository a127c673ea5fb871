//! Traffic for experiments: synthetic traces that a seed determines ([`Trace`]), any capture
//! ([`Source`], and only its shape: [`Replay`]), and what a trace is like ([`Description`]).
//!
//! This crate owns how flows are sized, timed and addressed. It sends nothing.

mod describe;
mod frame;
mod profile;
mod replay;
mod source;
mod trace;

pub use describe::{Description, describe};
pub use profile::{Fault, Profile, Subnet};
pub use replay::{Replay, Replayed};
pub use source::Source;
pub use trace::{Packet, Trace};
