//! One replica: its state, the chain's order, and what it sends to its neighbours.

use crate::copy::{CopyIn, CopyOut};
use crate::durable::Durability;
use crate::link::{Downstream, Upstream};
use crate::log::Log;
use crate::mutation::{self, Mutation};
use crate::{BrokenReason, Counters, Entry, Event, Outputs, Role, StateMachine};
use std::net::SocketAddrV4;
use wire::{ChainFlags, ChainHeader, ChainType, Member, ShardReport, ShardView};

/// A successor that was heard of so recently is not silent: HELLOs go out less often than that.
const NOT_YET_SILENT_NS: u64 = 120_000_000;

/// Configuration of one replica.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The shard whose chain this is.
    pub shard: u16,
    /// Digest of the configuration that all replicas of a chain must share.
    pub config_digest: u32,
    /// Time without an acknowledgement after which entries are sent again, in ns; doubles up to
    /// sixteen times that.
    pub resend_ns: u64,
    /// Entries are gathered into messages of at most this many bytes (one entry may be longer).
    pub datagram_bytes: usize,
    /// Entries that the tail has not confirmed, at most.
    pub unacked: usize,
    /// Bytes of those entries.
    pub unacked_bytes: usize,
}

/// A replica of one shard's state, in one place of the shard's chain.
pub struct Replica<S: StateMachine> {
    pub(crate) settings: Settings,
    pub(crate) me: Member,
    pub(crate) view: ShardView,
    /// Everything that was ever acknowledged is here.
    pub(crate) synced: bool,
    pub(crate) state: S,
    pub(crate) counters: Counters,
    /// The last entry applied here.
    pub(crate) index: u64,
    /// The last entry known to be at the tail.
    pub(crate) committed: u64,
    pub(crate) log: Log,
    pub(crate) up: Option<Upstream>,
    pub(crate) down: Option<Downstream>,
    pub(crate) copy_out: Option<CopyOut<S::Piece>>,
    pub(crate) copy_in: Option<CopyIn>,
    pub(crate) broken: Option<BrokenReason>,
    was_ready: bool,
    /// Of a replica that keeps a journal.
    pub(crate) durability: Option<Durability>,
}

impl<S: StateMachine> Replica<S> {
    /// A replica in no view yet; `state` is empty.
    pub fn new(settings: Settings, me: Member, state: S) -> Replica<S> {
        Replica {
            settings,
            me,
            view: ShardView::default(),
            synced: false,
            state,
            counters: Counters::default(),
            index: 0,
            committed: 0,
            log: Log::new(1),
            up: None,
            down: None,
            copy_out: None,
            copy_in: None,
            broken: None,
            was_ready: false,
            durability: None,
        }
    }

    /// Orders an entry: applies it here, and sends it down the chain or, at the tail, `reply` to
    /// `client`. Only the head of a chain orders, and only if it `may_order`. `None`: the effect
    /// did not fit, and the replica is broken.
    pub fn order<'a>(
        &mut self,
        effect: S::Effect<'a>,
        client: SocketAddrV4,
        reply: &'a [u8],
        out: &mut Outputs,
    ) -> Option<S::Written> {
        if let Some(copy) = &mut self.copy_out {
            copy.note(&self.state, &effect);
        }
        let Ok(written) = self.state.apply(&effect) else {
            // The head made the effect from this very state.
            self.break_chain(BrokenReason::EntryDoesNotApply, out);
            return None;
        };
        self.index += 1;
        self.journal_entry(effect);
        if self.answers() && self.durability.is_none() {
            self.committed = self.index;
            self.log.forget(self.index);
            self.send_reply(client, reply, out);
            return Some(written);
        }
        let mut bytes = self.log.buffer();
        let entry: Entry<'_, S> = wire::Entry { effect, client, reply };
        if entry.append_to(&mut bytes).is_err() {
            // Requests were within bounds when they were decoded, so entries are too.
            self.break_chain(BrokenReason::EntryDoesNotApply, out);
            return None;
        }
        self.log.push(bytes);
        if mutation::planted(Mutation::ReplyBeforeTail) {
            self.send_reply(client, reply, out);
        }
        Some(written)
    }

    pub(crate) fn send_reply(&mut self, client: SocketAddrV4, reply: &[u8], out: &mut Outputs) {
        if !reply.is_empty() {
            self.counters.replies += 1;
            out.push(client, reply);
        }
    }

    /// Whether the chain does not keep up: what is not acknowledged fills its bounds.
    pub fn is_backed_up(&self) -> bool {
        self.log.len() >= self.settings.unacked || self.log.bytes() >= self.settings.unacked_bytes
    }

    /// `next_deadline` has passed.
    pub fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.broken.is_none()
            && self.down.as_mut().is_some_and(|down| down.resend_if_due(now_ns))
        {
            self.counters.chain_resends += 1;
        }
        self.copy_timer(now_ns);
        self.notice_ready(out);
    }

    /// When `timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.broken.is_some() {
            return None;
        }
        let resend = self.down.as_ref().and_then(|down| down.resend_at_ns());
        let hello = self.down.as_ref().map(|down| down.hello_at_ns);
        let copy = self.copy_out.as_ref().and_then(CopyOut::next_deadline);
        let ack = self.up.as_ref().and_then(|up| up.ack_by_ns);
        [resend, hello, copy, ack].into_iter().flatten().min()
    }

    /// Ends a batch of inputs: entries for the successor and the acknowledgement for the
    /// predecessor are gathered until here.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.broken.is_some() {
            return;
        }
        let ready = if self.is_ready() { ChainFlags::READY } else { ChainFlags::NONE };
        let flags = if self.synced { ready.with(ChainFlags::SYNCED) } else { ready };
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags,
            count: 0,
            shard: self.settings.shard,
            view: self.view.number,
            sender: self.me.incarnation,
            receiver: 0,
            index: self.index,
            committed: self.committed,
            config_digest: self.settings.config_digest,
        };
        let durable = self.durable();
        self.send_copy(now_ns, header, out);
        if let Some(down) = &mut self.down {
            let header = ChainHeader { receiver: down.peer.incarnation, ..header };
            if down.hello_due(now_ns) {
                let hello = ChainHeader { chain_type: ChainType::Hello, ..header };
                out.push(down.peer.address, &hello.encode());
            }
            if down.bound {
                down.send(now_ns, header, &self.log, durable, &self.settings, out);
            }
        }
        if let Some(up) = self.up.as_mut()
            && up.take_ack(now_ns, self.index, self.settings.unacked)
        {
            let gap = if up.gap { ChainFlags::GAP } else { ChainFlags::NONE };
            let mismatch = if up.mismatch { ChainFlags::MISMATCH } else { ChainFlags::NONE };
            let flags = flags.with(gap).with(mismatch);
            let receiver = up.peer.incarnation;
            let ack = ChainHeader { chain_type: ChainType::Ack, flags, receiver, ..header };
            out.push(up.peer.address, &ack.encode());
            up.gap = false;
        }
    }

    /// Stops, for good: the controller takes this replica out of the chain.
    pub(crate) fn break_chain(&mut self, reason: BrokenReason, out: &mut Outputs) {
        if self.broken.is_none() {
            self.broken = Some(reason);
            out.events.push(Event::Broken(reason));
        }
    }

    pub(crate) fn notice_ready(&mut self, out: &mut Outputs) {
        let ready = self.is_ready();
        if ready == self.was_ready {
            return;
        }
        self.was_ready = ready;
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
        if ready {
            out.events.push(Event::Ready { shard: self.settings.shard });
        }
    }

    /// The replicated state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The same, to change what is not replicated: the head's own fields, and what the operator
    /// decides. The replicated part changes by `order` alone.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// What this replica counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What this replica is in the chain.
    pub fn role(&self) -> Role {
        let members = &self.view.members;
        match members.iter().position(|member| *member == self.me) {
            Some(0) => Role::Head,
            Some(at) if at + 1 == members.len() => Role::Tail,
            Some(_) => Role::Middle,
            None if self.view.joining.is_some_and(|joining| joining.member == self.me) => {
                Role::Joining
            }
            None => Role::Outside,
        }
    }

    /// The view that this replica is in.
    pub fn view(&self) -> &ShardView {
        &self.view
    }

    /// The last entry applied here.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The last entry known to be at the tail.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Entries that the tail has not confirmed, as far as is known here.
    pub fn unacked(&self) -> usize {
        self.log.len()
    }

    /// Entries that are applied here and not yet durable.
    pub fn not_durable(&self) -> u64 {
        self.index - self.durable()
    }

    /// Whether everything that was ever acknowledged is here.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Why this replica stopped, if it did.
    pub fn broken(&self) -> Option<BrokenReason> {
        self.broken
    }

    /// Whether all links from here to the tail are up.
    pub fn is_ready(&self) -> bool {
        self.broken.is_none()
            && self.synced
            && self.down.as_ref().is_none_or(|down| down.bound && down.ready)
    }

    /// Whether this is the head, and may order entries: it does so while a link is down, within the
    /// bounds of what the tail has not confirmed.
    pub fn may_order(&self) -> bool {
        self.synced && self.broken.is_none() && self.role() == Role::Head && !self.view.draining
    }

    /// Whether this is the head of a chain that drains, and everybody has what it ordered: from
    /// here on nothing comes to that.
    fn is_drained(&self) -> bool {
        let drains = self.view.draining && self.role() == Role::Head && self.broken.is_none();
        drains && self.committed == self.index
    }

    /// For how long the successor has told nothing new while entries wait for it, in ns.
    pub fn waits_for_successor_ns(&self, now_ns: u64) -> u64 {
        let down = self.down.as_ref().filter(|_| self.log.len() > 0);
        down.map_or(0, |down| down.stalled_ns(now_ns))
    }

    /// What the controller is to know of this replica.
    pub fn report(&self, now_ns: u64) -> ShardReport {
        let silent_ns = self.down.as_ref().map_or(0, |down| now_ns.saturating_sub(down.heard_ns));
        let silent_ns = if silent_ns > NOT_YET_SILENT_NS { silent_ns } else { 0 };
        let stalled_ns = self.down.as_ref().map_or(0, |down| down.stalled_ns(now_ns));
        let ms = |ns: u64| u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX);
        ShardReport {
            shard: self.settings.shard,
            view: self.view.number,
            index: self.index,
            ready: self.is_ready(),
            synced: self.synced,
            broken: self.broken.is_some(),
            drained: self.is_drained(),
            copied: self.copy_out.as_ref().map_or(0, CopyOut::copied),
            unreachable_ms: ms(silent_ns),
            stalled_ms: ms(stalled_ns),
            records: self.state.records(),
        }
    }
}
