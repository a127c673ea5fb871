//! Batches: updates of many records in one message, one effect and one answer.
//! `systems/redplane/docs/state-protocol.md`, "Rules of the store", 11.

use super::records::{Record, Records};
use super::request::Heard;
use super::settings::AllocatorSettings;
use super::{Counters, Mutation, Outputs, Replica, mutation};
use chain::{DoesNotApply, NOBODY};
use state_protocol::{
    BatchWrite, Effect, Owner, RecordWrite, phase_of, record_flags_of, sender_of,
};
use std::net::SocketAddrV4;
use wire::{
    Batch, BatchAck, BatchHead, BatchRecord, BatchRecords, BatchType, MOST_RECORDS, RecordFlags,
};

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is newer than what is recorded.
    New,
    /// It, or a newer one, is recorded.
    Known,
    /// The same, and its owner is in another session now.
    KnownBefore,
    /// The same, and its owner released it since. Another one may have it by now.
    Released,
    /// Not the owner's, or not under the current epoch.
    Refused,
}

/// What the head knows of a record of a batch.
#[derive(Clone, Copy)]
struct Part {
    /// Where its key's record is, if there is one.
    slot: Option<u32>,
    epoch: u32,
    verdict: Verdict,
}

/// Memory for the batch that is being decided, used again for the next.
#[derive(Default)]
pub(super) struct Deciding {
    parts: Vec<Part>,
    /// What is to be written, as the effect carries it.
    records: Vec<u8>,
    /// Records and grants whose update is refused only because its group is.
    spoilt: Vec<(u32, u32)>,
    /// Records of those of them that hold nothing as new: their grants end.
    ended: Vec<u32>,
}

impl Replica {
    /// Takes a genuine message that any system may have.
    pub(super) fn batch_message(
        &mut self,
        now_ns: u64,
        client: SocketAddrV4,
        batch_type: BatchType,
        datagram: &[u8],
        out: &mut Outputs,
    ) {
        let batch = match batch_type {
            BatchType::Batch => Batch::decode(datagram).map(Some),
            BatchType::BatchAck => BatchAck::decode(datagram).map(|_| None),
        };
        match batch {
            Ok(Some(batch)) if batch.head.view != 0 => {
                self.passed_batch(client, &batch, datagram, out)
            }
            Ok(Some(batch)) => self.batch(now_ns, client, &batch, wire::tag_of(datagram), out),
            Ok(None) => self.counters.dropped_wrong_direction += 1,
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    fn batch(
        &mut self,
        now_ns: u64,
        client: SocketAddrV4,
        batch: &Batch<'_>,
        tag: u64,
        out: &mut Outputs,
    ) {
        // For somebody else's switch.
        if batch.head.client != *client.ip() {
            self.counters.dropped_wrong_direction += 1;
            return;
        }
        if !self.takes_requests(now_ns, batch.head.shard) {
            return;
        }
        self.counters.requests += 1;
        let (sender, request_ns) = (sender_of(&batch.head), batch.head.request_ns);
        let heard = Heard { received_ns: now_ns, client, sender, request_ns };
        let Some((session, _)) = self.hear(heard, Some(tag), out) else { return };
        self.counters.batches += 1;
        self.find_all(batch);
        self.judge(batch, sender, session);
        let refused = self.refuse_groups(batch);
        self.end_spoilt_grants(now_ns, out);
        self.gather(batch);
        let told = if mutation::planted(Mutation::RefusedNotTold) { 0 } else { refused };
        let (head, count) = (BatchHead { session, ..batch.head }, batch.records().count_left());
        self.reply.clear();
        // At most 64.
        BatchAck { head, count: count as u16, refused: told }.append_to(&mut self.reply);
        // Also if there is nothing to write: the entry orders the answer behind all before it.
        let records = BatchRecords::check(&self.deciding.records);
        let effect = records.map_or(Effect::None, |records| {
            Effect::Batch(BatchWrite { owner: sender, session, records })
        });
        self.chain.order(effect, client, &self.reply, out);
        self.take_up_readers(now_ns, out);
        self.take_up_for_ended(now_ns, out);
    }

    /// Finds the records of a batch. One that no batch may have is counted, and has no slot, so it
    /// is refused. Without an answer all later batches of its stream would wait for ever.
    fn find_all(&mut self, batch: &Batch<'_>) {
        self.deciding.parts.clear();
        for record in batch.records() {
            let slot = match self.find_in_batch(&record) {
                Ok(slot) => slot,
                Err(reason) => {
                    *reason(&mut self.counters) += 1;
                    None
                }
            };
            self.deciding.parts.push(Part { slot, epoch: record.epoch, verdict: Verdict::Refused });
        }
    }

    /// Where the key of a record of a batch has its record, if it has one. An error names the
    /// counter of what no batch may have.
    fn find_in_batch(
        &self,
        record: &BatchRecord<'_>,
    ) -> Result<Option<u32>, fn(&mut Counters) -> &mut u64> {
        let (shard, shards) = (self.settings.shard, self.settings.shards);
        let records = self.chain.state();
        let Some(object) = records.object(record.object_id) else {
            return Err(|counters| &mut counters.dropped_unknown_object);
        };
        let settings = records.settings(object);
        let flows = !matches!(settings.allocator, AllocatorSettings::Snapshot { .. });
        let Some((key, _)) = records.key_and_value(object, record).filter(|_| flows) else {
            return Err(|counters| &mut counters.dropped_wrong_size);
        };
        if shards > 1 && settings.shard_of(key, shards) != shard {
            return Err(|counters| &mut counters.dropped_not_head);
        }
        Ok(records.find(object, key))
    }

    /// Each record by itself, as if it came in an UPDATE.
    fn judge(&mut self, batch: &Batch<'_>, sender: Owner, session: u32) {
        let records = self.chain.state();
        for (part, update) in self.deciding.parts.iter_mut().zip(batch.records()) {
            let known = part.slot.map(|slot| records.get(slot));
            part.verdict =
                known.map_or(Verdict::Refused, |known| verdict(known, &update, sender, session));
        }
    }

    /// Refuses all of a group if one of it is refused, and what follows in the batch on what was
    /// refused so. What is recorded already is not refused: it came with its whole group. Returns
    /// the bits of all that is refused.
    fn refuse_groups(&mut self, batch: &Batch<'_>) -> u64 {
        let Deciding { parts, spoilt, ended, .. } = &mut self.deciding;
        spoilt.clear();
        ended.clear();
        let (mut refused, mut first) = (0, 0);
        for (last, record) in batch.records().enumerate() {
            if record.flags.contains(RecordFlags::GROUP) {
                continue;
            }
            let group = &mut parts[first..=last];
            let spoils = |part: &Part| {
                part.verdict == Verdict::Refused
                    || part.slot.is_some_and(|slot| spoilt.contains(&(slot, part.epoch)))
            };
            if group.iter().any(spoils) {
                for (at, part) in (first..).zip(group) {
                    if !matches!(part.verdict, Verdict::New | Verdict::Refused) {
                        continue;
                    }
                    refused |= 1 << at;
                    if let Some(slot) = part.slot.filter(|_| part.verdict == Verdict::New) {
                        spoilt.push((slot, part.epoch));
                        ended.push(slot);
                    }
                    if !mutation::planted(Mutation::HalfOfGroup) {
                        part.verdict = Verdict::Refused;
                    }
                }
            }
            first = last + 1;
        }
        ended.sort_unstable();
        ended.dedup();
        refused
    }

    /// Ends the grants of what is refused only for its group. Else a later batch, or a release,
    /// could bring its half of the group. (Its switch shows nothing of it meanwhile: it waits for
    /// the answer.)
    fn end_spoilt_grants(&mut self, now_ns: u64, out: &mut Outputs) {
        for at in 0..self.deciding.ended.len() {
            let slot = self.deciding.ended[at];
            let record = self.chain.state().get(slot);
            let (key, value, object) = (record.key.clone(), record.value.clone(), record.object);
            let released = (record.epoch, record.seq);
            let write = RecordWrite {
                object_id: self.chain.state().settings(object).id,
                epoch: record.epoch,
                seq: record.seq,
                owner: None,
                session: 0,
                phase: record.phase,
                key: key.as_slice(),
                value: value.as_slice(),
            };
            self.reply.clear();
            self.commit(&Effect::Write(write), NOBODY, out);
            let record = self.chain.state_mut().get_mut(slot);
            (record.released, record.unused_since_ns) = (released, now_ns.max(1));
            self.counters.grants_ended += 1;
            self.end_recall(slot);
        }
    }

    /// Others may have waited for flows whose grants ended.
    fn take_up_for_ended(&mut self, now_ns: u64, out: &mut Outputs) {
        for slot in std::mem::take(&mut self.deciding.ended) {
            if self.waiting.concerns(slot) {
                self.take_up_again(now_ns, slot, out);
            }
        }
    }

    /// Gathers what is to be written, counts, and notes what the head alone knows of the records.
    fn gather(&mut self, batch: &Batch<'_>) {
        let is_everywhere = mutation::planted(Mutation::FastUpdateIsEverywhere);
        let Deciding { parts, records, .. } = &mut self.deciding;
        records.clear();
        for (part, update) in parts.iter().zip(batch.records()) {
            let (counter, Some(slot)) = (
                match part.verdict {
                    Verdict::New => &mut self.counters.updates,
                    Verdict::Refused => &mut self.counters.refused,
                    _ => &mut self.counters.updates_stale,
                },
                part.slot,
            ) else {
                self.counters.refused += 1;
                continue;
            };
            *counter += 1;
            let known = self.chain.state_mut().get_mut(slot);
            if !matches!(part.verdict, Verdict::Refused | Verdict::Released) {
                (known.held_epoch, known.unused_since_ns) = (part.epoch, 0);
            }
            match part.verdict {
                Verdict::New => {
                    let flags = record_flags_of(phase_of(update.flags));
                    BatchRecord { flags, ..update }.append_as_it_is(records);
                }
                // By the fast path it may have come here, or to whoever was before, and to no other
                // member.
                Verdict::Known if is_everywhere => {}
                Verdict::Known | Verdict::KnownBefore => {
                    let flags = record_flags_of(known.phase);
                    let newest = BatchRecord { flags, seq: known.seq, ..update };
                    // Cannot fail: a record of these lengths was in the batch.
                    let _ = newest.append_to(known.key.as_slice(), known.value.as_slice(), records);
                }
                Verdict::Released | Verdict::Refused => {}
            }
        }
    }

    /// READ_COMMITs may have waited for what was written.
    fn take_up_readers(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.waiting.len() == 0 {
            return;
        }
        let written = self.deciding.parts.iter().filter(|part| part.verdict == Verdict::New);
        let slots: Vec<u32> = written.filter_map(|part| part.slot).collect();
        for slot in slots {
            if self.waiting.len_of(slot) > self.waiting.wanted(slot) {
                self.take_up_again(now_ns, slot, out);
            }
        }
    }
}

fn verdict(known: &Record, update: &BatchRecord<'_>, sender: Owner, session: u32) -> Verdict {
    if mutation::planted(Mutation::BatchOfOldEpoch) && update.seq > known.seq {
        return Verdict::New;
    }
    let (epoch, seq) = known.released;
    // If so, the next owner began with this update.
    let was_released = epoch == update.epoch && update.seq <= seq;
    match known.owner {
        _ if known.epoch != update.epoch && was_released => Verdict::Released,
        _ if known.epoch != update.epoch => Verdict::Refused,
        Some(owner) if owner != sender => Verdict::Refused,
        Some(_) if update.seq > known.seq => Verdict::New,
        Some(_) if known.session == session => Verdict::Known,
        Some(_) => Verdict::KnownBefore,
        // Nobody else had this epoch.
        None if update.seq <= known.seq => Verdict::Released,
        None => Verdict::Refused,
    }
}

impl Records {
    /// Key and value of a record in a batch; `None`: they are not as long as the object's.
    pub(super) fn key_and_value<'a>(
        &self,
        object: usize,
        record: &BatchRecord<'a>,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let settings = self.settings(object);
        record.key_and_value(settings.key_bytes, settings.value_bytes)
    }

    /// Where each record of a batch belongs. An object or key that is not here: `None`.
    pub(super) fn places<'a>(
        &self,
        batch: &BatchWrite<'a>,
    ) -> impl Iterator<Item = Option<(u32, &'a [u8], BatchRecord<'a>)>> {
        batch.records.map(|record| {
            let object = self.object(record.object_id)?;
            let (key, value) = self.key_and_value(object, &record)?;
            Some((self.find(object, key)?, value, record))
        })
    }

    /// Writes all records of a batch, or none if one of them is not here.
    pub(super) fn write_batch(&mut self, batch: &BatchWrite<'_>) -> Result<(), DoesNotApply> {
        const NOWHERE: (u32, &[u8]) = (0, &[]);
        let mut places = [NOWHERE; MOST_RECORDS];
        for (place, found) in places.iter_mut().zip(self.places(batch)) {
            let (slot, value, _) = found.ok_or(DoesNotApply)?;
            *place = (slot, value);
        }
        for ((slot, value), update) in places.into_iter().zip(batch.records) {
            let record = self.get_mut(slot);
            (record.owner, record.session) = (Some(batch.owner), batch.session);
            // Two updates of a key may come in any order.
            if update.epoch == record.epoch && update.seq < record.seq {
                continue;
            }
            record.value.set(value);
            (record.epoch, record.seq) = (update.epoch, update.seq);
            record.phase = phase_of(update.flags);
        }
        Ok(())
    }
}
