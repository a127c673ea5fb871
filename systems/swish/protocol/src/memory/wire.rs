//! Bytes of messages.

use super::maps::strong_bytes;
use super::{Settings, Variable};
use crate::eventual::{FRAME_BYTES, RUN};
use crate::layouts::CELLS;
use crate::lww::ENTRY_HEAD_BYTES;
use crate::objects::{Consistency, blocks};
use crate::strong::{HEADER_WORDS, RECORD_WORDS};
use serde::Serialize;

/// Ethernet, IP and UDP.
const IN_FRONT: u64 = 42;
const WORD: u32 = 8;

/// What takes the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// All cells changed in it.
    Window,
    /// One cell or key that changed, in a frame that has room for more.
    Update,
    /// All that a switch knows goes to one other member.
    GossipRound,
    /// One write of one packet, to each further member of the chain.
    Write,
    /// And its answer.
    Answer,
}

/// What a switch sends, at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// For what.
    pub of: Unit,
    /// Frames, to one member.
    pub frames: u64,
    /// Bytes of all of them, with their headers.
    pub bytes: u64,
    /// Of those, what the variable's own state takes.
    pub payload: u64,
}

/// What a variable sends.
pub(super) fn of(variable: &Variable) -> Vec<Traffic> {
    let frames = |of: Unit, frames: u64, payload: u64| Traffic {
        of,
        frames,
        bytes: frames * FRAME_BYTES,
        payload,
    };
    let size = u64::from(variable.size);
    match &variable.settings {
        Settings::Cells(it) if it.consistency == Consistency::Sdw => {
            vec![frames(Unit::Window, blocks(variable.size).into(), size * 4)]
        }
        Settings::Cells(it) => {
            let (lanes, slots) = it.eventual.map_or((1, 0), |it| (it.lanes, it.slots));
            let run = size * u64::from(lanes);
            // (All lives, and the base.)
            let columns = if slots == 0 { 1 } else { u64::from(slots) + 1 };
            let rounds = run.div_ceil(RUN.into()) * columns;
            vec![frames(Unit::Update, 1, 12), frames(Unit::GossipRound, rounds, run * columns * 8)]
        }
        Settings::Last(it) => {
            let entry = u64::from(ENTRY_HEAD_BYTES + (it.key_words + it.value_words) * WORD);
            let in_frame = u64::from(CELLS * 4) / entry;
            let round = size.div_ceil(in_frame.max(1));
            vec![frames(Unit::Update, 1, entry), frames(Unit::GossipRound, round, size * entry)]
        }
        Settings::Strong(_) => {
            let (key, value) = strong_bytes(variable);
            let header = IN_FRONT + u64::from(HEADER_WORDS * WORD);
            let payload = u64::from(RECORD_WORDS * WORD + key + value);
            vec![
                Traffic { of: Unit::Write, frames: 1, bytes: header + payload, payload },
                Traffic { of: Unit::Answer, frames: 1, bytes: header, payload: 0 },
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::LastSettings;

    #[test]
    fn a_message_has_room_for_thirty_records_of_eight_bytes() {
        let settings = LastSettings {
            consistency: Consistency::Ewo,
            group: "main".into(),
            group_number: 0,
            object: 0,
            first_record: 0,
            key_words: 1,
            value_words: 1,
        };
        let settings = Settings::Last(settings);
        let map = "table".to_owned();
        let table = Variable { map, size: 91, key_bytes: 8, value_bytes: 8, settings };
        let round = table.traffic().into_iter().find(|it| it.of == Unit::GossipRound);
        assert_eq!(round.map(|it| (it.frames, it.bytes)), Some((4, 4 * 1514)));
    }

    #[test]
    fn a_write_has_its_record_and_an_answer_none() {
        let settings = Settings::Strong(true);
        let map = "table".to_owned();
        let table = Variable { map, size: 9, key_bytes: 13, value_bytes: 6, settings };
        let bytes: Vec<u64> = table.traffic().iter().map(|it| it.bytes).collect();
        assert_eq!(bytes, [42 + 72 + 16 + 16 + 16, 42 + 72]);
    }
}
