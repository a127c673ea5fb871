//! A server of which a test looks at one shard: a `Node` with the views that the test gives it.

use super::{keys, server_address};
use fast_chain::{Memory, Verdict, take};
use state_store::core::{
    Counters, Input, Node, NodeStatus, Outputs, Records, ReplicaStatus, Settings, Start,
};
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{KeyRing, Member, ShardView, Views};

pub struct Server {
    pub node: Node,
    shard: u16,
    shards: u16,
    /// Shared with its program, if it has one.
    memory: Option<Arc<Memory>>,
}

/// A shard's chain (the others have none), of servers at these places with these incarnations, head
/// first.
pub fn views(version: u64, shard: u16, shards: u16, members: &[(usize, u64)]) -> Views {
    let member =
        |&(at, incarnation): &(usize, u64)| Member { address: server_address(at), incarnation };
    let members = members.iter().map(member).collect();
    let view = ShardView { number: version, founded: 1, members, joining: None, draining: false };
    let view = |at| if at == shard { view.clone() } else { ShardView::default() };
    Views { version, shards: (0..shards).map(view).collect() }
}

impl Server {
    /// Not in any chain yet.
    pub fn new(settings: Settings, start: Start, at: usize) -> Server {
        let (shard, shards) = (settings.shard, settings.shards);
        Server {
            shard,
            shards,
            memory: None,
            node: Node::new(settings, start, keys(), server_address(at), Vec::new()),
        }
    }

    /// One of the first servers of a chain of `length`, all with their place + 1 as incarnation.
    pub fn founding(settings: Settings, start: Start, at: usize, length: usize) -> Server {
        Server::founding_with(settings, start, at, length, None)
    }

    /// The same, with a program that has this memory.
    pub fn founding_with(
        settings: Settings,
        start: Start,
        at: usize,
        length: usize,
        memory: Option<Arc<Memory>>,
    ) -> Server {
        let mut server = Server::new(settings, start, at);
        if let Some(memory) = memory {
            server.use_fast_path(memory);
        }
        let chain: Vec<_> = (0..length).map(|at| (at, at as u64 + 1)).collect();
        let mut out = Outputs::new();
        server.node.adopt(start.now_ns, &views(1, server.shard, server.shards, &chain), &mut out);
        server.node.flush(start.now_ns, &mut out); // HELLOs that are lost
        server
    }

    /// The same, keeping a journal; what it wrote so far, which is to be durable.
    pub fn founding_with_journal(
        settings: Settings,
        start: Start,
        at: usize,
        length: usize,
    ) -> (Server, Vec<u8>) {
        let mut server = Server::new(settings, start, at);
        let chain: Vec<_> = (0..length).map(|at| (at, at as u64 + 1)).collect();
        let mut out = Outputs::new();
        server.node.keep_journal(start.now_ns, None, &mut out);
        server.node.adopt(start.now_ns, &views(1, server.shard, server.shards, &chain), &mut out);
        server.node.flush(start.now_ns, &mut out);
        server.node.durable(out.ticket, &mut out);
        (server, out.journal)
    }

    /// What such a server is after a power cut that left `journal`.
    pub fn restored(
        settings: Settings,
        start: Start,
        at: usize,
        journal: &[u8],
        out: &mut Outputs,
    ) -> Server {
        let mut restored = settings.nothing_restored();
        restored.read(journal).unwrap();
        let mut server = Server::new(settings, start, at);
        server.node.keep_journal(start.now_ns, Some(restored), out);
        server
    }

    /// Its program takes part from now on. To be called before its first input.
    pub fn use_fast_path(&mut self, memory: Arc<Memory>) {
        self.node.use_fast_path(Arc::clone(&memory));
        self.memory = Some(memory);
    }

    /// What its program makes of a datagram.
    pub fn program(&self, from: SocketAddrV4, bytes: &[u8]) -> Verdict {
        self.memory.as_ref().map_or(Verdict::Other, |memory| take(memory, from, bytes))
    }

    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, out: &mut Outputs) {
        self.node.handle(now_ns, input, out);
    }

    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) {
        self.node.flush(now_ns, out);
    }

    pub fn set_keys(&mut self, keys: KeyRing) {
        self.node.set_keys(keys);
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.node.next_deadline()
    }

    fn replica(&self) -> &state_store::core::Replica {
        self.node.replica(self.shard).expect("not in the chain")
    }

    pub fn records(&self) -> &Records {
        self.replica().records()
    }

    pub fn is_serving(&self, now_ns: u64) -> bool {
        self.replica().is_serving(now_ns)
    }

    pub fn digest(&self) -> u64 {
        self.replica().digest()
    }

    pub fn status(&self, now_ns: u64) -> ReplicaStatus {
        self.replica().status(now_ns)
    }

    pub fn node_status(&self, now_ns: u64) -> NodeStatus {
        self.node.status(now_ns)
    }

    pub fn counters(&self) -> Counters {
        self.node.counters()
    }
}
