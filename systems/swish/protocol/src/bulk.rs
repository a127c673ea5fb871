//! State as bytes, and how its receiver asks for it: rules without IO.
//!
//! Blocks follow each other, each with a number beside it. Runs of zeros are left out.

use crate::control::{PART_BYTES, Part};
use crate::layouts::CELLS;
use std::collections::BTreeSet;

/// Parts that are asked for at a time.
const ASKED: usize = 32;
/// A part that has not come is asked for again after this time, in ns.
const AGAIN_NS: u64 = 5_000_000;
/// State of a group at the most, in bytes: 65,535 blocks.
const MOST_BYTES: u32 = 128 << 20;

/// A block of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the group's blocks.
    pub block: u32,
    /// The newest window that it includes; of a source, the number of its message.
    pub tag: u64,
    /// CELLS of them.
    pub cells: Vec<u32>,
}

/// State as bytes: a sum of them first.
pub fn pack(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = vec![];
    for piece in pieces {
        let cells = piece.cells.iter().take(CELLS as usize);
        let used = cells.clone().enumerate().filter(|(_, cell)| **cell != 0).count();
        bytes.extend(piece.block.to_be_bytes());
        bytes.extend(piece.tag.to_be_bytes());
        // Dense, or place and cell of each that is not zero.
        if used * 6 >= CELLS as usize * 4 {
            bytes.extend(u16::MAX.to_be_bytes());
            bytes.extend(cells.flat_map(|cell| cell.to_be_bytes()));
        } else {
            bytes.extend((used as u16).to_be_bytes());
            for (place, cell) in (0u16..).zip(cells).filter(|(_, cell)| **cell != 0) {
                bytes.extend(place.to_be_bytes());
                bytes.extend(cell.to_be_bytes());
            }
        }
    }
    bytes
}

/// The state that these bytes are. `None`: they are none.
pub fn unpack(bytes: &[u8]) -> Option<Vec<Piece>> {
    let mut reader = wire::Reader::new(bytes);
    let mut pieces = vec![];
    while reader.remaining() > 0 {
        let (block, tag, used) = (reader.u32()?, reader.u64()?, reader.u16()?);
        let mut cells = vec![0; CELLS as usize];
        if used == u16::MAX {
            for cell in &mut cells {
                *cell = reader.u32()?;
            }
        } else {
            for _ in 0..used {
                let place = usize::from(reader.u16()?);
                *cells.get_mut(place)? = reader.u32()?;
            }
        }
        pieces.push(Piece { block, tag, cells });
    }
    Some(pieces)
}

/// The part of these bytes that begins there.
pub fn part(bytes: &[u8], offset: u32) -> Part {
    let start = (offset as usize).min(bytes.len());
    let end = (start + PART_BYTES).min(bytes.len());
    Part { offset, total: bytes.len() as u32, bytes: bytes[start..end].to_vec() }
}

/// State that comes in parts.
#[derive(Clone, Debug, Default)]
pub struct Pull {
    total: Option<u32>,
    bytes: Vec<u8>,
    missing: BTreeSet<u32>,
    /// Asked for, and when.
    asked: Vec<(u32, u64)>,
}

impl Pull {
    /// What is to be asked for now: where parts begin.
    pub fn asks(&mut self, now_ns: u64) -> Vec<u32> {
        self.asked.retain(|(_, at_ns)| now_ns < at_ns + AGAIN_NS);
        let room = ASKED.saturating_sub(self.asked.len());
        let wanted: Vec<u32> = if self.total.is_none() {
            if self.asked.is_empty() { vec![0] } else { vec![] }
        } else {
            let under_way: BTreeSet<u32> = self.asked.iter().map(|(offset, _)| *offset).collect();
            self.missing.iter().copied().filter(|it| !under_way.contains(it)).take(room).collect()
        };
        self.asked.extend(wanted.iter().map(|offset| (*offset, now_ns)));
        wanted
    }

    /// A part came.
    pub fn take(&mut self, part: Part) {
        if self.total.is_none() && part.total <= MOST_BYTES {
            self.total = Some(part.total);
            self.bytes = vec![0; part.total as usize];
            self.missing = (0..part.total).step_by(PART_BYTES).collect();
        }
        let end = part.offset as usize + part.bytes.len();
        if self.total != Some(part.total) || !self.missing.contains(&part.offset) {
            return;
        }
        let whole = part.bytes.len() == PART_BYTES || end == part.total as usize;
        if let Some(place) = self.bytes.get_mut(part.offset as usize..end).filter(|_| whole) {
            place.copy_from_slice(&part.bytes);
            self.missing.remove(&part.offset);
            self.asked.retain(|(offset, _)| *offset != part.offset);
        }
    }

    /// All of it, once it is there.
    pub fn whole(&self) -> Option<&[u8]> {
        self.total.filter(|_| self.missing.is_empty()).map(|_| &*self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Vec<Piece> {
        let cell =
            |block: u32, place: u32| if block.is_multiple_of(2) { place + 1 } else { place / 359 };
        let of = |block| Piece {
            block,
            tag: u64::from(block) << 40,
            cells: (0..CELLS).map(|place| cell(block, place)).collect(),
        };
        (0..5).map(of).collect()
    }

    #[test]
    fn state_is_what_it_was() {
        let bytes = pack(&pieces());
        assert_eq!(unpack(&bytes), Some(pieces()));
        assert_eq!(unpack(&bytes[..bytes.len() - 1]), None);
        assert_eq!(unpack(&[]), Some(vec![]));
        assert_eq!(unpack(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0x68, 0, 0, 0, 1]), None);
    }

    #[test]
    fn lost_parts_are_asked_for_again() {
        let bytes = pack(&pieces());
        let mut pull = Pull::default();
        let mut now_ns = 1;
        for round in 0..10 {
            for (at, offset) in pull.asks(now_ns).into_iter().enumerate() {
                let part = part(&bytes, offset);
                pull.take(Part { total: part.total + 1, ..part.clone() });
                if (round + at) % 2 == 1 {
                    pull.take(part.clone());
                    pull.take(part);
                }
            }
            assert!(pull.asks(now_ns).is_empty() || pull.whole().is_none());
            now_ns += AGAIN_NS;
        }
        assert_eq!(pull.whole(), None, "another length came first");
        let mut pull = Pull::default();
        for round in 0..40 {
            for (at, offset) in pull.asks(now_ns).into_iter().enumerate() {
                if (round + at) % 2 == 1 {
                    pull.take(part(&bytes, offset));
                }
            }
            now_ns += AGAIN_NS;
        }
        assert_eq!(pull.whole(), Some(&*bytes));
        let mut nothing = Pull::default();
        assert_eq!((nothing.asks(5), nothing.whole()), (vec![0], None));
        nothing.take(part(&[], 0));
        assert_eq!(nothing.whole(), Some(&[][..]));
    }
}
