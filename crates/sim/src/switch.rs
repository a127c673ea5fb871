//! A simulated switch: a loaded object in test mode, with its own settings and clock.

use dataplane::{Dataplane, Object, Result, Settings, Verdict};
use libbpf_rs::MapCore;
use manifest::Manifest;
use std::net::Ipv4Addr;
use std::path::Path;

/// The port that protocol messages come in on.
const FABRIC_PORT: u32 = 1;
/// What the runtime calls "to the store" in test mode.
const STORE_PORT: u32 = 0xffff;
const XDP_DROP: u32 = 1;
/// Ethernet, IPv4 without options, UDP.
const OUTER_BYTES: usize = 42;
/// Settings of the runtime, as in `struct sp_flow_settings`.
const LEASE_MARGIN_NS: u64 = 10_000_000;
const RESEND_TIMEOUT_NS: u64 = 3_000_000;

/// What a frame given to a switch became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// Dropped, or taken up by the runtime.
    Nothing,
    /// A frame out of a port.
    Output(u32, Vec<u8>),
    /// A message (UDP payload) to the store.
    Message(Vec<u8>),
}

/// A switch that runs the real program.
pub struct Switch {
    dataplane: Dataplane,
    address: Ipv4Addr,
}

impl Switch {
    /// Loads an object afresh: a switch with empty state.
    pub fn start(object: &Path, manifest: &Manifest, switch_id: u32, incarnation: u32) -> Result<Switch> {
        let mut open = Object::open(object, manifest.clone())?;
        open.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })?;
        let dataplane = open.load()?;
        let address = Ipv4Addr::new(10, 255, 0, switch_id as u8);
        let mut settings = Vec::new();
        settings.extend_from_slice(&switch_id.to_ne_bytes());
        settings.extend_from_slice(&incarnation.to_ne_bytes());
        settings.extend_from_slice(&address.octets());
        settings.extend_from_slice(&Ipv4Addr::new(10, 2, 1, 10).octets());
        settings.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        settings.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        settings.extend_from_slice(&0u32.to_ne_bytes());
        settings.extend_from_slice(&LEASE_MARGIN_NS.to_ne_bytes());
        settings.extend_from_slice(&RESEND_TIMEOUT_NS.to_ne_bytes());
        dataplane.write_array("sp_flow_config", 0, &settings)?;
        dataplane.write_array("sp_fabric_port", FABRIC_PORT, &[1])?;
        Ok(Switch { dataplane, address })
    }

    /// Where the store's replies go.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A packet comes in on a port.
    pub fn packet(&self, frame: &[u8], port: u32, now_ns: u64) -> Result<Became> {
        let outcome = self.dataplane.run(frame, port, now_ns)?;
        Ok(match outcome.verdict {
            Verdict::Forward { port: STORE_PORT } => Became::Message(outcome.frame[OUTER_BYTES..].to_vec()),
            Verdict::Forward { port } => Became::Output(port, outcome.frame),
            Verdict::Drop | Verdict::ToHost => Became::Nothing,
        })
    }

    /// A message from the store comes in.
    pub fn message(&self, payload: &[u8], now_ns: u64) -> Result<Became> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let total = (payload.len() + 28) as u16;
        frame.extend_from_slice(&[0x45, 0]);
        frame.extend_from_slice(&total.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 2, 3, 10]);
        frame.extend_from_slice(&self.address.octets());
        frame.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        frame.extend_from_slice(&state_protocol::PORT.to_be_bytes());
        frame.extend_from_slice(&(total - 20).to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(payload);
        self.packet(&frame, FABRIC_PORT, now_ns)
    }

    /// The packet generator runs once over what is queued now; the messages that it makes.
    pub fn generate(&self, now_ns: u64) -> Result<Vec<Vec<u8>>> {
        let mut messages = Vec::new();
        for _ in 0..self.queued()? {
            if let Some(frame) = self.dataplane.run_generator(now_ns)? {
                messages.push(frame[OUTER_BYTES..].to_vec());
            }
        }
        Ok(messages)
    }

    /// Offers every flow to the runtime's sweep, as the agent does with idle ones; how many it removed.
    pub fn sweep(&self, object_id: u32, map: &str, idle_before_ns: u64) -> Result<usize> {
        let mut removed = 0;
        for key in self.dataplane.map(map).into_iter().flat_map(|map| map.keys()) {
            let mut request = object_id.to_ne_bytes().to_vec();
            request.extend([0; 4]);
            request.extend(idle_before_ns.to_ne_bytes());
            request.extend(key);
            request.resize(80, 0);
            removed += usize::from(self.dataplane.run_request("sp_sweep", &request)? == XDP_DROP);
        }
        Ok(removed)
    }

    /// How many flows stand in the pending ring.
    pub fn queued(&self) -> Result<u64> {
        let bytes = self.dataplane.read_array("sp_generator_work", 0)?;
        Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
    }
}
