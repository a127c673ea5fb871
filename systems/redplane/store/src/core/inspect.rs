//! What a server has, for people and tools: records page by page, and the slots of snapshots. Reads
//! only; bounded in work and size for each question.

use super::merge::Merged;
use super::records::Record;
use super::{Node, Outputs, Replica};
use serde::{Deserialize, Serialize};
use state_protocol::{Flags, Message, MessageType};
use std::net::SocketAddrV4;
use wire::{MAX_PACKET_BYTES, Malformed};

/// Most records looked at for one answer, so that a question does not hold up requests.
const MOST_LOOKED_AT: usize = 4_096;
/// Room that the answer's frame takes beside records.
const FRAME_BYTES: usize = 2_048;
/// Most bytes of slots in one answer (twice as many digits).
const MOST_SLOT_BYTES: usize = 6_144;
/// The same of merged slots: the contributions stand beside them.
const MOST_MERGED_BYTES: usize = MOST_SLOT_BYTES / 2;

/// A question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateQuery {
    /// Only this object's.
    pub object: Option<u16>,
    /// Only records that this switch owns.
    pub owner: Option<u32>,
    /// Only the record with this key, as hexadecimal digits; needs `object`.
    pub key: Option<String>,
    /// Where to go on: shard and place, from the last answer's `next`.
    pub from: (u16, u32),
    /// With `key`: the slots of its newest whole snapshot from this byte on.
    pub slots_from: Option<usize>,
    /// With `key`, of one for which several switches count: only what this switch has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contributor: Option<u32>,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateAnswer {
    /// Records, in no order.
    pub records: Vec<RecordState>,
    /// Where the next question goes on; none: that was all.
    pub next: Option<(u16, u32)>,
    /// Slots that were asked for.
    pub slots: Option<SlotBytes>,
    /// The shards that this server has whole.
    pub shards: Vec<u16>,
    /// How many shards there are.
    pub all_shards: u16,
}

/// A record as this server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordState {
    /// Its shard.
    pub shard: u16,
    /// The object's number.
    pub object: u16,
    /// Hexadecimal digits.
    pub key: String,
    /// Hexadecimal digits.
    pub value: String,
    /// The newest grant.
    pub epoch: u32,
    /// The newest update; of a snapshot's record the newest whole one.
    pub seq: u64,
    /// The switch that owns it in a session that is not over.
    pub owner: Option<u32>,
    /// That switch's incarnation.
    pub incarnation: Option<u32>,
    /// The session in which it was granted; 0: it was released.
    pub session: u32,
    /// `open`, `half_open`, `half_closed` or `closed`.
    pub phase: String,
    /// Of a SnapshotState: the newest whole snapshot.
    pub snapshot: Option<SnapshotInfo>,
    /// Of a key for which several switches count: what each of them has, in the order of their
    /// numbers. The snapshot is then all of theirs, merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contributions: Vec<Contribution>,
}

/// What one switch has counted for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// Which switch.
    pub switch: u32,
    /// The life of it that counts, or that counted last; it went on from what the one before had.
    pub incarnation: Option<u32>,
    /// Whether it may count now: it has the grant, in a session that is not over.
    pub counting: bool,
    /// Under which grant its newest whole snapshot was taken; 0: there is none.
    pub epoch: u32,
    /// That snapshot's number.
    pub seq: u64,
    /// Of which time window that is, where there are windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Whether it is in what is merged: not if others' are of a newer window.
    pub merged: bool,
}

/// Which snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The grant under which it was taken.
    pub epoch: u32,
    /// Its number.
    pub seq: u64,
    /// Bytes of a slot, big-endian.
    pub slot_bytes: usize,
    /// Bytes of all slots.
    pub bytes: usize,
}

impl RecordState {
    fn is_owned_by(&self, switch: u32) -> bool {
        let mut contributions = self.contributions.iter();
        match self.contributions.is_empty() {
            true => self.owner == Some(switch),
            false => contributions.any(|it| it.switch == switch && it.counting),
        }
    }
}

/// Some of a snapshot's slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotBytes {
    /// Of this snapshot: if it is another than the last answer's, begin again.
    pub snapshot: SnapshotInfo,
    /// Hexadecimal digits.
    pub bytes: String,
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit))
        .then(|| digits.chunks_exact(2).map(byte).collect())
        .flatten()
}

impl Replica {
    /// Of a key for which several switches count, one state for all of them.
    fn merged_state(&self, object: usize, merged: &Merged) -> Option<RecordState> {
        let records = self.chain.state();
        let by = records.merging(object)?;
        let window = by.window(&merged.slots);
        let newest = merged.contributions.values().max_by_key(|slot| records.get(**slot).epoch)?;
        let contribution = |(switch, slot): (&u32, &u32)| {
            let record = records.get(*slot);
            let whole = record.snapshots.as_ref().and_then(|it| it.whole.as_ref());
            let of = whole.map(|whole| by.window(&whole.slots));
            Contribution {
                switch: *switch,
                incarnation: record.owner.map(|owner| owner.incarnation),
                counting: records.is_owned(record),
                epoch: whole.map_or(0, |whole| whole.epoch),
                seq: whole.map_or(0, |whole| whole.seq),
                window: of.filter(|_| by.settings.window_bits.is_some()),
                merged: of == Some(window),
            }
        };
        let contributions: Vec<_> = merged.contributions.iter().map(contribution).collect();
        let record = records.get(*newest);
        let key = records.settings(object).message_key(record.key.as_slice());
        let snapshot = self.merged_info(object, merged);
        Some(RecordState {
            key: to_hex(key),
            seq: snapshot.map_or(0, |snapshot| snapshot.seq),
            snapshot,
            contributions,
            ..self.record_state(record)
        })
    }

    /// Epochs of grants and numbers of snapshots only grow, so the largest epoch and the sum of the
    /// numbers tell one state of the merged slots from another.
    fn merged_info(&self, object: usize, merged: &Merged) -> Option<SnapshotInfo> {
        let records = self.chain.state();
        let slot_bytes = records.merging(object)?.slot_bytes;
        let wholes = merged.contributions.values().filter_map(|slot| {
            let whole = records.get(*slot).snapshots.as_ref()?.whole.as_ref()?;
            Some((whole.epoch, whole.seq))
        });
        let (epoch, seq) = wholes
            .fold((0, 0u64), |(epoch, seq), (of, more)| (of.max(epoch), seq.wrapping_add(more)));
        let bytes = merged.slots.len();
        (bytes > 0).then_some(SnapshotInfo { epoch, seq, slot_bytes, bytes })
    }

    fn record_state(&self, record: &Record) -> RecordState {
        let owner = record.owner.filter(|_| self.chain.state().is_owned(record));
        let phase = match () {
            () if record.phase.contains(Flags::CLOSED) => "closed",
            () if record.phase.contains(Flags::HALF_CLOSED) => "half_closed",
            () if record.phase.contains(Flags::HALF_OPEN) => "half_open",
            () => "open",
        };
        RecordState {
            shard: self.settings.shard,
            object: self.chain.state().settings(record.object).id,
            key: to_hex(record.key.as_slice()),
            value: to_hex(record.value.as_slice()),
            epoch: record.epoch,
            seq: record.seq,
            owner: owner.map(|owner| owner.switch_id),
            incarnation: owner.map(|owner| owner.incarnation),
            session: record.session,
            phase: phase.to_owned(),
            snapshot: self.snapshot_info(record),
            contributions: vec![],
        }
    }

    /// The state that a page has of the record in a slot: of several contributions the first one's
    /// place has that of all.
    fn state_at(&self, slot: u32) -> Option<RecordState> {
        let record = self.chain.state().at(slot)?;
        let contributions = self.chain.state().contributions(slot);
        match contributions.iter().min() {
            None => Some(self.record_state(record)),
            Some(first) if *first == slot => {
                let settings = self.chain.state().settings(record.object);
                let key = settings.message_key(record.key.as_slice());
                self.merged_state(record.object, self.chain.state().merged(record.object, key)?)
            }
            Some(_) => None,
        }
    }

    fn snapshot_info(&self, record: &Record) -> Option<SnapshotInfo> {
        let (_, slot_bytes) = self.snapshot_shape(record.object)?;
        let whole = record.snapshots.as_ref()?.whole.as_ref()?;
        Some(SnapshotInfo {
            epoch: whole.epoch,
            seq: whole.seq,
            slot_bytes,
            bytes: whole.slots.len(),
        })
    }

    /// The same of what is merged.
    fn merged_slots(&self, object: usize, merged: &Merged, from: usize) -> Option<SlotBytes> {
        let until = from.saturating_add(MOST_MERGED_BYTES).min(merged.slots.len());
        let bytes = to_hex(merged.slots.get(from..until)?);
        Some(SlotBytes { snapshot: self.merged_info(object, merged)?, bytes })
    }

    /// A snapshot's slots from byte `from` on, as many as fit an answer.
    fn slots_of(&self, record: &Record, from: usize) -> Option<SlotBytes> {
        let snapshot = self.snapshot_info(record)?;
        let slots = &record.snapshots.as_ref()?.whole.as_ref()?.slots;
        let until = from.saturating_add(MOST_SLOT_BYTES).min(slots.len());
        Some(SlotBytes { snapshot, bytes: to_hex(slots.get(from..until)?) })
    }
}

impl Node {
    /// What this server has of what is asked.
    pub fn inspect(&self, query: &StateQuery) -> StateAnswer {
        let synced = self.replicas().filter(|replica| replica.chain.is_synced());
        let shards = synced.map(|replica| replica.settings.shard).collect();
        let mut answer =
            StateAnswer { shards, all_shards: self.settings().shards, ..StateAnswer::default() };
        match (&query.key, query.object) {
            (Some(key), Some(object)) => self.look_up(key, object, query, &mut answer),
            (Some(_), None) => {}
            (None, _) => self.page(query, &mut answer),
        }
        answer
    }

    fn look_up(&self, key: &str, object: u16, query: &StateQuery, answer: &mut StateAnswer) {
        let slots_from = query.slots_from;
        let Some(key) = from_hex(key) else { return };
        let settings = self.settings();
        let Some(of_object) = settings.objects.iter().find(|it| it.id == object) else { return };
        let shard = of_object.shard_of(&key, settings.shards);
        let Some(replica) = self.replica(shard).filter(|replica| replica.chain.is_synced()) else {
            return;
        };
        let Some(object) = replica.chain.state().object(object) else { return };
        let merged = replica.chain.state().merged(object, &key);
        if let (Some(merged), None) = (merged, query.contributor) {
            answer.records.extend(replica.merged_state(object, merged));
            answer.slots = slots_from.and_then(|from| replica.merged_slots(object, merged, from));
            return;
        }
        let found = match query.contributor {
            None => replica.chain.state().find(object, &key),
            Some(switch) => merged.and_then(|it| it.contributions.get(&switch).copied()),
        };
        let Some(record) = found.map(|slot| replica.chain.state().get(slot)) else { return };
        answer.records.push(replica.record_state(record));
        answer.slots = slots_from.and_then(|from| replica.slots_of(record, from));
    }

    fn page(&self, query: &StateQuery, answer: &mut StateAnswer) {
        let mut room = MAX_PACKET_BYTES - FRAME_BYTES;
        let mut looked_at = 0;
        let (first, mut place) = query.from;
        for shard in first..self.settings().shards {
            let Some(replica) = self.replica(shard).filter(|replica| replica.chain.is_synced())
            else {
                place = 0;
                continue;
            };
            while place < replica.chain.state().slots() {
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT {
                    answer.next = Some((shard, place));
                    return;
                }
                let asked = |state: &RecordState| {
                    query.object.is_none_or(|object| object == state.object)
                        && query.owner.is_none_or(|owner| state.is_owned_by(owner))
                };
                if let Some(state) = replica.state_at(place).filter(asked) {
                    let bytes = serde_json::to_vec(&state).map_or(0, |json| json.len() + 1);
                    if bytes > room {
                        answer.next = Some((shard, place));
                        return;
                    }
                    room -= bytes;
                    answer.records.push(state);
                }
                place += 1;
            }
            place = 0;
        }
    }

    pub(super) fn answer_state(&mut self, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let request = match Message::decode(bytes) {
            Ok(request) => request,
            Err(reason) => return self.count().count_malformed(reason),
        };
        let Ok(query) = serde_json::from_slice(request.packet) else {
            return self.count().count_malformed(Malformed::UnexpectedPacket);
        };
        self.count().state_requests += 1;
        self.process.enter_all();
        let json = serde_json::to_vec(&self.inspect(&query)).unwrap_or_default();
        let reply = Message { message_type: MessageType::StateReply, packet: &json, ..request };
        let mut encoded = Vec::new();
        // Cannot fail: the JSON is within bounds, see `page` and `slots_of`.
        if reply.append_to(&mut encoded).is_ok() {
            out.push(from, &encoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshots::MOST_CONTRIBUTIONS;
    use super::*;

    #[test]
    fn digits_and_bytes() {
        assert_eq!(from_hex("00ff1a"), Some(vec![0, 255, 26]));
        assert_eq!(to_hex(&[0, 255, 26]), "00ff1a");
        for wrong in ["0", "0g", "+1", "é"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }

    /// Many shards: the list of those that are here must fit beside the records.
    #[test]
    fn the_frame_has_room() {
        let answer = StateAnswer {
            next: Some((u16::MAX, u32::MAX)),
            shards: (0..256).collect(),
            all_shards: 256,
            ..StateAnswer::default()
        };
        assert!(serde_json::to_vec(&answer).expect("JSON").len() <= FRAME_BYTES);
    }

    /// A key of the longest, with the most contributions, is one answer together with slots.
    #[test]
    fn contributions_have_room_beside_slots() {
        let contribution = Contribution {
            switch: u32::MAX,
            incarnation: Some(u32::MAX),
            counting: false,
            epoch: u32::MAX,
            seq: u64::MAX,
            window: Some(u64::MAX),
            merged: false,
        };
        let snapshot =
            SnapshotInfo { epoch: u32::MAX, seq: u64::MAX, slot_bytes: 4, bytes: 65_536 };
        let record = RecordState {
            shard: u16::MAX,
            object: u16::MAX,
            key: "ff".repeat(64),
            value: "ff".repeat(4),
            epoch: u32::MAX,
            seq: u64::MAX,
            owner: Some(u32::MAX),
            incarnation: Some(u32::MAX),
            session: u32::MAX,
            phase: "half_closed".to_owned(),
            snapshot: Some(snapshot),
            contributions: vec![contribution; MOST_CONTRIBUTIONS],
        };
        let slots = Some(SlotBytes { snapshot, bytes: "ff".repeat(MOST_MERGED_BYTES) });
        let answer = StateAnswer { records: vec![record], slots, ..StateAnswer::default() };
        let bytes = serde_json::to_vec(&answer).expect("JSON").len();
        assert!(bytes <= MAX_PACKET_BYTES - FRAME_BYTES, "{bytes}");
    }
}
