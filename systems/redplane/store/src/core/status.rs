//! The answer to a status request: JSON, for people, readiness checks and metrics.

use super::backends::BackendStatus;
use super::pool::Pool;
use super::{AllocatorSettings, Node, Replica, Role};
use serde::{Deserialize, Serialize};
use wire::json_that_fits;

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// `ready`: in the chain of every shard where it is expected, and all links are up (heads:
    /// serving); `waiting` for the controller, for links, or for old leases to end; `broken`.
    pub state: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// Time since start in ms.
    pub uptime_ms: u64,
    /// The version of the views that it has; 0: it has heard of no controller.
    pub version: u64,
    /// Requests held at heads.
    pub held: usize,
    /// Flows that their owners are asked to release.
    pub recalls: usize,
    /// Sessions of switches, over all shards.
    pub sessions: usize,
    /// Records of all objects, all shards.
    pub records: usize,
    /// Entries not confirmed by tails.
    pub unacked: usize,
    /// The objects.
    pub objects: Vec<ObjectStatus>,
    /// Datagrams dropped as malformed.
    pub malformed: u64,
    /// Shards in whose chain it is.
    #[serde(default)]
    pub shards: usize,
    /// Of these, those whose head it is.
    #[serde(default)]
    pub heads: usize,
    /// The longest time that a successor has confirmed nothing new while entries wait for it, in
    /// ms.
    #[serde(default)]
    pub stalled_ms: u64,
    /// The shards in whose chain it is. Of so many that the answer would not fit a message, those
    /// that are well are left out, then the last ones.
    pub replicas: Vec<ReplicaStatus>,
    /// How many were left out.
    #[serde(default)]
    pub replicas_left_out: usize,
}

/// How a replica of a shard is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// The shard.
    pub shard: u16,
    /// `head`, `middle`, `tail`, `single` or `joining`.
    pub role: String,
    /// `forming`, `waiting_out_leases` (head), `serving` (head), `ready` (others), `catching_up` or
    /// `broken`.
    pub state: String,
    /// Why it is broken.
    pub reason: Option<String>,
    /// The number of its view.
    pub view: u64,
    /// The last entry applied here.
    pub index: u64,
    /// The last entry known to be at the tail.
    pub committed: u64,
    /// Entries not confirmed by the tail.
    pub unacked: usize,
    /// Requests held.
    pub held: usize,
    /// Flows that their owners are asked to release.
    pub recalls: usize,
    /// Switches with a session.
    pub sessions: usize,
    /// Time since the successor last confirmed anything new while entries wait for it, in ms.
    pub stalled_ms: u64,
}

/// How full an object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// Its records.
    pub records: usize,
    /// Its external ports in use, counted per remote end (NAT only).
    pub ports_in_use: Option<usize>,
    /// Its backends (load balancer only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendStatus>,
}

impl NodeStatus {
    pub(super) fn into_json(self) -> Vec<u8> {
        json_that_fits(self, |status, step| {
            if status.replicas.is_empty() {
                return false;
            }
            match step {
                0 => status.replicas.retain(|replica| !replica.is_well()),
                _ => status.replicas.truncate(status.replicas.len() / 2),
            }
            status.replicas_left_out = status.shards - status.replicas.len();
            true
        })
    }
}

impl ReplicaStatus {
    fn is_well(&self) -> bool {
        matches!(self.state.as_str(), "serving" | "ready")
    }
}

impl Node {
    /// How this server is.
    pub fn status(&self, now_ns: u64) -> NodeStatus {
        let replicas: Vec<_> = self.replicas().map(|replica| replica.status(now_ns)).collect();
        let state = match () {
            () if replicas.iter().any(|status| status.state == "broken") => "broken",
            () if self.views().version > 0 && replicas.iter().all(ReplicaStatus::is_well) => {
                "ready"
            }
            () => "waiting",
        };
        let objects = self.objects_status();
        NodeStatus {
            state: state.to_owned(),
            incarnation: self.me().incarnation,
            uptime_ms: now_ns.saturating_sub(self.started_ns()) / 1_000_000,
            version: self.views().version,
            held: replicas.iter().map(|status| status.held).sum(),
            recalls: replicas.iter().map(|status| status.recalls).sum(),
            sessions: replicas.iter().map(|status| status.sessions).sum(),
            records: objects.iter().map(|object| object.records).sum(),
            unacked: replicas.iter().map(|status| status.unacked).sum(),
            objects,
            malformed: self.counters().malformed_total(),
            shards: replicas.len(),
            heads: replicas
                .iter()
                .filter(|status| matches!(status.role.as_str(), "head" | "single"))
                .count(),
            stalled_ms: replicas.iter().map(|status| status.stalled_ms).max().unwrap_or(0),
            replicas,
            replicas_left_out: 0,
        }
    }

    /// The objects, summed up over the shards.
    fn objects_status(&self) -> Vec<ObjectStatus> {
        let empty = |object: &super::ObjectSettings| ObjectStatus {
            name: object.name.clone(),
            id: object.id,
            records: 0,
            ports_in_use: matches!(object.allocator, AllocatorSettings::NatPorts(_)).then_some(0),
            backends: self.backends(object.id).iter().map(|backend| backend.status(0)).collect(),
        };
        let mut objects: Vec<ObjectStatus> = self.settings().objects.iter().map(empty).collect();
        for replica in self.replicas() {
            for (sum, (_, records, pool)) in objects.iter_mut().zip(replica.records().objects()) {
                sum.records += records;
                match pool {
                    None => {}
                    Some(Pool::Ports(ports)) => {
                        *sum.ports_in_use.get_or_insert(0) += ports.in_use()
                    }
                    Some(Pool::Backends(backends)) => {
                        add_backends(&mut sum.backends, backends.status())
                    }
                }
            }
        }
        objects
    }
}

/// Adds up the conversations that a shard's backends have.
fn add_backends(sum: &mut Vec<BackendStatus>, shard: Vec<BackendStatus>) {
    for backend in shard {
        match sum.iter_mut().find(|known| known.address == backend.address) {
            Some(known) => known.conversations += backend.conversations,
            None => sum.push(backend),
        }
    }
}

impl Replica {
    /// How this replica is.
    pub fn status(&self, now_ns: u64) -> ReplicaStatus {
        let role = match self.role() {
            Role::Head if self.view().members.len() == 1 => "single",
            Role::Head => "head",
            Role::Middle => "middle",
            Role::Tail => "tail",
            Role::Joining => "joining",
            Role::Outside => "outside",
        };
        let state = match () {
            () if self.chain.broken().is_some() => "broken",
            () if !self.chain.is_synced() => "catching_up",
            () if !self.is_ready() => "forming",
            () if self.role() != Role::Head => "ready",
            () if self.is_serving(now_ns) => "serving",
            () => "waiting_out_leases",
        };
        let chain = &self.chain;
        ReplicaStatus {
            shard: self.settings.shard,
            role: role.to_owned(),
            state: state.to_owned(),
            reason: chain.broken().map(|reason| reason.describe()),
            view: chain.view().number,
            index: chain.index(),
            committed: chain.committed(),
            unacked: chain.unacked(),
            held: self.waiting.len(),
            recalls: self.waiting.recalls(),
            sessions: chain.state().sessions.len(),
            stalled_ms: chain.waits_for_successor_ns(now_ns) / 1_000_000,
        }
    }
}
