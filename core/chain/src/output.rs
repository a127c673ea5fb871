//! What is to be sent, written down and told: reused from batch to batch, so that steady state
//! allocates nothing.

use std::net::SocketAddrV4;

/// Datagrams to send, in order, and events to log.
#[derive(Debug, Default)]
pub struct Outputs {
    arena: Vec<u8>,
    datagrams: Vec<(SocketAddrV4, usize, usize)>,
    /// So many of them are signed.
    sealed: usize,
    /// To be made durable, behind everything before it; then `Replica::became_durable` is to
    /// be told `ticket`.
    pub journal: Vec<u8>,
    /// The number of what is in `journal`.
    pub ticket: u64,
    /// Nothing of this may be sent before `journal` is durable.
    pub barrier: bool,
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
        self.journal.clear();
        self.barrier = false;
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

    /// Like `datagrams`, but consecutive ones to one destination and of one length are joined into
    /// a run, which the kernel segments. The last of a run may be shorter. Datagrams of no byte or
    /// of more than `most_segment_bytes` stay alone.
    pub fn runs(
        &self,
        most_segments: usize,
        most_bytes: usize,
        most_segment_bytes: usize,
    ) -> impl Iterator<Item = Run<'_>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let &(to, start, mut end) = self.datagrams.get(next)?;
            let segment_bytes = end - start;
            next += 1;
            let may_grow = segment_bytes > 0 && segment_bytes <= most_segment_bytes;
            let mut segments = 1;
            while may_grow && segments < most_segments && end - start == segments * segment_bytes {
                // A datagram begins in the arena where the one before it ends.
                let Some(&(other, _, other_end)) = self.datagrams.get(next) else { break };
                let bytes = other_end - end;
                if other != to
                    || bytes == 0
                    || bytes > segment_bytes
                    || other_end - start > most_bytes
                {
                    break;
                }
                (end, next, segments) = (other_end, next + 1, segments + 1);
            }
            Some(Run { to, bytes: &self.arena[start..end], segment_bytes })
        })
    }

    /// Gives `sign` every datagram that it was not given yet.
    pub fn seal(&mut self, sign: impl Fn(SocketAddrV4, &mut [u8])) {
        for &(to, start, end) in &self.datagrams[self.sealed..] {
            sign(to, &mut self.arena[start..end]);
        }
        self.sealed = self.datagrams.len();
    }

    /// Adds a datagram whose bytes `fill` appends.
    pub fn push_with<R>(&mut self, to: SocketAddrV4, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.arena.len();
        let result = fill(&mut self.arena);
        self.datagrams.push((to, start, self.arena.len()));
        result
    }

    /// Adds a datagram.
    pub fn push(&mut self, to: SocketAddrV4, bytes: &[u8]) {
        self.push_with(to, |arena| arena.extend_from_slice(bytes));
    }
}

/// Datagrams to one destination, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// Where they go.
    pub to: SocketAddrV4,
    /// All of them.
    pub bytes: &'a [u8],
    /// The length of each but the last, which may be shorter; that of all, if it is one.
    pub segment_bytes: usize,
}

impl Run<'_> {
    /// Nothing for nobody.
    pub const EMPTY: Run<'static> = Run {
        to: SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0),
        bytes: &[],
        segment_bytes: 0,
    };
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
    /// The server lost power before it was synced: the controller ends this attempt to join,
    /// and makes another.
    CopyCutShort,
    /// An entry does not fit the state here.
    EntryDoesNotApply,
}

impl BrokenReason {
    /// A sentence for logs and status.
    pub fn describe(&self) -> String {
        match self {
            BrokenReason::MemberWithoutState => {
                "the view relies on state that this server does not have".to_owned()
            }
            BrokenReason::SuccessorAhead(address) => {
                format!("successor {address} has entries that this server lacks")
            }
            BrokenReason::CopyCutShort => {
                "power was lost before the copy of the shard was complete; this server will join \
                 again"
                    .to_owned()
            }
            BrokenReason::EntryDoesNotApply => {
                "an entry of the chain does not apply to the state here".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn runs_are_what_the_kernel_can_cut() {
        let to = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let mut out = Outputs::new();
        for (port, length) in [
            (1, 10),
            (1, 10),
            (1, 4),
            (1, 10),
            (2, 10),
            (2, 11),
            (2, 0),
            (2, 11),
            (2, 11),
            (2, 11),
            (2, 50),
            (2, 50),
        ] {
            out.push(to(port), &vec![length as u8; length]);
        }
        let runs: Vec<_> = out
            .runs(2, 1_000, 49)
            .map(|run| (run.to.port(), run.bytes.len(), run.segment_bytes))
            .collect();
        let expected = [
            (1, 20, 10),
            (1, 4, 4),
            (1, 10, 10),
            (2, 10, 10),
            (2, 11, 11),
            (2, 0, 0),
            (2, 22, 11),
            (2, 11, 11),
        ];
        assert_eq!(runs[..8], expected);
        assert_eq!(runs[8..], [(2, 50, 50), (2, 50, 50)]);
        let joined: Vec<_> = out.runs(64, 40, 100).map(|run| run.bytes.len()).collect();
        assert_eq!(joined, [24, 10, 10, 11, 0, 33, 50, 50]);
    }
}
