//! Since when all members of a group hear each other: rules without IO.
//!
//! A tombstone may be forgotten when no switch has an older write of its key any more. A switch
//! whose gossip comes in has what others sent it, if it hears them, too. So messages list the
//! members that their sender hears, and a tombstone ends when all have heard all for as long as it
//! takes to send everything several times (notes, 12). While a member is away, none ends.

/// Silence that still counts as hearing, in rounds of gossip of which each brings a message.
const ROUNDS: u64 = 8;
/// Tombstones are kept for at least so many times that silence.
const SILENCES: u64 = 2;

/// A member, at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub member: u32,
    /// Messages that came from it so far.
    pub frames: u32,
    /// A bit for each member that it hears, as it said last.
    pub hears: u64,
}

/// What a look finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A bit for each member that this switch hears, itself too.
    pub hears: u64,
    /// For so long a tombstone has to be older; `None`: none ends.
    pub kept_ns: Option<u64>,
}

/// What was seen at the looks before.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// By place among the others: messages, and when there were more.
    heard: Vec<(u32, u64)>,
    /// All hear all since then.
    all_since_ns: Option<u64>,
}

impl Hearing {
    /// A look. `round_ns`: how long a round of gossip takes, at most; `kept_ns`: how long
    /// tombstones are kept at least.
    pub fn look(
        &mut self,
        own: u32,
        others: &[Seen],
        round_ns: u64,
        kept_ns: u64,
        now_ns: u64,
    ) -> Found {
        let silence_ns = (ROUNDS * others.len() as u64).saturating_mul(round_ns);
        if self.heard.len() != others.len() {
            self.heard = others.iter().map(|it| (it.frames, 0)).collect();
        }
        let mut hears = 1u64 << (own & 63);
        for (seen, (frames, at_ns)) in others.iter().zip(&mut self.heard) {
            if seen.frames != *frames {
                (*frames, *at_ns) = (seen.frames, now_ns.max(1));
            }
            if *at_ns > 0 && now_ns.saturating_sub(*at_ns) <= silence_ns {
                hears |= 1 << (seen.member & 63);
            }
        }
        let all = others.iter().fold(1u64 << (own & 63), |all, it| all | 1 << (it.member & 63));
        if hears == all && others.iter().all(|it| it.hears & all == all) {
            self.all_since_ns.get_or_insert(now_ns);
        } else {
            self.all_since_ns = None;
        }
        let kept_ns = kept_ns.max(silence_ns.saturating_mul(SILENCES));
        let is_over = |since_ns: u64| now_ns.saturating_sub(since_ns) >= kept_ns;
        Found { hears, kept_ns: self.all_since_ns.is_some_and(is_over).then_some(kept_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(member: u32, frames: u32, hears: u64) -> Seen {
        Seen { member, frames, hears }
    }

    #[test]
    fn none_ends_before_all_have_heard_all_for_long() {
        let mut hearing = Hearing::default();
        // A round takes 1, so 16 are silence, and tombstones are kept for 100.
        let mut look = |at: u64, others: &[Seen]| hearing.look(0, others, 1, 100, at);
        assert_eq!(look(1, &[seen(1, 5, 7), seen(2, 5, 7)]), Found { hears: 1, kept_ns: None });
        for at in 2..102 {
            let frames = at as u32 + 5;
            let found = look(at, &[seen(1, frames, 7), seen(2, frames, 7)]);
            assert_eq!(found, Found { hears: 7, kept_ns: None }, "{at}");
        }
        let ends = Found { hears: 7, kept_ns: Some(100) };
        assert_eq!(look(102, &[seen(1, 200, 7), seen(2, 200, 7)]), ends);
        // One of the others does not hear the other one any more.
        let found = look(103, &[seen(1, 201, 3), seen(2, 201, 7)]);
        assert_eq!(found, Found { hears: 7, kept_ns: None });
        assert_eq!(look(104, &[seen(1, 202, 7), seen(2, 202, 7)]).kept_ns, None);
    }

    #[test]
    fn a_member_that_is_silent_for_long_is_not_heard() {
        let mut hearing = Hearing::default();
        let mut look = |at: u64, frames: u32| hearing.look(1, &[seen(0, frames, 3)], 10, 5, at);
        look(1, 0);
        assert_eq!(look(2, 1).hears, 3);
        assert_eq!(look(82, 1).hears, 3);
        assert_eq!(look(83, 1).hears, 2);
    }

    #[test]
    fn a_switch_alone_waits_for_nobody() {
        let mut hearing = Hearing::default();
        assert_eq!(hearing.look(0, &[], 10, 5, 1).kept_ns, None);
        assert_eq!(hearing.look(0, &[], 10, 5, 6).kept_ns, Some(5));
    }
}
