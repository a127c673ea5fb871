//! The numbers that Rust and C share. They are defined here and in `message.rs`; the C header
//! `bpf/redplane/stateplane_flow_numbers.h` is made of them.

use crate::batch::PHASES;
use crate::message::{FIRST_OF_TOOLS, FIRST_REPLY};
use crate::objects::Consistency;
use crate::{Flags, MAX_KEY_BYTES, MAX_VALUE_BYTES, MessageType};
use c_layout::{Header, Number};

/// What the data plane counts, in the order of its map `sp_flow_stats`. For a reason to drop a
/// packet, a message or an update: the remedy. The others count what is done.
pub const COUNTED: [(&str, Option<&str>); 41] = [
    ("parked", None),
    ("grants", None),
    ("absent", None),
    ("updates", None),
    ("read_commits", None),
    ("acks", None),
    (
        "refused",
        Some(
            "another switch owns the flow: nothing to do after a move; if it goes on, look for routes that change",
        ),
    ),
    ("resent", None),
    ("conflicts", None),
    (
        "commit_conflicts",
        Some(
            "the program uses two flows whose updates are under way, or looks a flow up after a \
             set: see docs/p4-support.md",
        ),
    ),
    ("ignored_grants", None),
    (
        "malformed",
        Some(
            "a machine with another version, or a datagram that is not a state message: `stateplane trace` on the fabric shows the sender",
        ),
    ),
    (
        "not_fabric",
        Some(
            "a state message on a port without `fabric = true`: set it if the port leads to stores, else filter UDP 5407 there",
        ),
    ),
    (
        "unknown_object",
        Some(
            "the store has the manifest of another program: give store and switch the same \
             NAME.json file",
        ),
    ),
    (
        "flows_full",
        Some("the flow table is full: compile the program with a larger size, or lower `idle`"),
    ),
    (
        "too_many_attempts",
        Some(
            "the store keeps answering without a lease: see `stateplane status` of stores; a lease_ms too short, or overload",
        ),
    ),
    (
        "no_route",
        Some("no route or neighbour to the store: `ip route get STORE from PROTOCOL_ADDRESS`"),
    ),
    (
        "too_big",
        Some(
            "a message with its packet is too long for the fabric's MTU, which `stateplane status` shows, or for XDP's frame: shorten keys and values",
        ),
    ),
    (
        "ring_full",
        Some(
            "too many updates wait for the store: see the stores' lag, or compile with fewer flows in flight",
        ),
    ),
    (
        "ports_exhausted",
        Some("no free address and port: give nat_pool more `external` addresses or `ports`"),
    ),
    (
        "bad_tag",
        Some("a message under other secrets: compare `stateplane keys show` on switch and stores"),
    ),
    ("late", Some("answers older than a second: the store is overloaded, or the network delays")),
    ("recalled", None),
    ("recalled_unknown", None),
    ("released", None),
    ("release_acks", None),
    ("heartbeats", None),
    ("no_head", Some("no views: do the controllers run, and is there a route to them?")),
    (
        "no_secret",
        Some(
            "the secret that the file sends with is not loaded: check `secrets`, then SIGHUP to the agent",
        ),
    ),
    (
        "backends_exhausted",
        Some("no backend for a new conversation: add a [[backend]], or make one active again"),
    ),
    ("snapshots", None),
    ("snapshot_parts", None),
    ("snapshot_parts_resent", None),
    ("snapshot_parts_missing", None),
    (
        "snapshot_overdue",
        Some(
            "the SnapshotState has no lease for longer than it may go on: see `stateplane status` of stores",
        ),
    ),
    (
        "replayed",
        Some("a copy of a message: a device that duplicates packets, or somebody who replays them"),
    ),
    (
        "other_incarnation",
        Some(
            "answers to an earlier incarnation of this switch: they end soon after a restart; if \
             not, is `switch_id` used twice?",
        ),
    ),
    ("snapshot_without_lease", None),
    (
        "snapshot_updates_lost",
        Some(
            "updates since the last snapshot were lost with a lease: see the stores' lag; a shorter period loses less",
        ),
    ),
    (
        "window_full",
        Some(
            "the store answers slower than packets come: see the stores' lag, or raise `window_packets`",
        ),
    ),
    ("window_lost", None),
];

/// The names of [`COUNTED`].
pub const COUNTERS: [&str; COUNTED.len()] = {
    let mut names = [""; COUNTED.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = COUNTED[at].0;
        at += 1;
    }
    names
};

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

/// The C file.
pub fn header() -> Header {
    let constants = CONSTANTS.map(|(name, value, doc)| (format!("SP_FLOW_{name}"), value, doc));
    let messages = MessageType::ALL.iter().filter(|message| (**message as u8) < FIRST_OF_TOOLS);
    let types = messages.map(|it| (format!("SP_{}", upper(it.name())), u64::from(*it as u8), ""));
    let flags = Flags::ALL.iter().map(|(name, it)| (format!("SP_FLAG_{name}"), it.0.into(), ""));
    let (types, flags): (Vec<_>, Vec<_>) = (types.collect(), flags.collect());
    let counters = COUNTERS.map(|counter| format!("SP_STAT_{}", counter.to_uppercase()));
    let counters = counters.iter().map(String::as_str).chain(["SP_STAT_COUNT"]);
    let counters: Vec<Number<'_>> = counters.map(|name| Number::next(name, "")).collect();
    fn numbers<'a>(named: &'a [(String, u64, &'a str)]) -> Vec<Number<'a>> {
        named.iter().map(|(name, value, doc)| Number::new(name, *value, doc)).collect()
    }
    let modes = Consistency::ALL.map(|mode| format!("SP_FLOW_{}", mode.p4_name()));
    let modes: Vec<Number<'_>> = modes.iter().map(|name| Number::next(name, "")).collect();
    let set = |has: fn(Consistency) -> bool| {
        Consistency::ALL.iter().fold(0, |set, mode| set | u64::from(has(*mode)) << *mode as u8)
    };
    let waiting = [
        Number::new("SP_FLOW_UPDATES_WAIT", set(Consistency::updates_wait), "whose updates"),
        Number::new("SP_FLOW_READS_WAIT", set(Consistency::reads_wait), "whose reads"),
    ];
    let replies = |has: fn(MessageType) -> bool| {
        let those = MessageType::ALL.iter().filter(|message| message.is_reply() && has(**message));
        those.fold(0, |set, message| set | 1u64 << (*message as u8 - FIRST_REPLY))
    };
    let value = |it: MessageType| it.carries_value(Flags::NONE);
    let replies = [
        Number::new("SP_FLOW_FIRST_REPLY", FIRST_REPLY.into(), "the type of bit 0"),
        Number::new("SP_FLOW_REPLIES", replies(|_| true), "all"),
        Number::new("SP_FLOW_WITH_KEY", replies(MessageType::carries_key), "with a key"),
        Number::new("SP_FLOW_WITH_VALUE", replies(value), "with a value"),
        Number::new("SP_FLOW_WITH_PACKET", replies(MessageType::carries_packet), "or without one"),
    ];
    let records = PHASES.map(|(name, flag, _)| (format!("SP_RECORD_{name}"), flag.0.into(), ""));
    let about = "numbers of messages and counters that the data plane shares with Rust.";
    let update = "cargo test -p state-protocol --lib";
    Header::new("stateplane_flow_numbers.h", about, "systems/redplane/protocol/src", update)
        .defines(&numbers(&constants))
        .enumeration("sp_flow_type", "", &numbers(&types))
        .enumeration("sp_flow_reply", "Sets of types of replies, by bit.", &replies)
        .enumeration("sp_flow_flag", "Of a message's header.", &numbers(&flags))
        .enumeration("sp_flow_record_flag", "Of a record in a batch.", &numbers(&records))
        .enumeration("sp_flow_stat", "Of the map sp_flow_stats.", &counters)
        .enumeration("sp_flow_consistency", "Consistency in stateplane/redplane.p4.", &modes)
        .enumeration("sp_flow_waiting", "Sets of modes whose packets wait, by bit.", &waiting)
}

/// `LeaseRequest` as `LEASE_REQUEST`.
fn upper(name: &str) -> String {
    let word = |(at, letter): (usize, char)| {
        let gap = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_ascii_uppercase())
    };
    name.chars().enumerate().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_numbers() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/redplane");
        header().assert_is(format!("{folder}/stateplane_flow_numbers.h"));
    }

    /// What C counts right before it drops, and what is wrong with a message that it does not take.
    #[test]
    fn each_counter_of_what_is_dropped_has_a_remedy() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/redplane");
        let mut dropped = std::collections::BTreeSet::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2) {
                let counted = pair[0]
                    .strip_prefix("sp_flow_count(SP_STAT_")
                    .and_then(|rest| rest.split_once(");"))
                    .filter(|_| pair[1].starts_with("return XDP_DROP"));
                let fault = pair[0].strip_prefix("scratch->fault = SP_STAT_");
                let fault = fault.and_then(|rest| rest.split_once(';'));
                dropped.extend(counted.or(fault).map(|(name, _)| name.to_lowercase()));
            }
        }
        assert!(dropped.len() > 10 && dropped.contains("too_big"), "{dropped:?}");
        for name in dropped {
            let known = COUNTED.iter().find(|(known, _)| *known == name);
            assert!(known.is_some_and(|(_, remedy)| remedy.is_some()), "{name} has no remedy");
        }
        for (name, remedy) in COUNTED {
            let length = remedy.map_or(50, str::len);
            assert!((20..140).contains(&length), "{name}: {remedy:?}");
        }
    }

    #[test]
    fn names_become_cs_names() {
        assert_eq!(
            (upper("Update"), upper("UpdateAck")),
            ("UPDATE".to_owned(), "UPDATE_ACK".to_owned())
        );
    }
}
