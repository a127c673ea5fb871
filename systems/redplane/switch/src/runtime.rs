//! What RedPlane's data plane shares with its agent: settings, shards' heads, sessions, heartbeats
//! and sweeps. The layouts are in `state_protocol::layouts`.

use crate::allocators;
use c_layout::{Be16, CStruct, SpinLock};
use dataplane::{Dataplane, Error, Result};
use libbpf_rs::{MapCore, MapFlags};
use state_protocol::layouts::{
    EntryHead, MOST_SHARDS as SHARD_PLACES, RESEND_GRANULARITY_NS, SessionValue, ShardHead,
    SweepRequest,
};
use std::net::{Ipv4Addr, SocketAddrV4};

pub use dataplane::SecretSet;
pub use state_protocol::layouts::{FlowSettings, entry_flags};

/// Shards that a cluster can have.
pub const MOST_SHARDS: usize = SHARD_PLACES;
const SETTINGS: &str = "sp_flow_config";
const SHARDS: &str = "sp_shards";
const SESSIONS: &str = "sp_sessions";
const HEARTBEATS: &str = "sp_heartbeats_due";
const SWEEP: &str = "sp_sweep";
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;

/// Offsets in a FlowState map's value ([`EntryHead`]).
pub mod entry_at {
    use super::{CStruct, EntryHead};

    /// u64: the last update.
    pub const SEQ: usize = EntryHead::LAYOUT.offset("seq");
    /// u64: the last update that the store has.
    pub const ACKED_SEQ: usize = EntryHead::LAYOUT.offset("acked_seq");
    /// u64: the last packet, on a coarse clock.
    pub const USED_NS: usize = EntryHead::LAYOUT.offset("used_ns");
    /// u64: the last update or release sent.
    pub const SENT_NS: usize = EntryHead::LAYOUT.offset("sent_ns");
    /// u32: the grant.
    pub const EPOCH: usize = EntryHead::LAYOUT.offset("epoch");
    /// u32: the session in which the flow is this switch's.
    pub const SESSION: usize = EntryHead::LAYOUT.offset("session");
    /// u16.
    pub const SHARD: usize = EntryHead::LAYOUT.offset("shard");
    /// u16, [`super::entry_flags`].
    pub const FLAGS: usize = EntryHead::LAYOUT.offset("flags");
    /// u32: times that the same was sent again.
    pub const RESENDS: usize = EntryHead::LAYOUT.offset("resends");
    /// The key, padded to whole words; the value follows (its offset is in the manifest).
    pub const KEY: usize = EntryHead::LAYOUT.bytes();
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

/// When flows go: a [`SweepRequest`] without the flow. CLOCK_MONOTONIC; 0: never.
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
        Ok(FlowSettings::from_bytes(&self.dataplane().read_array(SETTINGS, 0)?).shards)
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
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let to = head.unwrap_or(nowhere);
        let head = ShardHead { address: *to.ip(), port: Be16(to.port()), reserved: 0, since_ns };
        self.dataplane().write_array(SHARDS, shard, &head.to_bytes())
    }

    /// The head of a shard's chain, if there is one.
    fn shard_head(&self, shard: u32) -> Result<Option<SocketAddrV4>> {
        let head = ShardHead::from_bytes(&self.dataplane().read_array(SHARDS, shard)?);
        Ok((!head.address.is_unspecified()).then(|| SocketAddrV4::new(head.address, head.port.0)))
    }

    /// How a shard answers.
    fn round_trips(&self, shard: u32) -> Result<RoundTrips> {
        let session = SessionValue::from_bytes(&self.dataplane().read_array(SESSIONS, shard)?);
        Ok(RoundTrips {
            smoothed_ns: session.srtt_ns,
            variation_ns: session.rttvar_ns,
            outstanding: session.sent.saturating_sub(session.done),
        })
    }

    /// The session with a shard.
    fn session(&self, shard: u32) -> Result<Session> {
        let session = SessionValue::from_bytes(&self.dataplane().read_array(SESSIONS, shard)?);
        let SessionValue { number, lease_end_ns, lease_ns, .. } = session;
        Ok(Session { number, lease_end_ns, lease_ns })
    }

    /// Forgets the session with a shard: its flows are nobody's on this switch until the store says
    /// otherwise.
    fn clear_session(&self, shard: u32) -> Result<()> {
        self.set_session(shard, Session::default())
    }

    /// Writes a session: for who plays the store, such as a benchmark.
    fn set_session(&self, shard: u32, session: Session) -> Result<()> {
        let Session { number, lease_end_ns, lease_ns } = session;
        // Nothing measured, nothing sent.
        let measured = SessionValue::default();
        let session = SessionValue { lock: SpinLock, number, lease_end_ns, lease_ns, ..measured };
        self.dataplane().write_array(SESSIONS, shard, &session.to_bytes())
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
        let mut padded = [0; state_protocol::MAX_KEY_BYTES];
        padded.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
        let request = SweepRequest {
            object_id: object_id.into(),
            reserved: 0,
            idle_before_ns: before.idle_ns,
            half_closed_before_ns: before.half_closed_ns,
            closed_before_ns: before.closed_ns,
            released_before_ns: before.released_ns,
            key: padded,
        };
        Ok(match self.dataplane().run_request(SWEEP, &request.to_bytes())? {
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
