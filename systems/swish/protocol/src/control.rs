//! What switches of a group and their controllers tell each other: reports, orders, and state in
//! parts. All have the header and the tag of the platform's messages (`wire::KeyRing`).
//!
//! Reports and orders are JSON behind the header. State goes in parts, each of which its receiver
//! asks for: what is lost is asked for again (`bulk`).

use crate::base::{Base, Before};
use crate::exclusion::{Excluded, Why};
use crate::objects::Consistency;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use wire::{HEADER_BYTES, Kind, MAGIC, VERSION, kind};

/// A B of which cells of 32 bits have no more: the updates of a rotation have no bound.
pub const NO_BOUND: u64 = 1 << 32;
/// A member is dead after so long without a report, if the controllers' configuration says nothing.
pub const USUAL_DEAD_MS: u64 = 100;
/// A member that holds up all others is removed after so long, if it says nothing.
pub const USUAL_SLOW_MS: u64 = 2000;
/// UDP port of controllers, if their configuration does not say another one.
pub const CONTROLLER_PORT: u16 = 5412;
/// Type of [`Message::Report`], in the header.
pub const REPORT: u8 = 170;
/// Of [`Message::Order`].
pub const ORDER: u8 = 171;
/// Of [`Message::Ask`].
pub const ASK: u8 = 172;
/// Of [`Message::Part`].
pub const PART: u8 = 173;
/// Bytes of a message at the most: no link's MTU is smaller with IP and UDP headers.
pub const MOST_BYTES: usize = 1_400;
/// Bytes of state in a part.
pub const PART_BYTES: usize = 1_200;
/// Bytes before them, behind the header.
const PART_HEAD_BYTES: usize = 16;

/// A member of a view. Members stand in their order: a chain goes from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number, below 32.
    pub number: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// Of which of its lives.
    pub incarnation: u32,
}

/// What a switch tells of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub group: String,
    /// The switch's address.
    pub switch: Ipv4Addr,
    /// Of its life.
    pub incarnation: u32,
    /// The sender's clock in ns: an earlier report of the same life was overtaken or recorded.
    pub sent_ns: u64,
    /// Where the group's variables lie and how they merge (`objects::Group::layout`).
    pub layout: u64,
    /// All merge by addition: what a dead member brought can be told apart.
    pub sums: bool,
    /// The view that it is in; 0: it has no state of the group.
    pub view: u32,
    /// The window, and what it does in it.
    pub window: u64,
    /// See `window`.
    pub phase: u64,
    /// The seal under which nothing moves on this switch, and no CPU works on a frame; 0: none.
    pub sealed: u32,
    /// The highest number of a seal or view that it knows.
    pub known: u32,
    /// It does not know its view's members: an earlier agent took the view.
    pub asks: bool,
    /// A bit for each member all of whose messages of this window are merged.
    pub whole: u64,
    /// A bit for each member that it waits for; with EWO, that it hears nothing of.
    pub lacks: u64,
    /// The window and what was merged in it have stood still for so long.
    pub still_ms: u64,
    /// It is to leave the group.
    #[serde(default)]
    pub leaves: bool,
    /// All that its packets updated has counted, and they update nothing any more.
    #[serde(default)]
    pub empty: bool,
    /// For operators.
    #[serde(default)]
    pub load: Load,
    /// Of a group with SRO: its `window` is the round of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainReport>,
    /// Of a group with EWO, which has no windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eventual: Option<Box<EventualReport>>,
}

/// What a switch tells of a group with EWO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventualReport {
    /// Rounds of gossip that its agent has seen to their end.
    pub rounds: u64,
    /// Changes that a member is still to be sent, at the most.
    pub waiting: u64,
    /// Lives whose slots it has, with the base.
    pub lives: u32,
    /// Its own one, which goes on when its agent is another one; 0: it has not begun.
    #[serde(default)]
    pub life: u64,
    /// As many lives may have slots; 0: nothing in the group has any.
    #[serde(default)]
    pub room: u32,
    /// What its base is made of, as far as its agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The answer to [`Task::Sum`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
}

/// A number for all that a switch has of lives that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The view in which it had that.
    pub view: u32,
    /// Which lives ([`Before::number`]).
    pub of: u32,
    /// How many of them it has, but for the base.
    pub lives: u32,
    /// Switches with the same number have the same slots.
    pub digest: u64,
    /// The life with the lowest incarnation: its switch, and the incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<(Ipv4Addr, u32)>,
}

/// After so many rounds of gossip a switch has sent each other member everything that it has. Each
/// place of a run comes once in as many rounds as there are others, from a multiple of their number
/// on. It is twice as many, as the switch may be in the middle of such rounds.
pub fn rounds_of_all(members: u32) -> u64 {
    2 * u64::from(members.saturating_sub(1))
}

/// What a switch tells of a group with SRO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainReport {
    /// It is being given what the others have.
    pub copying: bool,
    /// The head: its round has not come back.
    pub waits: bool,
    /// Batches that are written here.
    pub applied: u64,
    /// Of those, so many are known to be at all members.
    pub committed: u64,
}

/// How long members of a view with SRO read without word of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// See the struct.
    pub lease_ms: u64,
    /// The tail answers nothing for so long: until then a removed member may read.
    pub wait_ms: u64,
}

/// What operators are told of a group on a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// B: updates of a rotation.
    pub bound: u64,
    /// Of a window, at the least.
    pub period_us: u64,
    /// Of the group's maps.
    pub memory_bytes: u64,
    /// Messages that came from other members.
    pub bytes_per_s: u64,
    /// Since the window began.
    pub age_ms: u64,
}

/// What became of the window that the members were in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// All read `window` next, with the value that a member had.
    Go,
    /// `window` runs again, from the sources of the living.
    Redo,
}

/// A decision, as its members take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number, which is that of the seal before it.
    pub number: u32,
    /// In their order.
    pub members: Vec<Member>,
    /// See there.
    pub turn: Turn,
    /// Which window.
    pub window: u64,
    /// The receiver has no state yet, or an older window's: it asks for the value first.
    pub value: bool,
    /// The dead count in `window`, all together: what they brought is asked for first.
    pub extra: bool,
    /// Of the receiver's earlier times as a member: the last view, the newest rotation that
    /// counted.
    #[serde(default)]
    pub counted: Vec<(u32, u64)>,
    /// Of a group with SRO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Of a group with SRO: members that are to be given what the others have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<u32>,
    /// Of a group with EWO: a switch that is no member may have older writes, and bring them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub away: bool,
    /// Of a group with EWO: what members have folded before they send anything in this view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Switches that are kept out, for operators: `exclusion::MOST_TOLD` at the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
}

/// What a switch is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Its reports come.
    Heard,
    /// Nothing moves until the decision with this number.
    Seal {
        /// See there.
        number: u32,
    },
    /// The decision.
    Take(View),
    /// It is no member of the newest view: it gives up what it has of the group.
    Removed {
        /// Of that view.
        number: u32,
        /// It is kept out. (Agents of an earlier version do not read this.)
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Why>,
    },
    /// With EWO: the member is to tell of these lives what it has, as long as it is asked.
    Sum {
        /// As long as it is in this view.
        view: u32,
        /// See there.
        before: Before,
    },
}

/// What a switch is told of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its name.
    pub group: String,
    /// For which of the switch's lives.
    pub incarnation: u32,
    /// What.
    pub task: Task,
}

/// State that is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// What packets of the decision's window read.
    Value,
    /// What was merged in this window.
    Half,
    /// What this switch sends in this window, with each block's message.
    Source,
    /// What the dead brought, as it was decided.
    Extra,
}

impl What {
    const ALL: [What; 4] = [What::Value, What::Half, What::Source, What::Extra];
}

/// Which state: of a group, under the seal (or of the decision) with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Which {
    /// The group's name, as a number ([`name_hash`]).
    pub group: u32,
    /// See the struct.
    pub number: u32,
    /// See there.
    pub what: What,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Of a switch.
    Report(Report),
    /// Of a controller.
    Order(Order),
    /// State from this byte on is wanted.
    Ask(Which, u32, u64),
    /// A part of it.
    Part(Which, Part),
}

/// Some of the bytes of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where they begin.
    pub offset: u32,
    /// Of all of it.
    pub total: u32,
    /// They.
    pub bytes: Vec<u8>,
}

/// It is none of these messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What the variables of one consistency are called in reports, of a group that has others, too:
/// controllers decide on each by itself. The first one in the order SDW, EWO, SRO has the group's
/// name alone.
pub fn part_name(group: &str, consistency: Consistency, is_first: bool) -> String {
    if is_first {
        return group.to_owned();
    }
    // (No name of a group has a dot.)
    format!("{group}.{}", consistency.name().to_lowercase())
}

/// The group that this is a part of.
pub fn group_of(part: &str) -> &str {
    part.split_once('.').map_or(part, |(group, _)| group)
}

/// A group's name as a number.
pub fn name_hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn header(message_type: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
    (bytes[2], bytes[3]) = (VERSION, message_type);
    bytes
}

fn json<T: Serialize>(message_type: u8, message: &T) -> Vec<u8> {
    let mut bytes = header(message_type);
    bytes.extend(serde_json::to_vec(message).unwrap_or_default());
    bytes
}

fn bulk(message_type: u8, which: Which, offset: u32, total: u32) -> Vec<u8> {
    let mut bytes = header(message_type);
    bytes.extend(which.group.to_be_bytes());
    // (A number has 24 bits then: a group takes that many decisions in years.)
    bytes.extend((which.number << 8 | which.what as u32).to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(total.to_be_bytes());
    bytes
}

/// Whether a message's type is that of a report.
pub fn is_report(kind: Kind) -> bool {
    kind == Kind::System(REPORT)
}

impl Message {
    /// The message, with no tag yet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Message::Report(report) => json(REPORT, report),
            Message::Order(order) => json(ORDER, order),
            Message::Ask(which, offset, since) => {
                let mut bytes = bulk(ASK, *which, *offset, 0);
                bytes.extend(since.to_be_bytes());
                bytes
            }
            Message::Part(which, part) => {
                let mut bytes = bulk(PART, *which, part.offset, part.total);
                bytes.extend(&part.bytes);
                bytes
            }
        }
    }

    /// Reads a message. The tag is not checked.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(datagram: &[u8]) -> Result<Message, Malformed> {
        let Ok(Kind::System(message_type)) = kind(datagram) else { return Err(Malformed) };
        let body = datagram.get(HEADER_BYTES..).ok_or(Malformed)?;
        match message_type {
            REPORT => serde_json::from_slice(body).map(Message::Report).map_err(|_| Malformed),
            ORDER => serde_json::from_slice(body).map(Message::Order).map_err(|_| Malformed),
            ASK | PART => {
                let word = |at: usize| {
                    let bytes = body.get(at..).and_then(|it| it.first_chunk());
                    bytes.copied().map(u32::from_be_bytes).ok_or(Malformed)
                };
                let (group, number, offset, total) = (word(0)?, word(4)?, word(8)?, word(12)?);
                let what = *What::ALL.get((number & 0xff) as usize).ok_or(Malformed)?;
                let which = Which { group, number: number >> 8, what };
                let bytes = body.get(PART_HEAD_BYTES..).ok_or(Malformed)?.to_vec();
                if message_type == ASK {
                    let since = bytes.first_chunk().copied().map(u64::from_be_bytes);
                    return Ok(Message::Ask(which, offset, since.ok_or(Malformed)?));
                }
                if bytes.len() > PART_BYTES || !(offset as usize).is_multiple_of(PART_BYTES) {
                    return Err(Malformed);
                }
                Ok(Message::Part(which, Part { offset, total, bytes }))
            }
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exclusion::{MOST_PAIRS, MOST_TOLD};

    fn messages() -> Vec<Message> {
        let switch = Ipv4Addr::new(255, 255, 255, 250);
        let members =
            (0..32).map(|number| Member { number, address: switch, incarnation: u32::MAX });
        let before = (0..32).map(|at| (Ipv4Addr::new(255, 255, 254, at), u32::MAX - 1)).collect();
        let base = Base { number: 0xff_ffff, before };
        let excluded = vec![(switch, switch); MOST_PAIRS];
        let excluded = Excluded { switch, view: 0xff_ffff, pairs: excluded };
        let view = View {
            number: 0xff_ffff,
            members: members.collect(),
            turn: Turn::Redo,
            window: u64::MAX,
            value: true,
            extra: true,
            counted: vec![(0xff_ffff, u64::MAX); 4],
            lease: Some(Lease { lease_ms: 60_000, wait_ms: 60_000 }),
            joins: (0..32).collect(),
            away: true,
            base: Some(base.clone()),
            excluded: vec![excluded.clone(); MOST_TOLD],
        };
        let why = Why { excluded, since_ms: u64::MAX, left_ms: u64::MAX };
        let group = "main".to_owned();
        let order = |task| Message::Order(Order { group: group.clone(), incarnation: 7, task });
        let which = Which { group: name_hash(&group), number: 0xff_ffff, what: What::Source };
        let part = Part { offset: PART_BYTES as u32, total: 3000, bytes: vec![7; PART_BYTES] };
        let eventual = Report {
            group: group.clone(),
            switch,
            incarnation: u32::MAX,
            sent_ns: u64::MAX,
            layout: u64::MAX,
            sums: true,
            view: 0xff_ffff,
            window: u64::MAX,
            phase: 6,
            sealed: 0xff_ffff,
            known: 0xff_ffff,
            asks: true,
            whole: u64::MAX,
            lacks: u64::MAX,
            still_ms: u64::MAX,
            leaves: true,
            empty: false,
            load: Load::default(),
            chain: None,
            eventual: Some(Box::new(EventualReport {
                rounds: u64::MAX,
                waiting: u64::MAX,
                lives: u32::MAX,
                life: u64::MAX,
                room: u32::MAX,
                base: Some(base.clone()),
                sum: Some(Sum {
                    view: 0xff_ffff,
                    of: u32::MAX,
                    lives: u32::MAX,
                    digest: u64::MAX,
                    oldest: Some((switch, u32::MAX)),
                }),
            })),
        };
        let chain =
            ChainReport { copying: true, waits: true, applied: u64::MAX, committed: u64::MAX };
        let chain = Report { chain: Some(chain), eventual: None, ..eventual.clone() };
        vec![
            Message::Report(eventual),
            Message::Report(chain),
            order(Task::Heard),
            order(Task::Seal { number: 9 }),
            order(Task::Removed { number: 9, why: None }),
            order(Task::Removed { number: 9, why: Some(why) }),
            order(Task::Take(view)),
            order(Task::Sum { view: 9, before: base.before }),
            Message::Ask(which, 2400, 77),
            Message::Part(which, part),
        ]
    }

    #[test]
    fn messages_are_what_they_were() {
        for message in messages() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message.clone()));
            for end in 0..bytes.len().min(HEADER_BYTES + 16) {
                assert_eq!(Message::decode(&bytes[..end]), Err(Malformed), "{end}: {message:?}");
            }
        }
    }

    /// A view of 32 members may have several fragments; all others have none.
    #[test]
    fn messages_fit_into_a_packet() {
        for message in messages() {
            let length = message.encode().len();
            let most = if matches!(message, Message::Order(_)) { 4096 } else { MOST_BYTES };
            assert!(length <= most, "{length}: {message:?}");
        }
    }

    /// What agents of another version make of an order.
    #[test]
    fn reasons_may_be_absent_and_are_passed_over() {
        let removed: Task = serde_json::from_str(r#"{"removed": {"number": 9}}"#).expect("a task");
        assert_eq!(removed, Task::Removed { number: 9, why: None });
        let newer = r#"{"removed": {"number": 9, "another": {"field": 1}}}"#;
        assert_eq!(serde_json::from_str::<Task>(newer).expect("a task"), removed);
    }

    #[test]
    fn what_nobody_sends_is_refused() {
        let which = Which { group: 1, number: 2, what: What::Value };
        let mut part = Message::Part(which, Part { offset: 1, total: 3, bytes: vec![] }).encode();
        assert_eq!(Message::decode(&part), Err(Malformed), "in the middle of a part");
        part[3] = 174;
        assert_eq!(Message::decode(&part), Err(Malformed));
    }
}
