//! What RedPlane's records in a batch say beside their values:
//! `systems/redplane/docs/state-protocol.md`, "Batches".

use crate::{Flags, Owner};
use wire::{BatchHead, RecordFlags};

/// A record's own flags, each with the flag of an `UPDATE` that it stands for.
pub(crate) const PHASES: [(&str, RecordFlags, Flags); 3] = [
    ("HALF_CLOSED", RecordFlags(4), Flags::HALF_CLOSED),
    ("CLOSED", RecordFlags(8), Flags::CLOSED),
    ("HALF_OPEN", RecordFlags(16), Flags::HALF_OPEN),
];

/// How far the flow's life has come, as a record says it.
pub fn phase_of(flags: RecordFlags) -> Flags {
    let said = PHASES.iter().filter(|(_, flag, _)| flags.contains(*flag));
    said.fold(Flags::NONE, |phase, (_, _, of_message)| phase.with(*of_message))
}

/// The same, as a record says it. Flags that are no phase are left out.
pub fn record_flags_of(phase: Flags) -> RecordFlags {
    let said = PHASES.iter().filter(|(_, _, of_message)| phase.contains(*of_message));
    said.fold(RecordFlags::NONE, |flags, (_, flag, _)| flags.with(*flag))
}

/// Whose records a batch has.
pub fn sender_of(head: &BatchHead) -> Owner {
    Owner { switch_id: head.switch_id, incarnation: head.incarnation }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_come_back() {
        for bits in 0..8 {
            let phases = PHASES.iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
            let phase = phases.fold(Flags::NONE, |set, (_, (_, _, phase))| set.with(*phase));
            let flags = record_flags_of(phase.with(Flags::ALLOCATE));
            assert_eq!(phase_of(flags.with(RecordFlags::GROUP)), phase);
            assert!(!flags.contains(RecordFlags::GROUP));
        }
        let all = PHASES.iter().fold(Flags::NONE, |set, (_, _, phase)| set.with(*phase));
        assert_eq!(all, Flags::PHASES);
    }

    /// The switch's entry has them in one field: C moves them there with one shift.
    #[test]
    fn flags_of_records_are_those_of_messages_but_for_half_open() {
        for (name, flag, of_message) in PHASES {
            let moved = if name == "HALF_OPEN" { of_message.0 >> 4 } else { of_message.0 };
            assert_eq!(u16::from(flag.0), moved, "{name}");
        }
    }
}
