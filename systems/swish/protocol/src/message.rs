//! Messages between switches of a group: the payload of a UDP datagram
//! (`bpf/swish/stateplane_shared_frame.h`).

use crate::layouts::{CELLS, HEADER_BYTES, NOTHING, SHAPES, SecretValue, kind};
use crate::tag::tag;
use std::fmt;

/// Bytes of a message with cells.
pub const FULL_BYTES: usize = (HEADER_BYTES + CELLS * 4) as usize;
/// Bytes of one without.
pub const SHORT_BYTES: usize = HEADER_BYTES as usize;

/// What a message brings of its sender's updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cells {
    /// None.
    None,
    /// All cells of a block.
    Block {
        /// Which one of the group's.
        block: u16,
        /// CELLS of them.
        cells: Vec<u32>,
    },
    /// Single ones: block, cell of the block, by how much.
    Single {
        /// Blocks that a message of this shape has room for ([`SHAPES`]).
        each: u8,
        /// Of each block.
        entries: Vec<(u16, Vec<(u16, u32)>)>,
    },
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which group of the program's variables.
    pub group: u8,
    /// Since it brought cells, it went back and forth so often.
    pub hops: u8,
    /// The low 16 bits of the view.
    pub view: u16,
    /// Members, by number.
    pub sender: u16,
    /// See `sender`.
    pub receiver: u16,
    /// The sender's window.
    pub window: u64,
    /// What the sender does in it (`layouts::phase`).
    pub phase: u8,
    /// The number of the fabric's secret.
    pub secret: u8,
    /// Cells and total are of the window before.
    pub previous: bool,
    /// The message's number among those of the window that the cells are of.
    pub number: u16,
    /// How many there are; NOTHING: not known yet.
    pub total: u16,
    /// The number of a message that the sender lacks; NOTHING: none in particular.
    pub want: u16,
    /// Who knows the secret made it.
    pub tag: u64,
    /// What it brings.
    pub cells: Cells,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another length.
    Length,
    /// A block or cell out of range, or a shape that is none.
    Cells,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Length => "not as long as a message with or without cells",
            Wrong::Cells => "cells that no message can have",
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u16::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_be_bytes)
}

/// Words of an entry of a message with so many blocks, and cells of each at the most.
fn shape(each: u8) -> Option<(usize, usize)> {
    let (_, room) = SHAPES.into_iter().find(|(blocks, _)| *blocks == u32::from(each))?;
    Some(((CELLS / u32::from(each)) as usize, room as usize))
}

impl Message {
    /// Reads a message. The tag is not checked.
    ///
    /// # Errors
    /// The bytes do not follow the layout.
    pub fn decode(bytes: &[u8]) -> Result<Message, Wrong> {
        let [first, second, ..] = bytes else { return Err(Wrong::Length) };
        let bits = u32::from(*first);
        let full = bits & kind::CELLS != 0;
        if bytes.len() != if full { FULL_BYTES } else { SHORT_BYTES } {
            return Err(Wrong::Length);
        }
        let block = u16_at(bytes, 10);
        let words = bytes[SHORT_BYTES..].chunks_exact(4);
        let words: Vec<u32> =
            words.map(|it| it.first_chunk().copied().map_or(0, u32::from_le_bytes)).collect();
        let cells = match (full, bits & kind::SINGLE != 0) {
            (false, _) => Cells::None,
            (true, false) => Cells::Block { block, cells: words },
            (true, true) => entries((block >> 8) as u8, (block & 0xff).into(), &words)?,
        };
        Ok(Message {
            group: second & 15,
            hops: second >> 4,
            view: u16_at(bytes, 2),
            sender: u16_at(bytes, 4),
            receiver: u16_at(bytes, 6),
            number: u16_at(bytes, 8),
            total: u16_at(bytes, 12),
            want: u16_at(bytes, 14),
            window: u64_at(bytes, 16),
            tag: bytes
                .get(24..)
                .and_then(|it| it.first_chunk())
                .copied()
                .map_or(0, u64::from_le_bytes),
            phase: (bits >> kind::PHASE_SHIFT) as u8,
            secret: (bits >> kind::SECRET_SHIFT & 3) as u8,
            previous: bits & kind::PREVIOUS != 0,
            cells,
        })
    }

    /// The message as a member sends it that knows this secret: `self.tag` is not looked at. A cell
    /// for which the message's shape has no room is left out.
    pub fn encode(&self, secret: &SecretValue) -> Vec<u8> {
        let (bits, block, words) = match &self.cells {
            Cells::None => (0, 0, None),
            Cells::Block { block, cells } => (kind::CELLS, *block, Some(in_order(cells))),
            Cells::Single { each, entries } => (
                kind::CELLS | kind::SINGLE,
                u16::from(*each) << 8 | entries.len() as u16,
                Some(written(*each, entries)),
            ),
        };
        let bits = bits
            | if self.previous { kind::PREVIOUS } else { 0 }
            | u32::from(self.secret & 3) << kind::SECRET_SHIFT
            | u32::from(self.phase) << kind::PHASE_SHIFT;
        let mut header = [0; 24];
        header[0] = bits as u8;
        header[1] = self.group & 15 | self.hops << 4;
        let numbers = [self.view, self.sender, self.receiver, self.number];
        let numbers = numbers.into_iter().chain([block, self.total, self.want]);
        for (place, number) in header[2..16].chunks_exact_mut(2).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        header[16..].copy_from_slice(&self.window.to_be_bytes());
        let tag = tag(secret, &header, words.as_ref());
        let cells = words.iter().flatten().flat_map(|word| word.to_le_bytes());
        header.into_iter().chain(tag.to_le_bytes()).chain(cells).collect()
    }

    /// The window that the cells are of.
    pub fn cells_window(&self) -> u64 {
        self.window.wrapping_sub(self.previous.into())
    }

    /// Is the number of its messages known?
    pub fn knows_total(&self) -> bool {
        self.total != NOTHING
    }
}

/// As many cells as a message has.
fn in_order(cells: &[u32]) -> [u32; CELLS as usize] {
    let mut words = [0; CELLS as usize];
    words.iter_mut().zip(cells).for_each(|(word, cell)| *word = *cell);
    words
}

/// Entries as the data plane fills them.
fn written(each: u8, entries: &[(u16, Vec<(u16, u32)>)]) -> [u32; CELLS as usize] {
    let mut words = [0; CELLS as usize];
    let Some((stride, room)) = shape(each) else { return words };
    for (entry, (block, cells)) in words.chunks_exact_mut(stride).zip(entries) {
        entry[0] = u32::from(*block) << 16 | cells.len().min(room) as u32;
        for (at, (cell, value)) in cells.iter().take(room).enumerate() {
            entry[1 + at] = *value;
            entry[1 + room + at / 2] |= u32::from(*cell) << (16 * (at % 2));
        }
    }
    words
}

fn entries(each: u8, count: usize, words: &[u32]) -> Result<Cells, Wrong> {
    let (stride, room) = shape(each).ok_or(Wrong::Cells)?;
    let mut entries = vec![];
    for entry in words.chunks_exact(stride).take(count) {
        let (head, rest) = entry.split_first().ok_or(Wrong::Cells)?;
        let cells = (head & 0xffff) as usize;
        if cells > room {
            return Err(Wrong::Cells);
        }
        let places = rest[room..].iter().flat_map(|word| [*word as u16, (word >> 16) as u16]);
        let found: Vec<(u16, u32)> = places.zip(rest.iter().copied()).take(cells).collect();
        if found.len() != cells || found.iter().any(|(cell, _)| u32::from(*cell) >= CELLS) {
            return Err(Wrong::Cells);
        }
        entries.push(((head >> 16) as u16, found));
    }
    if entries.len() != count {
        return Err(Wrong::Cells);
    }
    Ok(Cells::Single { each, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(first: u8, block: u16, words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; SHORT_BYTES];
        bytes[0] = first;
        bytes[10..12].copy_from_slice(&block.to_be_bytes());
        let mut cells = vec![0u32; CELLS as usize];
        cells[..words.len()].copy_from_slice(words);
        bytes.extend(cells.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn single_cells_are_read() {
        let mut words = vec![2 << 16 | 2, 7, 8];
        words.extend([0; 4]);
        words.push(359 << 16 | 5);
        let message = Message::decode(&bytes(3, 32 << 8 | 1, &words)).expect("a message");
        let entries = vec![(2, vec![(5, 7), (359, 8)])];
        assert_eq!(message.cells, Cells::Single { each: 32, entries });
    }

    #[test]
    fn what_is_written_is_read() {
        let secret = SecretValue { sip: [5, 6], hash: [7; CELLS as usize], present: 1 };
        let several = (0..59).map(|cell| (6 * cell, u32::from(cell) << 20)).collect();
        let all = [
            Cells::None,
            Cells::Block { block: 3, cells: (0..CELLS).collect() },
            Cells::Single { each: 4, entries: vec![(9, several), (2, vec![(359, 1)])] },
            Cells::Single { each: 32, entries: vec![] },
        ];
        for cells in all {
            let message = Message {
                group: 3,
                hops: 9,
                view: 0x1234,
                sender: 4095,
                receiver: 1,
                window: 1 << 50,
                phase: 6,
                secret: 2,
                previous: true,
                number: 7,
                total: 8,
                want: NOTHING,
                tag: 0,
                cells,
            };
            let bytes = message.encode(&secret);
            let read = Message::decode(&bytes).expect("a message");
            assert_eq!(Message { tag: 0, ..read }, message);
        }
    }

    #[test]
    fn what_no_switch_sends_is_refused() {
        assert_eq!(Message::decode(&[]), Err(Wrong::Length));
        assert_eq!(Message::decode(&bytes(0, 0, &[])), Err(Wrong::Length));
        assert_eq!(Message::decode(&bytes(3, 31 << 8 | 1, &[])), Err(Wrong::Cells));
        assert_eq!(Message::decode(&bytes(3, 32 << 8 | 33, &[])), Err(Wrong::Cells));
        assert_eq!(Message::decode(&bytes(3, 32 << 8 | 1, &[7])), Err(Wrong::Cells));
    }
}
