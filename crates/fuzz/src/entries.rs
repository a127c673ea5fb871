//! What the switch must hold of each flow, by docs/state-protocol.md ("Rules of the switch"): a model of its FlowState map, and of what each message from
//! the store may do to it.

use crate::nat::{Binding, Key, word16};
use crate::network::{FABRIC_PORT, PROTOCOL_ADDRESS};
use state_protocol::{Message, MessageType, Owner};
use std::collections::BTreeMap;

/// Who this switch is.
pub const SELF: Owner = Owner { switch_id: 7, incarnation: 0x1234_5678 };
/// Subtracted from every lease, in ns.
pub const LEASE_MARGIN_NS: u64 = 10_000_000;
/// The NAT's only FlowState.
pub const OBJECT: u16 = 1;

/// A flow's bookkeeping, without what is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// On this switch's clock; 0: none.
    pub lease_end_ns: u64,
    /// Last update.
    pub seq: u64,
    /// Last update that the store has.
    pub acked_seq: u64,
    /// The grant; 0: none.
    pub epoch: u32,
    /// Six bytes.
    pub value: Binding,
}

/// The map.
pub type Entries = BTreeMap<Key, Entry>;

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
}

/// Indices of `sp_flow_stats`.
pub const MALFORMED: usize = 12;
/// The same.
pub const NOT_FABRIC: usize = 13;
/// The same.
pub const UNKNOWN_OBJECT: usize = 14;

const ETHERNET: usize = 14;
const OUTER: usize = 42;

/// Rule 5: messages are UDP datagrams to the protocol address and port. (IPv4 with options is not what a store sends.)
fn is_message(frame: &[u8]) -> bool {
    frame.len() >= OUTER
        && frame[12..15] == [8, 0, 0x45]
        && frame[23] == 17
        && frame[30..34] == PROTOCOL_ADDRESS
        && word16(frame, 36) == state_protocol::PORT
}

/// The datagram in a frame: `None` if its lengths disagree, or for a fragment.
fn datagram(frame: &[u8]) -> Option<&[u8]> {
    let (total, udp) = (usize::from(word16(frame, 16)), usize::from(word16(frame, 38)));
    let fragment = word16(frame, 20) & 0x3fff != 0;
    (!fragment && total == udp + 20).then_some(())?;
    frame.get(OUTER..ETHERNET + total)
}

/// Lets a frame from a port take its effect.
pub fn receive(entries: &mut Entries, frame: &[u8], port: u32, now_ns: u64) -> Received {
    if !is_message(frame) {
        return Received::Ordinary;
    }
    if port != FABRIC_PORT {
        return Received::Refused(&[NOT_FABRIC]);
    }
    let message = match datagram(frame).map(Message::decode) {
        Some(Ok(message)) => message,
        // A value that its type does not carry may also count as one of no object's size.
        _ => return Received::Refused(&[MALFORMED, UNKNOWN_OBJECT]),
    };
    let replies = [MessageType::LeaseGrant, MessageType::Absent, MessageType::UpdateAck, MessageType::Refused];
    // Nobody answers a request before it was sent.
    if message.sender != SELF || !replies.contains(&message.message_type) || message.request_ns > now_ns {
        return Received::Refused(&[MALFORMED]);
    }
    let value_bytes = if message.message_type == MessageType::LeaseGrant { 6 } else { 0 };
    let (Ok(key), true) = (message.key.try_into(), message.object_id == OBJECT && message.value.len() == value_bytes)
    else {
        return Received::Refused(&[UNKNOWN_OBJECT]);
    };
    let key = Key::from_bytes(key);
    apply(entries, key, &message, now_ns);
    Received::Taken { kind: message.message_type, key, port: message.port, packet: message.packet.to_vec() }
}

/// Rules 3 and 4.
fn apply(entries: &mut Entries, key: Key, message: &Message<'_>, now_ns: u64) {
    let lease_ns = u64::from(message.lease_us) * 1000;
    let lease_end_ns =
        if lease_ns > LEASE_MARGIN_NS { message.request_ns.wrapping_add(lease_ns - LEASE_MARGIN_NS) } else { 0 };
    let live = lease_end_ns > now_ns;
    match (message.message_type, entries.get_mut(&key)) {
        (MessageType::LeaseGrant, entry) if live => {
            let granted = Entry {
                lease_end_ns,
                seq: message.seq,
                acked_seq: message.seq,
                epoch: message.epoch,
                value: Binding::from_bytes(message.value),
            };
            match entry {
                Some(entry) if entry.epoch == message.epoch => {
                    entry.lease_end_ns = entry.lease_end_ns.max(lease_end_ns)
                }
                Some(entry) if entry.epoch > message.epoch => {}
                Some(entry) => *entry = granted,
                None => drop(entries.insert(key, granted)),
            }
        }
        (MessageType::UpdateAck, Some(entry)) if entry.epoch == message.epoch => {
            if message.seq <= entry.seq {
                entry.acked_seq = entry.acked_seq.max(message.seq);
            }
            if live {
                entry.lease_end_ns = entry.lease_end_ns.max(lease_end_ns);
            }
        }
        // Forgotten: epoch 0 lets the next grant install the store's value.
        (MessageType::Refused, Some(entry)) if message.epoch == entry.epoch => {
            *entry = Entry { lease_end_ns: 0, epoch: 0, acked_seq: entry.seq, ..*entry };
        }
        _ => {}
    }
}
