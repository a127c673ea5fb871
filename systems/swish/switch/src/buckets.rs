//! The histogram of windows' times: a bucket for each thirty-second of a power of two ns.

/// The time below which all of a bucket are, in ns.
pub fn bucket_end(bucket: u32) -> u64 {
    match bucket {
        0..32 => u64::from(bucket) + 1,
        _ => u64::from(32 + bucket % 32 + 1) << (bucket / 32 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::bucket_end;

    #[test]
    fn buckets_follow_each_other() {
        assert_eq!([0, 31, 32, 33, 63, 64].map(bucket_end), [1, 32, 33, 34, 64, 66]);
        assert!((0..895).all(|at| bucket_end(at) < bucket_end(at + 1)));
    }
}
