//! A simulated switch: a loaded object in test mode, with its own settings and clock.

use dataplane::flow::{FlowSettings, SecretSet, SweepBefore, Swept, entry_at};
use dataplane::{Dataplane, Object, Result, Settings, Verdict};
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use state_protocol::{KeyRing, MOST_SECRETS};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// The port that protocol messages come in on.
const FABRIC_PORT: u32 = 1;
/// What the runtime calls "to the store" in test mode.
const STORE_PORT: u32 = 0xffff;
/// Ethernet, IPv4 without options, UDP.
const OUTER_BYTES: usize = 42;
const LEASE_MARGIN_NS: u64 = 10_000_000;
const RESEND_TIMEOUT_NS: u64 = 3_000_000;
/// The agent looks for idle flows this often, and this is when they are.
const SWEEP_EVERY_NS: u64 = 20_000_000;
const IDLE_NS: u64 = 150_000_000;
const REMOVED_AFTER_NS: u64 = 2_000_000_000;

/// What a frame given to a switch became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// Dropped, or taken up by the runtime.
    Nothing,
    /// A frame out of a port.
    Output(u32, Vec<u8>),
    /// A message (UDP payload) to the store's server with this address.
    Message(SocketAddrV4, Vec<u8>),
}

/// A switch that runs the real program, on a clock of its own.
pub struct Switch {
    dataplane: Dataplane,
    manifest: Manifest,
    address: Ipv4Addr,
    /// Parts per million by which its clock runs faster than the world's.
    drift_ppm: i64,
    next_heartbeat_ns: u64,
    next_sweep_ns: u64,
}

impl Switch {
    /// Loads an object afresh: a switch with empty state. `heads`: of the shards' chains.
    pub fn start(
        object: &Path,
        manifest: &Manifest,
        switch_id: u32,
        incarnation: u32,
        heads: &[SocketAddrV4],
        drift_ppm: i64,
    ) -> Result<Switch> {
        let mut open = Object::open(object, manifest.clone())?;
        open.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })?;
        let dataplane = open.load()?;
        let address = Ipv4Addr::new(10, 255, 0, switch_id as u8);
        dataplane.set_flow_settings(FlowSettings {
            switch_id,
            incarnation,
            protocol_address: address,
            shards: heads.len() as u32,
            lease_margin_ns: LEASE_MARGIN_NS,
            resend_timeout_ns: RESEND_TIMEOUT_NS,
        })?;
        for (shard, head) in (0..).zip(heads) {
            dataplane.set_shard_head(shard, Some(*head))?;
        }
        dataplane.write_array("sp_fabric_port", FABRIC_PORT, &[1])?;
        let manifest = manifest.clone();
        Ok(Switch { dataplane, manifest, address, drift_ppm, next_heartbeat_ns: 0, next_sweep_ns: 0 })
    }

    /// Where the store's replies go.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Takes these secrets.
    pub fn set_keys(&self, keys: &KeyRing) -> Result<()> {
        let mut set = SecretSet { sends: keys.sending(), ..Default::default() };
        for id in 0..MOST_SECRETS {
            set.secrets[id] = keys.secret(id as u8).map(|secret| secret.0);
        }
        self.dataplane.set_secrets(&set)
    }

    /// Its own clock, at a time of the world's.
    fn clock(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed((i128::from(now_ns) * i128::from(self.drift_ppm) / 1_000_000) as i64)
    }

    /// A packet comes in on a port.
    pub fn packet(&self, frame: &[u8], port: u32, now_ns: u64) -> Result<Became> {
        let outcome = self.dataplane.run(frame, port, self.clock(now_ns))?;
        Ok(match outcome.verdict {
            Verdict::Forward { port: STORE_PORT } => message_in(&outcome.frame),
            Verdict::Forward { port } => Became::Output(port, outcome.frame),
            Verdict::Drop | Verdict::ToHost => Became::Nothing,
        })
    }

    /// A message from a server of the store comes in.
    pub fn message(&self, from: Ipv4Addr, payload: &[u8], now_ns: u64) -> Result<Became> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let total = (payload.len() + 28) as u16;
        frame.extend_from_slice(&[0x45, 0]);
        frame.extend_from_slice(&total.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&from.octets());
        frame.extend_from_slice(&self.address.octets());
        frame.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        frame.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        frame.extend_from_slice(&(total - 20).to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(payload);
        self.packet(&frame, FABRIC_PORT, now_ns)
    }

    /// What its agent does in between (none of it if that is dead): heartbeats and idle flows; then the packet generator runs once over what is
    /// queued. The messages that come of it.
    pub fn tick(&mut self, agent: bool, lease_ns: u64, now_ns: u64) -> Result<Vec<Became>> {
        if !agent {
            return Ok(Vec::new());
        }
        let mut frames = self.queued()?;
        if now_ns >= self.next_heartbeat_ns {
            self.next_heartbeat_ns = now_ns + lease_ns / 3;
            for shard in 0..self.dataplane.shards()? {
                self.dataplane.push_heartbeat(shard)?;
                frames += 1;
            }
        }
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + SWEEP_EVERY_NS;
            self.sweep(IDLE_NS, now_ns)?;
        }
        let mut messages = Vec::new();
        for _ in 0..frames {
            if let Some(frame) = self.dataplane.run_generator(self.clock(now_ns))? {
                messages.push(message_in(&frame));
            }
        }
        Ok(messages)
    }

    /// Offers every flow to the runtime's sweep, as the agent does with idle ones; how many it released and removed.
    pub fn sweep(&self, idle_ns: u64, now_ns: u64) -> Result<(usize, usize)> {
        let now_ns = self.clock(now_ns);
        let idle_before_ns = now_ns.saturating_sub(idle_ns);
        let before = SweepBefore {
            idle_ns: idle_before_ns,
            half_closed_ns: idle_before_ns,
            closed_ns: idle_before_ns,
            released_ns: now_ns.saturating_sub(REMOVED_AFTER_NS),
        };
        let (object_id, map) = self.object();
        let (mut released, mut removed) = (0, 0);
        for key in self.dataplane.map(map).into_iter().flat_map(|map| map.keys()) {
            match self.dataplane.sweep(object_id, &key, before)? {
                Swept::Released => released += 1,
                Swept::Removed => removed += 1,
                Swept::Kept => {}
            }
        }
        Ok((released, removed))
    }

    /// How many flows stand in the pending ring.
    pub fn queued(&self) -> Result<u64> {
        let bytes = self.dataplane.read_array("sp_generator_work", 0)?;
        Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
    }

    /// How many flows it knows of, its own or not.
    pub fn flows(&self) -> usize {
        self.dataplane.map(self.object().1).map_or(0, |map| map.keys().count())
    }

    /// Number and map of the program's only object.
    fn object(&self) -> (u16, &str) {
        let flows = self.manifest.flow_states.iter().map(|object| (object.object_id, object.map.as_str()));
        let snapshots = self.manifest.snapshot_states.iter().map(|object| (object.object_id, object.map.as_str()));
        flows.chain(snapshots).next().unwrap_or((0, ""))
    }

    /// The grant under which it has a key; 0: none.
    pub fn epoch_of(&self, key: &[u8]) -> u32 {
        let mut padded = key.to_vec();
        padded.resize(key.len().next_multiple_of(8), 0);
        let entry = self.dataplane.map(self.object().1).and_then(|map| map.lookup(&padded, MapFlags::ANY).ok()?);
        let bytes = entry.as_deref().and_then(|entry| entry.get(entry_at::EPOCH..entry_at::EPOCH + 4));
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
}

/// The message in a frame that the switch sent.
fn message_in(frame: &[u8]) -> Became {
    let to = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
    Became::Message(SocketAddrV4::new(to, u16::from_be_bytes([frame[36], frame[37]])), frame[OUTER_BYTES..].to_vec())
}
