//! What fuzzers feed bytes to: everything in stateplane that reads what somebody else wrote.
//!
//! It owns: the platform's doors, and the corpora of all; systems list doors of their own
//! (`fuzz_door::Doors`). `fuzz/` gives them to cargo-fuzz (coverage-guided, nightly, `make soak`);
//! `tests/smoke.rs` gives them the committed corpora and mutations of these (stable, `make test`).
//! It must not know: what makes the inputs, which systems there are.

#![forbid(unsafe_code)]

mod decoders;
mod texts;

use fuzz_door::Door;

/// The platform's doors.
const OWN: &[Door] = &[
    Door { name: "p4", run: texts::p4, text: true, smoke: 300 },
    Door { name: "stf", run: texts::stf, text: true, smoke: 4000 },
    Door { name: "controller_config", run: texts::controller_config, text: true, smoke: 1500 },
    Door { name: "switch_config", run: texts::switch_config, text: true, smoke: 1500 },
    Door { name: "lab_topology", run: texts::lab_topology, text: true, smoke: 1000 },
    Door { name: "secrets_file", run: texts::secrets_file, text: true, smoke: 3000 },
    Door { name: "manifest", run: texts::manifest, text: true, smoke: 1500 },
    Door { name: "views", run: texts::views, text: true, smoke: 4000 },
    Door { name: "message_json", run: texts::message_json, text: true, smoke: 4000 },
    Door { name: "datagram", run: decoders::datagram, text: false, smoke: 20_000 },
    Door { name: "trace", run: decoders::trace, text: false, smoke: 20_000 },
    Door { name: "capture", run: decoders::capture, text: false, smoke: 4000 },
];

/// All doors.
pub fn doors() -> impl Iterator<Item = &'static Door> {
    OWN.iter().chain(systems::doors().iter().flat_map(|system| system.doors()))
}

/// The door of this name.
pub fn target(name: &str) -> Option<&'static Door> {
    doors().find(|door| door.name == name)
}
