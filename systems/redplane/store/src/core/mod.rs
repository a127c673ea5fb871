//! The sans-IO core of a store server: `(now, datagram or timer) -> datagrams`. A `Node` is a
//! server process; it has a `Replica` for each shard in whose chain it is.
//!
//! Owns the records, sessions, held requests and allocators; must not know sockets, clocks or
//! files. Time is the caller's, in ns of any clock that does not go back. The rules are those of
//! `systems/redplane/docs/state-protocol.md`: `request`, `batch`, `create`, `recall` and `idle`
//! have what the head decides, `machine`, `records` and `sessions` what its effects do. The crate
//! `chain` has order, copies, journal, views, and what is genuine.

pub mod backends;
mod batch;
mod blob;
mod counters;
mod create;
mod digest;
mod fast;
mod idle;
mod inspect;
mod machine;
mod merge;
mod mutation;
pub mod nat;
mod node;
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

pub use chain::{BadJournal, BrokenReason, Event, Outputs, Role, Run};
pub use counters::Counters;
pub use idle::SESSION_FORGOTTEN_NS;
pub use inspect::{
    Contribution, RecordState, SlotBytes, SnapshotInfo, StateAnswer, StateQuery, from_hex, to_hex,
};
pub use merge::{Merged, Merging};
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use node::Node;
pub use records::{Record, Records};
pub use rng::SplitMix64;
pub use sessions::{REPLAY_WINDOW_NS, Session, Sessions};
pub use settings::{
    AllocatorSettings, BackendPolicy, BackendSettings, EPOCH_TICK_NS, IdleNs, Limits,
    MergeSettings, NatSettings, ObjectSettings, Settings, Start,
};
pub use status::{NodeStatus, ObjectStatus, ReplicaStatus};

use backends::Backends;
use batch::Deciding;
use chain::{NOBODY, Shard};
use fast::Fast;
use fast_chain::Memory;
use idle::Idle;
use state_protocol::Effect;
use std::net::SocketAddrV4;
use std::sync::Arc;
use waiting::Waiting;
use wire::{Member, ShardReport, ShardView};

/// A server's state, read from its journal.
pub type Restored = chain::Restored<Records>;

/// One server of one shard's chain: a replica of the shard.
pub struct Replica {
    settings: Settings,
    store_lease_ns: u64,
    epoch_base: u32,
    /// The records, and their order.
    chain: chain::Replica<Records>,
    rng: SplitMix64,
    /// But for the chain's.
    counters: Counters,
    /// No lease of an earlier chain can be alive from here on.
    serve_from_ns: u64,
    /// Head: when the next probe is due, in ns; those before it are paid for.
    next_probe_ns: u64,
    /// Head: from then on it knows how old requests are, in ns of its clock.
    knows_age_from_ns: u64,
    waiting: Waiting,
    idle: Idle,
    reply: Vec<u8>,
    deciding: Deciding,
    fast: Option<Fast>,
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
        let records = Records::new(settings.objects.clone(), 0);
        Replica {
            chain: chain::Replica::new(settings.chain(), me, records),
            store_lease_ns: settings.store_lease_ns(),
            epoch_base: start
                .epoch_base
                .saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX / 4)),
            rng: SplitMix64::new(start.seed ^ u64::from(settings.shard)),
            counters: Counters::default(),
            serve_from_ns: 0,
            next_probe_ns: 0,
            knows_age_from_ns: 0,
            waiting: Waiting::default(),
            idle: Idle::default(),
            reply: Vec::new(),
            deciding: Deciding::default(),
            fast: None,
            settings,
        }
    }

    /// Has the program that has this memory take batches, too. To be called before any view.
    fn use_fast_path(&mut self, memory: &Arc<Memory>) {
        self.chain.state_mut().watch_changes();
        self.fast = Some(Fast::new(memory, self.settings.shard));
    }

    /// The backends of the object with that number from now on. Every server of a chain is to be
    /// told: the head chooses, and each may become it.
    pub(crate) fn set_backends(&mut self, object_id: u16, backends: &Arc<Backends>) {
        let records = self.chain.state_mut();
        let object = records.object(object_id);
        let Some(pool::Pool::Backends(pool)) = object.and_then(|object| records.pool_mut(object))
        else {
            return;
        };
        let more_gone = pool.set_backends(Arc::clone(backends));
        // The others remove nothing; who takes over looks at everything.
        if more_gone && self.role() == Role::Head {
            self.watch_gone();
        }
    }

    /// Becomes the head, with everything that an earlier one put down the chain. Until when its
    /// sessions live is not among that: each lives for one store lease from now, because every
    /// lease that was promised was promised before.
    fn take_over(&mut self, now_ns: u64, out: &mut Outputs) {
        let until_ns = now_ns + self.store_lease_ns;
        self.forget_waiting();
        let records = self.chain.state_mut();
        for (_, session) in records.sessions.iter_mut() {
            if mutation::planted(Mutation::HeadForgetsLeases) {
                continue;
            }
            session.lease_until_ns = session.lease_until_ns.max(until_ns);
        }
        records.forget_unused();
        // By then it has heard a new heartbeat of each switch whose lease still lives, and what is
        // a second older is refused.
        self.knows_age_from_ns = until_ns;
        self.watch_everything(now_ns);
        if self.chain.index() == 0 {
            // The chain's first entry: all its servers count from the same number.
            self.reply.clear();
            self.commit(&Effect::Floor { floor: self.epoch_base }, NOBODY, out);
        }
    }

    /// What the server counted.
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters.clone();
        sum.add_chain(self.chain.counters());
        sum
    }

    /// The records.
    pub fn records(&self) -> &Records {
        self.chain.state()
    }

    /// What this server is in the chain.
    pub fn role(&self) -> Role {
        self.chain.role()
    }

    /// The view that this server is in.
    pub fn view(&self) -> &ShardView {
        self.chain.view()
    }

    /// Whether all links from here to the tail are up.
    pub fn is_ready(&self) -> bool {
        self.chain.is_ready()
    }

    /// Whether this server is the head and takes requests.
    pub fn is_serving(&self, now_ns: u64) -> bool {
        self.chain.may_order() && now_ns >= self.serve_from_ns
    }

    /// What the controller is to know of this replica.
    pub fn report(&self, now_ns: u64) -> ShardReport {
        self.chain.report(now_ns)
    }

    /// Digest of everything that a datagram could change, counters apart.
    pub fn digest(&self) -> u64 {
        let held = (self.waiting.len() as u64) << 32 | self.waiting.bytes() as u64;
        let (chain, broken) = (&self.chain, self.chain.broken().is_some());
        [chain.index(), chain.committed(), held, chain.view().number, u64::from(broken)]
            .into_iter()
            .fold(chain.state().full_digest(), |digest, part| SplitMix64::mix(digest ^ part))
    }

    /// Orders an entry, whose reply's bytes are in `self.reply`. Returns the slot of the record
    /// that the effect wrote.
    fn commit(
        &mut self,
        effect: &Effect<'_>,
        client: SocketAddrV4,
        out: &mut Outputs,
    ) -> Option<u32> {
        self.chain.order(*effect, client, &self.reply, out).flatten()
    }
}

impl Shard for Replica {
    type State = Records;

    fn chain(&self) -> &chain::Replica<Records> {
        &self.chain
    }

    fn chain_mut(&mut self) -> &mut chain::Replica<Records> {
        &mut self.chain
    }

    fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        let Some(adopted) = self.chain.adopt(now_ns, view, out) else { return };
        if adopted.began {
            // Switches may hold leases that an earlier chain granted: wait until the last of them
            // is over.
            self.serve_from_ns = now_ns + self.store_lease_ns.max(EPOCH_TICK_NS);
        }
        if self.role() != Role::Head || view.draining {
            // Who waits here asks again, the new head or this one.
            self.forget_waiting();
        }
        if adopted.became_head {
            self.take_over(now_ns, out);
        }
    }

    fn request(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        if let Ok(wire::Kind::Batch(batch_type)) = wire::kind(bytes) {
            return self.batch_message(now_ns, from, batch_type, bytes, out);
        }
        self.request(now_ns, from, bytes, None, out);
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        while let Some(slot) = self.waiting.due(now_ns) {
            self.look_again(now_ns, slot, out);
        }
        if self.chain.broken().is_none() && self.role() == Role::Head {
            self.remove_idle(now_ns, out);
        }
        self.chain.timer(now_ns, out);
    }

    fn enter(&mut self) {
        let is_head = self.role() == Role::Head;
        if let Some(fast) = &mut self.fast {
            fast.enter(self.chain.state_mut(), is_head);
        }
    }

    fn leave(&mut self) {
        // (A head that does not serve yet has no record that is anybody's.)
        let steady = self.chain.steady();
        if let Some(fast) = &mut self.fast {
            fast.leave(self.chain.state_mut(), &self.waiting, steady);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        if self.chain.broken().is_some() {
            return None;
        }
        let idle = self.idle.next_deadline().filter(|_| self.role() == Role::Head);
        let chain = self.chain.next_deadline();
        [self.waiting.next_deadline(), idle, chain].into_iter().flatten().min()
    }
}
