//! Updates through a chain of three servers, alone and in batches, allocate nothing once all
//! buffers have grown to their size.

mod common;

use common::{COUNTER, keys, server_address, settings, start, switch_address};
use state_protocol::{Flags, Message, MessageType, Owner};
use state_store::core::{Input, Limits, Node, Outputs, Settings};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddrV4;
use wire::{BatchHead, BatchRecord, RecordFlags};
use wire::{Member, ShardView, Views};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // Fails only while a thread ends.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from `System`, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SWITCH: Owner = Owner { switch_id: 1, incarnation: 1 };
const FLOWS: u32 = 64;
const BATCH: u32 = 32;
/// More than a generation of the requests that are remembered (a second and the lease's third), so
/// that all of it has its size.
const WARM_UP: u64 = 3_000;
const STEP_NS: u64 = 1_000_000;

/// Datagrams one behind the other, and of each the sender and where it ends.
type Inbox = (Vec<u8>, Vec<(SocketAddrV4, usize)>);

/// Servers that hand each other's datagrams over through buffers that stay.
struct Chain {
    nodes: Vec<Node>,
    inboxes: Vec<Inbox>,
    out: Outputs,
    replies: u64,
    now: u64,
}

impl Chain {
    fn post(inboxes: &mut [Inbox], to: usize, from: SocketAddrV4, bytes: &[u8]) {
        inboxes[to].0.extend_from_slice(bytes);
        inboxes[to].1.push((from, inboxes[to].0.len()));
    }

    /// Until nothing is under way.
    fn settle(&mut self, spare: &mut Inbox) {
        while self.inboxes.iter().any(|inbox| !inbox.1.is_empty())
            || self.nodes.iter().any(|node| node.next_deadline().is_some_and(|at| at <= self.now))
        {
            for (at, node) in self.nodes.iter_mut().enumerate() {
                std::mem::swap(spare, &mut self.inboxes[at]);
                let mut begin = 0;
                for (from, end) in &spare.1 {
                    let bytes = &spare.0[begin..*end];
                    node.handle(self.now, Input::Datagram { from: *from, bytes }, &mut self.out);
                    begin = *end;
                }
                spare.0.clear();
                spare.1.clear();
                if node.next_deadline().is_some_and(|deadline| deadline <= self.now) {
                    node.handle(self.now, Input::Timer, &mut self.out);
                }
                node.flush(self.now, &mut self.out);
                for (to, bytes) in self.out.datagrams() {
                    match (0..3).find(|place| server_address(*place) == to) {
                        Some(place) => {
                            Self::post(&mut self.inboxes, place, server_address(at), bytes)
                        }
                        None => self.replies += 1,
                    }
                }
                self.out.clear();
                self.out.events.clear();
            }
        }
    }
}

fn request(bytes: &mut Vec<u8>, flow: u32, epoch: u32, seq: u64, now: u64) {
    let (key, value) = (flow.to_be_bytes(), seq.to_be_bytes());
    let update = epoch > 0;
    let message = Message {
        message_type: if update { MessageType::Update } else { MessageType::LeaseRequest },
        object_id: COUNTER,
        flags: Flags::ALLOCATE,
        sender: SWITCH,
        request_ns: now,
        epoch,
        seq,
        lease_us: 0,
        port: 1,
        session: 0,
        shard: 0,
        key: &key,
        value: if update { &value } else { &[] },
        packet: &[0xab; 64],
    };
    bytes.clear();
    message.append_to(bytes).unwrap();
    assert!(keys().sign(bytes, *switch_address(1).ip(), *server_address(0).ip()));
}

/// A batch of an update of each flow, in the buffers of the last.
fn batch(bytes: &mut Vec<u8>, records: &mut Vec<u8>, flows: u32, epoch: u32, seq: u64, now: u64) {
    records.clear();
    for flow in 0..flows {
        let (flags, content) = (RecordFlags::NONE, &[][..]);
        let record = BatchRecord { object_id: COUNTER, flags, epoch, place: 0, seq, content };
        record.append_to(&flow.to_be_bytes(), &seq.to_be_bytes(), records).unwrap();
    }
    let head = BatchHead {
        flags: 0,
        switch_id: SWITCH.switch_id,
        incarnation: SWITCH.incarnation,
        request_ns: now,
        number: seq,
        view: 0,
        session: 0,
        stream: 0,
        client: *switch_address(1).ip(),
        shard: 0,
    };
    bytes.clear();
    wire::Batch::new(head, records).unwrap().append_to(bytes);
    assert!(keys().sign(bytes, *switch_address(1).ip(), *server_address(0).ip()));
}

#[test]
fn the_steady_state_allocates_nothing() {
    let limits = Limits { unacked: 4_096, ..settings().limits };
    let node = |at: usize| {
        let settings = Settings { limits, ..settings() };
        Node::new(settings, start(at as u64 + 1, 0), keys(), server_address(at), Vec::new())
    };
    let nodes: Vec<_> = (0..3).map(node).collect();
    let members: Vec<Member> = nodes.iter().map(Node::me).collect();
    let views = Views {
        version: 1,
        shards: vec![ShardView { number: 1, founded: 1, members, joining: None, draining: false }],
    };
    let inboxes = (0..3).map(|_| (Vec::new(), Vec::new())).collect();
    let mut chain = Chain { nodes, inboxes, out: Outputs::new(), replies: 0, now: 0 };
    let (mut spare, mut bytes) = ((Vec::new(), Vec::new()), Vec::new());
    for node in &mut chain.nodes {
        node.adopt(0, &views, &mut chain.out);
        node.flush(0, &mut chain.out); // lost: HELLOs are sent again
        chain.out.clear();
    }
    while !chain.nodes[0]
        .replicas()
        .any(|replica| replica.is_serving(chain.now) && replica.is_ready())
    {
        chain.now += STEP_NS;
        chain.settle(&mut spare);
    }
    for flow in 0..FLOWS {
        request(&mut bytes, flow, 0, 0, chain.now);
        Chain::post(&mut chain.inboxes, 0, switch_address(1), &bytes);
    }
    chain.settle(&mut spare);
    assert_eq!(chain.replies, u64::from(FLOWS));
    let object = chain.nodes[2].replicas().next().unwrap().records();
    let epoch = object.iter().next().unwrap().epoch;
    let mut seq = 0;
    let mut records = Vec::new();
    let mut updates = |chain: &mut Chain, rounds: u64| {
        for _ in 0..rounds {
            (chain.now, seq) = (chain.now + STEP_NS, seq + 1);
            for flow in 0..BATCH {
                request(&mut bytes, flow, epoch, seq, chain.now);
                Chain::post(&mut chain.inboxes, 0, switch_address(1), &bytes);
            }
            seq += 1;
            batch(&mut bytes, &mut records, BATCH, epoch, seq, chain.now + 1);
            Chain::post(&mut chain.inboxes, 0, switch_address(1), &bytes);
            chain.settle(&mut spare);
        }
    };
    updates(&mut chain, WARM_UP);
    let (before, replies) = (ALLOCATIONS.get(), chain.replies);
    // The flows that are not updated: their owner is asked whether it has them.
    let probes = |chain: &Chain| {
        chain.nodes[0].replicas().map(|replica| replica.counters().probes).sum::<u64>()
    };
    let probed = probes(&chain);
    updates(&mut chain, 1_000);
    assert_eq!(
        ALLOCATIONS.get() - before,
        0,
        "allocations of {} updates and as many in batches",
        1_000 * BATCH
    );
    let probed = probes(&chain) - probed;
    let answers = 1_000 * u64::from(BATCH + 1) + probed;
    assert_eq!(chain.replies - replies, answers, "each was answered");
}
