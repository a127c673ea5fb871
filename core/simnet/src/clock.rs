//! A machine's own clock.

/// A clock that shows `offset_ns` when virtual time begins, and runs fast or slow from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    offset_ns: u64,
    drift_ppm: i64,
}

impl Clock {
    /// One that runs fast by so many parts per million; slow, if negative.
    ///
    /// # Panics
    /// A clock that stands still or runs backwards (`drift_ppm` ≤ −1,000,000) is none.
    pub fn new(offset_ns: u64, drift_ppm: i64) -> Clock {
        assert!(drift_ppm > -1_000_000, "a clock that drifts by {drift_ppm} ppm does not run");
        Clock { offset_ns, drift_ppm }
    }

    /// What it shows at a virtual time.
    pub fn local(&self, time_ns: u64) -> u64 {
        let time = i128::from(time_ns);
        self.offset_ns + (time + time * i128::from(self.drift_ppm) / 1_000_000) as u64
    }

    /// The first virtual time at which it shows `local_ns` or more.
    pub fn time(&self, local_ns: u64) -> u64 {
        let since = i128::from(local_ns.saturating_sub(self.offset_ns));
        let mut time_ns = (since * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm))) as u64;
        while self.local(time_ns) < local_ns {
            time_ns += 1;
        }
        time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_timer_set_by_a_clock_is_never_early(
            offset_ns in 0..1u64 << 40,
            drift_ppm in -300_000..300_000i64,
            local_ns in 0..1u64 << 41,
        ) {
            let clock = Clock::new(offset_ns, drift_ppm);
            let time_ns = clock.time(local_ns);
            prop_assert!(clock.local(time_ns) >= local_ns);
            // A fast clock jumps over some readings, but by no more than one tick of virtual time.
            prop_assert!(time_ns == 0 || clock.local(time_ns - 1) <= local_ns + 1);
        }
    }
}
