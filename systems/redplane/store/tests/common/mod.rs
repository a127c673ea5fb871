//! A chain of servers in one process, with a perfect network and a clock that the test sets.
#![allow(dead_code)]

pub mod engine;
pub mod member;
pub mod switch;

pub use member::Server;
use state_protocol::{Flags, Message, MessageType, Owner};
use state_store::core::{
    AllocatorSettings, BackendPolicy, BackendSettings, IdleNs, Input, Limits, NatSettings,
    ObjectSettings, Outputs, Record, Settings, Start,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Batch, BatchAck, BatchHead};
use wire::{Control, KeyRing, SECRET_BYTES, Secret, Views};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const COUNTER: u16 = 1;
pub const NAT: u16 = 2;
pub const BALANCER: u16 = 3;
pub const LEASE_US: u32 = 100_000;
pub const TENURE: u64 = 40 * MS;
/// What the store waits: the lease, 1000 ppm, 1 ms.
pub const STORE_LEASE: u64 = 100 * MS + 100_000 + MS;

pub fn server_address(at: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at as u8 + 1), 5407)
}

pub fn switch_address(switch_id: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, switch_id as u8), 5407)
}

/// The secrets of all tests: number 1 is sent with, 2 is accepted too.
pub fn keys() -> KeyRing {
    let mut keys = KeyRing::new(1, Secret([1; SECRET_BYTES])).unwrap();
    assert!(keys.accept(2, Secret([2; SECRET_BYTES])));
    keys
}

/// The message, signed.
pub fn signed(message: &Message<'_>, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.append_to(&mut bytes).unwrap();
    assert!(keys().sign(&mut bytes, *from.ip(), *to.ip()));
    bytes
}

pub fn settings() -> Settings {
    let idle_ns = IdleNs { tcp: 7_440 * SECOND, udp: 2 * SECOND, icmp: SECOND, other: 3 * SECOND };
    let external = vec![Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2)];
    let nat = NatSettings { external, ports: 2_000..=2_003, idle_ns };
    let balancer = BackendSettings { policy: BackendPolicy::LeastConnections, idle_ns };
    let counter = AllocatorSettings::Zero { idle_ns: Some(4 * SECOND) };
    let object = |id, name: &str, key_bytes, value_bytes, allocator| ObjectSettings {
        name: name.to_owned(),
        id,
        key_bytes,
        value_bytes,
        allocator,
        closed_ns: SECOND,
        half_open_ns: 5 * SECOND,
        shard_bytes: None,
    };
    Settings {
        shard: 0,
        shards: 1,
        lease_us: LEASE_US,
        clock_drift_ppm: 1_000,
        lease_margin_us: 1_000,
        hold_ns: 200 * MS,
        tenure_ns: TENURE,
        recall_resend_ns: 5 * MS,
        resend_ns: 10 * MS,
        chain_datagram_bytes: 1_400,
        limits: Limits {
            records: 1_000,
            sessions: 16,
            held: 8,
            held_per_flow: 4,
            held_bytes: 4_096,
            unacked: 64,
            unacked_bytes: 1 << 20,
        },
        objects: vec![
            object(COUNTER, "counter", 4, 8, counter),
            object(NAT, "nat", 13, 6, AllocatorSettings::NatPorts(nat)),
            object(BALANCER, "balancer", 13, 6, AllocatorSettings::Backends(balancer)),
        ],
    }
}

pub fn start(incarnation: u64, now_ns: u64) -> Start {
    Start { incarnation, epoch_base: 1_000, seed: incarnation, now_ns }
}

/// A datagram on its way.
#[derive(Clone)]
pub struct Datagram {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub bytes: Vec<u8>,
}

pub struct Chain {
    pub servers: Vec<Server>,
    pub now: u64,
    /// Datagrams from or to these servers are lost.
    pub down: Vec<usize>,
    /// Of the datagrams under way the newest comes first.
    pub newest_first: bool,
    /// What the switches were sent, oldest first.
    pub replies: VecDeque<Datagram>,
    /// Who sent the last acknowledgement that `batch` gave.
    pub last_reply_from: SocketAddrV4,
    batches: u64,
    stamp: u64,
    queue: VecDeque<Datagram>,
}

impl Chain {
    /// A chain that serves.
    pub fn new(length: usize) -> Chain {
        Chain::with(length, |_| {})
    }

    pub fn with(length: usize, adjust: impl Fn(&mut Settings)) -> Chain {
        let mut chain = Chain::unformed(length, |_, settings| adjust(settings));
        chain.run_until(SECOND);
        assert!(chain.servers[0].is_serving(chain.now), "{:?}", chain.servers[0].status(chain.now));
        chain
    }

    pub fn unformed(length: usize, adjust: impl Fn(usize, &mut Settings)) -> Chain {
        let server = |at: usize| {
            let mut settings = settings();
            adjust(at, &mut settings);
            Server::founding(settings, start(at as u64 + 1, 0), at, length)
        };
        let servers = (0..length).map(server).collect();
        Chain {
            servers,
            now: 0,
            down: Vec::new(),
            newest_first: false,
            replies: VecDeque::new(),
            last_reply_from: server_address(0),
            batches: 0,
            stamp: 0,
            queue: VecDeque::new(),
        }
    }

    /// Lets all timers up to `until` fire.
    pub fn run_until(&mut self, until: u64) {
        let mut stuck = 0;
        loop {
            self.settle();
            let next = self.servers.iter().filter_map(Server::next_deadline).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            stuck = if next > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 10, "a deadline that does not move: {next}");
            self.now = self.now.max(next);
            for at in 0..self.servers.len() {
                self.handle(at, Input::Timer);
            }
        }
        self.now = until;
        for at in 0..self.servers.len() {
            self.handle(at, Input::Timer);
        }
        self.settle();
    }

    pub fn advance(&mut self, by: u64) {
        self.run_until(self.now + by);
    }

    pub fn handle(&mut self, at: usize, input: Input<'_>) {
        let mut out = Outputs::new();
        self.servers[at].handle(self.now, input, &mut out);
        self.servers[at].flush(self.now, &mut out);
        let from = server_address(at);
        self.queue.extend(out.datagrams().map(|(to, bytes)| Datagram {
            from,
            to,
            bytes: bytes.to_vec(),
        }));
    }

    fn settle(&mut self) {
        while let Some(datagram) =
            if self.newest_first { self.queue.pop_back() } else { self.queue.pop_front() }
        {
            let place = |address| (0..self.servers.len()).find(|at| server_address(*at) == address);
            let lost = |at: Option<usize>| at.is_some_and(|at| self.down.contains(&at));
            let to = place(datagram.to);
            if lost(place(datagram.from)) || lost(to) {
                continue;
            }
            match to {
                Some(at) => {
                    self.handle(at, Input::Datagram { from: datagram.from, bytes: &datagram.bytes })
                }
                None => self.replies.push_back(datagram),
            }
        }
    }

    /// Sends to the head from a switch's address, signed, and lets everything settle. A message
    /// without `request_ns` is sent now.
    pub fn send(&mut self, message: &Message<'_>) {
        let mut message = *message;
        if message.request_ns == 0 {
            self.stamp = self.now.max(self.stamp + 1);
            message.request_ns = self.stamp;
        }
        let from = switch_address(message.sender.switch_id);
        self.send_bytes(from, &signed(&message, from, server_address(0)));
    }

    /// Gives the servers that are named a view of the chain.
    pub fn adopt(&mut self, version: u64, members: &[(usize, u64)], servers: &[usize]) {
        self.tell(&member::views(version, 0, 1, members), servers);
    }

    /// Gives the servers that are named these views.
    pub fn tell(&mut self, views: &Views, servers: &[usize]) {
        let controller = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 5408);
        for at in servers {
            let mut bytes = Control::Views(views.clone()).encode().unwrap();
            assert!(keys().sign(&mut bytes, *controller.ip(), *server_address(*at).ip()));
            self.handle(*at, Input::Datagram { from: controller, bytes: &bytes });
        }
        self.settle();
    }

    /// The same to another server than the first.
    pub fn send_to(&mut self, at: usize, message: &Message<'_>) {
        self.stamp = self.now.max(self.stamp + 1);
        let from = switch_address(message.sender.switch_id);
        let bytes =
            signed(&Message { request_ns: self.stamp, ..*message }, from, server_address(at));
        self.handle(at, Input::Datagram { from, bytes: &bytes });
        self.settle();
    }

    pub fn send_bytes(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        self.handle(0, Input::Datagram { from, bytes });
        self.settle();
    }

    /// What a batch of the switch says, sent now.
    pub fn batch_head(&mut self, sender: Owner) -> BatchHead {
        self.stamp = self.now.max(self.stamp + 1);
        self.batches += 1;
        BatchHead {
            flags: 0,
            switch_id: sender.switch_id,
            incarnation: sender.incarnation,
            request_ns: self.stamp,
            number: self.batches,
            view: 0,
            session: 0,
            stream: 0,
            client: *switch_address(sender.switch_id).ip(),
            shard: 0,
        }
    }

    /// Sends records in a batch, and takes the acknowledgement, if one comes.
    pub fn batch(&mut self, sender: Owner, records: &[u8]) -> Option<BatchAck> {
        let head = self.batch_head(sender);
        self.batch_with(head, records)
    }

    /// The same, under this header.
    pub fn batch_with(&mut self, head: BatchHead, records: &[u8]) -> Option<BatchAck> {
        let from = switch_address(head.switch_id);
        let mut bytes = Vec::new();
        Batch::new(head, records).unwrap().append_to(&mut bytes);
        assert!(keys().sign(&mut bytes, *from.ip(), *server_address(0).ip()));
        self.send_bytes(from, &bytes);
        let is_ack = |reply: &Datagram| BatchAck::decode(&reply.bytes).is_ok();
        let at = self.replies.iter().position(is_ack)?;
        let reply = self.replies.remove(at)?;
        let (source, to) = (reply.from, reply.to);
        assert_eq!(keys().verify(&reply.bytes, *source.ip(), *to.ip()), Ok(()));
        let ack = BatchAck::decode(&reply.bytes).unwrap();
        assert_eq!((to, ack.head.number), (from, head.number));
        self.last_reply_from = source;
        Some(ack)
    }

    /// The oldest reply not yet looked at.
    pub fn reply(&mut self) -> Option<Reply> {
        self.replies.pop_front().map(Reply)
    }

    /// Sends, and takes the answer.
    pub fn ask(&mut self, message: &Message<'_>) -> Reply {
        assert!(self.replies.is_empty());
        self.send(message);
        let reply = self.reply().expect("no answer");
        assert_eq!(reply.0.to, switch_address(message.sender.switch_id));
        let read = reply.message();
        assert!(message.request_ns == 0 || read.request_ns == message.request_ns);
        assert_eq!(
            (read.sender, read.port, read.shard),
            (message.sender, message.port, message.shard)
        );
        assert_eq!((read.object_id, read.key), (message.object_id, message.key));
        reply
    }

    /// Sends, and takes the newest answer; whatever was sent before is not looked at.
    pub fn ask_last(&mut self, message: &Message<'_>) -> Reply {
        self.replies.clear();
        self.send(message);
        Reply(self.replies.pop_back().expect("no answer"))
    }

    /// Takes all replies: who was sent what.
    pub fn sent(&mut self) -> Vec<(u32, MessageType)> {
        let of = |reply: Datagram| (u32::from(reply.to.ip().octets()[3]), Reply(reply).kind());
        self.replies.drain(..).map(of).collect()
    }

    /// Until `until`, the switch sends a heartbeat every third of a lease, and its answers are
    /// taken away.
    pub fn keep_alive(&mut self, sender: Owner, until: u64) {
        while self.now < until {
            self.send(&heartbeat(sender));
            self.replies.retain(|reply| Reply(reply.clone()).kind() != MessageType::HeartbeatAck);
            self.run_until(until.min(self.now + u64::from(LEASE_US) * 1_000 / 3));
        }
    }

    /// The record of a counter at the head.
    pub fn record(&self, key: &[u8]) -> &Record {
        let records = self.servers[0].records();
        records.get(records.find(0, key).expect("no record"))
    }

    pub fn head(&self) -> &Server {
        &self.servers[0]
    }

    /// All servers have the same records.
    pub fn assert_alike(&self) {
        let digests: Vec<_> =
            self.servers.iter().map(|server| server.records().shared_digest()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
    }
}

pub struct Reply(pub Datagram);

impl Reply {
    /// The message, which must be genuine.
    pub fn message(&self) -> Message<'_> {
        assert_eq!(keys().verify(&self.0.bytes, *self.0.from.ip(), *self.0.to.ip()), Ok(()));
        Message::decode(&self.0.bytes).unwrap()
    }

    pub fn kind(&self) -> MessageType {
        self.message().message_type
    }

    pub fn epoch(&self) -> u32 {
        self.message().epoch
    }

    pub fn session(&self) -> u32 {
        self.message().session
    }
}

pub fn owner(switch_id: u32, incarnation: u32) -> Owner {
    Owner { switch_id, incarnation }
}

pub fn message<'a>(
    message_type: MessageType,
    object_id: u16,
    sender: Owner,
    key: &'a [u8],
) -> Message<'a> {
    Message {
        message_type,
        object_id,
        flags: Flags::NONE,
        sender,
        request_ns: 0,
        epoch: 0,
        seq: 0,
        lease_us: 0,
        port: 9,
        session: 0,
        shard: 0,
        key,
        value: &[],
        packet: &[],
    }
}

pub fn lease(object_id: u16, sender: Owner, key: &[u8]) -> Message<'_> {
    Message { flags: Flags::ALLOCATE, ..message(MessageType::LeaseRequest, object_id, sender, key) }
}

pub fn update<'a>(
    sender: Owner,
    key: &'a [u8],
    epoch: u32,
    seq: u64,
    value: &'a [u8],
) -> Message<'a> {
    Message { epoch, seq, value, ..message(MessageType::Update, COUNTER, sender, key) }
}

pub fn heartbeat(sender: Owner) -> Message<'static> {
    message(MessageType::Heartbeat, 0, sender, &[])
}

pub fn release<'a>(
    sender: Owner,
    key: &'a [u8],
    epoch: u32,
    seq: u64,
    value: &'a [u8],
) -> Message<'a> {
    Message { epoch, seq, value, ..message(MessageType::Release, COUNTER, sender, key) }
}

pub fn read_commit(sender: Owner, key: &[u8], epoch: u32, seq: u64) -> Message<'_> {
    Message {
        epoch,
        seq,
        packet: b"read",
        ..message(MessageType::ReadCommit, COUNTER, sender, key)
    }
}

/// A counter's value.
pub fn count_of(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_be_bytes)
}
