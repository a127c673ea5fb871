//! The answer to a status request: JSON, for people, readiness checks and metrics.

use super::backends::BackendStatus;
use super::pool::Pool;
use super::{Outputs, Server};
use serde::{Deserialize, Serialize};
use state_protocol::{Flags, MAX_PACKET_BYTES, Message, MessageType};
use std::net::SocketAddrV4;

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `head`, `middle`, `tail`, or `single`.
    pub role: String,
    /// `forming`, `waiting_out_leases` (head), `serving` (head), `ready` (others) or `broken`.
    pub state: String,
    /// Why it is broken.
    pub reason: Option<String>,
    /// Time since start in ms.
    pub uptime_ms: u64,
    /// The last entry applied here.
    pub index: u64,
    /// The last entry known to be at the tail.
    pub committed: u64,
    /// Entries not confirmed by the tail.
    pub unacked: usize,
    /// Time since the successor last confirmed anything new while entries wait for it, in ms.
    pub stalled_ms: u64,
    /// Requests held at the head.
    pub held: usize,
    /// Flows that their owners are asked to release.
    pub recalls: usize,
    /// Switches with a session.
    pub sessions: usize,
    /// Records of all objects.
    pub records: usize,
    /// The objects.
    pub objects: Vec<ObjectStatus>,
    /// Datagrams dropped as malformed.
    pub malformed: u64,
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

impl Server {
    /// How this server is.
    pub fn status(&self, now_ns: u64) -> Status {
        let role = match (&self.up, &self.down) {
            (None, None) => "single",
            (None, Some(_)) => "head",
            (Some(_), Some(_)) => "middle",
            (Some(_), None) => "tail",
        };
        let state = match () {
            () if self.broken.is_some() => "broken",
            () if !self.is_ready() => "forming",
            () if self.up.is_some() => "ready",
            () if self.is_serving(now_ns) => "serving",
            () => "waiting_out_leases",
        };
        let unacked = self.down.as_ref().map_or(0, |down| down.unacked());
        let quiet_ns = self.down.as_ref().map_or(0, |down| now_ns.saturating_sub(down.progress_ns));
        let object = |(settings, records, pool): (&super::ObjectSettings, usize, Option<&Pool>)| {
            let (ports_in_use, backends) = match pool {
                None => (None, Vec::new()),
                Some(Pool::Ports(ports)) => (Some(ports.in_use()), Vec::new()),
                Some(Pool::Backends(backends)) => (None, backends.status()),
            };
            ObjectStatus { name: settings.name.clone(), id: settings.id, records, ports_in_use, backends }
        };
        Status {
            role: role.to_owned(),
            state: state.to_owned(),
            reason: self.broken.map(|reason| reason.describe()),
            uptime_ms: now_ns.saturating_sub(self.started_ns) / 1_000_000,
            index: self.index,
            committed: self.committed,
            unacked,
            stalled_ms: if unacked > 0 { quiet_ns / 1_000_000 } else { 0 },
            held: self.waiting.len(),
            recalls: self.waiting.recalls(),
            sessions: self.records.sessions.len(),
            records: self.records.len(),
            objects: self.records.objects().map(object).collect(),
            malformed: self.counters.malformed_total(),
        }
    }

    pub(super) fn answer_status(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let request = match Message::decode(bytes) {
            Ok(request) => request,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        self.counters.status_requests += 1;
        let mut json = serde_json::to_vec(&self.status(now_ns)).unwrap_or_default();
        if json.len() > MAX_PACKET_BYTES {
            json.clear();
        }
        let reply = Message { message_type: MessageType::StatusReply, flags: Flags::NONE, packet: &json, ..request };
        self.encode_reply(&reply);
        out.push(from, &self.reply);
    }
}
