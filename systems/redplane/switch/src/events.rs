//! What RedPlane's data plane did and met, by event.

use dataplane::Dataplane;
use state_protocol::{COUNTED, COUNTERS};
use switch_agent::Result;
use switch_agent::drops::Drops;

/// What the data plane did since the maps were made; empty for an object without RedPlane's state.
pub fn events(dataplane: &Dataplane) -> Result<Vec<(&'static str, u64)>> {
    if !dataplane.has_map("sp_flow_stats") {
        return Ok(vec![]);
    }
    let count = |index| dataplane.read_count("sp_flow_stats", index);
    (0..).zip(COUNTERS).map(|(index, name)| Ok((name, count(index)?))).collect()
}

/// What of that was dropped, and the remedy.
pub fn drops(dataplane: &Dataplane) -> Result<Vec<Drops>> {
    let counts = events(dataplane)?.into_iter().zip(COUNTED);
    let drops = counts.filter_map(|((reason, count), (_, remedy))| {
        Some(Drops { reason, count, remedy: remedy? })
    });
    Ok(drops.collect())
}
