//! The sans-IO core of a store server: `(now, datagram or timer) -> datagrams`.
//!
//! Owns the records, leases, held requests, allocators and the chain's order; must not know sockets, clocks or files. Time is the caller's, in ns
//! of any clock that does not go back. The rules are those of `docs/state-protocol.md`; `request` has the head's, `chain` the chain's.

mod blob;
mod chain;
mod counters;
mod link;
pub mod nat;
mod output;
mod records;
mod request;
mod rng;
mod settings;
mod status;
mod waiting;

pub use counters::Counters;
pub use output::{BrokenReason, Event, Outputs};
pub use records::{Record, Records};
pub use rng::SplitMix64;
pub use settings::{AllocatorSettings, EPOCH_TICK_NS, IdleNs, Limits, NatSettings, ObjectSettings, Settings, Start};
pub use status::{ObjectStatus, Status};

use link::{Downstream, Upstream};
use state_protocol::{Entry, Kind, MessageType};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddrV4;
use waiting::Waiting;

/// Most idle records looked at in one go, so that a wave of them does not hold up requests.
const IDLE_BATCH: usize = 256;
const IDLE_RETRY_NS: u64 = 10_000_000;

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
    waiting: Waiting,
    /// Head: when to look whether a record is idle: time, slot, generation.
    idle: BinaryHeap<Reverse<(u64, u32, u32)>>,
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
    pub fn new(settings: Settings, start: Start) -> Server {
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
            waiting: Waiting::default(),
            idle: BinaryHeap::new(),
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

    /// Ends a batch of inputs: entries for the successor and the acknowledgement for the predecessor are gathered until here.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.send_chain(now_ns, out);
    }

    /// When `Input::Timer` is due, in ns; `None`: not before another input.
    pub fn next_deadline(&self) -> Option<u64> {
        let idle = self.idle.peek().map(|Reverse((at, ..))| *at).filter(|_| self.broken.is_none());
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
        match state_protocol::kind(bytes) {
            Ok(Kind::Chain(_)) => self.chain_message(now_ns, from, bytes, out),
            Ok(Kind::Message(MessageType::StatusRequest)) => self.answer_status(now_ns, from, bytes, out),
            Ok(Kind::Message(_)) => self.request(now_ns, from, bytes, None, out),
            Err(reason) => self.counters.count_malformed(reason),
        }
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        while let Some(slot) = self.waiting.due(now_ns) {
            self.wake(now_ns, slot, out);
        }
        self.remove_idle(now_ns, out);
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

    /// Looks again at the requests held for a record.
    fn wake(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        for waiter in self.waiting.take(slot) {
            if waiter.expires_ns <= now_ns {
                self.counters.held_expired += 1;
            } else {
                self.request(now_ns, waiter.client, &waiter.datagram, Some(waiter.expires_ns), out);
            }
        }
    }

    /// Watches a new record (or pair) for idleness.
    fn watch_idle(&mut self, now_ns: u64, slot: u32) {
        let record = self.records.get(slot);
        if let Some(idle_ns) = self.records.settings(record.object).idle_ns(record.key.as_slice()) {
            self.idle.push(Reverse((now_ns + idle_ns, slot, record.generation)));
        }
    }

    /// Head: removes records that nobody asked for in their idle time and on which no lease lives, with their pairs. Each record (of a pair,
    /// the primary one) has one entry in the heap, moved on when it turns out to have been used.
    fn remove_idle(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.broken.is_some() {
            return;
        }
        for _ in 0..IDLE_BATCH {
            match self.idle.peek() {
                Some(&Reverse((at, ..))) if at <= now_ns => {}
                _ => return,
            }
            let Some(Reverse((_, slot, generation))) = self.idle.pop() else { return };
            let Some(record) = self.records.current(slot, generation) else { continue };
            let settings = self.records.settings(record.object);
            let Some(idle_ns) = settings.idle_ns(record.key.as_slice()) else { continue };
            let in_use_until = |record: &Record| record.lease_until_ns.max(record.last_used_ns + idle_ns);
            let pair = record.pair.map(|pair| (pair, self.records.get(pair)));
            let until = in_use_until(record).max(pair.map_or(0, |(_, pair)| in_use_until(pair)));
            let held = self.waiting.len_of(slot) + pair.map_or(0, |(pair, _)| self.waiting.len_of(pair));
            if until > now_ns {
                self.idle.push(Reverse((until, slot, generation)));
            } else if held > 0 || self.is_backed_up() || !self.is_ready() {
                self.idle.push(Reverse((now_ns + IDLE_RETRY_NS, slot, generation)));
            } else {
                let (object_id, key) = (settings.id, record.key.clone());
                self.counters.freed += 1 + u64::from(pair.is_some());
                self.reply.clear();
                let nobody = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
                self.commit(&state_protocol::Effect::Free { object_id, key: key.as_slice() }, nobody, out);
            }
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
