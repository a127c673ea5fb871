//! The seam between fuzzers and systems: what a system brings, and what it may use for it.
//!
//! It owns: doors, campaigns, state objects of generated programs, mutations of bytes. It must not
//! know: any system, and how fuzzers find inputs.

#![forbid(unsafe_code)]

mod campaign;
mod door;
mod generated;
pub mod mutate;

pub use campaign::{Campaign, Campaigns};
pub use door::{Door, Doors, json_again, told};
pub use generated::{Code, MAX_WIDTH, StateKind, StateObject, Struct, Ty, scalar, width};

/// Bytes as one hexadecimal number, as STF files write packets.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
