//! Catching up: the tail copies its records to a server that joins, while it goes on serving.
//!
//! A copy is a stream of effects, each complete in itself: the sweep gives every record once, and
//! whatever an entry touches meanwhile is given again (of a record's snapshots, which are long and
//! always change, only the new parts). When the sweep is through and nothing touched is left, the
//! handover ends the stream, and from that instant on the tail answers no more by itself: entries
//! go on to the joining server as to any successor, and that one answers. So when it says that it
//! is whole it has everything that was ever acknowledged, whoever dies next, and the controller may
//! count on it.

use super::blob::Blob;
use super::idle::NOBODY;
use super::mutation::{self, Mutation};
use super::output::Outputs;
use super::records::{self, Records};
use super::{Replica, Settings};
use state_protocol::{Effect, Entries, Entry, SnapshotPart};
use std::collections::{HashSet, VecDeque};
use wire::{CHAIN_HEADER_BYTES, ChainFlags, ChainHeader, ChainType, Handover, Malformed, Member};

/// Copy messages under way without a receipt.
const WINDOW: usize = 64;
/// Copy messages made in one go, so that requests do not wait for long.
const BATCH: usize = 16;
const MOST_BACK_OFF: u64 = 16;
/// The longest effect of a session or floor, with room to spare.
const MOST_ENTRY_BYTES: usize = 560;
/// Keys waiting to be copied again; more, and the joining server does not keep up: the copy ends,
/// and the controller begins another.
const MOST_TOUCHED: usize = 1 << 20;

/// What an entry touched: an object's position, a key, and, if only a part of a snapshot is new,
/// which: epoch, number and part.
type Touched = (usize, Blob, Option<(u32, u64, u16)>);

/// The tail's side.
pub(crate) struct CopyOut {
    pub peer: Member,
    /// Number of the view in which the joining began.
    pub since: u64,
    /// The handover is in the stream: entries go to the joining server, and it answers.
    pub handed_over: bool,
    /// The last entry that the copy has the effect of: it must be durable here before the joining
    /// server is told that it is whole.
    handover_index: u64,
    abandoned: bool,
    /// The next slot of the sweep.
    cursor: u32,
    /// What entries touched and the stream does not have yet.
    touched: VecDeque<Touched>,
    in_touched: HashSet<Touched>,
    /// Encoded effects that are to go into the stream before anything else.
    ready: VecDeque<Vec<u8>>,
    /// Messages without a receipt, from number `first` on: flags, how many effects, and their
    /// bytes.
    stream: VecDeque<(ChainFlags, u16, Vec<u8>)>,
    first: u64,
    next_send: u64,
    resend_at_ns: Option<u64>,
    back_off: u64,
}

impl CopyOut {
    pub fn new(peer: Member, since: u64) -> CopyOut {
        CopyOut {
            peer,
            since,
            handed_over: false,
            handover_index: 0,
            abandoned: false,
            cursor: 0,
            touched: VecDeque::new(),
            in_touched: HashSet::new(),
            ready: VecDeque::new(),
            stream: VecDeque::new(),
            first: 1,
            next_send: 1,
            resend_at_ns: None,
            back_off: 1,
        }
    }

    /// One that may have handed over in an earlier life of this server, and does nothing else.
    pub fn handed_over_to(peer: Member, since: u64) -> CopyOut {
        CopyOut { handed_over: true, ..CopyOut::new(peer, since) }
    }

    /// Copy messages that the joining server has.
    pub fn copied(&self) -> u64 {
        self.first - 1
    }

    /// Whether the joining server has the whole stream.
    pub fn is_complete(&self) -> bool {
        self.handed_over && self.stream.is_empty()
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.resend_at_ns
    }

    /// Notes what `effect` is about to touch; `records` are those before it.
    pub fn note(&mut self, records: &Records, effect: &Effect<'_>) {
        let (object_id, key) = match effect {
            Effect::Write(write) => (write.object_id, write.key),
            Effect::Pair { first, second } => {
                self.note_key(records, second.object_id, second.key);
                (first.object_id, first.key)
            }
            Effect::Free { object_id, key, .. } => (*object_id, *key),
            Effect::Snapshot(part) => return self.note_part(records, part),
            // All sessions and floors go with the handover.
            Effect::None
            | Effect::SessionBegin { .. }
            | Effect::SessionEnd { .. }
            | Effect::Floor { .. } => return,
        };
        self.note_key(records, object_id, key);
    }

    fn note_key(&mut self, records: &Records, object_id: u16, key: &[u8]) {
        let Some(object) = records.object(object_id) else { return };
        // A pair that is removed leaves two keys without a record.
        let slot = records.find(object, key);
        if let Some(pair) = slot.and_then(|slot| records.get(slot).pair) {
            self.touch((object, records.get(pair).key.clone(), None));
        }
        self.touch((object, Blob::new(key), None));
    }

    /// A part of a snapshot is about to come. The sweep brings it, if it is not there yet; and so
    /// does the record, if it is to be copied again.
    fn note_part(&mut self, records: &Records, part: &SnapshotPart<'_>) {
        let Some(object) = records.object(part.object_id) else { return };
        let swept = records.find(object, part.key).is_some_and(|slot| slot < self.cursor);
        let whole: Touched = (object, Blob::new(part.key), None);
        if swept && !self.in_touched.contains(&whole) {
            self.touch((whole.0, whole.1, Some((part.epoch, part.seq, part.part))));
        }
    }

    fn touch(&mut self, key: Touched) {
        if self.touched.len() >= MOST_TOUCHED {
            self.abandoned = true;
            (self.touched, self.in_touched) = (VecDeque::new(), HashSet::new());
        }
        if !self.abandoned && !self.handed_over && !self.in_touched.contains(&key) {
            self.in_touched.insert(key.clone());
            self.touched.push_back(key);
        }
    }

    /// Makes messages while the window has room; hands over when nothing is left to copy.
    fn fill(&mut self, records: &Records, index: u64, most_bytes: usize) {
        for _ in 0..BATCH {
            if self.handed_over || self.abandoned || self.stream.len() >= WINDOW {
                return;
            }
            let (mut count, mut bytes) = (0, Vec::new());
            while !self.ready.is_empty() || self.describe_next(records) {
                let fits = |effect: &Vec<u8>| {
                    count == 0
                        || CHAIN_HEADER_BYTES + bytes.len() + effect.len() <= most_bytes
                            && count < u16::MAX
                };
                if !self.ready.front().is_some_and(fits) {
                    break;
                }
                let Some(effect) = self.ready.pop_front() else { break };
                bytes.extend_from_slice(&effect);
                count += 1;
            }
            if count > 0 {
                self.stream.push_back((ChainFlags::NONE, count, bytes));
            } else {
                self.hand_over(records, index, most_bytes);
            }
        }
    }

    /// Makes the next effects of the copy ready; `false`: nothing is left.
    fn describe_next(&mut self, records: &Records) -> bool {
        while let Some(touched) = self.touched.pop_front() {
            self.in_touched.remove(&touched);
            let (object, key, part) = (touched.0, touched.1.as_slice(), touched.2);
            match part {
                None => self.describe_key(records, object, key),
                Some(part) => self.describe_part(records, object, key, part),
            }
            if !self.ready.is_empty() {
                return true;
            }
        }
        while self.cursor < records.slots() {
            self.cursor += 1;
            self.describe_slot(records, self.cursor - 1);
            if !self.ready.is_empty() {
                return true;
            }
        }
        false
    }

    fn describe_slot(&mut self, records: &Records, slot: u32) {
        let effects = records.record_effect(slot).into_iter().chain(records.snapshot_effects(slot));
        effects.for_each(|effect| self.make_ready(effect));
    }

    fn describe_key(&mut self, records: &Records, object: usize, key: &[u8]) {
        let object_id = records.settings(object).id;
        // Whatever the copy has of it, or of what it was linked with, goes first.
        let free = |key| Effect::Free { object_id, key, floor: 0 };
        self.make_ready(free(key));
        let Some(slot) = records.find(object, key) else { return };
        let pair = records.get(slot).pair;
        if let Some(pair) = pair {
            self.make_ready(free(records.get(pair).key.as_slice()));
        }
        // One of a pair describes both.
        [Some(slot), pair].into_iter().flatten().for_each(|slot| self.describe_slot(records, slot));
    }

    /// The part itself, if it is still there. If not, all parts of a newer snapshot follow, or the
    /// record is gone.
    fn describe_part(
        &mut self,
        records: &Records,
        object: usize,
        key: &[u8],
        (epoch, seq, number): (u32, u64, u16),
    ) {
        let Some(slot) = records.find(object, key) else { return };
        let same = |effect: &Effect<'_>| match effect {
            Effect::Snapshot(part) => (part.epoch, part.seq, part.part) == (epoch, seq, number),
            _ => false,
        };
        let effects = records
            .record_effect(slot)
            .into_iter()
            .chain(records.snapshot_effects(slot).find(same));
        effects.for_each(|effect| self.make_ready(effect));
    }

    fn make_ready(&mut self, effect: Effect<'_>) {
        let mut bytes = Vec::new();
        if append(&mut bytes, effect) > 0 {
            self.ready.push_back(bytes);
        }
    }

    fn hand_over(&mut self, records: &Records, index: u64, most_bytes: usize) {
        let (mut count, mut bytes) = (0, Vec::new());
        let sessions =
            records.session_effects().filter(|_| !mutation::is(Mutation::CopyWithoutSessions));
        for effect in std::iter::once(Effect::Floor { floor: records.floor() }).chain(sessions) {
            if CHAIN_HEADER_BYTES + bytes.len() + MOST_ENTRY_BYTES > most_bytes {
                self.stream.push_back((ChainFlags::NONE, count, std::mem::take(&mut bytes)));
                count = 0;
            }
            count += append(&mut bytes, effect);
        }
        self.stream.push_back((ChainFlags::NONE, count, bytes));
        self.stream.push_back((ChainFlags::DONE, 0, Handover { index }.encode().to_vec()));
        (self.handed_over, self.handover_index) = (true, index);
    }

    fn acknowledge(&mut self, now_ns: u64, received: u64, gap: bool, resend_ns: u64) {
        let received = received.min(self.next_send - 1);
        if received >= self.first {
            let count = (received + 1 - self.first) as usize;
            self.stream.drain(..count.min(self.stream.len()));
            self.first = received + 1;
            self.back_off = 1;
            self.resend_at_ns = (self.next_send > self.first).then_some(now_ns + resend_ns);
        } else if gap && self.resend_at_ns.is_some_and(|at| at < now_ns + resend_ns / 2) {
            (self.next_send, self.resend_at_ns) = (self.first, None);
        }
    }

    fn resend_if_due(&mut self, now_ns: u64) {
        if self.resend_at_ns.is_some_and(|at| at <= now_ns) {
            self.back_off = (self.back_off * 2).min(MOST_BACK_OFF);
            (self.next_send, self.resend_at_ns) = (self.first, None);
        }
    }

    fn send(
        &mut self,
        now_ns: u64,
        header: ChainHeader,
        durable: u64,
        settings: &Settings,
        out: &mut Outputs,
    ) {
        let before = self.next_send;
        while let Some((flags, count, bytes)) =
            self.stream.get((self.next_send - self.first) as usize)
        {
            if flags.contains(ChainFlags::DONE) && durable < self.handover_index {
                break;
            }
            let header =
                ChainHeader { index: self.next_send, flags: *flags, count: *count, ..header };
            out.push_with(self.peer.address, |arena| {
                arena.extend_from_slice(&header.encode());
                arena.extend_from_slice(bytes);
            });
            self.next_send += 1;
        }
        if self.next_send > before && self.resend_at_ns.is_none() {
            self.resend_at_ns = Some(now_ns + settings.resend_ns * self.back_off);
        }
    }
}

/// Appends an effect without a reply; how many: 1, but for one that cannot be encoded, which
/// records do not give.
fn append(bytes: &mut Vec<u8>, effect: Effect<'_>) -> u16 {
    u16::from(Entry { effect, client: NOBODY, reply: &[] }.append_to(bytes).is_ok())
}

/// The joining server's side.
pub(crate) struct CopyIn {
    /// Number of the view in which the joining began.
    pub since: u64,
    /// The next message to take.
    pub next: u64,
    pub ack_due: bool,
    pub gap: bool,
}

impl CopyIn {
    pub fn new(since: u64) -> CopyIn {
        CopyIn { since, next: 1, ack_due: false, gap: false }
    }
}

impl Replica {
    /// Takes part of a copy, in order only.
    pub(super) fn copy_message(&mut self, header: &ChainHeader, bytes: &[u8]) {
        let mismatch = header.config_digest != self.config_digest;
        let Some(copy) =
            self.copy_in.as_mut().filter(|copy| copy.since == header.committed && !mismatch)
        else {
            self.counters.chain_other_view += 1;
            return;
        };
        copy.ack_due = true;
        if header.index != copy.next {
            copy.gap = header.index > copy.next;
            return;
        }
        let done = header.flags.contains(ChainFlags::DONE);
        let taken =
            if done { self.take_handover(header, bytes) } else { self.take_copied(header, bytes) };
        match taken {
            Ok(()) => {
                if let Some(copy) = &mut self.copy_in {
                    copy.next += 1;
                }
            }
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    fn take_copied(&mut self, header: &ChainHeader, bytes: &[u8]) -> Result<(), Malformed> {
        for (entry, own_bytes) in Entries::decode(header, bytes)? {
            // Objects of other sizes would be another configuration, which the digest shows.
            self.records
                .apply(&entry.effect)
                .map_err(|records::DoesNotApply| Malformed::ChainEntry)?;
            self.counters.copied += 1;
            self.journal_copied(own_bytes);
        }
        Ok(())
    }

    fn take_handover(&mut self, header: &ChainHeader, bytes: &[u8]) -> Result<(), Malformed> {
        let Handover { index } = Handover::decode(header, bytes)?;
        (self.index, self.committed, self.whole) = (index, index, true);
        self.log = super::log::Log::new(index + 1);
        self.journal_whole();
        Ok(())
    }

    pub(super) fn copy_ack(&mut self, now_ns: u64, header: &ChainHeader) {
        let resend_ns = self.settings.resend_ns;
        if let Some(copy) = self.copy_out.as_mut().filter(|copy| copy.since == header.committed) {
            copy.acknowledge(
                now_ns,
                header.index,
                header.flags.contains(ChainFlags::GAP),
                resend_ns,
            );
        }
    }

    pub(super) fn copy_timer(&mut self, now_ns: u64) {
        if let Some(copy) = &mut self.copy_out {
            copy.resend_if_due(now_ns);
        }
    }

    /// Sends what a batch of inputs left to copy, and receipts for what was copied here.
    pub(super) fn send_copy(&mut self, now_ns: u64, header: ChainHeader, out: &mut Outputs) {
        let durable = self.durable();
        if let Some(copy) = &mut self.copy_out {
            let handed_over = copy.handed_over;
            copy.fill(&self.records, self.index, self.settings.chain_datagram_bytes);
            if copy.handed_over && !handed_over {
                // From here on it is the successor like any other; what is in the log it gets as
                // entries.
                self.down = Some(super::link::Downstream::new(copy.peer, now_ns));
            }
            let (receiver, committed) = (copy.peer.incarnation, copy.since);
            let header = ChainHeader { chain_type: ChainType::Copy, receiver, committed, ..header };
            copy.send(now_ns, header, durable, &self.settings, out);
        }
        if let (Some(copy), Some(up)) = (&mut self.copy_in, &self.up)
            && copy.ack_due
        {
            let flags = if copy.gap { ChainFlags::GAP } else { ChainFlags::NONE };
            let (receiver, index, committed) = (up.peer.incarnation, copy.next - 1, copy.since);
            let chain_type = ChainType::CopyAck;
            let ack = ChainHeader { chain_type, flags, receiver, index, committed, ..header };
            out.push(up.peer.address, &ack.encode());
            (copy.ack_due, copy.gap) = (false, false);
        }
    }
}
