//! What the switch must hold of each flow, by systems/redplane/docs/state-protocol.md ("Rules of
//! the switch"): a model of its FlowState map, and of what each message from the store may do to
//! it.

use crate::nat::{Binding, Key, word16};
use crate::network::{FABRIC_PORT, PROTOCOL_ADDRESS};
use state_protocol::{Message, MessageType, Owner};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use wire::KeyRing;

/// Who this switch is.
pub const SELF: Owner = Owner { switch_id: 7, incarnation: 0x1234_5678 };
/// Subtracted from every lease, in ns.
pub const LEASE_MARGIN_NS: u64 = 10_000_000;
/// A release is sent again after this time.
pub const RESEND_NS: u64 = 3_000_000;
/// The NAT's only FlowState.
pub const OBJECT: u16 = 1;
/// Of the model's cluster.
pub const SHARDS: u16 = 3;
/// A reply to a request that was sent longer ago is not taken.
const LATE_NS: u64 = 1_000_000_000;

/// A flow's bookkeeping, without what is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Last update.
    pub seq: u64,
    /// Last update that the store has.
    pub acked_seq: u64,
    /// The grant; 0: none.
    pub epoch: u32,
    /// In which the flow is this switch's.
    pub session: u32,
    /// The session's.
    pub shard: u16,
    /// Not this switch's under this epoch any more.
    pub released: bool,
    /// And the store knows.
    pub release_acked: bool,
    /// The value is not this epoch's.
    pub unknown: bool,
    /// Six bytes.
    pub value: Binding,
}

impl Entry {
    /// Never granted.
    fn never(value: Binding) -> Entry {
        Entry {
            seq: 0,
            acked_seq: 0,
            epoch: 0,
            session: 0,
            shard: 0,
            released: false,
            release_acked: false,
            unknown: false,
            value,
        }
    }
}

/// A session with a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// 0: none.
    pub number: u32,
    /// On this switch's clock.
    pub lease_end_ns: u64,
}

/// All that a switch remembers of its flows.
#[derive(Default)]
pub struct Entries {
    /// The map.
    pub flows: BTreeMap<Key, Entry>,
    /// By shard.
    pub sessions: [Session; SHARDS as usize],
    /// When the last message about a released flow was sent.
    pub sent_ns: HashMap<Key, u64>,
    /// Tags of replies, the oldest first, by their set in the switch's table.
    pub seen_replies: HashMap<u64, VecDeque<u64>>,
}

impl Entries {
    /// May the program use the flow?
    pub fn owned(&self, key: &Key, now_ns: u64) -> Option<Entry> {
        let entry = self.flows.get(key)?;
        let session = self.sessions.get(usize::from(entry.shard))?;
        let lives =
            session.number != 0 && session.number == entry.session && now_ns < session.lease_end_ns;
        (lives && !entry.released).then_some(*entry)
    }

    /// The flows whose release the packet generator sends at this time.
    pub fn due(&self, now_ns: u64) -> Vec<Key> {
        let due = |(key, entry): (&Key, &Entry)| {
            let sent_ns = self.sent_ns.get(key).copied().unwrap_or(0);
            let due = entry.released
                && !entry.release_acked
                && now_ns > sent_ns
                && now_ns - sent_ns >= RESEND_NS;
            due.then_some(*key)
        };
        self.flows.iter().filter_map(due).collect()
    }
}

/// What a frame is to the state protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// No message to this switch: an ordinary packet.
    Ordinary,
    /// Counted as one of these statistics and dropped; nothing changes.
    Refused(&'static [usize]),
    /// Took its effect.
    Taken {
        /// Of the message.
        kind: MessageType,
        /// The key it was about.
        key: Key,
        /// The header's `port`.
        port: u16,
        /// Piggybacked; empty: none.
        packet: Vec<u8>,
    },
    /// A recall: the switch answers with the flow's release under this epoch, without a value if it
    /// has none of that.
    Recalled {
        /// The key it was about.
        key: Key,
        /// Of the recall.
        epoch: u32,
        /// The entry as it is now.
        entry: Entry,
    },
}

/// Indices of `sp_flow_stats`.
pub const MALFORMED: usize = 11;
/// The same.
pub const NOT_FABRIC: usize = 12;
/// The same.
pub const UNKNOWN_OBJECT: usize = 13;
/// The same.
pub const BAD_TAG: usize = 20;
/// The same.
pub const LATE: usize = 21;
/// The same.
pub const REPLAYED: usize = 35;
/// The same.
pub const OTHER_INCARNATION: usize = 36;

/// `SP_SEEN_SETS`.
const SEEN_SETS: u64 = 1 << 17;
/// `SP_SEEN_IN_SET`.
const SEEN_IN_SET: usize = 7;

const ETHERNET: usize = 14;
const OUTER: usize = 42;

/// Rule 5: messages are UDP datagrams to the protocol address and port. (IPv4 with options is not
/// what a store sends.)
fn is_message(frame: &[u8]) -> bool {
    frame.len() >= OUTER
        && frame[12..15] == [8, 0, 0x45]
        && frame[23] == 17
        && frame[30..34] == PROTOCOL_ADDRESS
        && word16(frame, 36) == wire::PORT
}

/// The datagram in a frame: `None` if its lengths disagree, or for a fragment.
fn datagram(frame: &[u8]) -> Option<&[u8]> {
    let (total, udp) = (usize::from(word16(frame, 16)), usize::from(word16(frame, 38)));
    let fragment = word16(frame, 20) & 0x3fff != 0;
    (!fragment && total == udp + 20).then_some(())?;
    frame.get(OUTER..ETHERNET + total)
}

/// Lets a frame from a port take its effect.
pub fn receive(
    entries: &mut Entries,
    ring: &KeyRing,
    frame: &[u8],
    port: u32,
    now_ns: u64,
) -> Received {
    if !is_message(frame) {
        return Received::Ordinary;
    }
    if port != FABRIC_PORT {
        return Received::Refused(&[NOT_FABRIC]);
    }
    let Some((datagram, Ok(message))) =
        datagram(frame).map(|datagram| (datagram, Message::decode(datagram)))
    else {
        return Received::Refused(&[MALFORMED]);
    };
    use MessageType::{
        Absent, HeartbeatAck, LeaseGrant, Recall, Refused, ReleaseAck, SnapshotAck, SnapshotState,
        UpdateAck,
    };
    let replies = [
        LeaseGrant,
        Absent,
        UpdateAck,
        Refused,
        HeartbeatAck,
        Recall,
        ReleaseAck,
        SnapshotAck,
        SnapshotState,
    ];
    if message.sender.switch_id != SELF.switch_id
        || !replies.contains(&message.message_type)
        || message.shard >= SHARDS
    {
        return Received::Refused(&[MALFORMED]);
    }
    let source = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
    if ring.verify(datagram, source, Ipv4Addr::from(PROTOCOL_ADDRESS)).is_err() {
        return Received::Refused(&[BAD_TAG]);
    }
    if message.sender != SELF {
        return Received::Refused(&[OTHER_INCARNATION]);
    }
    // Nobody answers a request before it was sent.
    if message.request_ns > now_ns {
        return Received::Refused(&[MALFORMED]);
    }
    if now_ns - message.request_ns > LATE_NS {
        return Received::Refused(&[LATE]);
    }
    let name = message.reply_name(wire::tag_of(datagram));
    let seen = entries.seen_replies.entry(name % SEEN_SETS).or_default();
    if seen.contains(&name) {
        return Received::Refused(&[REPLAYED]);
    }
    if seen.len() == SEEN_IN_SET {
        seen.pop_front();
    }
    seen.push_back(name);
    let value_bytes = if message.message_type == LeaseGrant { 6 } else { 0 };
    let known = !matches!(message.message_type, SnapshotAck | SnapshotState)
        && message.object_id == OBJECT
        && message.key.len() == 13
        && message.value.len() == value_bytes;
    if message.message_type == HeartbeatAck && message.object_id == 0 {
        prolong(entries, &message);
        return Received::Refused(&[]);
    }
    let (Ok(key), true) = (message.key.try_into(), known) else {
        return Received::Refused(&[UNKNOWN_OBJECT]);
    };
    let key = Key::from_bytes(key);
    if message.message_type == Recall {
        return recalled(entries, key, message.epoch, message.shard, now_ns);
    }
    prolong(entries, &message);
    apply(entries, key, &message, now_ns);
    Received::Taken {
        kind: message.message_type,
        key,
        port: message.port,
        packet: message.packet.to_vec(),
    }
}

/// "Sessions" 1: never back, and nothing of an older session.
fn prolong(entries: &mut Entries, message: &Message<'_>) {
    let lease_ns = u64::from(message.lease_us) * 1000;
    let lease_end_ns = if lease_ns > LEASE_MARGIN_NS {
        message.request_ns + lease_ns - LEASE_MARGIN_NS
    } else {
        0
    };
    let session = &mut entries.sessions[usize::from(message.shard)];
    if message.session > session.number {
        *session = Session { number: message.session, lease_end_ns };
    } else if message.session == session.number && message.session != 0 {
        session.lease_end_ns = session.lease_end_ns.max(lease_end_ns);
    }
}

/// Rule 6.
fn recalled(entries: &mut Entries, key: Key, epoch: u32, shard: u16, now_ns: u64) -> Received {
    let entry = entries.flows.entry(key).or_insert(Entry::never(Binding { address: 0, port: 0 }));
    if epoch < entry.epoch {
        return Received::Refused(&[]);
    }
    if epoch > entry.epoch {
        *entry = Entry {
            epoch,
            shard,
            acked_seq: entry.seq,
            unknown: true,
            release_acked: false,
            ..*entry
        };
    }
    entry.released = true;
    entries.sent_ns.insert(key, now_ns);
    Received::Recalled { key, epoch, entry: *entry }
}

/// Rules 2 and 3.
fn apply(entries: &mut Entries, key: Key, message: &Message<'_>, now_ns: u64) {
    if message.message_type == MessageType::LeaseGrant {
        let never = Entry::never(Binding::from_bytes(message.value));
        let entry = entries.flows.entry(key).or_insert(never);
        if message.epoch == 0 || message.epoch < entry.epoch {
            return;
        }
        if message.epoch > entry.epoch {
            let (seq, epoch, session, shard) =
                (message.seq, message.epoch, message.session, message.shard);
            *entry = Entry { seq, acked_seq: seq, epoch, session, shard, ..never };
            return;
        }
        if !entry.released && message.session > entry.session {
            (entry.session, entry.shard) = (message.session, message.shard);
        }
        if entry.released && !entry.release_acked {
            entries.sent_ns.insert(key, 0); // it is sent again, soon
        }
        return;
    }
    let Some(entry) = entries.flows.get_mut(&key).filter(|entry| entry.epoch == message.epoch)
    else {
        return;
    };
    match message.message_type {
        MessageType::UpdateAck => {
            if message.seq <= entry.seq {
                entry.acked_seq = entry.acked_seq.max(message.seq);
            }
            if !entry.released && message.session > entry.session {
                (entry.session, entry.shard) = (message.session, message.shard);
            }
        }
        // Never this switch's again under this epoch.
        MessageType::Refused => {
            *entry = Entry {
                released: true,
                release_acked: true,
                unknown: true,
                acked_seq: entry.seq,
                ..*entry
            };
        }
        MessageType::ReleaseAck if entry.released => {
            *entry = Entry { release_acked: true, acked_seq: entry.seq, ..*entry };
        }
        _ => return,
    }
    if message.message_type != MessageType::UpdateAck {
        entries.sent_ns.insert(key, now_ns);
    }
}
