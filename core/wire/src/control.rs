//! Messages between servers or switches and controllers: `core/controller/docs/protocol.md`.

use crate::{EncodeError, HEADER_BYTES, Kind, MAGIC, MOST_SHARDS, Malformed, VERSION, kind};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// Longest control message: what one UDP datagram over IPv4 holds.
pub const MAX_CONTROL_BYTES: usize = 65_507;

/// Longest name of a machine in a report.
pub const MOST_MACHINE_BYTES: usize = 64;

/// Type of a control message; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ControlType {
    /// Server or switch to controller: how I am.
    Report = 48,
    /// Controller to server or switch: all shards' chains.
    Views = 49,
    /// Controller to server or switch: your report came.
    Heard = 50,
    /// Controller that lost its views to server: what are yours?
    ViewsWanted = 51,
    /// Controller to switch: another switch has your number.
    Refused = 52,
    /// Controller to whoever sent something that is not genuine: our secrets differ.
    OtherSecrets = 53,
}

impl ControlType {
    #[inline]
    pub(crate) fn from_number(number: u8) -> Option<ControlType> {
        Some(match number {
            48 => ControlType::Report,
            49 => ControlType::Views,
            50 => ControlType::Heard,
            51 => ControlType::ViewsWanted,
            52 => ControlType::Refused,
            53 => ControlType::OtherSecrets,
            _ => return None,
        })
    }
}

/// One life of a server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(SocketAddrV4, u64)", into = "(SocketAddrV4, u64)")]
pub struct Member {
    /// Where it listens.
    pub address: SocketAddrV4,
    /// Drawn at random when it started with empty state; not 0.
    pub incarnation: u64,
}

impl From<(SocketAddrV4, u64)> for Member {
    fn from((address, incarnation): (SocketAddrV4, u64)) -> Member {
        Member { address, incarnation }
    }
}

impl From<Member> for (SocketAddrV4, u64) {
    fn from(member: Member) -> Self {
        (member.address, member.incarnation)
    }
}

/// A server that catches up behind the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// The server.
    pub member: Member,
    /// Number of the view in which this attempt began: another number, another copy from the start.
    pub since: u64,
}

/// Who holds a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShardView {
    /// Grows by one with each change; 0: the shard has never had a chain.
    pub number: u64,
    /// Number of the view in which the shard began, empty, with its present state.
    pub founded: u64,
    /// The chain, head first: all of them have everything that was ever acknowledged.
    pub members: Vec<Member>,
    /// Catches up behind the tail.
    pub joining: Option<Joining>,
    /// The head orders nothing any more: when all members have the same, the chain's order is to
    /// change.
    pub draining: bool,
}

/// All shards' views: the controller's whole decision. A higher `version` replaces a lower one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Views {
    /// Grows by one with each decision.
    pub version: u64,
    /// By shard number.
    pub shards: Vec<ShardView>,
}

/// Number, founded, members, joining and since when, draining: servers by their place in
/// `CompactViews::servers`.
type CompactShard = (u64, u64, Vec<usize>, Option<(usize, u64)>, bool);

/// `Views` with each server named once.
#[derive(Serialize, Deserialize)]
struct CompactViews {
    version: u64,
    servers: Vec<Member>,
    shards: Vec<CompactShard>,
}

impl Views {
    /// The shards' heads: where switches send their requests.
    pub fn heads(&self) -> impl Iterator<Item = Option<SocketAddrV4>> {
        self.shards.iter().map(|shard| shard.members.first().map(|member| member.address))
    }

    /// The JSON that messages carry and databases keep.
    pub fn to_json(&self) -> Vec<u8> {
        let mut servers: Vec<Member> = Vec::new();
        let mut place = |member: &Member| {
            servers.iter().position(|known| known == member).unwrap_or_else(|| {
                servers.push(*member);
                servers.len() - 1
            })
        };
        let mut shards = Vec::new();
        for shard in &self.shards {
            let members = shard.members.iter().map(&mut place).collect();
            let joining = shard.joining.map(|joining| (place(&joining.member), joining.since));
            shards.push((shard.number, shard.founded, members, joining, shard.draining));
        }
        serde_json::to_vec(&CompactViews { version: self.version, servers, shards })
            .unwrap_or_default()
    }

    /// Reads what `to_json` wrote.
    pub fn from_json(json: &[u8]) -> Result<Views, Malformed> {
        let compact: CompactViews = serde_json::from_slice(json).map_err(|_| Malformed::Json)?;
        if compact.shards.len() > usize::from(MOST_SHARDS) {
            return Err(Malformed::Json);
        }
        let member = |at: usize| compact.servers.get(at).copied().ok_or(Malformed::Json);
        let shard = |(number, founded, members, joining, draining): &CompactShard| {
            let joining = match joining {
                Some((at, since)) => Some(Joining { member: member(*at)?, since: *since }),
                None => None,
            };
            let members = members.iter().map(|at| member(*at)).collect::<Result<_, _>>()?;
            Ok(ShardView {
                number: *number,
                founded: *founded,
                members,
                joining,
                draining: *draining,
            })
        };
        Ok(Views {
            version: compact.version,
            shards: compact.shards.iter().map(shard).collect::<Result<_, _>>()?,
        })
    }
}

/// How a server's replica of one shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "ReportRow", into = "ReportRow")]
pub struct ShardReport {
    /// The shard.
    pub shard: u16,
    /// The view that the server is in.
    pub view: u64,
    /// The last entry applied.
    pub index: u64,
    /// All links from here to the tail are up.
    pub ready: bool,
    /// Has everything that was acknowledged. A server that joins says so once the copy is done and
    /// the tail answers through it.
    pub synced: bool,
    /// Its records do not fit the chain's entries: it cannot go on.
    pub broken: bool,
    /// Head of a chain that drains: it has ordered nothing since, and all that it ever ordered is
    /// confirmed.
    pub drained: bool,
    /// Tail: copy messages that the joining server has taken.
    pub copied: u64,
    /// For how long the successor has not answered, in ms; 0: it does.
    pub unreachable_ms: u32,
    /// For how long the successor, whether it answers or not, has confirmed nothing of what is
    /// under way to it, in ms.
    pub stalled_ms: u32,
    /// Records.
    pub records: u64,
}

/// Shard, view, index, flags, copied, unreachable_ms, stalled_ms, records.
type ReportRow = (u16, u64, u64, u8, u64, u32, u32, u64);

impl From<ReportRow> for ShardReport {
    fn from(
        (shard, view, index, flags, copied, unreachable_ms, stalled_ms, records): ReportRow,
    ) -> ShardReport {
        let flag = |bit: u8| flags & bit != 0;
        let (ready, synced, broken, drained) = (flag(1), flag(2), flag(4), flag(8));
        ShardReport {
            shard,
            view,
            index,
            ready,
            synced,
            broken,
            drained,
            copied,
            unreachable_ms,
            stalled_ms,
            records,
        }
    }
}

impl From<ShardReport> for ReportRow {
    fn from(report: ShardReport) -> ReportRow {
        let bits = [report.ready, report.synced, report.broken, report.drained];
        let flags = (0..).zip(bits).fold(0, |flags, (at, bit)| flags | u8::from(bit) << at);
        let ShardReport { shard, view, index, copied, unreachable_ms, stalled_ms, records, .. } =
            report;
        (shard, view, index, flags, copied, unreachable_ms, stalled_ms, records)
    }
}

/// Who reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reporter {
    /// A server.
    Server,
    /// A switch.
    Switch {
        /// Its number.
        switch_id: u32,
    },
}

/// How a server or a switch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who reports.
    pub reporter: Reporter,
    /// The version of the views that it knows.
    pub version: u64,
    /// How many shards it is configured for.
    pub shards: u16,
    /// Server: for how long it has heard nothing from anybody, in ms.
    #[serde(default)]
    pub heard_ms: u32,
    /// Switch: a controller answered reports of this life for a while, so the switch is no
    /// newcomer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// Server: the machine, or whatever else it dies with others of: no chain has two servers of
    /// one. Empty: it is alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Server: one for each shard that it has.
    pub replicas: Vec<ShardReport>,
    /// Switch: for people; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<SwitchLoad>,
}

/// How much a switch holds and has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchLoad {
    /// Its name.
    pub name: String,
    /// The P4 program that it runs.
    pub program: String,
    /// Ports with the program on them.
    pub ports_attached: u32,
    /// Ports of its configuration.
    pub ports: u32,
    /// Shards with which it has a live session.
    pub sessions: u32,
    /// Pieces of state that are its to use, counted some seconds ago at the most.
    pub owned: u64,
    /// Changes that are not acknowledged.
    pub pending: u64,
    /// How late the packet generator's last look at these was, in microseconds; none for a program
    /// without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_lag_us: Option<u64>,
}

/// Why a switch is refused: another one has its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The number of both.
    pub switch_id: u32,
    /// Where the other one reports from.
    pub address: SocketAddrV4,
    /// The other one's name; empty: not known.
    #[serde(default)]
    pub name: String,
}

/// A control message, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Server or switch to controller.
    Report {
        /// The sender's clock, in ns: an older report of the same incarnation is ignored.
        sent_ns: u64,
        /// The sender's incarnation.
        incarnation: u64,
        /// How it is.
        report: Report,
    },
    /// Controller to server or switch; server to a controller that wants them.
    Views(Views),
    /// Controller to server or switch: the answer to each report. Who is answered by nobody knows
    /// that it is deaf.
    Heard,
    /// Controller to server: answered by `Views`, unless another controller is heard.
    ViewsWanted,
    /// Controller to switch, instead of `Heard`: the report is not taken, because another switch
    /// has the number.
    Refused {
        /// The report's `sent_ns`.
        sent_ns: u64,
        /// The report's incarnation.
        incarnation: u64,
        /// Which switch that is.
        refusal: Refusal,
    },
    /// Controller to the sender of a message that is not genuine. The receiver cannot verify it,
    /// either: it is a hint for people, and changes nothing.
    OtherSecrets,
}

impl Control {
    /// Reads a control message.
    pub fn decode(datagram: &[u8]) -> Result<Control, Malformed> {
        let Kind::Control(control_type) = kind(datagram)? else { return Err(Malformed::Type) };
        let json = datagram.get(HEADER_BYTES..).ok_or(Malformed::TooShort)?;
        let word = |at: usize| {
            let bytes = datagram.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_be_bytes).ok_or(Malformed::TooShort)
        };
        match control_type {
            ControlType::Report => {
                let report = serde_json::from_slice(json).map_err(|_| Malformed::Json)?;
                Ok(Control::Report { sent_ns: word(8)?, incarnation: word(16)?, report })
            }
            ControlType::Views => Views::from_json(json).map(Control::Views),
            ControlType::Heard | ControlType::ViewsWanted | ControlType::OtherSecrets
                if !json.is_empty() =>
            {
                Err(Malformed::Json)
            }
            ControlType::Refused => {
                let refusal = serde_json::from_slice(json).map_err(|_| Malformed::Json)?;
                Ok(Control::Refused { sent_ns: word(8)?, incarnation: word(16)?, refusal })
            }
            ControlType::OtherSecrets => Ok(Control::OtherSecrets),
            ControlType::Heard => Ok(Control::Heard),
            ControlType::ViewsWanted => Ok(Control::ViewsWanted),
        }
    }

    /// The message's bytes; with no tag yet: `KeyRing::sign` writes it.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (control_type, number, incarnation, json) = match self {
            Control::Report { sent_ns, incarnation, report } => {
                let json = serde_json::to_vec(report).map_err(|_| EncodeError::FieldTooLong)?;
                (ControlType::Report, *sent_ns, *incarnation, json)
            }
            Control::Views(views) => (ControlType::Views, views.version, 0, views.to_json()),
            Control::Heard => (ControlType::Heard, 0, 0, Vec::new()),
            Control::ViewsWanted => (ControlType::ViewsWanted, 0, 0, Vec::new()),
            Control::OtherSecrets => (ControlType::OtherSecrets, 0, 0, Vec::new()),
            Control::Refused { sent_ns, incarnation, refusal } => {
                let json = serde_json::to_vec(refusal).map_err(|_| EncodeError::FieldTooLong)?;
                (ControlType::Refused, *sent_ns, *incarnation, json)
            }
        };
        if json.len() > MAX_CONTROL_BYTES - HEADER_BYTES {
            return Err(EncodeError::FieldTooLong);
        }
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = VERSION;
        bytes[3] = control_type as u8;
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        bytes[16..24].copy_from_slice(&incarnation.to_be_bytes());
        bytes.extend_from_slice(&json);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn member(at: u8) -> Member {
        Member {
            address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at), 5407),
            incarnation: u64::MAX - u64::from(at),
        }
    }

    fn views(shards: usize) -> Views {
        let joining = Some(Joining { member: member(4), since: 7 });
        let members = vec![member(1), member(2), member(3)];
        let shard = ShardView { number: 8, founded: 1, members, joining, draining: shards == 3 };
        let mut shards = vec![shard; shards];
        shards[0] = ShardView::default();
        Views { version: 9, shards }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let replicas = vec![
            ShardReport {
                shard: 3,
                view: 4,
                index: 5,
                ready: true,
                synced: false,
                broken: true,
                ..Default::default()
            },
            ShardReport {
                synced: true,
                drained: true,
                copied: 6,
                unreachable_ms: 7,
                stalled_ms: 9,
                records: 8,
                ..Default::default()
            },
        ];
        let report = Report {
            reporter: Reporter::Switch { switch_id: 1 },
            version: 2,
            shards: 8,
            heard_ms: 3,
            accepted: false,
            machine: "rack 1".to_owned(),
            replicas,
            load: Some(SwitchLoad {
                name: "leaf".to_owned(),
                program: "nat.p4".to_owned(),
                ports_attached: 1,
                ports: 2,
                sessions: 3,
                owned: 4,
                pending: 5,
                generator_lag_us: None,
            }),
        };
        for control in [
            Control::Views(views(3)),
            Control::Views(Views::default()),
            Control::Heard,
            Control::ViewsWanted,
            Control::OtherSecrets,
            Control::Refused {
                sent_ns: 1,
                incarnation: 2,
                refusal: Refusal {
                    switch_id: 7,
                    address: member(2).address,
                    name: "leaf".to_owned(),
                },
            },
            Control::Report { sent_ns: 1, incarnation: 2, report },
        ] {
            let bytes = control.encode().unwrap();
            assert_eq!(Control::decode(&bytes), Ok(control.clone()));
            for length in 0..bytes.len() {
                assert!(
                    Control::decode(&bytes[..length]).is_err(),
                    "{length} bytes of {control:?}"
                );
            }
        }
    }

    #[test]
    fn the_largest_cluster_fits_a_datagram() {
        assert!(Control::Views(views(usize::from(MOST_SHARDS))).encode().unwrap().len() < 16_384);
    }

    #[test]
    fn servers_out_of_range_are_malformed() {
        let json = br#"{"version":1,"servers":[],"shards":[[1,1,[0],null,false]]}"#;
        assert_eq!(Views::from_json(json), Err(Malformed::Json));
    }
}
