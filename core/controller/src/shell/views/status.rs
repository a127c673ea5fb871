//! The answer to a status request: JSON, for people and readiness checks.

use super::watch::Watch;
use crate::core::Controller;
use crate::shell::Kept;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;
use wire::{Member, Reporter, SwitchLoad, json_that_fits};

/// How a controller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Whether it decides.
    pub leading: bool,
    /// Version of the views; 0: the cluster has not begun.
    pub version: u64,
    /// Every chain has its full length, nobody is catching up, and everybody who reports has the
    /// newest views.
    pub settled: bool,
    /// Why it cannot decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_decide: Option<String>,
    /// What else is wrong with the cluster: a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Shards that once began anew, empty, because all servers with their state died.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_lost: Vec<u16>,
    /// Servers and switches.
    pub peers: Vec<PeerStatus>,
    /// The chains, head first. Of so many that the answer would not fit a message, whole ones are
    /// left out, then the last ones.
    pub shards: Vec<ShardStatus>,
    /// How many were left out.
    #[serde(default)]
    pub shards_left_out: usize,
    /// Of the servers and switches, too: first those that are alive.
    #[serde(default)]
    pub peers_left_out: usize,
}

/// How a server or switch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its address.
    pub address: SocketAddrV4,
    /// What it is.
    pub reporter: Reporter,
    /// Server: what it dies with; no chain has two servers of one machine.
    #[serde(default)]
    pub machine: String,
    /// Reported within `dead_ms`.
    pub alive: bool,
    /// The version of the views that it has.
    pub version: u64,
    /// Time since its last report in ms.
    pub silent_ms: u64,
    /// Switch: how much it had to do then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<SwitchLoad>,
}

/// One shard's chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatus {
    /// The shard.
    pub shard: u16,
    /// Number of its view.
    pub view: u64,
    /// The chain, head first.
    pub chain: Vec<SocketAddrV4>,
    /// Catches up.
    pub joining: Option<SocketAddrV4>,
    /// The chain drains, so that another server can become its head.
    pub draining: bool,
    /// The head's entries that the tail has not confirmed, as of their last reports: how far the
    /// tail lags.
    pub lag: u64,
}

/// How the controller is.
pub fn status(core: &Controller, watch: &Watch, kept: &Kept, now_ns: u64) -> Status {
    let chain_length = core.settings().chain_length;
    let peer = |(address, seen): (&SocketAddrV4, &crate::core::Seen)| PeerStatus {
        address: *address,
        reporter: seen.reporter,
        machine: seen.machine.clone(),
        alive: core.is_alive(now_ns, seen),
        version: seen.version,
        silent_ms: now_ns.saturating_sub(seen.heard_ns) / 1_000_000,
        load: seen.load.clone(),
    };
    let peers: Vec<_> = core.peers().map(peer).collect();
    let index = |shard: u16, member: Option<&Member>| {
        let seen = core
            .peers()
            .find(|(address, _)| member.is_some_and(|member| member.address == **address));
        seen.and_then(|(_, seen)| seen.replicas.get(&shard)).map_or(0, |report| report.index)
    };
    let views = core.views();
    let shards: Vec<_> = (0u16..)
        .zip(&views.shards)
        .map(|(shard, view)| ShardStatus {
            shard,
            view: view.number,
            chain: view.members.iter().map(|member| member.address).collect(),
            joining: view.joining.map(|joining| joining.member.address),
            draining: view.draining,
            lag: index(shard, view.members.first())
                .saturating_sub(index(shard, view.members.last())),
        })
        .collect();
    let full = |shard: &ShardStatus| {
        shard.chain.len() == chain_length && shard.joining.is_none() && !shard.draining
    };
    let cannot_decide = kept.cannot_decide(now_ns, watch.behind()).map(str::to_owned);
    // The cluster's beginning founds every shard in view 1.
    let lost = |(shard, view): (u16, &wire::ShardView)| (view.founded > 1).then_some(shard);
    let state_lost = (0u16..).zip(&views.shards).filter_map(lost).collect();
    let settled = !shards.is_empty()
        && cannot_decide.is_none()
        && shards.iter().all(full)
        && peers.iter().filter(|peer| peer.alive).all(|peer| peer.version == views.version);
    Status {
        leading: core.is_leading(),
        version: views.version,
        settled,
        cannot_decide,
        warnings: watch.warnings(now_ns),
        state_lost,
        peers,
        shards,
        shards_left_out: 0,
        peers_left_out: 0,
    }
}

impl Status {
    /// As a message carries it: what is well is left out until it fits.
    pub fn into_json(self) -> Vec<u8> {
        let (shards, peers) = (self.shards.len(), self.peers.len());
        let longest = self.shards.iter().map(|shard| shard.chain.len()).max().unwrap_or(0);
        json_that_fits(self, |status, step| {
            if status.shards.is_empty() && status.peers.is_empty() {
                return false;
            }
            match step {
                0 => status
                    .shards
                    .retain(|it| it.chain.len() < longest || it.joining.is_some() || it.draining),
                1 => status.peers.retain(|peer| !peer.alive),
                _ => {
                    status.shards.truncate(status.shards.len() / 2);
                    status.peers.truncate(status.peers.len() / 2);
                }
            }
            status.shards_left_out = shards - status.shards.len();
            status.peers_left_out = peers - status.peers.len();
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MAX_PACKET_BYTES;

    /// A cluster of 256 shards, one of which has lost a member.
    #[test]
    fn what_does_not_fit_is_counted_and_what_is_not_well_stays() {
        let chain: Vec<SocketAddrV4> = ["10.2.1.10:5407", "10.2.2.10:5407", "10.2.3.10:5407"]
            .iter()
            .filter_map(|it| it.parse().ok())
            .collect();
        let shard = |shard: u16| ShardStatus {
            shard,
            view: 1,
            chain: if shard == 200 { chain[..2].to_vec() } else { chain.clone() },
            joining: None,
            draining: false,
            lag: 0,
        };
        let status = Status {
            leading: true,
            version: 1,
            settled: false,
            cannot_decide: None,
            warnings: Vec::new(),
            state_lost: Vec::new(),
            peers: Vec::new(),
            shards: (0..256).map(shard).collect(),
            shards_left_out: 0,
            peers_left_out: 0,
        };
        let json = status.into_json();
        assert!(json.len() <= MAX_PACKET_BYTES);
        let found: Status = serde_json::from_slice(&json).expect("an answer");
        assert_eq!(
            (found.shards.len(), found.shards_left_out, found.shards[0].shard),
            (1, 255, 200)
        );
    }
}
