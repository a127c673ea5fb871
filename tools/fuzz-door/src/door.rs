//! A door: something that reads what somebody else wrote. Fuzzers feed it bytes.
//!
//! Any bytes must give a value or an error that can be shown, in bounded time and memory. A door
//! may assert more: what was read and written again is the same.

use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Write as _;

/// A door.
#[derive(Clone, Copy)]
pub struct Door {
    /// The names of its folder in `tools/fuzz-targets/fuzz/corpus` and of its binary in
    /// `tools/fuzz-targets/fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Feeds it an input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Are its inputs texts? (Which mutations are worth trying.)
    pub text: bool,
    /// Mutations that the smoke test tries.
    pub smoke: u32,
}

/// A system's doors.
pub trait Doors: Sync {
    /// All of them but the next.
    fn doors(&self) -> &'static [Door];

    /// Reads a datagram as the system does whose type it is; all systems' messages come in by one
    /// door.
    fn datagram(&self, data: &[u8]);
}

/// An error can be told: its text is not empty.
pub fn told(error: &dyn std::fmt::Display) {
    let mut shown = String::new();
    // Writing to a string cannot fail.
    let _ = write!(shown, "{error}");
    assert!(!shown.trim().is_empty(), "an error without words");
}

/// Reads JSON. What can be read is the same when it is written and read again.
///
/// # Panics
/// It is not: a finding.
pub fn json_again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) {
    match serde_json::from_slice::<T>(data) {
        Ok(value) => {
            let again = serde_json::to_vec(&value).expect("plain data");
            assert_eq!(serde_json::from_slice::<T>(&again).expect("what was written"), value);
        }
        Err(error) => told(&error),
    }
}
