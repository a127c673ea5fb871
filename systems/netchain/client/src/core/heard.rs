//! The newest version that a client has heard of each key.
//!
//! What a request makes that begins later is newer. So a head that remembers all writes since then
//! can say of a copy whether an earlier head carried the request out.

use foldhash::fast::RandomState;
use netchain_protocol::Key;
use std::collections::HashMap;

/// Keys that are remembered for certain; at most twice as many are.
const KEYS: usize = 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Heard {
    young: HashMap<Key, u64, RandomState>,
    old: HashMap<Key, u64, RandomState>,
}

impl Heard {
    /// A reply showed that the key has this version, on all members of its chain.
    pub(super) fn note(&mut self, key: &Key, version: u64) {
        let newest = self.of(key).max(version);
        if self.young.len() >= KEYS && !self.young.contains_key(key) {
            self.old.clear();
            std::mem::swap(&mut self.old, &mut self.young);
        }
        self.young.insert(*key, newest);
    }

    /// The key's version; 0: nothing is known.
    pub(super) fn of(&self, key: &Key) -> u64 {
        self.young.get(key).or_else(|| self.old.get(key)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: usize) -> Key {
        Key::from_name(&format!("key-{at}")).unwrap()
    }

    #[test]
    fn a_version_never_goes_back() {
        let mut heard = Heard::default();
        for (version, newest) in [(5, 5), (3, 5), (6, 6)] {
            heard.note(&key(0), version);
            assert_eq!(heard.of(&key(0)), newest);
        }
    }

    #[test]
    fn old_keys_are_forgotten_first() {
        let mut heard = Heard::default();
        (0..5 * KEYS).for_each(|at| {
            heard.note(&key(at), 7);
            heard.note(&key(0), at as u64);
        });
        assert_eq!((heard.of(&key(0)), heard.of(&key(1))), (5 * KEYS as u64 - 1, 0));
        assert!((4 * KEYS..5 * KEYS).all(|at| heard.of(&key(at)) == 7));
        assert!(heard.young.len() + heard.old.len() <= 2 * KEYS);
    }
}
