//! What the core wants sent and told: reused from batch to batch, so that steady state allocates nothing.

use std::net::SocketAddrV4;

/// Datagrams to send, in order, and events to log.
#[derive(Debug, Default)]
pub struct Outputs {
    arena: Vec<u8>,
    datagrams: Vec<(SocketAddrV4, usize, usize)>,
    /// So many of them are signed.
    sealed: usize,
    /// What an operator should know of; the shell logs and removes them.
    pub events: Vec<Event>,
}

impl Outputs {
    /// Nothing to send.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all datagrams, keeps the memory and the events.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.datagrams.clear();
        self.sealed = 0;
    }

    /// How many datagrams there are to send.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The datagrams with their destinations, in the order they were decided.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddrV4, &[u8])> {
        self.datagrams.iter().map(|&(to, start, end)| (to, &self.arena[start..end]))
    }

    /// Gives `sign` every datagram that it was not given yet.
    pub(crate) fn seal(&mut self, sign: impl Fn(SocketAddrV4, &mut [u8])) {
        for &(to, start, end) in &self.datagrams[self.sealed..] {
            sign(to, &mut self.arena[start..end]);
        }
        self.sealed = self.datagrams.len();
    }

    /// Adds a datagram whose bytes `fill` appends.
    pub(crate) fn push_with<R>(&mut self, to: SocketAddrV4, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.arena.len();
        let result = fill(&mut self.arena);
        self.datagrams.push((to, start, self.arena.len()));
        result
    }

    /// Adds a datagram.
    pub(crate) fn push(&mut self, to: SocketAddrV4, bytes: &[u8]) {
        self.push_with(to, |arena| arena.extend_from_slice(bytes));
    }
}

/// What an operator should know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A newer view of a shard.
    View {
        /// The shard.
        shard: u16,
        /// The view's number.
        number: u64,
        /// What this server is in it.
        role: Role,
    },
    /// This server is in the shard's chain no more; its replica is gone.
    Left {
        /// The shard.
        shard: u16,
    },
    /// The link to the successor is up.
    SuccessorBound(SocketAddrV4),
    /// All links down to the tail are up.
    Ready {
        /// The shard.
        shard: u16,
    },
    /// This server's replica cannot go on.
    Broken(BrokenReason),
    /// The neighbour at this address has another configuration.
    ConfigMismatch(SocketAddrV4),
    /// The controller's views are for another number of shards.
    ShardsMismatch {
        /// The controller's.
        views: usize,
        /// This server's.
        own: u16,
    },
}

/// What a server is in a shard's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Not in it.
    Outside,
    /// Decides (and answers, if there is no other).
    Head,
    /// Between head and tail.
    Middle,
    /// Answers.
    Tail,
    /// Catches up behind the tail.
    Joining,
}

/// Why a replica stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenReason {
    /// The view names this server as a member, and its copy is not done.
    MemberWithoutState,
    /// The successor at this address has entries that this server does not have.
    SuccessorAhead(SocketAddrV4),
    /// An entry from the predecessor does not fit the records here.
    EntryDoesNotApply,
}

impl BrokenReason {
    /// A sentence for logs and status.
    pub fn describe(&self) -> String {
        match self {
            BrokenReason::MemberWithoutState => "the view counts on state that this server does not have".to_owned(),
            BrokenReason::SuccessorAhead(address) => format!("successor {address} has entries that this server lacks"),
            BrokenReason::EntryDoesNotApply => "an entry of the chain does not apply to the records here".to_owned(),
        }
    }
}
