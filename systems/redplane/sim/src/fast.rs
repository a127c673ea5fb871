//! The chain's fast path in the world: what the program on a server's host does in the real world,
//! its reference (`fast_chain::take`) does here.

use crate::network::Datagram;
use crate::scenario::Machine;
use crate::store::{Store, server_address};
use crate::world::World;
use fast_chain::{Memory, Verdict, take};
use rand::Rng;
use state_store::core::{Node, Settings};
use std::sync::Arc;

/// Now and then user space is at work on the shard, and the program leaves the batch to it.
const BUSY: f64 = 0.1;
/// Records that a server's program can update: those of some flows find no room.
const RECORDS: u32 = 24;

/// What the servers share with their programs.
pub(crate) struct FastPaths {
    /// Whether servers have programs in this run.
    on: bool,
    memories: Vec<Option<Arc<Memory>>>,
    /// Batches that programs took.
    pub(crate) taken: u64,
}

impl FastPaths {
    pub(crate) fn new(on: bool, servers: usize) -> FastPaths {
        FastPaths { on, memories: (0..servers).map(|_| None).collect(), taken: 0 }
    }

    /// A server's next life begins: in runs that have programs, three of four lives have one.
    pub(crate) fn begin(&mut self, at: usize, settings: &Settings, seed: u64, node: &mut Node) {
        if self.on && !seed.is_multiple_of(4) {
            let memory = Memory::own(settings.fast_path(RECORDS, server_address(at), seed));
            node.use_fast_path(Arc::clone(&memory));
            self.memories[at] = Some(memory);
        }
    }

    /// A server dies, and its program with it.
    pub(crate) fn end(&mut self, at: usize) {
        self.memories[at] = None;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }
}

impl Store {
    /// The records of all servers have what their programs took.
    pub(crate) fn take_changes(&mut self) {
        if self.fast.is_on() {
            self.nodes.iter_mut().flatten().for_each(Node::take_changes);
        }
    }
}

impl World {
    /// A server's program takes a datagram, also while its user space stands still; false: it is
    /// user space's.
    pub(crate) fn program_takes(&mut self, at: usize, datagram: &Datagram) -> bool {
        let Some(memory) = &self.store.fast.memories[at] else { return false };
        let verdict = take(memory, datagram.from, &datagram.bytes);
        let Verdict::Send { to, datagram: bytes } = verdict else { return false };
        self.store.fast.taken += 1;
        let from = server_address(at);
        self.send(Machine::Server(at), Datagram { from, to, bytes });
        true
    }

    /// Whether the program of a server is about to leave what comes to user space.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.store.fast.is_on() && self.rng.random_bool(BUSY)
    }
}
