//! NetChain's part of `switch.toml`.

use crate::controlled::Settings;
use crate::copies;
use crate::keys::Source;
use crate::peers::Pace;
use netchain_keys::ClientKeys;
use netchain_protocol::Ring;
use netchain_protocol::layouts::PEERS;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 9] = [
    "client_keys",
    "open_to_all",
    "peers",
    "probe_ms",
    "lease_ms",
    "copy_keys_per_s",
    "cluster",
    "member_address",
    "announce_on",
];

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
    /// Keys that a second copies at the most, for a member that joins.
    copy_keys_per_s: Option<u64>,
    /// With `controllers`: the founding file, relative to the configuration file.
    cluster: Option<PathBuf>,
    /// With `controllers`: which switch of the cluster this is.
    member_address: Option<Ipv4Addr>,
    /// With `controllers`: the interface for addresses of dead switches.
    announce_on: Option<String>,
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
            "is needed: it says who may read and write. Name the file of clients' keys \
             (`stateplane kv key issue FILE` makes one), or write `open_to_all = true`",
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

/// Keys that a second copies at the most.
///
/// # Errors
/// It is out of range.
pub(crate) fn copies_per_s(config: &Config) -> Result<u64> {
    let per_s = config.part::<Own>(&FIELDS)?.copy_keys_per_s.unwrap_or(copies::USUAL_PER_S);
    match per_s {
        1..=10_000_000 => Ok(per_s),
        _ => config.fault("copy_keys_per_s", format!("{per_s}: must be 1 to 10000000")),
    }
}

/// The switch in a cluster with controllers; None: it is set up by hand. Its incarnation is not
/// known yet.
///
/// # Errors
/// A field is missing, or contradicts another one or the founding file.
pub(crate) fn controlled(config: &Config) -> Result<Option<(Settings, Ring)>> {
    let own: Own = config.part(&FIELDS)?;
    let only = [
        ("cluster", own.cluster.is_some()),
        ("member_address", own.member_address.is_some()),
        ("announce_on", own.announce_on.is_some()),
    ];
    if config.controllers.is_empty() {
        return match only.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => config.fault(field, "has no meaning without `controllers`"),
            None => Ok(None),
        };
    }
    if !own.peers.is_empty() {
        return config.fault(
            "peers",
            "the `controllers` already say which switches are peers; \
                                      remove it",
        );
    }
    let Some(cluster) = own.cluster else {
        let why = "is needed with `controllers`: name the file that `stateplane kv found` wrote";
        return config.fault("cluster", why);
    };
    let cluster = config.file.parent().unwrap_or(Path::new("")).join(cluster);
    let text = std::fs::read_to_string(&cluster).map_err(|error| error.to_string());
    let ring = text.and_then(|text| Ring::from_toml(&text));
    let ring =
        ring.or_else(|error| config.fault("cluster", format!("{}: {error}", cluster.display())))?;
    let member =
        own.member_address.filter(|it| ring.members().iter().any(|all| all.address == *it));
    let (Some(own_address), Some(protocol_address), Some(secrets)) =
        (member, config.protocol_address, config.secrets.clone())
    else {
        let why = "is needed with `controllers`: the address that the founding file has for this \
                   switch";
        return config.fault("member_address", why);
    };
    if let Some(name) = own.announce_on.as_ref().filter(|it| it.is_empty() || it.len() > 15) {
        let why = format!("{name:?}: an interface's name has 1 to 15 characters");
        return config.fault("announce_on", why);
    }
    let settings = Settings {
        own: own_address,
        ring: ring.fingerprint(),
        incarnation: 0,
        protocol_address,
        controllers: config.controllers.clone(),
        secrets,
        announce_on: own.announce_on,
    };
    Ok(Some((settings, ring)))
}

/// Checks it, and the file.
pub(crate) fn check(config: &Config) -> Result<()> {
    peers(config)?;
    controlled(config)?;
    copies_per_s(config)?;
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
