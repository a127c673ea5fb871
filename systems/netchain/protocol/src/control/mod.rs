//! What the controller tells switches, and what they report: what it is, and (`bytes.rs`) its
//! bytes.

mod bytes;

pub use bytes::{CONFIG, Decided, MOST_BYTES, Malformed, Parts, REPORT, Reported};

use std::net::Ipv4Addr;

/// What one switch has to do. A higher version replaces a lower one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Of the decision.
    pub version: u64,
    /// The life of the switch that it is for; another life takes nothing of it.
    pub incarnation: u32,
    /// All of the cluster, this one included.
    pub switches: Vec<Ipv4Addr>,
    /// Of all groups: a switch that is no member tells the group's chain to clients that ask it.
    pub roles: Vec<Role>,
    /// NetChain's messages from these switches are dropped, and chain messages to them too. A
    /// request to one is answered with its group's chain.
    pub dead: Vec<Ipv4Addr>,
}

/// A switch's part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The group's.
    pub view: u32,
    /// The view since which the head is this one.
    pub head_since: u32,
    /// The head's.
    pub session: u16,
    /// Tombstones of earlier sessions may have been collected; 0: none have.
    pub floor: u16,
    /// What the switch does.
    pub part: Part,
    /// Where a member sends what it has applied.
    pub next: Option<Ipv4Addr>,
    /// Where a reader copies its slots. Of a collecting head: it has tombstones to send (the
    /// address says nothing).
    pub copies_to: Option<Ipv4Addr>,
    /// What clients are told.
    pub chain: Vec<Ipv4Addr>,
}

/// What a switch does for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It tells the chain.
    None,
    /// A member for the time being: it refuses all requests and all writes.
    Paused,
    /// A member.
    Member {
        /// It decides.
        head: bool,
        /// It answers reads.
        reader: bool,
        /// It answers writes.
        tail: bool,
        /// It takes copies.
        joining: bool,
        /// Tombstones below the floor are collected in this view.
        collecting: bool,
    },
    /// The group has no member that has its keys.
    Lost,
}

/// What a switch tells of itself, every few milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its NetChain address.
    pub switch: Ipv4Addr,
    /// Of its slots, which were made anew then, empty: higher than all earlier ones. Not 0.
    pub incarnation: u32,
    /// The newest configuration that all its CPUs have.
    pub applied: u64,
    /// Its agent does not know this configuration any more, and wants it again.
    pub asks: bool,
    /// Other switches, and for how many milliseconds its data plane has not heard them. Who was
    /// heard a moment ago is left out; who never was is not.
    pub silent_ms: Vec<(Ipv4Addr, u64)>,
    /// Groups, and the view in which it has copied all slots to the member that joins, or has
    /// collected all tombstones.
    pub copied: Vec<(u16, u32)>,
    /// How many of its slots have a key, in percent.
    pub used_percent: u8,
}

impl Part {
    /// A member's position, in the data plane's bits: HEAD 1, TAIL 2, READER 4, JOINING 8,
    /// COLLECTING 16. 0 of others.
    pub fn position(self) -> u8 {
        match self {
            Part::Member { head, reader, tail, joining, collecting } => {
                u8::from(head)
                    | u8::from(tail) << 1
                    | u8::from(reader) << 2
                    | u8::from(joining) << 3
                    | u8::from(collecting) << 4
            }
            Part::None | Part::Paused | Part::Lost => 0,
        }
    }
}
