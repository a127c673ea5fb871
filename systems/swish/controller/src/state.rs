//! What is persistent: decisions.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::base::Base;
use swish_protocol::control::{Lease, Member, Turn};

/// Decisions of a group that are kept: a living member may be in an older one's view.
const MOST_VIEWS: usize = 8;
/// Of a switch: how often it was a member, and what counted then.
const MOST_COUNTED: usize = 16;

/// Of a time in which a switch was a member: which of its rotations counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Of its life.
    pub incarnation: u32,
    /// The last view that it was in.
    pub view: u32,
    /// The newest rotation that counts.
    pub rotation: u64,
}

/// A decision of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Its number, which is that of the seal before it.
    pub number: u32,
    /// In their order.
    pub members: Vec<Member>,
    /// Those of them that had no state: they take it when all others have.
    pub joins: Vec<u32>,
    /// Members without the value that packets read in the window.
    pub lacks: Vec<Ipv4Addr>,
    /// What becomes of the window.
    pub turn: Turn,
    /// See there.
    pub window: u64,
    /// What the dead brought in it (`bulk::pack`).
    #[serde(with = "hex")]
    pub extra: Vec<u8>,
    /// Of switches that were members and are none.
    pub counted: BTreeMap<Ipv4Addr, Vec<Counted>>,
    /// Of a group with SRO, which has no windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Of a group with EWO: lives that are no members, and may return with what they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Member>,
    /// Of a group with EWO: lives that are over, and have no slots of their own any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

/// Bytes as a text of hexadecimal digits: a number for each would be twice as long.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // (Writing to a text does not fail.)
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |at: usize| text.get(at..at + 2).and_then(|it| u8::from_str_radix(it, 16).ok());
        let bytes = (0..text.len()).step_by(2).map(digit).collect::<Option<Vec<u8>>>();
        bytes.ok_or_else(|| D::Error::custom("no hexadecimal digits"))
    }
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// The newest one last.
    pub views: Vec<Decided>,
}

/// All groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// It grows by one with each decision.
    pub version: u64,
    /// By name.
    pub groups: BTreeMap<String, GroupState>,
}

impl Decided {
    /// Whether a switch is a member, in this life.
    pub fn has(&self, address: Ipv4Addr, incarnation: u32) -> bool {
        self.members.iter().any(|it| it.address == address && it.incarnation == incarnation)
    }

    /// Of a group with SRO.
    pub fn is_chain(&self) -> bool {
        self.lease.is_some()
    }

    /// A bit for each member.
    pub fn bits(&self) -> u64 {
        bits(&self.members)
    }

    /// What counted once these members stay, if all rotations up to `rotation` of this view did, of
    /// those that do not stay: also of one that joins at once again, as it has given its state up.
    pub fn counted_after(
        &self,
        stays: &[Member],
        rotation: impl Fn(&Member) -> u64,
    ) -> BTreeMap<Ipv4Addr, Vec<Counted>> {
        let mut counted = self.counted.clone();
        for member in &self.members {
            let of = counted.entry(member.address).or_default();
            if stays.contains(member) {
                of.clear();
            } else {
                let Member { incarnation, .. } = *member;
                let (view, rotation) = (self.number, rotation(member));
                of.push(Counted { incarnation, view, rotation });
                let more = of.len().saturating_sub(MOST_COUNTED);
                of.drain(..more);
            }
        }
        counted.retain(|_, of| !of.is_empty());
        counted
    }
}

/// A bit for each of these members.
pub fn bits(members: &[Member]) -> u64 {
    members.iter().fold(0, |bits, it| bits | 1 << (it.number & 63))
}

impl GroupState {
    /// The newest decision.
    pub fn newest(&self) -> Option<&Decided> {
        self.views.last()
    }

    /// The decision with this number.
    pub fn numbered(&self, number: u32) -> Option<&Decided> {
        self.views.iter().find(|it| it.number == number)
    }

    /// A newer decision. Those below `oldest` are needed no more: no member is in them.
    pub fn add(&mut self, decided: Decided, oldest: u32) {
        self.views.retain(|it| it.number >= oldest);
        self.views.push(decided);
        let more = self.views.len().saturating_sub(MOST_VIEWS);
        self.views.drain(..more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_what_they_were() {
        let address = Ipv4Addr::new(10, 9, 0, 1);
        let decided = Decided {
            number: 9,
            members: vec![Member { number: 3, address, incarnation: 7 }],
            joins: vec![3],
            lacks: vec![address],
            turn: Turn::Redo,
            window: 12,
            extra: vec![0, 255, 16],
            counted: BTreeMap::new(),
            lease: None,
            away: vec![],
            base: None,
        };
        let counted = decided.counted_after(&[], |_| 11);
        assert_eq!(counted[&address], [Counted { incarnation: 7, view: 9, rotation: 11 }]);
        // A member that stays has everything, also if it joined with that decision.
        let stays = decided.counted_after(&decided.members, |_| 11);
        assert!(stays.is_empty(), "{stays:?}");
        let mut group = GroupState::default();
        group.add(Decided { counted, ..decided }, 0);
        let state = State { version: 2, groups: BTreeMap::from([("main".to_owned(), group)]) };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        assert!(serde_json::from_str::<State>(&text.replace("00ff10", "00f")).is_err());
    }
}
