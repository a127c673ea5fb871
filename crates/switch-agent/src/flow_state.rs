//! FlowState: the settings that the data plane needs, and a look at the flows it holds.

use crate::config::Config;
use crate::error::Result;
use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use manifest::{FlowState, WireField};
use serde::{Deserialize, Serialize};

/// UDP port of the state protocol (docs/state-protocol.md).
const PROTOCOL_PORT: u16 = state_protocol::PORT;

/// `struct sp_flow_settings`, as in stateplane_flow.h.
pub(crate) fn settings(config: &Config, incarnation: u32) -> Vec<u8> {
    let mut bytes = vec![];
    bytes.extend(config.switch_id.to_ne_bytes());
    bytes.extend(incarnation.to_ne_bytes());
    bytes.extend(config.protocol_address.map_or([0; 4], |address| address.octets()));
    bytes.extend(config.store.map_or([0; 4], |store| store.ip().octets()));
    bytes.extend(config.store.map_or(PROTOCOL_PORT, |store| store.port()).to_be_bytes());
    bytes.extend(PROTOCOL_PORT.to_be_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend((config.lease_margin_us * 1_000).to_ne_bytes());
    bytes.extend((config.resend_timeout_us * 1_000).to_ne_bytes());
    bytes
}

/// Writes what the object's FlowState maps need; maps that the object does not have are skipped.
pub(crate) fn configure(dataplane: &Dataplane, config: &Config, incarnation: u32) -> Result<()> {
    if dataplane.has_map("sp_flow_config") {
        dataplane.write_array("sp_flow_config", 0, &settings(config, incarnation))?;
    }
    if let Some(pool) = &config.nat_pool {
        // The range was checked when the configuration was read.
        let (low, high) = pool.port_range().unwrap_or((1024, u16::MAX));
        dataplane.set_nat_pool(&pool.external, low, high)?;
    }
    if !config.backend.is_empty() {
        let backends: Vec<_> = config.backend.iter().map(|backend| (backend.address, backend.share())).collect();
        dataplane.set_backends(&backends)?;
    }
    if dataplane.has_map("sp_fabric_port") {
        for port in 0..dataplane.manifest().max_ports {
            let fabric = config.port.iter().any(|known| known.port == port && known.fabric);
            dataplane.write_array("sp_fabric_port", port, &[u8::from(fabric)])?;
        }
    }
    Ok(())
}

/// What the runtime counts, in the order of `enum sp_flow_stat` in stateplane_flow.h.
const EVENTS: [&str; 22] = [
    "parked",
    "grants",
    "absent",
    "updates",
    "read_commits",
    "acks",
    "refused",
    "renewals",
    "resent",
    "conflicts",
    "commit_conflicts",
    "late_grants",
    "malformed",
    "not_fabric",
    "unknown_object",
    "flows_full",
    "too_many_attempts",
    "no_route",
    "too_big",
    "ring_full",
    "ports_exhausted",
    "backends_exhausted",
];

/// What the FlowState runtime did since the maps were made; empty for an object without FlowState.
pub fn events(dataplane: &Dataplane) -> Result<Vec<(&'static str, u64)>> {
    let Some(map) = dataplane.map("sp_flow_stats") else { return Ok(vec![]) };
    let count = |index: usize| -> Result<u64> {
        let per_cpu = map
            .lookup_percpu(&(index as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| dataplane::Error::libbpf("read sp_flow_stats", error))?;
        let value = |bytes: &Vec<u8>| bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        Ok(per_cpu.iter().flatten().map(value).sum())
    };
    EVENTS.iter().enumerate().map(|(index, name)| Ok((*name, count(index)?))).collect()
}

/// A flow's key and value, field by field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// `(field, value)`.
    pub key: Vec<(String, String)>,
    /// `(field, value)`.
    pub value: Vec<(String, String)>,
}

/// The flows of a FlowState object, at most `limit`, and how many there are.
pub fn list(dataplane: &Dataplane, object: &FlowState, limit: usize) -> Result<(Vec<Flow>, usize)> {
    let Some(map) = dataplane.map(&object.map) else { return Ok((vec![], 0)) };
    let (mut flows, mut count) = (vec![], 0);
    for key in map.keys() {
        count += 1;
        if flows.len() >= limit {
            continue;
        }
        // A flow that was deleted meanwhile is skipped.
        if let Ok(Some(value)) = map.lookup(&key, MapFlags::ANY) {
            let wire_value = value.get(object.value_offset as usize..).unwrap_or_default();
            flows.push(Flow { key: fields(&object.key, &key), value: fields(&object.value, wire_value) });
        }
    }
    Ok((flows, count))
}

/// Wire form to text: each field is big-endian.
fn fields(fields: &[WireField], bytes: &[u8]) -> Vec<(String, String)> {
    let text = |field: &WireField| {
        let range = field.offset as usize..(field.offset + field.bytes) as usize;
        let value = bytes.get(range).unwrap_or_default().iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        dataplane::value::format_value(value, field.width, &field.name)
    };
    fields.iter().map(|field| (field.name.clone(), text(field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn settings_have_the_runtimes_layout() {
        let text = "name='a'\nobject='a.o'\nswitch_id=7\nprotocol_address='10.255.0.1'\nstore='10.2.1.10:5407'\n\
                    lease_margin_us=3000\nresend_timeout_us=4000\n[[port]]\ninterface='a'\nport=1\nfabric=true";
        let config = Config::parse(Path::new("a.toml"), text).unwrap();
        let bytes = settings(&config, 9);
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..8], [7, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(bytes[8..16], [10, 255, 0, 1, 10, 2, 1, 10]);
        assert_eq!(bytes[16..20], [0x15, 0x1f, 0x15, 0x1f]);
        assert_eq!(bytes[24..32], 3_000_000u64.to_ne_bytes());
    }
}
