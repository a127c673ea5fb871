//! NetChain's part of `switch.toml`.

use crate::keys::Source;
use crate::peers::Pace;
use netchain_keys::ClientKeys;
use netchain_protocol::layouts::PEERS;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 5] =
    ["client_keys", "open_to_all", "peers", "probe_ms", "lease_ms"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    /// The file of clients' keys, relative to the configuration file.
    client_keys: Option<PathBuf>,
    /// Everybody may read and write.
    #[serde(default)]
    open_to_all: bool,
    /// The switches of a cluster that is set up by hand; their numbers as peers are their places
    /// here. This switch may be one of them.
    #[serde(default)]
    peers: Vec<Ipv4Addr>,
    /// [`Pace`].
    probe_ms: Option<u64>,
    lease_ms: Option<u64>,
}

/// Who may ask a switch whose program checks tags.
///
/// # Errors
/// The configuration does not say, or contradicts itself.
pub(crate) fn source(config: &Config) -> Result<Source> {
    let own: Own = config.part(&FIELDS)?;
    match (own.client_keys, own.open_to_all) {
        (Some(file), false) => {
            let folder = config.file.parent().unwrap_or(Path::new(""));
            Ok(Source::File(folder.join(file)))
        }
        (None, true) => Ok(Source::Everybody),
        (None, false) => config.fault(
            "client_keys",
            "is needed: who may read and write? Name the file of clients' keys (`stateplane kv \
             key issue FILE` makes one), or write `open_to_all = true`",
        ),
        (Some(_), true) => config.fault(
            "open_to_all",
            "contradicts client_keys; remove one (the file's [anonymous] says what clients \
             without a key may do)",
        ),
    }
}

/// How often peers are probed, and how long a lease holds; and the peers, if they are set by hand.
///
/// # Errors
/// A time is out of range, or a peer is given twice.
pub(crate) fn peers(config: &Config) -> Result<(Pace, Vec<Ipv4Addr>)> {
    let own: Own = config.part(&FIELDS)?;
    let usual = Pace::default();
    let probe_ms = own.probe_ms.unwrap_or(usual.probe_ms);
    let lease_ms = own.lease_ms.unwrap_or(usual.lease_ms);
    if !(1..=1000).contains(&probe_ms) {
        return config.fault("probe_ms", format!("{probe_ms}: must be 1 to 1000"));
    }
    let least = Pace::LEAST_LEASE_MS.max(3 * probe_ms);
    if !(least..=60_000).contains(&lease_ms) {
        let reason = format!(
            "{lease_ms}: must be {least} to 60000 (three times probe_ms, and at least {})",
            Pace::LEAST_LEASE_MS
        );
        return config.fault("lease_ms", reason);
    }
    for (at, peer) in own.peers.iter().enumerate() {
        if own.peers[..at].contains(peer) {
            return config.fault("peers", format!("{peer} is given twice"));
        }
    }
    if own.peers.len() > PEERS as usize {
        return config.fault("peers", format!("more than {PEERS}"));
    }
    Ok((Pace { probe_ms, lease_ms }, own.peers))
}

/// Checks it, and the file.
pub(crate) fn check(config: &Config) -> Result<()> {
    peers(config)?;
    if config.secrets.is_none() {
        let remedy = "is needed: members of a chain tag what they send each other; name the \
                      fabric's file of secrets (`stateplane keys generate FILE` makes one)";
        return config.fault("secrets", remedy);
    }
    match source(config)? {
        Source::Everybody => Ok(()),
        Source::File(path) => ClientKeys::load(&path)
            .map(drop)
            .or_else(|error| config.fault("client_keys", error.to_string())),
    }
}
