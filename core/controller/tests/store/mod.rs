//! A toy store: servers that count by name, clients that count up and read. It has no leases and
//! no clocks: what must hold is that no count is given twice, and that none is lost.
#![allow(dead_code)] // each test uses its part

#[path = "../../../chain/tests/common/counters.rs"]
mod counters;

use crate::world::{
    Clock, Datagram, MS, SHARDS, SWITCHES, World, controller_address, keys, server_address,
    switch_address,
};
use chain::{NodeSettings, Outputs, Replica, Restored, Settings, Shard, StateMachine, System};
use counters::{Change, Counters};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use wire::{HEADER_BYTES, MAGIC, Member, ShardReport, ShardView, VERSION};

/// Names that are counted.
const NAMES: u64 = 12;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// Where a message has its fields: the frame's own are in the first four bytes and from 52 on.
const OPERATION_AT: usize = 4;
const COUNT_AT: usize = 12;
const COUNTS_AT: usize = 20;
const NAME_AT: usize = 21;
const SHARD_AT: usize = 52;

/// A request, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    kind: u8,
    operation: u64,
    /// It counts up, and else reads.
    counts: bool,
    /// Of an answer: what was counted up to, or read.
    count: u64,
    name: u8,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        (bytes[2], bytes[3]) = (VERSION, self.kind);
        bytes[OPERATION_AT..OPERATION_AT + 8].copy_from_slice(&self.operation.to_be_bytes());
        bytes[COUNT_AT..COUNT_AT + 8].copy_from_slice(&self.count.to_be_bytes());
        (bytes[COUNTS_AT], bytes[NAME_AT]) = (u8::from(self.counts), self.name);
        bytes[SHARD_AT..SHARD_AT + 2].copy_from_slice(&shard_of(self.name).to_be_bytes());
        bytes
    }

    /// `None`: a message of the chain or of a controller.
    fn decode(bytes: &[u8]) -> Option<Message> {
        if bytes.len() != HEADER_BYTES || ![REQUEST, ANSWER].contains(&bytes[3]) {
            return None;
        }
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        Some(Message {
            kind: bytes[3],
            operation: number(OPERATION_AT),
            counts: bytes[COUNTS_AT] == 1,
            count: number(COUNT_AT),
            name: bytes[NAME_AT],
        })
    }
}

fn shard_of(name: u8) -> u16 {
    wire::shard_of(&[name], SHARDS)
}

/// One shard's counters.
pub struct Counting(Replica<Counters>);

impl Shard for Counting {
    type State = Counters;

    fn chain(&self) -> &Replica<Counters> {
        &self.0
    }

    fn chain_mut(&mut self) -> &mut Replica<Counters> {
        &mut self.0
    }

    fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        self.0.adopt(now_ns, view, out);
    }

    /// The head orders the answer behind what it counted; the tail sends it.
    fn request(&mut self, _: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let Some(request) = Message::decode(bytes) else { return };
        if request.kind != REQUEST || !self.0.may_order() || self.0.is_backed_up() {
            return;
        }
        let name = [request.name];
        let count = self.0.state().reached(&name) + u64::from(request.counts);
        let change = match request.counts {
            true => Change::Set { name: &name, count },
            false => Change::Nothing,
        };
        let answer = Message { kind: ANSWER, count, ..request };
        self.0.order(change, from, &answer.encode(), out);
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        self.0.timer(now_ns, out);
    }

    fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }
}

/// What makes them.
pub struct Maker(Member);

impl System for Maker {
    type Shard = Counting;

    fn begin(&mut self, _: u64, shard: u16) -> Counting {
        let settings = Settings {
            shard,
            config_digest: 7,
            resend_ns: 10 * MS,
            datagram_bytes: 1_400,
            unacked: 256,
            unacked_bytes: 1 << 20,
        };
        Counting(Replica::new(settings, self.0, Counters::default()))
    }

    fn end(&mut self, _: Counting) {}
}

/// A server process.
pub type Node = chain::Node<Maker>;

/// A server's start. The toy has neither epochs nor random numbers.
pub struct Life {
    pub incarnation: u64,
    pub epoch_base: u32,
    pub seed: u64,
    pub now_ns: u64,
}

pub fn start(address: SocketAddrV4, life: Life) -> Node {
    let me = Member { address, incarnation: life.incarnation };
    let settings = NodeSettings { shards: SHARDS, me, now_ns: life.now_ns };
    Node::new(Maker(me), settings, keys(), vec![controller_address()])
}

/// Goes on with what was written, if anything was.
pub fn keep_journal(node: &mut Node, now_ns: u64, written: &[u8], out: &mut Outputs) {
    let mut restored = Restored::new(Counters::default(), SHARDS);
    restored.read(written).unwrap();
    node.keep_journal(now_ns, (!written.is_empty()).then_some(restored), out);
}

pub fn datagram(node: &mut Node, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
    if node.admit(now_ns, from, bytes).is_ok() {
        node.datagram(now_ns, from, bytes, out);
    }
}

pub fn timer(node: &mut Node, now_ns: u64, out: &mut Outputs) {
    node.timer(now_ns, out);
}

pub fn digest(node: &Node, shard: u16) -> u64 {
    node.replica(shard).unwrap().chain().state().digest()
}

pub fn report(node: &Node, shard: u16) -> ShardReport {
    node.replica(shard).unwrap().chain().report(0)
}

/// What must hold, over all of a run.
#[derive(Default, Debug)]
pub struct Checks {
    /// Which operation got a name's count.
    counted: HashMap<(u8, u64), u64>,
    /// The highest count of a name that a client was told.
    told: HashMap<u8, u64>,
    /// Of each operation: the highest count of its name that was told when it began.
    began: HashMap<u64, u64>,
    /// The highest count of a name in a server's answer.
    answered: HashMap<u8, u64>,
    reads: u64,
}

impl Checks {
    /// A run in which nobody read is about nothing.
    pub fn was_tried(&self) -> bool {
        self.reads > 100
    }

    /// At the end nothing that was answered is missing.
    pub fn all_is_there(&self, node: &Node, shard: u16) {
        for (name, count) in &self.answered {
            if shard_of(*name) == shard {
                let reached = node.replica(shard).unwrap().chain().state().reached(&[*name]);
                assert!(reached >= *count, "name {name}: {count} answered, {reached} there");
            }
        }
    }
}

/// A client, where a switch would be.
pub struct Switch {
    id: u32,
    operations: u64,
}

impl Switch {
    pub fn new(id: u32, _: Clock) -> Switch {
        Switch { id, operations: 0 }
    }
}

impl World {
    /// A server says this: an answer is on every server that the controller's database counts on.
    pub fn said(&mut self, _: usize, bytes: &[u8]) {
        let Some(answer) = Message::decode(bytes).filter(|message| message.kind == ANSWER) else {
            return;
        };
        let Message { operation, counts, count, name, .. } = answer;
        let shard = shard_of(name);
        self.served(shard);
        for node in self.counted_on(shard) {
            let reached = node.replica(shard).map(|it| it.chain().state().reached(&[name]));
            assert!(
                reached >= Some(count),
                "name {name}: {count} answered, {reached:?} at {:?}",
                node.me()
            );
        }
        let checks = &mut self.checks.store;
        let newest = checks.answered.entry(name).or_default();
        *newest = count.max(*newest);
        if counts {
            let by = *checks.counted.entry((name, count)).or_insert(operation);
            assert_eq!(by, operation, "{count} of name {name} was given twice");
        }
    }

    /// To the head that the controller's newest views name; now and then to somebody else.
    pub fn tick(&mut self, at: usize) {
        if self.quiet {
            return;
        }
        let pause = self.draw(4 * MS) + 1;
        self.tick_after(pause, at);
        let (name, counts) = (self.draw(NAMES) as u8, self.chance(60));
        let client = &mut self.switches[at];
        client.operations += 1;
        let operation = client.operations * u64::from(SWITCHES) + u64::from(client.id - 1);
        let from = switch_address(client.id);
        let told = self.checks.store.told.get(&name).copied().unwrap_or(0);
        self.checks.store.began.insert(operation, told);
        let head = self.database.heads().nth(usize::from(shard_of(name))).flatten();
        let Some(mut head) = head else { return };
        if self.faults && self.chance(3) {
            head = server_address(self.draw(5) as usize);
        }
        let mut bytes = Message { kind: REQUEST, operation, counts, count: 0, name }.encode();
        keys().sign(&mut bytes, *from.ip(), *head.ip());
        self.transmit(Datagram { from, to: head, bytes });
    }

    /// What is told is not older than what was told when the question was asked.
    pub fn switch_receives(&mut self, _: usize, bytes: &[u8]) {
        let answer = Message::decode(bytes).expect("an answer");
        let checks = &mut self.checks.store;
        let began = checks.began.get(&answer.operation).copied().unwrap_or(0);
        let Message { counts, count, name, .. } = answer;
        assert!(
            count >= began + u64::from(counts),
            "name {name}: {count} is told after {began} had been"
        );
        checks.reads += u64::from(!counts);
        let told = checks.told.entry(name).or_default();
        *told = count.max(*told);
    }
}
