//! Seeded bugs: of the switch program, as places in its source with wrong text for each; and of
//! what this simulator says of agents and of clients' listings ([`clients`]).
//!
//! The program itself reads as if there were none. A place that it no longer has is an error, so a
//! bug cannot go missing when the program changes.

pub mod clients;

seeded_bugs::seeded_bugs! {
    /// A bug of a switch's agent.
    pub enum AgentBug {
        /// A switch that leaves a chain, and joins again, still has its slots.
        KeepsSlots,
        /// The version of a decision is written before its parts.
        VersionFirst,
    }
}

const NETCHAIN: &str = "netchain.p4";
const SLOT: &str = "include/slot.p4";
const COLLECT: &str = "include/collect.p4";
const LIST: &str = "include/list.p4";

/// A mistake in the switch program that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeededBug {
    /// Its name, in tests and tables.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// The file, the place, and the text in its stead.
    pub(crate) places: &'static [(&'static str, &'static str, &'static str)],
}

impl SeededBug {
    /// A file's text with the bug.
    ///
    /// # Errors
    /// A place is not in it, or more than once.
    pub(crate) fn plant(&self, file: &str, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for (_, right, wrong) in self.places.iter().filter(|(name, ..)| *name == file) {
            match text.matches(right).count() {
                1 => text = text.replace(right, wrong),
                places => {
                    let name = self.name;
                    return Err(format!("{name}: {file} has {places} places for it, not one"));
                }
            }
        }
        Ok(text)
    }
}

/// All of the program. Numbers are those of the schedules that break the paper's protocol.
pub const ALL: &[SeededBug] = &[
    SeededBug {
        name: "RefusedByHead",
        what: "1: the head answers what it refuses, with what the chain may still lose.",
        places: &[(
            NETCHAIN,
            "if (step == Step.PASS_ON && meta.position & TAIL == 0) {",
            "if (step == Step.PASS_ON && meta.position & TAIL == 0\n\
             && status != Status.REFUSED) {",
        )],
    },
    SeededBug {
        name: "OldSession",
        what: "2: a new head goes on with the old one's versions, and late writes of it are taken.",
        places: &[
            (
                SLOT,
                "return before >= first ? before + 1 : first + 1;",
                "return before != 0 ? before + 1 : first + 1;",
            ),
            (
                NETCHAIN,
                "bool in_view = meta.part == Part.MEMBER && hdr.netchain.view == meta.view;",
                "bool in_view = meta.part == Part.MEMBER;",
            ),
            (
                NETCHAIN,
                "bool is_down = meta.position & HEAD == 0 && is_write(hdr.envelope.operation);",
                "bool is_down = is_write(hdr.envelope.operation);",
            ),
        ],
    },
    SeededBug {
        name: "OldViewsTaken",
        what: "2, 3: members take stamped writes of older views.",
        places: &[
            (
                NETCHAIN,
                "bool in_view = meta.part == Part.MEMBER && hdr.netchain.view == meta.view;",
                "bool in_view = meta.part == Part.MEMBER;",
            ),
            (
                NETCHAIN,
                "bool is_down = meta.position & HEAD == 0 && is_write(hdr.envelope.operation);",
                "bool is_down = is_write(hdr.envelope.operation);",
            ),
        ],
    },
    SeededBug {
        name: "NoRecords",
        what: "4: nobody remembers which requests were carried out.",
        places: &[(NETCHAIN, "bit<64> done = recent_version(hdr, slot);", "bit<64> done = 0;")],
    },
    SeededBug {
        name: "NeverUndecided",
        what: "4: what nobody remembers any more is carried out again.",
        places: &[(
            NETCHAIN,
            "} else if (hdr.envelope.flags & AGAIN != 0 && has_forgotten(hdr, slot)",
            "} else if (hdr.envelope.flags & AGAIN != 0 && false && has_forgotten(hdr, slot)",
        )],
    },
    SeededBug {
        name: "AnyFloor",
        what: "4: whatever version a client has heard, the records are taken to go back to it.",
        places: &[(
            SLOT,
            "return slot.status3 != 0 && slot.version3 > hdr.netchain.version;",
            "return slot.status3 != 0 && hdr.netchain.version == 0;",
        )],
    },
    SeededBug {
        name: "NoLease",
        what: "5: a reader answers although the others may have a newer view.",
        places: &[(NETCHAIN, "} else if (!leases.hold(meta.peers)) {", "} else if (false) {")],
    },
    SeededBug {
        name: "AnyVersionLeases",
        what: "5: a peer with a newer decision still gives a lease.",
        places: &[(
            NETCHAIN,
            "hdr.netchain.version != 0\n                                    \
             && hdr.netchain.version <= meta.version);",
            "true);",
        )],
    },
    SeededBug {
        name: "VersionsAnew",
        what: "7: versions of a key begin anew after a delete.",
        places: &[(
            SLOT,
            "slot.version = next_version(session, slot.version);",
            "slot.version = next_version(session,\n\
             hdr.envelope.operation == Operation.DELETE ? 64w0 : slot.version);",
        )],
    },
    SeededBug {
        name: "AppliedAlways",
        what: "A late write replaces a newer one.",
        places: &[(
            NETCHAIN,
            "bool applies = hdr.netchain.version > slot.version",
            "bool applies = hdr.netchain.version != slot.version",
        )],
    },
    SeededBug {
        name: "HeadReads",
        what: "A head whose only follower joins answers reads.",
        places: &[(NETCHAIN, "} else if (meta.position & TAIL == 0) {\n", "} else if (false) {\n")],
    },
    SeededBug {
        name: "CollectedByHead",
        what: "The head frees a tombstone alone: the tail may have the value from before.",
        places: &[(COLLECT, "} else if (meta.position & TAIL != 0) {", "} else if (true) {")],
    },
    SeededBug {
        name: "TombstonePassedBy",
        what: "A member with an older value passes a tombstone on, and does not take it over.",
        places: &[(
            NETCHAIN,
            "bool applies = hdr.netchain.version > slot.version && !stays_free;",
            "bool applies = hdr.netchain.version > slot.version && !stays_free && !is_tombstone;",
        )],
    },
    SeededBug {
        name: "TombstoneStored",
        what: "A late refusal brings a tombstone back to a member behind a head that has freed it.",
        places: &[(
            NETCHAIN,
            "bool applies = hdr.netchain.version > slot.version && !stays_free;",
            "bool applies = hdr.netchain.version > slot.version;",
        )],
    },
    SeededBug {
        name: "CollectsValues",
        what: "A slot is freed although its key was written since.",
        places: &[(
            COLLECT,
            "if (slot.version == hdr.netchain.version\n        \
             && is_collectable(slot.version, slot.length, meta.floor)) {",
            "if (slot.version >= hdr.netchain.version) {",
        )],
    },
    SeededBug {
        name: "RecordsForgotten",
        what: "A key that was collected begins without records: an old request is done again.",
        places: &[(NETCHAIN, "forget_collected(meta.floor, slot);\n", "\n")],
    },
    SeededBug {
        name: "NoWindow",
        what: "A copy of a request has a verdict of its own.",
        places: &[(
            NETCHAIN,
            "if (known == WindowState.RUNNING) {",
            "known = WindowState.FRESH;\nif (known == WindowState.RUNNING) {",
        )],
    },
    SeededBug {
        name: "TombstonesListed",
        what: "Deleted keys are listed.",
        places: &[(LIST, "{ mask }, NO_VALUE,", "{ mask }, 8w254,")],
    },
    SeededBug {
        name: "AnyPrefixListed",
        what: "Keys are listed whatever they begin with.",
        places: &[(LIST, "{ mask }, NO_VALUE,", "{ 128w0 }, NO_VALUE,")],
    },
    SeededBug {
        name: "AnyGroupListed",
        what: "Keys of group 0 are listed whichever group is asked for.",
        places: &[(LIST, "slots.next(hdr.netchain.group,", "slots.next(16w0,")],
    },
    SeededBug {
        name: "EighthUnnamed",
        what: "The last key of a full page is on it, but the page does not say so.",
        places: &[(LIST, "mask, 128, ", "mask, 64, ")],
    },
    SeededBug {
        name: "CursorTooFar",
        what: "A step begins one slot too far.",
        places: &[(
            LIST,
            "hdr.netchain.operand = (bit<64>)next;",
            "hdr.netchain.operand = (bit<64>)(found ? next + 1 : next);",
        )],
    },
    SeededBug {
        name: "ListedWithoutLease",
        what: "A reader lists keys although the others may have a newer view.",
        places: &[(
            NETCHAIN,
            "} else if (!leases.hold(meta.peers)) {",
            "} else if (hdr.envelope.operation != Operation.LIST && !leases.hold(meta.peers)) {",
        )],
    },
    SeededBug {
        name: "ListedByAnyMember",
        what: "A member lists keys although it joins, and has some of the slots.",
        places: &[(
            NETCHAIN,
            "if (meta.position & READER == 0) {\n",
            "if (meta.position & READER == 0 && hdr.envelope.operation != Operation.LIST) {\n",
        )],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_its_places() {
        for bug in ALL {
            let program = crate::program::compile(Some(bug));
            assert!(program.is_ok(), "{}: {:?}", bug.name, program.err());
        }
        let bug = SeededBug { places: &[(SLOT, "no such line", "")], ..ALL[0] };
        assert!(bug.plant(SLOT, "text").unwrap_err().contains("0 places"));
    }
}
