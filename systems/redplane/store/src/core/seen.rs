//! The requests of the last second, so that none is taken twice:
//! `systems/redplane/docs/state-protocol.md`, "Replays".

use super::sessions::REPLAY_WINDOW_NS;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// So many requests of one session within a second are told from replays; of more, the oldest are
/// forgotten early.
const MOST_TAGS: usize = 1 << 19;

/// A tag is as good as random: it is its own hash.
#[derive(Debug, Clone, Default)]
pub struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, tag: u64) {
        self.0 = tag;
    }
}

type Tags = HashSet<u64, BuildHasherDefault<TagHasher>>;

/// Tags of one session's requests, for at least as long as these would be taken for fresh.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    current: Tags,
    previous: Tags,
    /// `newest_request_ns` when `current` began.
    since_ns: u64,
}

impl Seen {
    /// Remembers a request; `false`: it was here before. `newest_request_ns` is its session's, this
    /// request counted.
    ///
    /// What is forgotten is two generations old, so older than the window, and is refused for that.
    pub fn insert(&mut self, tag: u64, newest_request_ns: u64) -> bool {
        if newest_request_ns > self.since_ns.saturating_add(REPLAY_WINDOW_NS)
            || self.current.len() >= MOST_TAGS
        {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.clear(); // keeps its memory for the next generation
            self.since_ns = newest_request_ns;
        }
        !self.previous.contains(&tag) && self.current.insert(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_for_at_least_the_window() {
        let mut seen = Seen::default();
        // One request each 10 ms, each replayed once when it is almost a second old.
        for n in 0u64..1_000 {
            let now_ns = 5_000_000_000 + n * 10_000_000;
            assert!(seen.insert(n, now_ns), "{n} is new");
            if let Some(old) = n.checked_sub(100) {
                assert!(!seen.insert(old, now_ns), "{old} is known");
            }
        }
        assert!(seen.current.len() + seen.previous.len() <= 202, "two generations");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = Seen::default();
        for tag in 0..3 * MOST_TAGS as u64 {
            assert!(seen.insert(tag, 1));
        }
        assert!(seen.current.len() <= MOST_TAGS && seen.previous.len() <= MOST_TAGS);
    }
}
