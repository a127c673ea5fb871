//! What the core must know of its configuration. Checked by `config`; the core trusts it.

use super::blob::Blob;
use super::mutation::{self, Mutation};
use super::{Records, Restored};
use state_protocol::objects::{CONTRIBUTOR_BYTES, Merge, SnapshotState};
use state_protocol::{Flags, Owner, client_shard_of};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use wire::shard_of;

/// A chain serves no earlier than this after it is formed, in ns: the resolution of
/// `Start::epoch_base`.
pub const EPOCH_TICK_NS: u64 = 250_000_000;

/// IP's number of TCP, the last byte of a binding's key.
const PROTOCOL_TCP: u8 = 6;

/// Configuration of one server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which shard a replica keeps; `Node` sets it.
    pub shard: u16,
    /// How many shards the cluster has, 1 to 256.
    pub shards: u16,
    /// Length of a session's lease in microseconds.
    pub lease_us: u32,
    /// The most by which two machines' clocks run at different rates, in parts per million.
    pub clock_drift_ppm: u32,
    /// Constant added to every lease at the store, in microseconds.
    pub lease_margin_us: u32,
    /// How long a request may be held at the head, in ns; below the second after which switches
    /// take no reply any more.
    pub hold_ns: u64,
    /// A flow is not recalled within this time of its grant, in ns.
    pub tenure_ns: u64,
    /// An unanswered recall is sent again after this time, in ns; doubles up to eight times that.
    pub recall_resend_ns: u64,
    /// Time without an acknowledgement after which entries are sent again, in ns; doubles up to
    /// sixteen times that.
    pub resend_ns: u64,
    /// Entries are gathered into chain datagrams of at most this many bytes (one entry may be
    /// longer).
    pub chain_datagram_bytes: usize,
    /// Bounds of memory.
    pub limits: Limits,
    /// The FlowState objects.
    pub objects: Vec<ObjectSettings>,
}

/// Bounds of what a server keeps.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Records in all objects.
    pub records: usize,
    /// Sessions.
    pub sessions: usize,
    /// Requests held at the head, of all flows.
    pub held: usize,
    /// Requests held at the head, of one flow.
    pub held_per_flow: usize,
    /// Bytes of all requests held at the head.
    pub held_bytes: usize,
    /// Entries that the tail has not confirmed.
    pub unacked: usize,
    /// Bytes of those entries.
    pub unacked_bytes: usize,
}

/// One FlowState object.
#[derive(Debug, Clone)]
pub struct ObjectSettings {
    /// Its name in the program, for people.
    pub name: String,
    /// Its number in the manifest.
    pub id: u16,
    /// Length of its keys.
    pub key_bytes: usize,
    /// Length of its values.
    pub value_bytes: usize,
    /// Who makes the first value.
    pub allocator: AllocatorSettings,
    /// Time without a packet after which the record of a closed connection is removed, in ns.
    pub closed_ns: u64,
    /// The same of a connection that was never answered, in ns (no longer than the idle time).
    pub half_open_ns: u64,
    /// So many bytes of a key, from its first, pick its shard. `None`: all.
    pub shard_bytes: Option<usize>,
}

/// Who makes the first value of a flow.
#[derive(Debug, Clone)]
pub enum AllocatorSettings {
    /// Every field zero.
    Zero {
        /// Time without a packet after which a record is removed, in ns; `None`: never, unless it
        /// is closed.
        idle_ns: Option<u64>,
    },
    /// External address and port of a NAT, with the reverse binding.
    NatPorts(NatSettings),
    /// All zero, and kept as snapshots beside the record, whose value has no meaning.
    Snapshot {
        /// Of each key.
        slots: usize,
        /// 4 or 8.
        slot_bytes: usize,
        /// Time without a packet after which a record is removed, in ns; `None`: never.
        idle_ns: Option<u64>,
        /// Several switches have slots of a key, each its own, and here they are merged.
        merge: Option<MergeSettings>,
    },
    /// A load balancer's backend, with the reverse binding.
    Backends(BackendSettings),
}

/// How the slots of several switches become one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeSettings {
    /// Slot by slot.
    pub how: Merge,
    /// Bits of the number of the time window in the last slot; `None`: there are no windows.
    pub window_bits: Option<u32>,
}

impl MergeSettings {
    /// What a program declares. `None`: a key is one switch's at a time.
    pub fn of(object: &SnapshotState) -> Option<MergeSettings> {
        let window_bits = object.settings.windows.then_some(object.width);
        object.settings.merge.map(|how| MergeSettings { how, window_bits })
    }
}

/// How a load balancer shares conversations out. (Which backends there are is no setting: it
/// changes while the store runs.)
#[derive(Debug, Clone)]
pub struct BackendSettings {
    /// By what rule.
    pub policy: BackendPolicy,
    /// Idle times in ns.
    pub idle_ns: IdleNs,
}

/// How a backend is chosen for a new conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendPolicy {
    /// At random, in proportion to the weights.
    Weighted,
    /// The one with the fewest conversations for its weight.
    LeastConnections,
    /// Maglev's consistent hashing of the 5-tuple (NSDI '16, §3.4).
    Maglev,
}

/// A NAT's pool.
#[derive(Debug, Clone)]
pub struct NatSettings {
    /// External addresses; not empty.
    pub external: Vec<Ipv4Addr>,
    /// External ports (for ICMP: identifiers).
    pub ports: RangeInclusive<u16>,
    /// Idle times in ns: TCP, UDP, ICMP, other protocols.
    pub idle_ns: IdleNs,
}

/// Time without a packet after which a binding is removed, in ns.
#[derive(Debug, Clone, Copy)]
pub struct IdleNs {
    /// Protocol 6.
    pub tcp: u64,
    /// Protocol 17.
    pub udp: u64,
    /// Protocol 1.
    pub icmp: u64,
    /// Any other.
    pub other: u64,
}

/// What a server is given when it starts, beside its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Random, not 0: tells this life of the server from any other.
    pub incarnation: u64,
    /// Epochs of a chain that begins at `now_ns` begin above this; of one that begins later, above
    /// this and the ticks since. Must be above all epochs of earlier chains: time in ticks of
    /// `EPOCH_TICK_NS` serves, because a chain does not serve in its first tick.
    pub epoch_base: u32,
    /// Seed of the allocators' probing.
    pub seed: u64,
    /// The clock at start, in ns.
    pub now_ns: u64,
}

impl Settings {
    /// A journal of which nothing was read yet.
    pub fn nothing_restored(&self) -> Restored {
        Restored::new(Records::new(self.objects.clone(), 0), self.shards)
    }

    /// What the chain is to know of them.
    pub(super) fn chain(&self) -> chain::Settings {
        chain::Settings {
            shard: self.shard,
            config_digest: self.digest(),
            resend_ns: self.resend_ns,
            datagram_bytes: self.chain_datagram_bytes,
            unacked: self.limits.unacked,
            unacked_bytes: self.limits.unacked_bytes,
        }
    }

    /// How long the store counts a session's lease as running from the moment that the head
    /// received the request, in ns.
    ///
    /// The switch counts `lease_us` from when it sent the request, on its own clock; sent ≤
    /// received, and the drift margin covers a switch's clock that runs slower than ours
    /// (systems/redplane/docs/state-protocol.md, "Sessions", 1).
    pub fn store_lease_ns(&self) -> u64 {
        let lease_ns = u64::from(self.lease_us) * 1_000;
        let drift_ppm =
            if mutation::planted(Mutation::DriftIgnored) { 0 } else { self.clock_drift_ppm };
        let drift_ns = (lease_ns * u64::from(drift_ppm)).div_ceil(1_000_000);
        lease_ns + drift_ns + u64::from(self.lease_margin_us) * 1_000
    }
}

impl ObjectSettings {
    /// The shard of a key of this object.
    pub fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        match (&self.allocator, self.shard_bytes) {
            (AllocatorSettings::Backends(_), _) => client_shard_of(key, shards),
            (_, Some(bytes)) => shard_of(&key[..bytes.min(key.len())], shards),
            (_, None) => shard_of(key, shards),
        }
    }

    /// How switches' slots are merged, if they are.
    pub fn merge(&self) -> Option<MergeSettings> {
        match self.allocator {
            AllocatorSettings::Snapshot { merge, .. } => merge,
            _ => None,
        }
    }

    /// Length of the keys of records. If switches' slots are merged, each switch has a record of
    /// its own of a key: its contribution.
    pub fn record_key_bytes(&self) -> usize {
        self.key_bytes + self.merge().map_or(0, |_| CONTRIBUTOR_BYTES)
    }

    /// The key of the record that a switch's message is about. `None`: the message's own key.
    pub(super) fn contribution_key(&self, key: &[u8], sender: Owner) -> Option<Blob> {
        self.merge().map(|_| Blob::new(&[key, &sender.switch_id.to_be_bytes()].concat()))
    }

    /// The key in messages of a record.
    pub fn message_key<'a>(&self, record_key: &'a [u8]) -> &'a [u8] {
        &record_key[..self.key_bytes.min(record_key.len())]
    }

    /// The switch whose contribution a record is; `None`: it is no contribution.
    pub fn contributor(&self, record_key: &[u8]) -> Option<u32> {
        let number = record_key.get(self.key_bytes..)?.try_into().ok()?;
        self.merge().map(|_| u32::from_be_bytes(number))
    }

    /// The phase of a new binding, until a switch says more of it: a TCP connection is half open,
    /// because nothing of the other direction was seen. (RFC 5382, REQ-5; for others there is one
    /// idle time.)
    pub fn first_phase(&self, key: &[u8]) -> Flags {
        let pairs = matches!(
            self.allocator,
            AllocatorSettings::NatPorts(_) | AllocatorSettings::Backends(_)
        );
        if pairs && key.last() == Some(&PROTOCOL_TCP) { Flags::HALF_OPEN } else { Flags::NONE }
    }

    /// Idle time of a key of this object, in ns; `None`: never removed.
    pub fn idle_ns(&self, key: &[u8]) -> Option<u64> {
        match &self.allocator {
            AllocatorSettings::Zero { idle_ns } | AllocatorSettings::Snapshot { idle_ns, .. } => {
                *idle_ns
            }
            AllocatorSettings::NatPorts(NatSettings { idle_ns, .. })
            | AllocatorSettings::Backends(BackendSettings { idle_ns, .. }) => {
                Some(match key.last() {
                    Some(&PROTOCOL_TCP) => idle_ns.tcp,
                    Some(17) => idle_ns.udp,
                    Some(1) => idle_ns.icmp,
                    _ => idle_ns.other,
                })
            }
        }
    }
}
