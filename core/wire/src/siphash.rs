//! SipHash-2-4 of what comes in whole words: Aumasson and Bernstein, "SipHash: a fast short-input
//! PRF" (2012), section 2.

use crate::keys::Secret;

const WORD_BYTES: usize = 8;

/// The four words of state.
pub(crate) struct SipHash([u64; 4]);

impl SipHash {
    /// Section 2.1.
    pub(crate) fn new(secret: &Secret) -> SipHash {
        let [k0, k1] = secret.words();
        SipHash([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }

    /// One word: two rounds.
    #[inline(always)]
    pub(crate) fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    /// All whole words of `bytes`; returns what is left, less than a word.
    #[inline(always)]
    pub(crate) fn words<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        rest
    }

    /// The hash; `tail` is what is left of the input, less than a word, and `input_bytes` the
    /// length of all of it.
    pub(crate) fn finish(mut self, tail: &[u8], input_bytes: usize) -> u64 {
        let mut last = [0; WORD_BYTES];
        last[..tail.len()].copy_from_slice(tail);
        last[WORD_BYTES - 1] = input_bytes as u8; // modulo 256, as section 2.2 says
        self.word(u64::from_le_bytes(last));
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.0.iter().fold(0, |hash, word| hash ^ word)
    }
}
