//! What fuzzers feed bytes to: everything in stateplane that reads what somebody else wrote.
//!
//! It owns: one function for each door, which panics if something does not hold. `fuzz/` gives them
//! to cargo-fuzz (coverage-guided, nightly, `make soak`); `tests/smoke.rs` gives them the committed
//! corpora and mutations of these (stable, `make test`). It must not know: what makes the inputs.
//!
//! Any bytes must give a value or an error that can be shown, in bounded time and memory. A target
//! may assert more: what was read and written again is the same.

#![forbid(unsafe_code)]

mod decoders;
mod texts;

/// A door.
#[derive(Clone, Copy)]
pub struct Target {
    /// The names of its folder in `tools/fuzz-targets/fuzz/corpus` and of its binary in
    /// `tools/fuzz-targets/fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Feeds it an input.
    pub run: fn(&[u8]),
    /// Are its inputs texts? (Which mutations are worth trying.)
    pub text: bool,
    /// Mutations that the smoke test tries.
    pub smoke: u32,
}

/// All doors.
pub const TARGETS: &[Target] = &[
    Target { name: "p4", run: texts::p4, text: true, smoke: 300 },
    Target { name: "stf", run: texts::stf, text: true, smoke: 4000 },
    Target { name: "store_config", run: texts::store_config, text: true, smoke: 1500 },
    Target { name: "controller_config", run: texts::controller_config, text: true, smoke: 1500 },
    Target { name: "switch_config", run: texts::switch_config, text: true, smoke: 1500 },
    Target { name: "lab_topology", run: texts::lab_topology, text: true, smoke: 1000 },
    Target { name: "secrets_file", run: texts::secrets_file, text: true, smoke: 3000 },
    Target { name: "manifest", run: texts::manifest, text: true, smoke: 1500 },
    Target { name: "views", run: texts::views, text: true, smoke: 4000 },
    Target { name: "message_json", run: texts::message_json, text: true, smoke: 4000 },
    Target { name: "datagram", run: decoders::datagram, text: false, smoke: 20_000 },
    Target { name: "trace", run: decoders::trace, text: false, smoke: 20_000 },
    Target { name: "capture", run: decoders::capture, text: false, smoke: 4000 },
    Target { name: "wal", run: decoders::wal, text: false, smoke: 4000 },
    Target { name: "journal", run: decoders::journal, text: false, smoke: 10_000 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

pub use decoders::{OBJECTS, SHARDS};
