//! What RedPlane's data plane shares with its agent in maps, and the header of a message. The C
//! header `bpf/redplane/stateplane_flow_layouts.h` is made of it.

use crate::{MAX_KEY_BYTES, SNAPSHOT_PART_BYTES};
use c_layout::{Be16, Be32, Be64, CStruct, Header, Member, Number, SpinLock, c_struct};
use std::net::Ipv4Addr;

/// Shards that a cluster can have.
pub const MOST_SHARDS: usize = wire::MOST_SHARDS as usize;
/// Least of the round-trip time's variation, as far as time-outs go.
pub const RESEND_GRANULARITY_NS: u64 = 2_000_000;
/// Sets of replies that were seen.
pub const SEEN_SETS: u32 = 1 << 17;
/// Replies in a set.
pub const SEEN_IN_SET: usize = 7;
/// Addresses that a NAT's pool can have.
pub const MAX_POOL_ADDRESSES: usize = 16;
/// Bits of a hash by which the local BACKENDS allocator picks a place.
pub const BACKEND_PLACE_BITS: u32 = 10;
/// Places that it shares out among the backends.
pub const BACKEND_PLACES: usize = 1 << BACKEND_PLACE_BITS;

/// Bits of [`EntryHead::flags`].
pub mod entry_flags {
    use crate::Flags;

    /// Stands in the pending ring.
    pub const QUEUED: u16 = 1;
    /// The program said so.
    pub const HALF_CLOSED: u16 = Flags::HALF_CLOSED.0;
    /// The program said so.
    pub const CLOSED: u16 = Flags::CLOSED.0;
    /// Released, and the value here is not that epoch's.
    pub const UNKNOWN: u16 = Flags::UNKNOWN.0;
    /// Not this switch's under this epoch any more.
    pub const RELEASED: u16 = 32;
    /// And the store knows.
    pub const RELEASE_ACKED: u16 = 64;
    /// Being removed.
    pub const DYING: u16 = 128;
    /// Another switch wants it, and it is released as soon as its newest update is durable. No
    /// packet uses it until then.
    pub const RECALLED: u16 = 512;
    /// The program reported `HALF_OPEN`; in a binding's reverse entry: no packet has used it yet.
    pub const HALF_OPEN: u16 = Flags::HALF_OPEN.0;
}

c_struct! {
    /// The header of a message, as it stands on the wire: systems/redplane/docs/state-protocol.md.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MessageHeader as "sp_flow_header" {
        /// SP_FLOW_MAGIC.
        pub magic: Be16,
        /// SP_FLOW_VERSION.
        pub version: u8,
        /// Of enum sp_flow_type.
        pub message_type: u8,
        /// The object's number in the manifest.
        pub object_id: Be16,
        /// Of enum sp_flow_flag.
        pub flags: Be16,
        /// Who asks; replies echo it.
        pub switch_id: Be32,
        /// Which of its lives.
        pub incarnation: Be32,
        /// The switch's clock when it sent the request; replies echo it.
        pub request_ns: Be64,
        /// The grant.
        pub epoch: Be32,
        /// Of the key behind the header.
        pub key_bytes: Be16,
        /// Of the value behind the key.
        pub value_bytes: Be16,
        /// Of the flow's updates.
        pub seq: Be64,
        /// Of a reply: the lease; of a RELEASE: milliseconds without a packet.
        pub lease_us: Be32,
        /// P4 port of the packet.
        pub port: Be16,
        /// Of the packet behind the value.
        pub packet_bytes: Be16,
        /// The switch's session with the shard.
        pub session: Be32,
        /// The key's shard.
        pub shard: Be16,
        /// Of the tag's secret.
        pub key_id: u8,
        /// Zero.
        pub zero: u8,
        /// Over addresses and the rest of the message.
        pub tag: Be64,
    }
}

const _: () = assert!(MessageHeader::BYTES == wire::HEADER_BYTES);

c_struct! {
    /// With what every entry begins: a flow's, then its key and value follow; an instance's of a
    /// SnapshotState, then its key, its book and its slots.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EntryHead as "sp_flow_entry_head" {
        /// Held while the entry changes.
        pub lock: SpinLock,
        /// Odd while being written.
        pub version: u32,
        /// The last update.
        pub seq: u64,
        /// The last update that the store has.
        pub acked_seq: u64,
        /// Coarse clock of the last get, to SP_FLOW_USE_GRAIN_NS.
        pub used_ns: u64,
        /// When the last UPDATE or RELEASE was sent.
        pub sent_ns: u64,
        /// The grant; 0: never granted.
        pub epoch: u32,
        /// In which the store says that the flow is this switch's.
        pub session: u32,
        /// Never changes.
        pub shard: u16,
        /// SP_FLOW_QUEUED and others.
        pub flags: u16,
        /// Since the store last acknowledged something new: the back-off.
        pub resends: u32,
        /// The place of the last update in a batch (stateplane_commit.h); 0: it was in none.
        pub name: u64,
    }
}

c_struct! {
    /// The switch's settings; written by the agent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FlowSettings as "sp_flow_settings" {
        /// Who this is in the state protocol.
        pub switch_id: u32,
        /// Which life of it.
        pub incarnation: u32,
        /// Source of its messages, and where replies go.
        pub protocol_address: Ipv4Addr,
        /// Of the cluster; 0: not known yet.
        pub shards: u32,
        /// Subtracted from every lease.
        pub lease_margin_ns: u64,
        /// An update or release that is not acknowledged is sent again, no sooner than after so
        /// long ("Re-sending"); also before anything was measured.
        pub resend_least_ns: u64,
        /// And no later.
        pub resend_most_ns: u64,
        /// Packets of a shard that may wait for the store; 0: any number ("Window").
        pub window: u64,
        /// Between two looks of the packet generator at its work: a snapshot is taken at the look
        /// nearest to its time, so up to half of this early.
        pub look_ns: u64,
    }
}

c_struct! {
    /// The head of a shard's chain.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShardHead as "sp_shard_head" {
        /// 0: not known.
        pub address: Ipv4Addr,
        /// Its UDP port.
        pub port: Be16,
        /// Zero.
        pub reserved: u16,
        /// What was sent before went to another head.
        pub since_ns: u64,
    }
}

c_struct! {
    /// This switch's session with a shard ("Sessions" 1 and 2). Written under the lock, the number
    /// before the end; read without (rule 4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SessionValue as "sp_session" {
        /// Held while the session changes.
        pub lock: SpinLock,
        /// 0: none.
        pub number: u32,
        /// This switch's clock.
        pub lease_end_ns: u64,
        /// Its length, as the store said last: a third of it is the heartbeats' interval.
        pub lease_ns: u64,
        /// "Re-sending": smoothed round-trip time (RFC 6298), 0: nothing measured.
        pub srtt_ns: u64,
        /// And its variation.
        pub rttvar_ns: u64,
        /// "Window": requests sent.
        pub sent: u64,
        /// Of these, answered or given up.
        pub done: u64,
        /// So many were sent when the clock was mark_ns: an answer to a later request says that
        /// these are answered or lost.
        pub mark_sent: u64,
        /// When.
        pub mark_ns: u64,
        /// When `done` last grew, or the first request left after a time without any.
        pub progress_ns: u64,
    }
}

c_struct! {
    /// The names of the newest replies whose own bits select this set; a cache line.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SeenSet as "sp_seen_set" {
        /// Held while the set changes.
        pub lock: SpinLock,
        /// Its oldest, which the next one replaces.
        pub next: u32,
        /// In no order.
        pub names: [u64; SEEN_IN_SET],
    }
}

c_struct! {
    /// What the agent asks of sp_sweep. Times are CLOCK_MONOTONIC's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SweepRequest as "sp_flow_sweep_request" {
        /// Of which object a flow is.
        pub object_id: u32,
        /// Zero.
        pub reserved: u32,
        /// Without packets since then, a local flow is removed, another one released.
        pub idle_before_ns: u64,
        /// The same of a flow that is closed in one direction.
        pub half_closed_before_ns: u64,
        /// And of a closed one.
        pub closed_before_ns: u64,
        /// Released, and the last message about it sent, before then: to be removed.
        pub released_before_ns: u64,
        /// Padded with zeros.
        pub key: [u8; MAX_KEY_BYTES],
    }
}

c_struct! {
    /// What the local NAT_PORTS allocator draws from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NatPool as "sp_nat_pool" {
        /// Addresses.
        pub count: u32,
        /// The first port.
        pub port_low: u16,
        /// The last port.
        pub port_high: u16,
        /// The first `count` of them.
        pub address: [Ipv4Addr; MAX_POOL_ADDRESSES],
    }
}

c_struct! {
    /// Where the local BACKENDS allocator sends a new conversation whose hash is this place. Each
    /// backend has places in proportion to its weight.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Backend as "sp_backend" {
        /// 0: no backend.
        pub address: Ipv4Addr,
        /// Its port.
        pub port: Be16,
        /// Zero.
        pub reserved: u16,
    }
}

c_struct! {
    /// Bookkeeping of an instance, behind the key. Bit i of the sets is part i.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SnapshotBook as "sp_snapshot_book" {
        /// When the newest snapshot was taken.
        pub flip_ns: u64,
        /// When the next one is to be.
        pub due_ns: u64,
        /// The first update since then; 0: none.
        pub since_flip_ns: u64,
        /// When the oldest update came that is in no acknowledged snapshot; 0: there is none.
        pub unsaved_ns: u64,
        /// Of the snapshot in flight: on all servers.
        pub acked_parts: u64,
        /// Have a place in the ring.
        pub queued_parts: u64,
        /// Of a snapshot that is coming in.
        pub seen_parts: u64,
        /// Its number.
        pub seen_seq: u64,
        /// Its grant.
        pub seen_epoch: u32,
        /// The last grant under which a packet was here with a lease.
        pub held_epoch: u32,
        /// Since when packets have gone on without a lease; 0: they have one.
        pub unleased_ns: u64,
        /// The last one that did.
        pub wanted_ns: u64,
        /// When the store was last asked about the instance: by a part of a snapshot, or by
        /// LEASE_REQUEST.
        pub asked_ns: u64,
        /// Accesses that changed something, since the flip.
        pub since_flip_updates: u64,
        /// And those of the interval before it, while its snapshot is in flight.
        pub in_flight_updates: u64,
    }
}

c_struct! {
    /// A slot of up to 32 bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Slot4 as "sp_slot4" {
        /// The interval of its last update.
        pub tag: u32,
        /// The newest value is at `tag & 1`.
        pub copy: [u32; 2],
    }
}

c_struct! {
    /// A slot of up to 64 bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Slot8 as "sp_slot8" {
        /// The newest value is at `tag & 1`.
        pub copy: [u64; 2],
        /// The interval of its last update.
        pub tag: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Where in an entry its key begins.
pub const KEY_OFFSET: u32 = EntryHead::BYTES as u32;

/// Where in a flow's entry its value begins.
pub const fn value_offset(key_bytes: u32) -> u32 {
    KEY_OFFSET + key_bytes.next_multiple_of(8)
}

/// Where in an instance of a SnapshotState its slots begin.
pub const fn slots_offset(key_bytes: u32, parts: u32) -> u32 {
    value_offset(key_bytes) + SnapshotBook::BYTES as u32 + 8 * parts
}

/// Bytes of a slot in the map.
pub const fn map_slot_bytes(slot_bytes: u32) -> u32 {
    if slot_bytes == 4 { Slot4::BYTES as u32 } else { Slot8::BYTES as u32 }
}

/// The C file.
pub fn header() -> Header {
    use entry_flags as flags;
    let about = "what RedPlane's data plane shares with user space.";
    let (source, update) =
        ("systems/redplane/protocol/src/layouts.rs", "cargo test -p state-protocol --lib");
    let number = |name, value: usize, doc| Number::new(name, value as u64, doc);
    let flag = |name, value: u16, doc| Number::new(name, value.into(), doc);
    Header::new("stateplane_flow_layouts.h", about, source, update)
        .defines(&[
            number("SP_FLOW_SHARDS_MAX", MOST_SHARDS, "shards of a cluster"),
            Number::new(
                "SP_RESEND_GRANULARITY_NS",
                RESEND_GRANULARITY_NS,
                "least of the round-trip time's variation, as far as time-outs go",
            ),
            number("SP_SEEN_SETS", SEEN_SETS as usize, ""),
            number("SP_SEEN_IN_SET", SEEN_IN_SET, ""),
            number("SP_BACKEND_PLACE_BITS", BACKEND_PLACE_BITS as usize, "of a hash"),
            number("SP_BACKEND_PLACES", BACKEND_PLACES, ""),
            number("SP_SNAPSHOT_PART_BYTES", SNAPSHOT_PART_BYTES, "of slots in one message"),
            number("SP_FLOW_ENTRY_HEAD_BYTES", EntryHead::BYTES, ""),
        ])
        .enumeration(
            "",
            "Bits of sp_flow_entry_head.flags.",
            &[
                flag("SP_FLOW_QUEUED", flags::QUEUED, "stands in the ring"),
                flag("SP_FLOW_HALF_CLOSED", flags::HALF_CLOSED, "the program said so (phase)"),
                flag("SP_FLOW_CLOSED", flags::CLOSED, "the same"),
                flag("SP_FLOW_HALF_OPEN", flags::HALF_OPEN, "the same"),
                flag(
                    "SP_FLOW_UNKNOWN",
                    flags::UNKNOWN,
                    "released: the value here is not that epoch's",
                ),
                flag(
                    "SP_FLOW_RELEASED",
                    flags::RELEASED,
                    "no longer this switch's under this epoch",
                ),
                flag("SP_FLOW_RELEASE_ACKED", flags::RELEASE_ACKED, "and the store knows"),
                flag("SP_FLOW_DYING", flags::DYING, "being removed: no value any more"),
                flag("SP_FLOW_RECALLED", flags::RECALLED, "to be released when it is durable"),
            ],
        )
        .packed(&MessageHeader::LAYOUT)
        .beginning(&EntryHead::LAYOUT, "SP_FLOW_ENTRY_HEAD")
        .structure(&FlowSettings::LAYOUT)
        .structure(&ShardHead::LAYOUT)
        .structure(&SessionValue::LAYOUT)
        .structure(&SeenSet::LAYOUT)
        .structure(&SweepRequest::LAYOUT)
        .structure(&NatPool::LAYOUT)
        .structure(&Backend::LAYOUT)
        .structure(&SnapshotBook::LAYOUT)
        .structure(&Slot4::LAYOUT)
        .structure(&Slot8::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/redplane");
        header().assert_is(format!("{folder}/stateplane_flow_layouts.h"));
    }

    /// UPDATE and RELEASE carry some bits of an entry as they are.
    #[test]
    fn an_entrys_own_flags_are_no_messages_flags() {
        let own = [
            entry_flags::QUEUED,
            entry_flags::RELEASED,
            entry_flags::RELEASE_ACKED,
            entry_flags::DYING,
        ];
        let carried = entry_flags::HALF_CLOSED
            | entry_flags::CLOSED
            | entry_flags::HALF_OPEN
            | entry_flags::UNKNOWN;
        assert!(own.iter().all(|flag| flag & carried == 0));
        assert_eq!(own.iter().fold(0, |sum, flag| sum | flag).count_ones(), own.len() as u32);
        assert_eq!(carried, Flags::PHASES.with(Flags::UNKNOWN).0);
    }

    /// A set is a cache line, so that a look at it costs one.
    #[test]
    fn a_set_of_replies_is_a_cache_line() {
        assert_eq!(SeenSet::BYTES, 64);
    }
}
