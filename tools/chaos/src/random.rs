//! Random numbers that are the same for a seed in every version of everything: SplitMix64 (Steele,
//! Lea, Flood, OOPSLA 2014).

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed and of what it is for: each pair has numbers of its own.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a spreads the purpose over 64 bits.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Self(seed ^ hash);
        random.next();
        random
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low) + 1)
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of several; `None` if there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.next().checked_rem(from.len() as u64)?;
        from.get(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_and_a_purpose_give_the_same_numbers_again() {
        let numbers = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            (0..4).map(|_| random.next()).collect::<Vec<u64>>()
        };
        assert_eq!(numbers(7, "nat 1"), numbers(7, "nat 1"));
        assert_ne!(numbers(7, "nat 1"), numbers(7, "nat 2"));
        assert_ne!(numbers(7, "nat 1"), numbers(8, "nat 1"));
        let mut random = Random::new(1, "");
        assert!((0..1000).all(|_| (3..=5).contains(&random.between(3, 5))));
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
