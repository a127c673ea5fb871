//! The sans-IO core of a store server: `(now, datagram or timer) -> datagrams`. A `Node` is a
//! server process; it has a `Replica` for each shard in whose chain it is.
//!
//! Owns the records, sessions, held requests, allocators and the chain's order; must not know
//! sockets, clocks or files. Time is the caller's, in ns of any clock that does not go back. The
//! rules are those of `systems/redplane/docs/state-protocol.md`: `door` has what is genuine,
//! `request`, `create`, `recall` and `idle` what the head decides, `records` and `sessions` what
//! its effects do, `chain` the chain's order.

pub mod backends;
mod blob;
mod chain;
mod copy;
mod counters;
mod create;
mod digest;
mod door;
mod durable;
mod idle;
mod inspect;
mod journal;
mod link;
mod log;
mod mutation;
pub mod nat;
mod node;
mod out_of_order;
mod output;
mod pool;
mod recall;
mod records;
mod request;
mod rng;
mod seen;
mod sessions;
mod settings;
mod snapshots;
mod status;
mod waiting;

#[cfg(test)]
mod health_tests;

pub use counters::Counters;
pub use idle::SESSION_FORGOTTEN_NS;
pub use inspect::{
    RecordState, SlotBytes, SnapshotInfo, StateAnswer, StateQuery, from_hex, to_hex,
};
pub use journal::{BadJournal, Restored, RestoredReplica};
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::set_mutation;
pub use node::Node;
pub use output::{BrokenReason, Event, Outputs, Role, Run};
pub use records::{Record, Records};
pub use rng::SplitMix64;
pub use sessions::{REPLAY_WINDOW_NS, Session, Sessions};
pub use settings::{
    AllocatorSettings, BackendPolicy, BackendSettings, EPOCH_TICK_NS, IdleNs, Limits, NatSettings,
    ObjectSettings, Settings, Start,
};
pub use status::{NodeStatus, ObjectStatus, ReplicaStatus};

use backends::Backends;
use copy::{CopyIn, CopyOut};
use durable::Durability;
use idle::{Idle, NOBODY};
use link::{Downstream, Upstream};
use log::Log;
use state_protocol::{Effect, Entry, Kind};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use waiting::Waiting;
use wire::{Member, ShardReport, ShardView};

/// A successor that was heard of so recently is not silent: HELLOs go out less often than that.
const NOT_YET_SILENT_NS: u64 = 120_000_000;

/// One server of one shard's chain: a replica of the shard.
pub struct Replica {
    settings: Settings,
    config_digest: u32,
    store_lease_ns: u64,
    epoch_base: u32,
    me: Member,
    view: ShardView,
    /// Everything that was ever acknowledged is here.
    whole: bool,
    records: Records,
    /// By object: which backends the operator wants.
    backends: BTreeMap<u16, Arc<Backends>>,
    rng: SplitMix64,
    counters: Counters,
    /// The last entry applied here.
    index: u64,
    /// The last entry known to be at the tail.
    committed: u64,
    log: Log,
    up: Option<Upstream>,
    down: Option<Downstream>,
    copy_out: Option<CopyOut>,
    copy_in: Option<CopyIn>,
    broken: Option<BrokenReason>,
    was_ready: bool,
    /// No lease of an earlier chain can be alive from here on.
    serve_from_ns: u64,
    /// Head: when the next probe is due, in ns; those before it are paid for.
    next_probe_ns: u64,
    /// Head: from then on it knows how old requests are, in ns of its clock.
    knows_age_from_ns: u64,
    waiting: Waiting,
    idle: Idle,
    reply: Vec<u8>,
    /// Of a server that keeps a journal.
    durability: Option<Durability>,
}

/// What happened.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A datagram came.
    Datagram {
        /// Its sender.
        from: SocketAddrV4,
        /// All of it.
        bytes: &'a [u8],
    },
    /// `next_deadline` has passed.
    Timer,
}

impl Replica {
    /// A replica without state, in no view yet. `settings.shard` says of which shard.
    pub fn new(settings: Settings, start: Start, me: Member, now_ns: u64) -> Replica {
        let ticks = now_ns.saturating_sub(start.now_ns) / EPOCH_TICK_NS;
        Replica {
            config_digest: settings.digest(),
            store_lease_ns: settings.store_lease_ns(),
            epoch_base: start
                .epoch_base
                .saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX / 4)),
            me,
            view: ShardView::default(),
            whole: false,
            records: Records::new(settings.objects.clone(), 0),
            backends: BTreeMap::new(),
            rng: SplitMix64::new(start.seed ^ u64::from(settings.shard)),
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
            serve_from_ns: 0,
            next_probe_ns: 0,
            knows_age_from_ns: 0,
            waiting: Waiting::default(),
            idle: Idle::default(),
            reply: Vec::new(),
            durability: None,
            settings,
        }
    }

    /// Takes one input at `now_ns`, which must be read after the datagram was received: leases
    /// count from it. What it causes is in `out`, complete after the next `flush`.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Datagram { from, bytes } => self.datagram(now_ns, from, bytes, out),
            Input::Timer => self.timer(now_ns, out),
        }
        self.notice_ready(out);
    }

    /// Ends a batch of inputs: entries for the successor and the acknowledgement for the
    /// predecessor are gathered until here.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.send_chain(now_ns, out);
    }

    /// The backends of the object with that number from now on; whether this server has something
    /// to look at for that, as the head. Every server of a chain is to be told: the head chooses,
    /// and each may become it.
    pub(crate) fn set_backends(&mut self, object_id: u16, backends: &Arc<Backends>) -> bool {
        let object = self.records.object(object_id);
        let Some(pool::Pool::Backends(pool)) =
            object.and_then(|object| self.records.pool_mut(object))
        else {
            return false;
        };
        let more_gone = pool.set_backends(Arc::clone(backends));
        self.backends.insert(object_id, Arc::clone(backends));
        // The others remove nothing; who takes over looks at everything.
        let concerned = more_gone && self.role() == Role::Head;
        if concerned {
            self.watch_gone();
        }
        concerned
    }

    /// Forgets all records; what the operator decided stays.
    fn clear_records(&mut self) {
        self.records = Records::new(self.settings.objects.clone(), 0);
        for (object_id, backends) in std::mem::take(&mut self.backends) {
            self.set_backends(object_id, &backends);
        }
    }

    /// Becomes the head, with everything that an earlier one put down the chain. Until when its
    /// sessions live is not among that: each lives for one store lease from now, because every
    /// lease that was promised was promised before.
    fn take_over(&mut self, now_ns: u64, out: &mut Outputs) {
        let until_ns = now_ns + self.store_lease_ns;
        self.forget_waiting();
        for (_, session) in self.records.sessions.iter_mut() {
            if mutation::is(Mutation::HeadForgetsLeases) {
                continue;
            }
            session.lease_until_ns = session.lease_until_ns.max(until_ns);
        }
        self.records.forget_unused();
        // By then it has heard a new heartbeat of each switch whose lease still lives, and what is
        // a second older is refused.
        self.knows_age_from_ns = until_ns;
        self.watch_everything(now_ns);
        if self.index == 0 {
            // The chain's first entry: all its servers count from the same number.
            self.reply.clear();
            self.commit(&Effect::Floor { floor: self.epoch_base }, NOBODY, out);
        }
    }

    /// When `Input::Timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.broken.is_some() {
            return None;
        }
        let idle = self.idle.next_deadline().filter(|_| self.role() == Role::Head);
        let resend = self.down.as_ref().and_then(|down| down.resend_at_ns());
        let hello = self.down.as_ref().map(|down| down.hello_at_ns);
        let copy = self.copy_out.as_ref().and_then(CopyOut::next_deadline);
        [self.waiting.next_deadline(), idle, resend, hello, copy].into_iter().flatten().min()
    }

    /// What the server counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// What this server is in the chain.
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

    /// The view that this server is in.
    pub fn view(&self) -> &ShardView {
        &self.view
    }

    /// Whether all links from here to the tail are up.
    pub fn is_ready(&self) -> bool {
        self.broken.is_none()
            && self.whole
            && self.down.as_ref().is_none_or(|down| down.bound && down.ready)
    }

    /// Whether this server is the head and takes requests: it does so while a link is down, within
    /// the bounds of what the tail has not confirmed.
    pub fn is_serving(&self, now_ns: u64) -> bool {
        let can = self.whole && self.broken.is_none() && now_ns >= self.serve_from_ns;
        self.role() == Role::Head && can && !self.view.draining
    }

    /// Whether this is the head of a chain that drains, and everybody has what it ordered: from
    /// here on nothing comes to that.
    fn is_drained(&self) -> bool {
        let drains = self.view.draining && self.role() == Role::Head && self.broken.is_none();
        drains && self.committed == self.index
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
            whole: self.whole,
            broken: self.broken.is_some(),
            drained: self.is_drained(),
            copied: self.copy_out.as_ref().map_or(0, CopyOut::copied),
            unreachable_ms: ms(silent_ns),
            stalled_ms: ms(stalled_ns),
            records: self.records.len() as u64,
        }
    }

    /// Digest of everything that a datagram could change, counters apart.
    pub fn digest(&self) -> u64 {
        let held = (self.waiting.len() as u64) << 32 | self.waiting.bytes() as u64;
        [self.index, self.committed, held, self.view.number, u64::from(self.broken.is_some())]
            .into_iter()
            .fold(self.records.full_digest(), |digest, part| SplitMix64::mix(digest ^ part))
    }

    fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        match state_protocol::kind(bytes) {
            Ok(Kind::Chain(_)) => self.chain_message(now_ns, from, bytes, out),
            Ok(Kind::Message(_)) => self.request(now_ns, from, bytes, None, out),
            Ok(Kind::Control(_)) => self.counters.dropped_wrong_direction += 1,
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        while let Some(slot) = self.waiting.due(now_ns) {
            self.look_again(now_ns, slot, out);
        }
        if self.broken.is_none() && self.role() == Role::Head {
            self.remove_idle(now_ns, out);
        }
        self.chain_timer(now_ns);
    }

    /// Orders an entry: applies it here, and sends it down the chain or, at the tail, its reply
    /// out. `self.reply` holds the reply's bytes. Returns the slot of the record that the effect
    /// wrote.
    fn commit(
        &mut self,
        effect: &Effect<'_>,
        client: SocketAddrV4,
        out: &mut Outputs,
    ) -> Option<u32> {
        if let Some(copy) = &mut self.copy_out {
            copy.note(&self.records, effect);
        }
        let slot = match self.records.apply(effect) {
            Ok(slot) => slot,
            Err(records::DoesNotApply) => {
                // The head made the effect from these very records.
                self.break_chain(BrokenReason::EntryDoesNotApply, out);
                return None;
            }
        };
        self.index += 1;
        self.journal_entry(effect);
        if self.answers() && self.durability.is_none() {
            self.committed = self.index;
            self.log.forget(self.index);
            self.send_reply(client, out);
            return slot;
        }
        let mut bytes = self.log.buffer();
        let entry = Entry { effect: *effect, client, reply: &self.reply };
        if entry.append_to(&mut bytes).is_err() {
            // Keys, values and packets were within bounds when they were decoded, so entries are
            // too.
            self.break_chain(BrokenReason::EntryDoesNotApply, out);
            return None;
        }
        self.log.push(bytes);
        if mutation::is(Mutation::ReplyBeforeTail) {
            self.send_reply(client, out);
        }
        slot
    }

    fn send_reply(&mut self, client: SocketAddrV4, out: &mut Outputs) {
        if !self.reply.is_empty() {
            self.counters.replies += 1;
            out.push(client, &self.reply);
        }
    }

    /// Whether the chain does not keep up: what is not acknowledged fills its bounds.
    fn is_backed_up(&self) -> bool {
        let limits = &self.settings.limits;
        self.log.len() >= limits.unacked || self.log.bytes() >= limits.unacked_bytes
    }
}
