//! What RedPlane's data plane shares with its agent: settings, secrets, shards' heads, sessions,
//! heartbeats and sweeps. The layouts are those of `stateplane_flow.h` and
//! `stateplane_flow_sweep.h`.

use crate::allocators;
use dataplane::{Dataplane, Error, Result};
use libbpf_rs::{MapCore, MapFlags};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Shards that a cluster can have (`SP_FLOW_SHARDS_MAX`).
pub const MOST_SHARDS: usize = 256;
/// Secrets that a switch can have (`SP_SECRETS`).
pub const SECRETS: usize = 4;
/// Longest key.
const KEY_BYTES: usize = 64;
const SETTINGS: &str = "sp_flow_config";
const SHARDS: &str = "sp_shards";
const SESSIONS: &str = "sp_sessions";
/// `struct sp_session`.
const SESSION_BYTES: usize = 80;
/// `SP_RESEND_GRANULARITY_NS`.
const RESEND_GRANULARITY_NS: u64 = 2_000_000;
const SECRET_SET: &str = "sp_secrets";
const HEARTBEATS: &str = "sp_heartbeats_due";
const SWEEP: &str = "sp_sweep";
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;

/// Offsets in a FlowState map's value (`struct sp_flow_entry_head`).
pub mod entry_at {
    /// u64: the last update.
    pub const SEQ: usize = 8;
    /// u64: the last update that the store has.
    pub const ACKED_SEQ: usize = 16;
    /// u64: the last packet, on a coarse clock.
    pub const USED_NS: usize = 24;
    /// u64: the last update or release sent.
    pub const SENT_NS: usize = 32;
    /// u32: the grant.
    pub const EPOCH: usize = 40;
    /// u32: the session in which the flow is this switch's.
    pub const SESSION: usize = 44;
    /// u16.
    pub const SHARD: usize = 48;
    /// u16, [`super::entry_flags`].
    pub const FLAGS: usize = 50;
    /// u32: times that the same was sent again.
    pub const RESENDS: usize = 52;
    /// The key, padded to whole words; the value follows (its offset is in the manifest).
    pub const KEY: usize = 56;
}

/// Bits of an entry's flags.
pub mod entry_flags {
    /// Stands in the pending ring.
    pub const QUEUED: u16 = 1;
    /// The program said so.
    pub const HALF_CLOSED: u16 = 4;
    /// The program said so.
    pub const CLOSED: u16 = 8;
    /// Released, and the value here is not that epoch's.
    pub const UNKNOWN: u16 = 16;
    /// Not this switch's under this epoch any more.
    pub const RELEASED: u16 = 32;
    /// And the store knows.
    pub const RELEASE_ACKED: u16 = 64;
    /// Being removed.
    pub const DYING: u16 = 128;
    /// The program reported `HALF_OPEN`; in a binding's reverse entry: no packet has used it yet.
    pub const HALF_OPEN: u16 = 256;
}

/// `struct sp_flow_settings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Who this is in the state protocol.
    pub switch_id: u32,
    /// Which life of it.
    pub incarnation: u32,
    /// Source of its messages, and where replies go.
    pub protocol_address: Ipv4Addr,
    /// Of the cluster; 0: not known yet.
    pub shards: u32,
    /// Subtracted from every lease.
    pub lease_margin_ns: u64,
    /// An update or release that is not acknowledged is sent again, no sooner than after so long
    /// ("Re-sending").
    pub resend_least_ns: u64,
    /// And no later.
    pub resend_most_ns: u64,
    /// Packets of a shard that may wait for the store; 0: any number ("Window").
    pub window: u64,
    /// Between two looks of the packet generator at its work: a snapshot is taken at the look
    /// nearest to its time, so up to half of this early.
    pub look_ns: u64,
}

impl FlowSettings {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![];
        bytes.extend(self.switch_id.to_ne_bytes());
        bytes.extend(self.incarnation.to_ne_bytes());
        bytes.extend(self.protocol_address.octets());
        bytes.extend(self.shards.to_ne_bytes());
        bytes.extend(self.lease_margin_ns.to_ne_bytes());
        bytes.extend(self.resend_least_ns.to_ne_bytes());
        bytes.extend(self.resend_most_ns.to_ne_bytes());
        bytes.extend(self.window.to_ne_bytes());
        bytes.extend(self.look_ns.to_ne_bytes());
        bytes
    }
}

/// `struct sp_secret_set`: what is accepted, and what is sent with.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SecretSet {
    /// By number.
    pub secrets: [Option<[u8; 16]>; SECRETS],
    /// The number of the one that tags what is sent.
    pub sends: u8,
}

impl std::fmt::Debug for SecretSet {
    /// Secrets are never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.secrets.map(|secret| secret.is_some());
        f.debug_struct("SecretSet").field("known", &known).field("sends", &self.sends).finish()
    }
}

/// How the store answers this switch's requests to a shard, as the data plane measures it
/// ("Re-sending", "Window").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RoundTrips {
    /// Smoothed round-trip time; 0: nothing measured.
    pub smoothed_ns: u64,
    /// Its variation.
    pub variation_ns: u64,
    /// Requests that are not answered, as far as the switch can tell.
    pub outstanding: u64,
}

impl RoundTrips {
    /// What is not acknowledged for so long is sent again, the first time: `sp_resend_timeout`.
    pub fn resend_timeout_ns(self, settings: &FlowSettings) -> u64 {
        let measured = self.smoothed_ns + (4 * self.variation_ns).max(RESEND_GRANULARITY_NS);
        let wanted = if self.smoothed_ns == 0 { 0 } else { measured };
        wanted.max(settings.resend_least_ns).min(settings.resend_most_ns)
    }
}

/// A session with a shard, as the data plane knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Session {
    /// 0: none.
    pub number: u32,
    /// CLOCK_MONOTONIC.
    pub lease_end_ns: u64,
    /// The lease's length, as the store said last.
    pub lease_ns: u64,
}

/// When flows go: `struct sp_flow_sweep_request` without the flow. CLOCK_MONOTONIC; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SweepBefore {
    /// No packet since then: a local flow is removed, another one released.
    pub idle_ns: u64,
    /// The same of a flow that is half closed.
    pub half_closed_ns: u64,
    /// And of a closed one.
    pub closed_ns: u64,
    /// Released, and that acknowledged, before then: removed.
    pub released_ns: u64,
}

/// What a sweep did with a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// It is in use, or was gone before.
    Kept,
    /// Its release is on its way to the store.
    Released,
    /// It is gone.
    Removed,
}

/// RedPlane's maps and programs in a loaded object.
pub trait FlowRuntime {
    /// The object.
    fn dataplane(&self) -> &Dataplane;

    /// Does the object have state that lives in the store?
    fn has_flow_runtime(&self) -> bool {
        self.dataplane().has_map(SETTINGS)
    }

    /// Writes the runtime's settings. An object that an earlier version compiled has no room for
    /// the last ones, and goes on without them.
    fn set_flow_settings(&self, settings: FlowSettings) -> Result<()> {
        let mut bytes = settings.to_bytes();
        bytes.truncate(self.dataplane().read_array(SETTINGS, 0)?.len());
        self.dataplane().write_array(SETTINGS, 0, &bytes)
    }

    /// How many shards the runtime thinks there are.
    fn shards(&self) -> Result<u32> {
        Ok(u32_at(&self.dataplane().read_array(SETTINGS, 0)?, 12))
    }

    /// Replaces the secrets; in one write, so messages are checked and tagged all the time.
    fn set_secrets(&self, set: &SecretSet) -> Result<()> {
        let mut bytes = vec![];
        let mut present = 0u32;
        for (number, secret) in set.secrets.iter().enumerate() {
            bytes.extend(secret.unwrap_or_default());
            present |= u32::from(secret.is_some()) << number;
        }
        bytes.extend(present.to_ne_bytes());
        bytes.extend(u32::from(set.sends).to_ne_bytes());
        self.dataplane().write_array(SECRET_SET, 0, &bytes)
    }

    /// Says where a shard's requests go: the head of its chain. `None`: nowhere (they are dropped
    /// and counted).
    fn set_shard_head(&self, shard: u32, head: Option<SocketAddrV4>) -> Result<()> {
        self.change_shard_head(shard, head, 0)
    }

    /// The same at a time of the switch's clock: what was sent before went to another head, and is
    /// sent again at once.
    fn change_shard_head(
        &self,
        shard: u32,
        head: Option<SocketAddrV4>,
        since_ns: u64,
    ) -> Result<()> {
        let mut bytes = head.map_or([0; 4], |head| head.ip().octets()).to_vec();
        bytes.extend(head.map_or(0, |head| head.port()).to_be_bytes());
        bytes.extend([0; 2]);
        bytes.extend(since_ns.to_ne_bytes());
        self.dataplane().write_array(SHARDS, shard, &bytes)
    }

    /// The head of a shard's chain, if there is one.
    fn shard_head(&self, shard: u32) -> Result<Option<SocketAddrV4>> {
        let bytes = self.dataplane().read_array(SHARDS, shard)?;
        let [a, b, c, d, high, low, ..] = bytes[..] else { return Ok(None) };
        let address = Ipv4Addr::new(a, b, c, d);
        Ok((!address.is_unspecified())
            .then(|| SocketAddrV4::new(address, u16::from_be_bytes([high, low]))))
    }

    /// How a shard answers.
    fn round_trips(&self, shard: u32) -> Result<RoundTrips> {
        let bytes = self.dataplane().read_array(SESSIONS, shard)?;
        let (sent, done) = (u64_at(&bytes, 40), u64_at(&bytes, 48));
        let outstanding = sent.saturating_sub(done);
        Ok(RoundTrips {
            smoothed_ns: u64_at(&bytes, 24),
            variation_ns: u64_at(&bytes, 32),
            outstanding,
        })
    }

    /// The session with a shard.
    fn session(&self, shard: u32) -> Result<Session> {
        let bytes = self.dataplane().read_array(SESSIONS, shard)?;
        Ok(Session {
            number: u32_at(&bytes, 4),
            lease_end_ns: u64_at(&bytes, 8),
            lease_ns: u64_at(&bytes, 16),
        })
    }

    /// Forgets the session with a shard: its flows are nobody's on this switch until the store says
    /// otherwise.
    fn clear_session(&self, shard: u32) -> Result<()> {
        self.set_session(shard, Session::default())
    }

    /// Writes a session: for who plays the store, such as a benchmark.
    fn set_session(&self, shard: u32, session: Session) -> Result<()> {
        let mut bytes = vec![0; 4]; // the lock
        bytes.extend(session.number.to_ne_bytes());
        bytes.extend(session.lease_end_ns.to_ne_bytes());
        bytes.extend(session.lease_ns.to_ne_bytes());
        bytes.resize(SESSION_BYTES, 0); // nothing measured, nothing sent
        self.dataplane().write_array(SESSIONS, shard, &bytes)
    }

    /// Has the packet generator's next frame become a heartbeat to the shard.
    fn push_heartbeat(&self, shard: u32) -> Result<()> {
        let owner = "the FlowState runtime".to_owned();
        let map = self
            .dataplane()
            .map(HEARTBEATS)
            .ok_or_else(|| Error::NoMap { map: HEARTBEATS.to_owned(), owner })?;
        map.update(&[], &shard.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::libbpf(format!("queue a heartbeat of shard {shard}"), error))
    }

    /// Lets the runtime release or remove a flow, if it is as idle as that.
    fn sweep(&self, object_id: u16, key: &[u8], before: SweepBefore) -> Result<Swept> {
        let mut request = u32::from(object_id).to_ne_bytes().to_vec();
        request.extend(0u32.to_ne_bytes());
        for ns in [before.idle_ns, before.half_closed_ns, before.closed_ns, before.released_ns] {
            request.extend(ns.to_ne_bytes());
        }
        request.extend(key);
        request.resize(40 + KEY_BYTES, 0);
        Ok(match self.dataplane().run_request(SWEEP, &request)? {
            XDP_DROP => Swept::Removed,
            XDP_TX => Swept::Released,
            _ => Swept::Kept,
        })
    }

    /// Tells the local NAT allocator what it draws from: addresses ([`crate::MAX_POOL_ADDRESSES`]
    /// at most) and ports, both ends included. Objects without an allocator are left alone.
    fn set_nat_pool(&self, addresses: &[Ipv4Addr], low: u16, high: u16) -> Result<()> {
        allocators::set_nat_pool(self.dataplane(), addresses, low, high)
    }

    /// Tells the local BACKENDS allocator where new conversations go: backends with their weights,
    /// each of which gets places in proportion; a weight of 0 gets none. Objects without an
    /// allocator are left alone.
    fn set_backends(&self, backends: &[(SocketAddrV4, u32)]) -> Result<()> {
        allocators::set_backends(self.dataplane(), backends)
    }
}

impl FlowRuntime for Dataplane {
    fn dataplane(&self) -> &Dataplane {
        self
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}
