//! What RedPlane's data plane did and met, by event.

use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use state_protocol::{COUNTED, COUNTERS};
use switch_agent::Result;
use switch_agent::drops::Drops;

/// What the data plane did since the maps were made; empty for an object without RedPlane's state.
pub fn events(dataplane: &Dataplane) -> Result<Vec<(&'static str, u64)>> {
    let Some(map) = dataplane.map("sp_flow_stats") else { return Ok(vec![]) };
    let count = |index: usize| -> Result<u64> {
        let per_cpu = map
            .lookup_percpu(&(index as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| dataplane::Error::libbpf("read sp_flow_stats", error))?;
        let value = |bytes: &Vec<u8>| {
            bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        Ok(per_cpu.iter().flatten().map(value).sum())
    };
    COUNTERS.iter().enumerate().map(|(index, name)| Ok((*name, count(index)?))).collect()
}

/// What of that was dropped, and the remedy.
pub fn drops(dataplane: &Dataplane) -> Result<Vec<Drops>> {
    let counts = events(dataplane)?.into_iter().zip(COUNTED);
    let drops = counts.filter_map(|((reason, count), (_, remedy))| {
        Some(Drops { reason, count, remedy: remedy? })
    });
    Ok(drops.collect())
}
