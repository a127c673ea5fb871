//! Snapshots of slot arrays: per key the newest whole one, and the one whose parts are coming in.
//! `systems/redplane/docs/snapshots.md`.
//!
//! A part is an effect of the chain like any other, so all servers put the same snapshots together;
//! only a whole one takes the place of the last.

use super::request::Request;
use super::settings::AllocatorSettings;
use super::{Mutation, Outputs, Replica, mutation};
use state_protocol::{
    Effect, Flags, Message, MessageType, RecordWrite, SNAPSHOT_PART_BYTES, SnapshotPart,
    snapshot_parts,
};

/// Of all snapshots in a shard.
const MOST_BYTES: usize = 1 << 30;
/// Switches that count for one key.
pub const MOST_CONTRIBUTIONS: usize = 32;
/// Parts of a state go out again for another request no sooner than this after the last time: many
/// packets may ask for a key at once.
const SEND_AGAIN_NS: u64 = 1_000_000;

/// A snapshot: what its slots were when it was taken, in wire form.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub struct Snapshot {
    /// The grant under which it was taken.
    pub epoch: u32,
    /// Its number.
    pub seq: u64,
    /// The sender's clock when it was taken.
    pub flip_ns: u64,
    /// Which parts are here, a bit each.
    pub parts: u64,
    /// The slots; zeros where parts are missing.
    pub slots: Vec<u8>,
}

/// What a server keeps of a key.
#[derive(Debug, Default, Hash)]
pub struct Snapshots {
    /// The newest whole one; without it all slots are zero.
    pub whole: Option<Snapshot>,
    /// The one that is coming in.
    pub next: Option<Snapshot>,
}

/// All parts of a snapshot of so many.
fn all(parts: usize) -> u64 {
    if parts >= 64 { u64::MAX } else { (1 << parts) - 1 }
}

impl Snapshots {
    /// Takes a part. If the snapshot is whole by it, and so the newest, returns which one it
    /// replaces. What is older than what is here changes nothing, nor does a part twice.
    pub fn take(
        &mut self,
        part: &SnapshotPart<'_>,
        slots: usize,
        slot_bytes: usize,
    ) -> Option<Option<Snapshot>> {
        let age = (part.epoch, part.seq);
        if self.whole.as_ref().is_some_and(|whole| age <= (whole.epoch, whole.seq))
            || self.next.as_ref().is_some_and(|next| age < (next.epoch, next.seq))
        {
            return None;
        }
        let mixes = self.next.is_some() && mutation::planted(Mutation::SnapshotsMixed);
        if let Some(next) = self.next.as_mut().filter(|_| mixes) {
            (next.epoch, next.seq) = age;
        }
        if self.next.as_ref().is_none_or(|next| age != (next.epoch, next.seq)) {
            let slots = vec![0; slots * slot_bytes];
            self.next = Some(Snapshot {
                epoch: part.epoch,
                seq: part.seq,
                flip_ns: part.flip_ns,
                parts: 0,
                slots,
            });
        }
        let next = self.next.as_mut()?;
        let start = usize::from(part.part) * SNAPSHOT_PART_BYTES;
        if let Some(place) = next.slots.get_mut(start..start + part.slots.len()) {
            place.copy_from_slice(part.slots);
            next.parts |= 1 << part.part;
        }
        if next.parts != all(snapshot_parts(slots, slot_bytes))
            && !mutation::planted(Mutation::SnapshotOfOnePart)
        {
            return None;
        }
        Some(std::mem::replace(&mut self.whole, self.next.take()))
    }

    /// Which parts of a snapshot are here: all of them if it, or a newer one, is whole. `None`: it
    /// is older than the one that is coming in.
    pub fn held(&self, epoch: u32, seq: u64, parts: usize) -> Option<u64> {
        if self.whole.as_ref().is_some_and(|whole| (epoch, seq) <= (whole.epoch, whole.seq)) {
            return Some(all(parts));
        }
        match &self.next {
            Some(next) if (epoch, seq) < (next.epoch, next.seq) => None,
            Some(next) if (epoch, seq) == (next.epoch, next.seq) => Some(next.parts),
            _ => Some(0),
        }
    }

    /// Effects that bring another server's empty record to this state.
    pub fn effects<'a>(
        &'a self,
        object_id: u16,
        key: &'a [u8],
    ) -> impl Iterator<Item = Effect<'a>> {
        self.whole.iter().chain(&self.next).flat_map(move |snapshot| {
            let count = snapshot.slots.len().div_ceil(SNAPSHOT_PART_BYTES);
            (0..count).filter(|part| snapshot.parts >> part & 1 == 1).map(move |part| {
                Effect::Snapshot(SnapshotPart {
                    object_id,
                    epoch: snapshot.epoch,
                    seq: snapshot.seq,
                    part: part as u16, // at most 64
                    flip_ns: snapshot.flip_ns,
                    key,
                    slots: part_of(&snapshot.slots, part),
                })
            })
        })
    }
}

fn part_of(slots: &[u8], part: usize) -> &[u8] {
    let start = (part * SNAPSHOT_PART_BYTES).min(slots.len());
    &slots[start..(start + SNAPSHOT_PART_BYTES).min(slots.len())]
}

impl Replica {
    /// Slots and bytes of each, of an object that has snapshots.
    pub(super) fn snapshot_shape(&self, object: usize) -> Option<(usize, usize)> {
        match self.chain.state().settings(object).allocator {
            AllocatorSettings::Snapshot { slots, slot_bytes, .. } => Some((slots, slot_bytes)),
            _ => None,
        }
    }

    /// Whether there is room for another key's snapshots.
    pub(super) fn snapshots_fit(&self, object: usize) -> bool {
        let a_key = |object| {
            // The newest, the incoming one, and at most one merged for each.
            let kept = 2 + usize::from(self.chain.state().settings(object).merge().is_some());
            self.snapshot_shape(object).map_or(0, |(slots, slot_bytes)| kept * slots * slot_bytes)
        };
        let objects = self.chain.state().objects().enumerate();
        let kept: usize = objects.map(|(object, (_, keys, _))| keys * a_key(object)).sum();
        a_key(object) == 0 || kept + a_key(object) <= MOST_BYTES
    }

    /// Whether there is room for another switch's contribution to a key.
    pub(super) fn contribution_fits(&self, request: &Request<'_>) -> bool {
        let merged = self.chain.state().merged(request.object, request.message.key);
        merged.is_none_or(|merged| merged.contributions.len() < MOST_CONTRIBUTIONS)
    }

    /// A part of a snapshot: recorded if it is the owner's, under the current grant (the fence),
    /// and answered by which parts are on all servers.
    pub(super) fn snapshot(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let message = &request.message;
        let Some((slots, slot_bytes)) = self.snapshot_shape(request.object) else {
            self.counters.dropped_wrong_size += 1;
            return;
        };
        let Some(part) = SnapshotPart::decode_message(message, slots, slot_bytes) else {
            self.counters.dropped_wrong_size += 1;
            return;
        };
        let Some(slot) = self.owned(request, out) else { return };
        // Its switch may have been away for so long that nobody seemed to have it.
        self.chain.state_mut().get_mut(slot).unused_since_ns = 0;
        let parts = snapshot_parts(slots, slot_bytes);
        let held = self
            .chain
            .state()
            .get(slot)
            .snapshots
            .as_ref()
            .map_or(Some(0), |it| it.held(part.epoch, part.seq, parts));
        let Some(held) = held else {
            self.counters.snapshot_parts_stale += 1;
            return;
        };
        if self.chain.state().get(slot).session != request.session {
            self.renew_session(request, slot, out);
        }
        let bits = (held | 1 << part.part).to_be_bytes();
        let ack = request.reply(MessageType::SnapshotAck);
        self.encode_reply(&Message {
            epoch: part.epoch,
            seq: part.seq,
            value: &bits,
            packet: &[],
            ..ack
        });
        let again = mutation::planted(Mutation::SnapshotAddedTwice);
        if held >> part.part & 1 == 1 && !again {
            self.counters.snapshot_parts_stale += 1;
            self.commit(&Effect::None, request.client, out);
            return;
        }
        self.counters.snapshot_parts += 1;
        let part = SnapshotPart { key: request.record_key, ..part };
        self.commit(&Effect::Snapshot(part), request.client, out);
    }

    /// The record is its owner's in the session that it has now.
    fn renew_session(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        let value = record.value.clone();
        let write = RecordWrite {
            object_id: request.message.object_id,
            epoch: record.epoch,
            seq: record.seq,
            owner: Some(request.message.sender),
            session: request.session,
            phase: Flags::NONE,
            key: request.record_key,
            value: value.as_slice(),
        };
        self.reply.clear();
        self.commit(&Effect::Write(write), request.client, out);
    }

    /// What a grant needs in front of it: all parts of the newest whole snapshot, unless they have
    /// just gone out under the same grant. If they were lost the switch asks again.
    pub(super) fn send_snapshot(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let Some((slots, slot_bytes)) = self.snapshot_shape(request.object) else { return };
        let record = self.chain.state_mut().get_mut(slot);
        let (epoch, seq) = (record.epoch, record.seq);
        if record.snapshot_sent.0 == epoch
            && request.now_ns < record.snapshot_sent.1 + SEND_AGAIN_NS
        {
            return;
        }
        record.snapshot_sent = (epoch, request.now_ns);
        let whole = record.snapshots.as_ref().and_then(|it| it.whole.clone());
        let bytes = whole.map_or_else(|| vec![0; slots * slot_bytes], |whole| whole.slots);
        for part in 0..snapshot_parts(slots, slot_bytes) {
            let packet =
                SnapshotPart::packet(part as u16, slots, slot_bytes, 0, part_of(&bytes, part));
            let state = request.reply(MessageType::SnapshotState);
            self.encode_reply(&Message { epoch, seq, lease_us: 0, packet: &packet, ..state });
            self.commit(&Effect::None, request.client, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<'a>(epoch: u32, seq: u64, part: u16, slots: &'a [u8]) -> SnapshotPart<'a> {
        SnapshotPart { object_id: 1, epoch, seq, part, flip_ns: 0, key: b"k", slots }
    }

    #[test]
    fn only_a_whole_one_replaces() {
        let mut snapshots = Snapshots::default();
        let (first, last) = ([1; SNAPSHOT_PART_BYTES], [2; 8]);
        assert_eq!(snapshots.take(&part(5, 1, 1, &last), 322, 4), None);
        assert_eq!(snapshots.take(&part(5, 1, 1, &last), 322, 4), None);
        assert_eq!(
            (snapshots.held(5, 1, 2), snapshots.held(5, 2, 2), snapshots.held(5, 0, 2)),
            (Some(2), Some(0), None)
        );
        assert_eq!(snapshots.take(&part(5, 1, 0, &first), 322, 4), Some(None));
        let whole = snapshots.whole.clone().unwrap();
        assert_eq!((whole.slots.len(), whole.slots[1279], whole.slots[1280]), (1288, 1, 2));
        // Half of the next one; a part of the old one again; then the next owner's, which has the
        // same number.
        assert_eq!(snapshots.take(&part(5, 2, 0, &first), 322, 4), None);
        assert_eq!(snapshots.take(&part(5, 1, 0, &[9; SNAPSHOT_PART_BYTES]), 322, 4), None);
        assert_eq!(snapshots.take(&part(6, 2, 1, &last), 322, 4), None);
        assert_eq!(snapshots.take(&part(5, 2, 1, &last), 322, 4), None, "the old owner's rest");
        assert_eq!(snapshots.whole, Some(whole));
        // Copied effect by effect.
        let mut copy = Snapshots::default();
        for effect in snapshots.effects(1, b"k") {
            let Effect::Snapshot(part) = effect else { panic!("{effect:?}") };
            copy.take(&part, 322, 4);
        }
        assert_eq!((&copy.whole, &copy.next), (&snapshots.whole, &snapshots.next));
    }
}
