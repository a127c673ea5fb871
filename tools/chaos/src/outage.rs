//! For how long nothing gets out.

/// The longest time without any packet getting out, in milliseconds, while nothing is broken and
/// packets are handed to the switches all the time.
pub const OUTAGE_LIMIT_MS: u64 = 3_000;
/// Packets that are further apart than this are not handed over all the time, in nanoseconds: a
/// route was away in between, or the machine stood still.
const STEADY_NS: u64 = 250_000_000;

/// The longest time, from its beginning to its end, from `from_ns` on, in which packets went in
/// steadily and none came out. All times in order, in nanoseconds.
pub fn longest(from_ns: u64, went_in: &[u64], came_out: &[u64]) -> (u64, u64) {
    let mut longest = (from_ns, from_ns);
    let mut since: Option<(u64, u64)> = None;
    let mut out = came_out.iter().copied().peekable();
    for now in went_in.iter().copied().filter(|ns| *ns >= from_ns) {
        let last = since.map_or(from_ns, |(_, last)| last);
        let mut came = false;
        while let Some(ns) = out.next_if(|ns| *ns < now) {
            came |= ns >= last;
        }
        let goes_on = since.filter(|(_, last)| !came && now - last <= STEADY_NS);
        let (began, _) = goes_on.unwrap_or((now, now));
        since = Some((began, now));
        if now - began > longest.1 - longest.0 {
            longest = (began, now);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::longest;

    const MS: u64 = 1_000_000;

    fn steadily(from_ms: u64, until_ms: u64) -> Vec<u64> {
        (from_ms..=until_ms).step_by(10).map(|ms| ms * MS).collect()
    }

    #[test]
    fn nothing_comes_out_though_packets_go_in() {
        let went_in = steadily(0, 9_000);
        let until_4_s: Vec<u64> = steadily(0, 4_000).into_iter().map(|ns| ns + MS).collect();
        assert_eq!(longest(0, &went_in, &until_4_s), (4_010 * MS, 9_000 * MS));
        assert_eq!(longest(6_000 * MS, &went_in, &until_4_s), (6_000 * MS, 9_000 * MS));
        let again = [until_4_s, vec![7_005 * MS]].concat();
        assert_eq!(longest(0, &went_in, &again), (4_010 * MS, 7_000 * MS));
        assert_eq!(longest(0, &[], &[]), (0, 0));
    }

    #[test]
    fn while_no_packets_go_in_none_are_missed() {
        let went_in = [steadily(0, 1_000), steadily(2_000, 2_500)].concat();
        assert_eq!(longest(0, &went_in, &[]), (0, 1_000 * MS));
        // What comes out all the time is no outage, however slow.
        let out: Vec<u64> = steadily(0, 9_000).into_iter().map(|ns| ns + 800 * MS).collect();
        let (from, until) = longest(1_000 * MS, &steadily(0, 9_000), &out);
        assert!(until - from <= 10 * MS);
    }
}
