//! What the configuration and the views say, in the object's maps.

use crate::config::SwitchConfig;
use crate::runtime::{FlowRuntime, FlowSettings, MOST_SHARDS};
use dataplane::Dataplane;
use manifest::{Layout, Manifest, StateObject};
use state_protocol::objects::objects;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use switch_agent::config::Config;
use switch_agent::system::now_ns;
use switch_agent::{Error, Result};

/// How a state object's outputs relate to its state, as `status` shows it.
pub(crate) fn consistency(object: &StateObject) -> &str {
    match object.value {
        Layout::Fields { .. } => word(object, "consistency"),
        Layout::Slots { .. } if object.is_local() => "local",
        Layout::Slots { .. } => "bounded",
    }
}

/// What gives a new flow its value: `zero`, `nat_ports` or `backends`.
pub(crate) fn allocator(object: &StateObject) -> &str {
    word(object, "allocator")
}

/// Time between two snapshots of a key, of the objects of which snapshots are taken.
pub(crate) fn snapshot_periods_us(manifest: &Manifest) -> impl Iterator<Item = u32> {
    let periods = objects(manifest).filter_map(|it| it.settings.get("period_us")?.as_u64());
    periods
        .filter_map(|period_us| u32::try_from(period_us).ok())
        .filter(|period_us| *period_us != 0)
}

/// A setting that is a word.
fn word<'a>(object: &'a StateObject, setting: &str) -> &'a str {
    object.settings.get(setting).and_then(|it| it.as_str()).unwrap_or_default()
}

/// Writes what the object's maps need; maps that the object does not have are skipped.
pub(crate) fn configure(
    dataplane: &Dataplane,
    config: &Config,
    own: &SwitchConfig,
    incarnation: u32,
    interval: Duration,
) -> Result<()> {
    if dataplane.has_flow_runtime() {
        // A successor goes on with the shards that it finds, until it is told of others.
        let shards = dataplane.shards()?;
        dataplane.set_flow_settings(settings(config, own, incarnation, shards, interval))?;
    }
    if let Some(pool) = &own.nat_pool {
        // The range was checked when the configuration was read.
        let (low, high) = pool.port_range().unwrap_or((1024, u16::MAX));
        dataplane.set_nat_pool(&pool.external, low, high)?;
    }
    if !own.backend.is_empty() {
        let backends: Vec<_> =
            own.backend.iter().map(|backend| (backend.address, backend.share())).collect();
        dataplane.set_backends(&backends)?;
    }
    Ok(())
}

/// `interval`: the packet generator's.
pub(crate) fn settings(
    config: &Config,
    own: &SwitchConfig,
    incarnation: u32,
    shards: u32,
    interval: Duration,
) -> FlowSettings {
    FlowSettings {
        switch_id: config.switch_id,
        incarnation,
        protocol_address: config.protocol_address.unwrap_or(Ipv4Addr::UNSPECIFIED),
        shards,
        lease_margin_ns: own.lease_margin_us * 1_000,
        resend_least_ns: own.resend_timeout_us * 1_000,
        resend_most_ns: own.resend_timeout_most_us * 1_000,
        window: u64::from(own.window_packets),
        look_ns: interval.as_nanos() as u64,
    }
}

/// Makes the cluster have these shards: `heads[n]` is the head of shard n's chain. Another number
/// of shards is another cluster: the sessions with the earlier one are over, and its flows are
/// asked for anew.
pub(crate) fn set_shards(
    dataplane: &Dataplane,
    config: &Config,
    own: &SwitchConfig,
    incarnation: u32,
    interval: Duration,
    heads: &[SocketAddrV4],
) -> Result<()> {
    if heads.is_empty() || heads.len() > MOST_SHARDS {
        return Err(Error::Other(format!(
            "{} shards; a cluster has 1 to {MOST_SHARDS}",
            heads.len()
        )));
    }
    let shards = heads.len() as u32;
    let same = dataplane.shards()? == shards;
    for (shard, head) in (0u32..).zip(heads) {
        // Whoever is told the same again has nothing to send again.
        if dataplane.shard_head(shard)? != Some(*head) {
            dataplane.change_shard_head(shard, Some(*head), now_ns())?;
        }
    }
    if !same {
        for shard in 0..MOST_SHARDS as u32 {
            dataplane.clear_session(shard)?;
        }
        // Last: from here on requests find all heads.
        dataplane.set_flow_settings(settings(config, own, incarnation, shards, interval))?;
    }
    Ok(())
}
