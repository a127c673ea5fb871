//! Which frames the packet generator makes for a group's variables with EWO, at a look: rules
//! without IO.
//!
//! Two kinds: what packets of this switch changed, to every member (SwiSh §6.2); and gossip, which
//! goes round all slots of all lives that this switch knows, so that what was lost comes again,
//! also of a switch that is dead (§8.2). Each has its share of the bandwidth, so neither holds up
//! the other.

use crate::hearing::{Found, Hearing, Seen};
use crate::silence::Silences;
use swish_protocol::eventual::{
    CHANGED, FRAME_BYTES, NO_COLUMN, RECORDS, RECORDS_CHANGED, RUN, SINGLE,
};

/// Frames for a member at a look at the most: a veth's ring has 256.
const FRAMES: u64 = 64;
/// Of the bandwidth, one part in so many is gossip's.
const GOSSIP_PART: u64 = 4;
/// What was not used of the bandwidth is kept for so long.
const KEPT_NS: u64 = 10_000_000;

/// How much is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// At the most.
    pub bytes_per_s: u64,
    /// A change is sent after so much time, if the bandwidth allows it.
    pub mirror_ns: u64,
    /// So long a round takes, if the bandwidth allows it.
    pub gossip_ns: u64,
    /// So long a removed key's tombstone is kept at the least.
    pub tombstone_ns: u64,
}

/// A group on this switch, at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// This switch's number.
    pub own: u32,
    /// All other members, and how many changes each is to be sent.
    pub others: Vec<(u32, u64)>,
    /// Lives whose slots this switch has.
    pub columns: u32,
    /// Cells with slots.
    pub slotted: u32,
    /// Cells without.
    pub direct: u32,
    /// Of registers, tables and sets.
    pub records: Records,
}

impl Look {
    /// Changes that a member is still to be sent, at the most.
    pub fn waiting(&self) -> u64 {
        let cells = self.others.iter().map(|(_, waiting)| *waiting).max().unwrap_or(0);
        cells + self.records.waiting.iter().copied().max().unwrap_or(0)
    }
}

/// A group's records, at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// How many changed ones each other member is to be sent, as in [`Look::others`].
    pub waiting: Vec<u64>,
    /// The first one, of all groups' records.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// As many has a message.
    pub in_message: u32,
}

/// A frame that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// For which member.
    pub member: u32,
    /// A column, or as `DueValue::column`.
    pub column: u32,
    /// The first cell of a run.
    pub first: u32,
}

/// Bytes that may be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    bytes: u64,
    /// Billionths of a byte.
    rest: u64,
}

impl Bucket {
    fn pour(&mut self, bytes_per_s: u64, ns: u64) {
        let most = FRAME_BYTES.max(bytes_per_s * KEPT_NS / 1_000_000_000);
        let poured = u128::from(bytes_per_s) * u128::from(ns.min(KEPT_NS)) + u128::from(self.rest);
        self.bytes = (self.bytes + (poured / 1_000_000_000) as u64).min(most);
        self.rest = (poured % 1_000_000_000) as u64;
    }

    fn frames(&self) -> u64 {
        self.bytes / FRAME_BYTES
    }

    fn take(&mut self, frames: u64) {
        self.bytes = self.bytes.saturating_sub(frames * FRAME_BYTES);
    }
}

/// How far gossip has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Rounds that are over, and runs of this one that are sent.
    round: u64,
    at: u64,
    began_ns: u64,
    /// How long the last round took; 0: none is over yet.
    round_ns: u64,
}

/// What was seen at the looks before.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    before_ns: u64,
    mirror: Bucket,
    gossip: Bucket,
    /// Changes are sent next at this time.
    mirror_at_ns: u64,
    /// The member that is sent changes first: not always the same one, when the bandwidth is short.
    turn: usize,
    place: Place,
    /// What members' places in a round are drawn from.
    seed: u64,
    hearing: Hearing,
    /// When to look next which members hear each other.
    hear_at_ns: u64,
    /// A switch that is no member may have older writes: no tombstone ends.
    pub away: bool,
    /// Whom this switch does not hear, for operators.
    pub silences: Silences,
}

/// Looks in a round of gossip at which members hear each other.
const HEARD_IN_ROUND: u64 = 4;

impl Pace {
    /// A new one. `seed`: gossip of switches with different seeds takes different ways.
    pub fn new(seed: u64) -> Pace {
        Pace { seed, ..Pace::default() }
    }

    /// The members change: which ones they hear is not known.
    pub fn begin_view(&mut self, away: bool) {
        (self.hearing, self.hear_at_ns, self.away) = (Hearing::default(), 0, away);
    }

    /// Rounds of gossip that are over.
    pub fn round(&self) -> u64 {
        self.place.round
    }

    /// How long the last round took; 0: none is over yet.
    pub fn round_ns(&self) -> u64 {
        self.place.round_ns
    }

    /// How far gossip has come.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The frames since that place are not sent.
    pub fn go_back(&mut self, place: Place) {
        self.place = place;
    }

    /// The frames that are due.
    pub fn due(&mut self, look: &Look, terms: Terms, now_ns: u64) -> Vec<Wanted> {
        let passed_ns = if self.before_ns == 0 { 0 } else { now_ns.saturating_sub(self.before_ns) };
        if self.place.began_ns == 0 {
            self.place.began_ns = now_ns.max(1);
        }
        self.before_ns = now_ns.max(1);
        let gossip = terms.bytes_per_s / GOSSIP_PART;
        self.gossip.pour(gossip, passed_ns);
        self.mirror.pour(terms.bytes_per_s - gossip, passed_ns);
        if look.others.is_empty() {
            // (No message is sent, but tombstones end.)
            let alone = Look { columns: 0, slotted: 0, direct: 0, ..look.clone() };
            return self.runs(&alone, terms, now_ns);
        }
        let mut wanted = self.changes(look, terms, now_ns);
        wanted.extend(self.runs(look, terms, now_ns));
        wanted
    }

    /// What packets changed: when its time has come, or a message is full.
    fn changes(&mut self, look: &Look, terms: Terms, now_ns: u64) -> Vec<Wanted> {
        let is_due = now_ns >= self.mirror_at_ns;
        let frames = |waiting: u64, in_message: u32| {
            let in_message = u64::from(in_message.max(1));
            let full = waiting / in_message;
            if is_due { waiting.div_ceil(in_message) } else { full }.min(FRAMES)
        };
        if is_due {
            self.mirror_at_ns = now_ns + terms.mirror_ns;
        }
        let mut wanted = vec![];
        self.turn = (self.turn + 1) % look.others.len();
        let records = look.records.waiting.iter().copied().chain(std::iter::repeat(0));
        let all: Vec<_> = look.others.iter().zip(records).collect();
        let (before, first) = all.split_at(self.turn);
        for ((member, cells), records) in first.iter().chain(before) {
            let kinds = [
                (CHANGED, frames(*cells, SINGLE)),
                (RECORDS_CHANGED, frames(*records, look.records.in_message)),
            ];
            for (column, count) in kinds {
                let count = count.min(self.mirror.frames());
                self.mirror.take(count);
                let frame = Wanted { member: *member, column, first: 0 };
                wanted.extend((0..count).map(|_| frame));
            }
        }
        wanted
    }

    /// Gossip. In as many rounds as there are other members, each run goes to each of them.
    fn runs(&mut self, look: &Look, terms: Terms, now_ns: u64) -> Vec<Wanted> {
        let in_column = u64::from(look.slotted.div_ceil(RUN));
        let slotted = in_column * u64::from(look.columns);
        let with_direct = slotted + u64::from(look.direct.div_ceil(RUN));
        let in_message = look.records.in_message.max(1);
        let all = with_direct + u64::from(look.records.count.div_ceil(in_message));
        let mut wanted = vec![];
        while all > 0 && self.gossip.frames() > 0 && (wanted.len() as u64) < FRAMES {
            // (Runs are spread over the round.)
            let due_ns = u128::from(terms.gossip_ns) * u128::from(self.place.at) / u128::from(all);
            if u128::from(now_ns.saturating_sub(self.place.began_ns)) < due_ns {
                break;
            }
            if self.place.at >= all {
                self.place.round_ns = now_ns.saturating_sub(self.place.began_ns);
                self.place.round += 1;
                (self.place.at, self.place.began_ns) = (0, now_ns);
                continue;
            }
            let others = look.others.len().max(1) as u64;
            let place = (self.place.at + self.shift(others)) % others;
            let member = look.others.get(place as usize).map_or(look.own, |(member, _)| *member);
            let (column, first) = if self.place.at < slotted {
                ((self.place.at / in_column) as u32, (self.place.at % in_column) as u32 * RUN)
            } else if self.place.at < with_direct {
                (NO_COLUMN, (self.place.at - slotted) as u32 * RUN)
            } else {
                (RECORDS, look.records.first + (self.place.at - with_direct) as u32 * in_message)
            };
            wanted.push(Wanted { member, column, first });
            self.gossip.take(1);
            self.place.at += 1;
        }
        wanted
    }

    /// Whether it is time to look which members hear each other.
    pub fn hearing_is_due(&self, terms: Terms, now_ns: u64) -> bool {
        // (Also a round that takes longer than it should is no reason to look less often.)
        now_ns >= self.hear_at_ns || self.hear_at_ns > now_ns + terms.gossip_ns
    }

    /// Looks which members hear each other.
    pub fn hear(&mut self, own: u32, others: &[Seen], terms: Terms, now_ns: u64) -> Found {
        self.hear_at_ns = now_ns + terms.gossip_ns / HEARD_IN_ROUND;
        let round_ns = terms.gossip_ns.max(self.place.round_ns);
        let found = self.hearing.look(own, others, round_ns, terms.tombstone_ns, now_ns);
        Found { kept_ns: found.kept_ns.filter(|_| !self.away), ..found }
    }

    /// By how much members are shifted in this round: all shifts in random order, again and again.
    fn shift(&self, others: u64) -> u64 {
        let mut order: Vec<u64> = (0..others).collect();
        let mut random =
            self.seed ^ (self.place.round / others).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        order.get((self.place.round % others) as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TERMS: Terms = Terms {
        bytes_per_s: 100_000_000,
        mirror_ns: 1_000_000,
        gossip_ns: 10_000_000,
        tombstone_ns: 1,
    };

    fn look(others: &[(u32, u64)]) -> Look {
        let (others, records) = (others.to_vec(), Records::default());
        Look { own: 7, others, columns: 2, slotted: 400, direct: 10, records }
    }

    #[test]
    fn records_have_messages_of_their_own() {
        let mut pace = Pace::new(1);
        let records = Records { waiting: vec![40, 0], first: 100, count: 70, in_message: 30 };
        let look = Look { slotted: 0, direct: 0, records, ..look(&[(1, 0), (4, 130)]) };
        let frames = looks(&mut pace, &look, TERMS, 220);
        let of = |member, column| {
            frames.iter().filter(|it| it.member == member && it.column == column).count()
        };
        assert!(of(1, RECORDS_CHANGED) > 0 && of(4, CHANGED) > 0, "{frames:?}");
        assert_eq!((of(4, RECORDS_CHANGED), of(1, CHANGED)), (0, 0));
        let runs = frames.iter().filter(|it| it.column == RECORDS);
        let sent: BTreeSet<_> = runs.map(|it| (it.member, it.first)).collect();
        assert_eq!(sent.len(), 2 * 3, "{sent:?}");
        assert!(sent.contains(&(4, 160)), "{sent:?}");
    }

    /// All frames of so many looks, 100 µs apart.
    fn looks(pace: &mut Pace, look: &Look, terms: Terms, count: u64) -> Vec<Wanted> {
        (1..=count).flat_map(|at| pace.due(look, terms, at * 100_000)).collect()
    }

    #[test]
    fn a_change_waits_for_its_time_and_a_full_message_does_not() {
        let mut pace = Pace::new(1);
        pace.due(&look(&[(1, 0)]), TERMS, 100_000);
        let changes = |frames: Vec<Wanted>| frames.iter().filter(|it| it.column == CHANGED).count();
        assert_eq!(changes(pace.due(&look(&[(1, 5)]), TERMS, 200_000)), 0);
        assert_eq!(changes(pace.due(&look(&[(1, 250)]), TERMS, 300_000)), 2);
        assert_eq!(changes(pace.due(&look(&[(1, 5)]), TERMS, 1_100_000)), 1);
    }

    #[test]
    fn each_run_goes_to_each_member_in_as_many_rounds() {
        let mut pace = Pace::new(7);
        let frames = looks(&mut pace, &look(&[(1, 0), (2, 0), (5, 0)]), TERMS, 310);
        let sent: BTreeSet<_> = frames.iter().map(|it| (it.member, it.column, it.first)).collect();
        assert_eq!(sent.len(), 3 * (2 * 3 + 1), "{sent:?}");
        assert!(frames.len() <= 3 * 7 + 7, "{} frames in three rounds", frames.len());
        assert!((10_000_000..10_300_000).contains(&pace.round_ns()), "{} ns", pace.round_ns());
    }

    #[test]
    fn the_bandwidth_bounds_both() {
        let terms = Terms { bytes_per_s: 8_000_000, ..TERMS };
        let mut pace = Pace::new(7);
        let look = Look { slotted: 1 << 20, ..look(&[(1, 1 << 30), (2, 1 << 30)]) };
        let frames = looks(&mut pace, &look, terms, 1000);
        let of_changes = frames.iter().filter(|it| it.column == CHANGED).count() as u64;
        let gossip = frames.len() as u64 - of_changes;
        // In 0.1 s.
        assert!((390..=396).contains(&of_changes), "{of_changes}");
        assert!((130..=132).contains(&gossip), "{gossip}");
    }

    #[test]
    fn nobody_is_sent_nothing() {
        let mut pace = Pace::new(1);
        assert_eq!(looks(&mut pace, &look(&[]), TERMS, 100), []);
        // Its own tombstones end.
        let records = Records { waiting: vec![], first: 100, count: 70, in_message: 30 };
        let frames = looks(&mut pace, &Look { records, ..look(&[]) }, TERMS, 220);
        assert!(frames.len() >= 6, "{frames:?}");
        assert!(frames.iter().all(|it| it.member == 7 && it.column == RECORDS), "{frames:?}");
    }
}
