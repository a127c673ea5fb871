//! Parts of snapshots, as `SNAPSHOT` and `SNAPSHOT_STATE` carry them in the place of the packet and
//! as the chain's effects do. `systems/redplane/docs/snapshots.md`.

use crate::Message;
use wire::{EncodeError, Reader, Writer};

/// Longest key of an object with snapshots, in bytes.
pub const MOST_SNAPSHOT_KEY_BYTES: usize = 64;
/// Most bytes of slots in one part: with key and all headers it stays under 1500.
pub const SNAPSHOT_PART_BYTES: usize = 1280;
/// Most parts of a snapshot: acknowledgements have a bit for each.
pub const MOST_SNAPSHOT_PARTS: usize = 64;
/// Value of a `LEASE_GRANT` for such an object; it has no meaning.
pub const SNAPSHOT_VALUE_BYTES: usize = 4;
const HEAD_BYTES: usize = 16;
pub(crate) const EFFECT_HEAD_BYTES: usize = 28;

/// How many parts a snapshot has.
pub fn snapshot_parts(slots: usize, slot_bytes: usize) -> usize {
    (slots * slot_bytes).div_ceil(SNAPSHOT_PART_BYTES)
}

/// One part of one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPart<'a> {
    /// The object's number.
    pub object_id: u16,
    /// The grant under which it was taken.
    pub epoch: u32,
    /// The snapshot's number.
    pub seq: u64,
    /// Which part, from 0.
    pub part: u16,
    /// The sender's clock in ns when the snapshot was taken.
    pub flip_ns: u64,
    /// Whose slots.
    pub key: &'a [u8],
    /// The slots, big-endian.
    pub slots: &'a [u8],
}

impl<'a> SnapshotPart<'a> {
    /// Reads the part that a message carries; `None`: it is none of an object with such slots.
    pub fn decode_message(
        message: &Message<'a>,
        slots: usize,
        slot_bytes: usize,
    ) -> Option<SnapshotPart<'a>> {
        let mut r = Reader::new(message.packet);
        let (part, parts) = (r.u16()?, r.u16()?);
        let (all_slots, flip_ns) = (r.u32()?, r.u64()?);
        let expected = snapshot_parts(slots, slot_bytes);
        let index = usize::from(part);
        if usize::from(parts) != expected || index >= expected || all_slots as usize != slots {
            return None;
        }
        let bytes = (slots * slot_bytes - index * SNAPSHOT_PART_BYTES).min(SNAPSHOT_PART_BYTES);
        let slots = r.take(bytes)?;
        (r.remaining() == 0).then_some(SnapshotPart {
            object_id: message.object_id,
            epoch: message.epoch,
            seq: message.seq,
            part,
            flip_ns,
            key: message.key,
            slots,
        })
    }

    /// What a message carries in the place of the packet.
    pub fn packet(
        part: u16,
        slots: usize,
        slot_bytes: usize,
        flip_ns: u64,
        bytes: &[u8],
    ) -> Vec<u8> {
        let mut packet = Vec::with_capacity(HEAD_BYTES + bytes.len());
        packet.extend(part.to_be_bytes());
        packet.extend((snapshot_parts(slots, slot_bytes) as u16).to_be_bytes()); // at most 64
        packet.extend((slots as u32).to_be_bytes());
        packet.extend(flip_ns.to_be_bytes());
        packet.extend_from_slice(bytes);
        packet
    }

    pub(crate) fn encode_effect(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.key.len() > MOST_SNAPSHOT_KEY_BYTES || self.slots.len() > SNAPSHOT_PART_BYTES {
            return Err(EncodeError::FieldTooLong);
        }
        w.u16(self.object_id)?;
        w.u16(self.key.len() as u16)?; // in range, see above
        w.u32(self.epoch)?;
        w.u64(self.seq)?;
        w.u64(self.flip_ns)?;
        w.u16(self.part)?;
        w.u16(self.slots.len() as u16)?;
        w.put(self.key)?;
        w.put(self.slots)
    }

    pub(crate) fn decode_effect(r: &mut Reader<'a>) -> Option<SnapshotPart<'a>> {
        let (object_id, key_bytes) = (r.u16()?, usize::from(r.u16()?));
        let (epoch, seq, flip_ns) = (r.u32()?, r.u64()?, r.u64()?);
        let (part, bytes) = (r.u16()?, usize::from(r.u16()?));
        let in_range = (1..=MOST_SNAPSHOT_KEY_BYTES).contains(&key_bytes)
            && (1..=SNAPSHOT_PART_BYTES).contains(&bytes)
            && usize::from(part) < MOST_SNAPSHOT_PARTS;
        if !in_range {
            return None;
        }
        Some(SnapshotPart {
            object_id,
            epoch,
            seq,
            part,
            flip_ns,
            key: r.take(key_bytes)?,
            slots: r.take(bytes)?,
        })
    }
}
