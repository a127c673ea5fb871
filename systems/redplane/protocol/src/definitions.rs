//! The numbers that Rust and C share. They are defined here and in `message.rs`; the C header
//! `bpf/redplane/stateplane_flow_numbers.h` is made of them.

use crate::{Flags, MAX_KEY_BYTES, MAX_VALUE_BYTES, MessageType};
use std::fmt::Write;

/// What the data plane counts, in the order of its map `sp_flow_stats`.
pub const COUNTERS: [&str; 41] = [
    "parked",
    "grants",
    "absent",
    "updates",
    "read_commits",
    "acks",
    "refused",
    "resent",
    "conflicts",
    "commit_conflicts",
    "ignored_grants",
    "malformed",
    "not_fabric",
    "unknown_object",
    "flows_full",
    "too_many_attempts",
    "no_route",
    "too_big",
    "ring_full",
    "ports_exhausted",
    "bad_tag",
    "late",
    "recalled",
    "recalled_unknown",
    "released",
    "release_acks",
    "heartbeats",
    "no_head",
    "no_secret",
    "backends_exhausted",
    "snapshots",
    "snapshot_parts",
    "snapshot_parts_resent",
    "snapshot_parts_missing",
    "snapshot_overdue",
    "replayed",
    "other_incarnation",
    "snapshot_without_lease",
    "snapshot_updates_lost",
    "window_full",
    "window_lost",
];

/// Numbers with names: C's, the number, what it is.
const CONSTANTS: [(&str, u64, &str); 7] = [
    ("MAGIC", wire::MAGIC as u64, "first two bytes of a message"),
    ("VERSION", wire::VERSION as u64, "of the protocol"),
    ("PORT", wire::PORT as u64, "UDP port of stores and switches"),
    ("HEADER_BYTES", wire::HEADER_BYTES as u64, "of a message"),
    ("KEY_MAX", MAX_KEY_BYTES as u64, "bytes"),
    ("VALUE_MAX", MAX_VALUE_BYTES as u64, "bytes"),
    ("PACKET_MAX", wire::MAX_PACKET_BYTES as u64, "bytes that a message carries"),
];

/// The text of the C header.
pub fn c_header() -> String {
    let mut text = HEAD.to_owned();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    for (name, number, about) in CONSTANTS {
        line(format_args!("#define SP_FLOW_{name} {number} /* {about} */"));
    }
    line(format_args!("\nenum sp_flow_type {{"));
    // Numbers from 100 on are the tools': no switch has to do with them.
    for message in MessageType::ALL.iter().filter(|message| (**message as u8) < 100) {
        line(format_args!("\tSP_{} = {},", upper(message.name()), *message as u8));
    }
    line(format_args!("}};\n\n/* Of a message's header. */\nenum sp_flow_flag {{"));
    for (name, flag) in Flags::ALL {
        line(format_args!("\tSP_FLAG_{name} = {},", flag.0));
    }
    line(format_args!("}};\n\n/* Of the map sp_flow_stats. */\nenum sp_flow_stat {{"));
    for counter in COUNTERS {
        line(format_args!("\tSP_STAT_{},", counter.to_uppercase()));
    }
    line(format_args!("\tSP_STAT_COUNT,\n}};\n\n#endif"));
    text
}

/// `LeaseRequest` as `LEASE_REQUEST`.
fn upper(name: &str) -> String {
    let word = |(at, letter): (usize, char)| {
        let gap = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_ascii_uppercase())
    };
    name.chars().enumerate().map(word).collect()
}

const HEAD: &str = "\
/* stateplane_flow_numbers.h: numbers that the data plane shares with Rust.
 *
 * Made of systems/redplane/protocol/src; to change it, change that, and run
 * UPDATE=1 cargo test -p state-protocol numbers
 */
#ifndef STATEPLANE_FLOW_NUMBERS_H
#define STATEPLANE_FLOW_NUMBERS_H

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_numbers() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/redplane/stateplane_flow_numbers.h");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, c_header()).unwrap();
        }
        let header = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            header,
            c_header(),
            "UPDATE=1 cargo test -p state-protocol numbers writes {path}"
        );
    }

    #[test]
    fn names_become_cs_names() {
        assert_eq!(
            (upper("Update"), upper("UpdateAck")),
            ("UPDATE".to_owned(), "UPDATE_ACK".to_owned())
        );
    }
}
