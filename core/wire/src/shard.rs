//! Which shard a key belongs to: `state-protocol.md`, "Shards". Switches compute the same in C.

/// Most shards that a cluster can have.
pub const MOST_SHARDS: u16 = 256;

/// The hash of `key` that shards are made of.
pub fn key_hash(key: &[u8]) -> u64 {
    let mut hash = 0u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 32;
    hash.wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The shard of `key` among `shards` (1 to 256; with 0, as with 1, it is 0).
pub fn shard_of(key: &[u8], shards: u16) -> u16 {
    // Below `shards`, so it fits.
    (((key_hash(key) >> 32) * u64::from(shards)) >> 32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_have_known_shards() {
        // By hand from the document, with integers of any size.
        for (key, shards, shard) in VECTORS {
            assert_eq!(shard_of(key, *shards), *shard, "{key:?} among {shards}");
        }
    }

    const VECTORS: &[(&[u8], u16, u16)] = &[
        (&[107], 256, 214),
        (&[49, 50, 51, 52, 53, 54, 55, 56], 256, 135),
        (&[49, 50, 51, 52, 53, 54, 55, 56, 57], 256, 123),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16, 5),
        (
            &[
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
            ],
            255,
            78,
        ),
        (&[107], 1, 0),
    ];

    #[test]
    fn keys_spread_evenly() {
        for shards in [1u16, 3, 256] {
            let mut counts = vec![0u32; usize::from(shards)];
            for flow in 0..65_536u32 {
                // Keys that differ little, as those of one client do.
                let mut key = [10, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 80, 6];
                key[8..10].copy_from_slice(&(flow as u16).to_be_bytes());
                counts[usize::from(shard_of(&key, shards))] += 1;
            }
            let mean = 65_536 / u32::from(shards);
            assert!(
                counts.iter().all(|count| (mean / 2..=mean * 2).contains(count)),
                "{shards}: {counts:?}"
            );
        }
    }
}
