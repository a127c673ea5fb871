//! Catching up: the tail copies its state to a replica that joins, while it goes on serving.
//!
//! A copy is a stream of effects, each complete in itself: the sweep gives every slot once, and
//! whatever piece an entry touches meanwhile is given again. When the sweep is through and nothing
//! touched is left, the rest and the handover end the stream, and from that instant on the tail
//! answers no more by itself: entries go on to the joining replica as to any successor, and that
//! one answers. So when it says that it is synced it has everything that was ever acknowledged,
//! whoever dies next, and the controller may count on it.

use crate::link::Downstream;
use crate::log::Log;
use crate::mutation::{self, Mutation};
use crate::{
    DoesNotApply, Entries, Entry, NOBODY, Outputs, Replica, Settings, StateMachine, Touched,
};
use std::collections::VecDeque;
use std::hash::Hash;
use wire::{CHAIN_HEADER_BYTES, ChainFlags, ChainHeader, ChainType, Handover, Malformed, Member};

/// Copy messages under way without a receipt.
const WINDOW: usize = 64;
/// Copy messages made in one go, so that requests do not wait for long.
const BATCH: usize = 16;
const MOST_BACK_OFF: u64 = 16;

/// A message of the stream: flags, how many effects, and their bytes.
type Message = (ChainFlags, u16, Vec<u8>);

/// The tail's side.
pub(crate) struct CopyOut<P> {
    pub peer: Member,
    /// Number of the view in which the joining began.
    pub since: u64,
    /// The handover is in the stream: entries go to the joining replica, and it answers.
    pub handed_over: bool,
    /// The last entry that the copy has the effect of: it must be durable here before the joining
    /// replica is told that it is synced.
    handover_index: u64,
    /// What entries touched and the stream does not have yet, and how far the sweep has come.
    touched: Touched<P>,
    /// Encoded effects that are to go into the stream before anything else.
    ready: VecDeque<Vec<u8>>,
    /// Messages without a receipt, from number `first` on.
    stream: VecDeque<Message>,
    first: u64,
    next_send: u64,
    resend_at_ns: Option<u64>,
    back_off: u64,
}

impl<P: Clone + Eq + Hash> CopyOut<P> {
    pub fn new(peer: Member, since: u64) -> CopyOut<P> {
        CopyOut {
            peer,
            since,
            handed_over: false,
            handover_index: 0,
            touched: Touched::new(),
            ready: VecDeque::new(),
            stream: VecDeque::new(),
            first: 1,
            next_send: 1,
            resend_at_ns: None,
            back_off: 1,
        }
    }

    /// One that may have handed over in an earlier life of this server, and does nothing else.
    pub fn handed_over_to(peer: Member, since: u64) -> CopyOut<P> {
        CopyOut { handed_over: true, ..CopyOut::new(peer, since) }
    }

    /// Copy messages that the joining replica has.
    pub fn copied(&self) -> u64 {
        self.first - 1
    }

    /// Whether the joining replica has the whole stream.
    pub fn is_complete(&self) -> bool {
        self.handed_over && self.stream.is_empty()
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.resend_at_ns
    }

    /// Notes what `effect` is about to touch; `state` is that before it.
    pub fn note<S: StateMachine<Piece = P>>(&mut self, state: &S, effect: &S::Effect<'_>) {
        if !self.handed_over && !mutation::planted(Mutation::TouchedNotCopied) {
            state.note_touched(effect, &mut self.touched);
        }
    }

    /// Makes messages while the window has room; hands over when nothing is left to copy.
    fn fill<S: StateMachine<Piece = P>>(&mut self, state: &S, index: u64, most_bytes: usize) {
        for _ in 0..BATCH {
            if self.handed_over || self.touched.abandoned || self.stream.len() >= WINDOW {
                return;
            }
            match self.message(most_bytes, |copy| copy.describe_next(state)) {
                Some(message) => self.stream.push_back(message),
                None => self.hand_over(state, index, most_bytes),
            }
        }
    }

    /// A message of the effects that are ready, and of those that `more` makes ready, as far as
    /// they fit; `None`: there are none.
    fn message(
        &mut self,
        most_bytes: usize,
        more: impl Fn(&mut CopyOut<P>) -> bool,
    ) -> Option<Message> {
        let (mut count, mut bytes) = (0, Vec::new());
        while !self.ready.is_empty() || more(self) {
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
        (count > 0).then_some((ChainFlags::NONE, count, bytes))
    }

    /// Makes the next effects of the copy ready; `false`: nothing is left.
    fn describe_next<S: StateMachine<Piece = P>>(&mut self, state: &S) -> bool {
        while let Some(piece) = self.touched.pop() {
            state.piece_effects(&piece).for_each(|effect| self.make_ready::<S>(effect));
            if !self.ready.is_empty() {
                return true;
            }
        }
        while self.touched.cursor < state.slots() {
            self.touched.cursor += 1;
            let slot = self.touched.cursor - 1;
            state.slot_effects(slot).for_each(|effect| self.make_ready::<S>(effect));
            if !self.ready.is_empty() {
                return true;
            }
        }
        false
    }

    fn make_ready<S: StateMachine<Piece = P>>(&mut self, effect: S::Effect<'_>) {
        let mut bytes = Vec::new();
        let entry: Entry<'_, S> = wire::Entry { effect, client: NOBODY, reply: &[] };
        // What cannot be encoded was never ordered.
        if entry.append_to(&mut bytes).is_ok() {
            self.ready.push_back(bytes);
        }
    }

    fn hand_over<S: StateMachine<Piece = P>>(&mut self, state: &S, index: u64, most_bytes: usize) {
        state.rest_effects().for_each(|effect| self.make_ready::<S>(effect));
        while let Some(message) = self.message(most_bytes, |_| false) {
            self.stream.push_back(message);
        }
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

/// The joining replica's side.
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

impl<S: StateMachine> Replica<S> {
    /// Takes part of a copy, in order only.
    pub(crate) fn copy_message(&mut self, header: &ChainHeader, bytes: &[u8]) {
        let mismatch = header.config_digest != self.settings.config_digest;
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
        for (entry, own_bytes) in Entries::<S>::decode(header, bytes)? {
            // What does not apply to an empty state is of another configuration, which the digest
            // shows.
            self.state.apply(&entry.effect).map_err(|DoesNotApply| Malformed::ChainEntry)?;
            self.counters.copied += 1;
            self.journal_copied(own_bytes);
        }
        Ok(())
    }

    fn take_handover(&mut self, header: &ChainHeader, bytes: &[u8]) -> Result<(), Malformed> {
        let Handover { index } = Handover::decode(header, bytes)?;
        (self.index, self.committed, self.synced) = (index, index, true);
        self.log = Log::new(index + 1);
        self.journal_synced();
        Ok(())
    }

    pub(crate) fn copy_ack(&mut self, now_ns: u64, header: &ChainHeader) {
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

    pub(crate) fn copy_timer(&mut self, now_ns: u64) {
        if let Some(copy) = &mut self.copy_out {
            copy.resend_if_due(now_ns);
        }
    }

    /// Sends what a batch of inputs left to copy, and receipts for what was copied here.
    pub(crate) fn send_copy(&mut self, now_ns: u64, header: ChainHeader, out: &mut Outputs) {
        let durable = self.durable();
        if let Some(copy) = &mut self.copy_out {
            let handed_over = copy.handed_over;
            copy.fill(&self.state, self.index, self.settings.datagram_bytes);
            if copy.handed_over && !handed_over {
                // From here on it is the successor like any other; what is in the log it gets as
                // entries.
                self.down = Some(Downstream::new(copy.peer, now_ns));
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
