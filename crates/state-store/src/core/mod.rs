//! The sans-IO core of a store server: `(now, datagram or timer) -> datagrams`.
//!
//! Owns the records, sessions, held requests, allocators and the chain's order; must not know sockets, clocks or files. Time is the caller's, in ns
//! of any clock that does not go back. The rules are those of `docs/state-protocol.md`: `door` has what is genuine, `request`, `create`, `recall` and
//! `idle` what the head decides, `records` and `sessions` what its effects do, `chain` the chain's order.

pub mod backends;
mod blob;
mod chain;
mod counters;
mod create;
mod door;
mod idle;
mod link;
pub mod nat;
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

pub use counters::Counters;
pub use idle::SESSION_FORGOTTEN_NS;
pub use output::{BrokenReason, Event, Outputs};
pub use records::{Record, Records};
pub use rng::SplitMix64;
pub use sessions::{REPLAY_WINDOW_NS, Session, Sessions};
pub use settings::{
    AllocatorSettings, BackendPolicy, BackendSettings, EPOCH_TICK_NS, IdleNs, Limits, NatSettings, ObjectSettings,
    Settings, Start,
};
pub use status::{ObjectStatus, Status};

use door::Door;
use idle::Idle;
use link::{Downstream, Upstream};
use state_protocol::{Entry, KeyRing, Kind, Malformed, MessageType, NotGenuine};
use std::net::{Ipv4Addr, SocketAddrV4};
use waiting::Waiting;

/// One server of a chain.
pub struct Server {
    settings: Settings,
    config_digest: u64,
    store_lease_ns: u64,
    incarnation: u64,
    started_ns: u64,
    records: Records,
    rng: SplitMix64,
    counters: Counters,
    /// The last entry applied here.
    index: u64,
    /// The last entry known to be at the tail.
    committed: u64,
    up: Option<Upstream>,
    down: Option<Downstream>,
    broken: Option<BrokenReason>,
    was_ready: bool,
    /// Head: no lease of an earlier chain can be alive from here on.
    serve_from_ns: Option<u64>,
    door: Door,
    waiting: Waiting,
    idle: Idle,
    reply: Vec<u8>,
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

impl Server {
    /// A server without state, in a chain that is not formed yet.
    pub fn new(settings: Settings, start: Start, keys: KeyRing) -> Server {
        let address = settings.chain.get(settings.position).map_or(Ipv4Addr::UNSPECIFIED, |address| *address.ip());
        let neighbour = |position: Option<usize>| position.and_then(|at| settings.chain.get(at)).copied();
        let up = neighbour(settings.position.checked_sub(1)).map(Upstream::new);
        let down = neighbour(settings.position.checked_add(1)).map(|to| Downstream::new(to, start.now_ns));
        let alone = settings.chain.len() == 1;
        let mut server = Server {
            config_digest: settings.digest(),
            store_lease_ns: settings.store_lease_ns(),
            incarnation: start.incarnation,
            started_ns: start.now_ns,
            records: Records::new(settings.objects.clone(), start.epoch_base),
            rng: SplitMix64::new(start.seed),
            counters: Counters::default(),
            index: 0,
            committed: 0,
            up,
            down,
            broken: None,
            was_ready: false,
            serve_from_ns: None,
            door: Door::new(keys, address),
            waiting: Waiting::default(),
            idle: Idle::default(),
            reply: Vec::new(),
            settings,
        };
        if alone {
            // No link to wait for, and so no event to notice it by.
            server.notice_ready(start.now_ns, &mut Outputs::new());
        }
        server
    }

    /// Takes one input at `now_ns`, which must be read after the datagram was received: leases count from it. What it causes is in `out`,
    /// complete after the next `flush`.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        match input {
            Input::Datagram { from, bytes } => self.datagram(now_ns, from, bytes, out),
            Input::Timer => self.timer(now_ns, out),
        }
        self.notice_ready(now_ns, out);
    }

    /// Ends a batch of inputs: entries for the successor and the acknowledgement for the predecessor are gathered until here, and all that goes out is
    /// signed.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.send_chain(now_ns, out);
        self.door.seal(out);
    }

    /// The backends of the object with that number from now on; `false`: it is no object with backends. Every server of a chain is to be told: the head
    /// chooses, and each may become it.
    pub fn set_backends(&mut self, object_id: u16, backends: Vec<backends::Backend>) -> bool {
        let object = self.records.object(object_id);
        match object.and_then(|object| self.records.pool_mut(object)) {
            Some(pool::Pool::Backends(pool)) => {
                pool.set_backends(backends);
                true
            }
            _ => false,
        }
    }

    /// Other secrets from now on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.door.set_keys(keys);
    }

    /// Becomes the head, with everything that an earlier one put down the chain. Until when its sessions live is not among that: each lives for one store
    /// lease from now, because every lease that was promised was promised before.
    pub fn take_over(&mut self, now_ns: u64) {
        let until_ns = now_ns + self.store_lease_ns;
        self.waiting.clear();
        for (_, session) in self.records.sessions.iter_mut() {
            session.lease_until_ns = session.lease_until_ns.max(until_ns);
        }
        self.watch_everything(now_ns);
    }

    /// When `Input::Timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        let idle = self.idle.next_deadline().filter(|_| self.broken.is_none());
        let resend = self.down.as_ref().and_then(|down| down.resend_at_ns()).filter(|_| self.broken.is_none());
        let down = self.down.as_ref().map(|down| down.hello_at_ns.min(resend.unwrap_or(u64::MAX)));
        [self.waiting.next_deadline(), idle, down].into_iter().flatten().min()
    }

    /// What the server counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Whether all links from here to the tail are up and no state was lost.
    pub fn is_ready(&self) -> bool {
        let up = self.up.as_ref().is_none_or(|up| up.peer != 0);
        let down = self.down.as_ref().is_none_or(|down| down.peer != 0 && down.ready);
        // The head has no predecessor to wait for; a server behind it is ready only once it has bound one.
        self.broken.is_none() && up && down
    }

    /// Whether this server is the head and answers requests.
    pub fn is_serving(&self, now_ns: u64) -> bool {
        self.up.is_none() && self.is_ready() && self.serve_from_ns.is_some_and(|from| now_ns >= from)
    }

    /// Digest of everything that a datagram could change, counters apart.
    pub fn digest(&self) -> u64 {
        let held = (self.waiting.len() as u64) << 32 | self.waiting.bytes() as u64;
        let peers = self.up.as_ref().map_or(0, |up| up.peer) ^ self.down.as_ref().map_or(0, |down| down.peer);
        [self.index, self.committed, held, peers, u64::from(self.broken.is_some())]
            .into_iter()
            .fold(self.records.full_digest(), |digest, part| SplitMix64::mix(digest ^ part))
    }

    fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let kind = match state_protocol::kind(bytes) {
            Ok(kind) => kind,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        match (self.door.check(from, bytes), kind) {
            (Err(NotGenuine::NoTag), _) => self.counters.count_malformed(Malformed::TooShort),
            (Err(_), _) => self.counters.bad_tag += 1,
            (Ok(()), Kind::Chain(_)) => self.chain_message(now_ns, from, bytes, out),
            (Ok(()), Kind::Message(MessageType::StatusRequest)) => self.answer_status(now_ns, from, bytes, out),
            (Ok(()), Kind::Message(_)) => self.request(now_ns, from, bytes, None, out),
        }
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        while let Some(slot) = self.waiting.due(now_ns) {
            self.look_again(now_ns, slot, out);
        }
        if self.broken.is_none() {
            self.remove_idle(now_ns, out);
        }
        self.chain_timer(now_ns);
    }

    /// Orders an entry: applies it here, and sends it down the chain or, at the tail, its reply out. `self.reply` holds the reply's bytes.
    /// Returns the slot of the record that the effect wrote.
    fn commit(&mut self, effect: &state_protocol::Effect<'_>, client: SocketAddrV4, out: &mut Outputs) -> Option<u32> {
        let slot = match self.records.apply(effect) {
            Ok(slot) => slot,
            Err(records::DoesNotApply) => {
                // The head made the effect from these very records.
                self.break_chain(BrokenReason::EntryDoesNotApply, out);
                return None;
            }
        };
        self.index += 1;
        let Some(down) = &mut self.down else {
            self.committed = self.index;
            self.send_reply(client, out);
            return slot;
        };
        let mut bytes = down.buffer();
        let entry = Entry { effect: *effect, client, reply: &self.reply };
        if entry.append_to(&mut bytes).is_err() {
            // Keys, values and packets were within bounds when they were decoded, so entries are too.
            self.break_chain(BrokenReason::EntryDoesNotApply, out);
            return None;
        }
        down.push(bytes);
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
        self.down
            .as_ref()
            .is_some_and(|down| down.unacked() >= limits.unacked || down.unacked_bytes() >= limits.unacked_bytes)
    }
}
