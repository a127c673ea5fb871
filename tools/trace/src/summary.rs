//! Counts over a whole capture, and what was sent more than once.

use crate::event::{Body, Event, Tag};
use crate::system::Follows;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Flows and links that are followed at once; when there are more, all are forgotten, and what was
/// sent before counts as new.
const MOST_FOLLOWED: usize = 1 << 20;

/// The same bytes again so soon are one datagram: captured in two places, or duplicated on the way.
/// What is sent again is sent later.
const ONE_DATAGRAM_NS: u64 = 1_000_000;
/// Datagrams of which that is known; then all are forgotten.
const MOST_RECENT: usize = 1 << 16;

/// Why a message is not new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// Sent again, as nothing was heard.
    Retransmission,
    /// The same message a second time: the network duplicated it, someone replays it, or the
    /// capture saw it in two places.
    Duplicate,
}

/// What a capture had.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Messages by type.
    pub types: BTreeMap<String, u64>,
    /// Malformed datagrams by reason.
    pub malformed: BTreeMap<&'static str, u64>,
    /// Messages sent again, by type.
    pub retransmissions: BTreeMap<String, u64>,
    /// Messages seen twice, by type.
    pub duplicates: BTreeMap<String, u64>,
    /// With a wrong tag.
    pub wrong_tags: u64,
    /// With a secret that was not given.
    pub unknown_secrets: u64,
    /// Bytes of all of them, without IP and UDP headers.
    pub bytes: u64,
    /// Time of the first, in ns since 1970.
    pub first_ns: Option<u64>,
    /// Time of the last.
    pub last_ns: u64,
    #[serde(skip)]
    followed: HashMap<u64, Follows>,
    /// When a datagram was last seen, by its digest.
    #[serde(skip)]
    recent: HashMap<u64, u64>,
}

impl Summary {
    /// Messages, malformed ones included.
    pub fn messages(&self) -> u64 {
        self.types.values().sum()
    }

    /// Counts an event, and says whether it repeats one.
    pub fn add(&mut self, event: &Event) -> Option<Repeat> {
        let name = event.type_name().to_owned();
        *self.types.entry(name.clone()).or_default() += 1;
        if let Body::Malformed { reason, .. } = event.body {
            *self.malformed.entry(reason).or_default() += 1;
        }
        self.wrong_tags += u64::from(event.tag == Tag::Wrong);
        self.unknown_secrets += u64::from(event.tag == Tag::UnknownSecret);
        self.bytes += event.bytes as u64;
        self.first_ns.get_or_insert(event.time_ns);
        self.last_ns = self.last_ns.max(event.time_ns);
        let repeat = self.follow(event);
        match repeat {
            Some(Repeat::Retransmission) => *self.retransmissions.entry(name).or_default() += 1,
            Some(Repeat::Duplicate) => *self.duplicates.entry(name).or_default() += 1,
            None => {}
        }
        repeat
    }

    /// A message repeats one if it is of the same sender about the same thing, and its number does
    /// not grow.
    fn follow(&mut self, event: &Event) -> Option<Repeat> {
        if self.recent.len() >= MOST_RECENT {
            self.recent.clear();
        }
        let before_ns = self.recent.insert(event.digest, event.time_ns);
        if before_ns.is_some_and(|before_ns| event.time_ns.abs_diff(before_ns) < ONE_DATAGRAM_NS) {
            return Some(Repeat::Duplicate);
        }
        let mut hasher = DefaultHasher::new();
        (event.type_name(), event.from, event.to).hash(&mut hasher);
        let now = match &event.body {
            Body::Message(message) => {
                let now = message.follows?;
                now.about.hash(&mut hasher);
                now
            }
            Body::Chain(chain) if !chain.entries.is_empty() => {
                (chain.shard, chain.sender, chain.receiver).hash(&mut hasher);
                Follows { about: 0, number: chain.index, sent_ns: 0, resent: true }
            }
            _ => return None,
        };
        if self.followed.len() >= MOST_FOLLOWED {
            self.followed.clear();
        }
        let before = self.followed.insert(hasher.finish(), now)?;
        if now.number > before.number {
            return None;
        }
        self.followed.insert(hasher.finish(), Follows { number: before.number, ..now });
        let same = now.number == before.number && now.sent_ns == before.sent_ns && now.sent_ns != 0;
        if same { Some(Repeat::Duplicate) } else { now.resent.then_some(Repeat::Retransmission) }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds =
            self.last_ns.saturating_sub(self.first_ns.unwrap_or(self.last_ns)) as f64 / 1e9;
        writeln!(f, "{} messages, {} bytes in {seconds:.3} s", self.messages(), self.bytes)?;
        for (name, count) in &self.types {
            let note = |counts: &BTreeMap<String, u64>, what: &str| {
                counts.get(name).map(|count| format!("   {count} {what}")).unwrap_or_default()
            };
            let again = note(&self.retransmissions, "sent again");
            writeln!(f, "  {name:<16}{count:>9}{again}{}", note(&self.duplicates, "duplicates"))?;
        }
        for (reason, count) in &self.malformed {
            writeln!(f, "  malformed: {reason:<16}{count:>9}")?;
        }
        if self.wrong_tags + self.unknown_secrets > 0 {
            writeln!(
                f,
                "not genuine: {} wrong tags, {} unknown secrets",
                self.wrong_tags, self.unknown_secrets
            )?;
        }
        Ok(())
    }
}
