//! Records of batches: which numbers are durable since when, and for how long a packet may have
//! waited in a switch.
//!
//! A record has the newest number of a flow only: it stands for all smaller ones of its grant. So
//! no message tells which packet has a number that never left. What is known of a packet that went
//! into a switch and never came out: a CPU sends one batch of a shard after the other. If each CPU
//! that sends any has sent a *later* one that was answered, the packet's own was answered before,
//! and the packet should have left. (Which CPU took the packet no message tells.)

use super::*;

/// Two processors may stamp frames the other way round, no further apart than this.
const DISORDER_NS: u64 = 10_000_000;
/// What waits for longer is dropped (`commit_hold_ms` by default).
const WAITS_NS: u64 = 1_000_000_000;

/// Which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId {
    /// The switch, by its `switch_id`.
    pub switch_id: u32,
    /// Which of its lives.
    pub incarnation: u32,
    /// The switch's CPU.
    pub stream: u16,
    /// The shard of all its flows.
    pub shard: u16,
    /// Its number in the stream.
    pub number: u64,
}

/// What a batch says of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How many records are before it in the batch.
    pub place: u8,
    /// The grant.
    pub epoch: u32,
    /// The newest number.
    pub number: u64,
}

/// A batch as it was seen. (Routers are listened to by threads: an answer may be heard of first.)
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    records: BTreeMap<u8, Record>,
    first_ns: Option<u64>,
    /// The refused records' bits, and when the first answer was seen.
    answer: Option<(u64, u64)>,
}

impl Sent {
    /// The batch, or a copy of it, was seen with this record.
    pub(super) fn has(&mut self, record: Record, ns: u64) {
        self.records.insert(record.place, record);
        self.first_ns = Some(self.first_ns.map_or(ns, |first| first.min(ns)));
    }

    /// An answer was seen.
    pub(super) fn answered(&mut self, refused: u64, ns: u64) {
        let (bits, first) = self.answer.unwrap_or((0, ns));
        self.answer = Some((bits | refused, first.min(ns)));
    }
}

/// The answers to a flow's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// By grant and number: since when it is durable.
    durable: BTreeMap<(u32, u64), u64>,
    /// By switch: when a record was refused.
    refused: BTreeMap<u32, Vec<u64>>,
}

impl Answers {
    fn add(&mut self, switch_id: u32, record: Record, (refused, ns): (u64, u64)) {
        if refused >> record.place & 1 == 1 {
            return self.refused.entry(switch_id).or_default().push(ns);
        }
        let since = self.durable.entry((record.epoch, record.number)).or_insert(ns);
        *since = ns.min(*since);
    }

    /// Was this number of a grant in a record that was answered by then?
    pub(super) fn has_durable(&self, epoch: u32, number: u64, by_ns: u64) -> bool {
        let mut since = self.durable.range((epoch, number)..=(epoch, u64::MAX));
        since.any(|(_, ns)| *ns <= by_ns.saturating_add(DISORDER_NS))
    }

    /// Was an update of this switch refused while a packet waited that went in at `ns`?
    fn refused_while_waiting(&self, switch_id: u32, ns: u64) -> bool {
        let meanwhile = ns.saturating_sub(SLACK_NS)..=ns.saturating_add(WAITS_NS);
        let refused = self.refused.get(&switch_id).into_iter().flatten();
        refused.copied().any(|refused_ns| meanwhile.contains(&refused_ns))
    }
}

impl Ledger {
    /// The answers to a flow's records.
    pub(super) fn answers(&self, flow: &Flow) -> Answers {
        let mut answers = Answers::default();
        for (id, place) in &flow.records {
            let Some(Sent { records, answer: Some(answer), .. }) = self.batches.get(id) else {
                continue;
            };
            if let Some(record) = records.get(place) {
                answers.add(id.switch_id, *record, *answer);
            }
        }
        answers
    }

    /// When a packet of a shard that went into a switch at `ns` should have left, at the latest.
    fn left_by(&self, switch_id: u32, shard: Option<u16>, ns: u64) -> Option<u64> {
        let mut by_cpu: BTreeMap<u16, Option<u64>> = BTreeMap::new();
        let own = |id: &BatchId| id.switch_id == switch_id && shard.is_none_or(|it| it == id.shard);
        for (id, sent) in self.batches.iter().filter(|(id, _)| own(id)) {
            let first = by_cpu.entry(id.stream).or_default();
            let later = sent.first_ns.is_some_and(|it| it > ns.saturating_add(SLACK_NS));
            if let Some((_, answer_ns)) = sent.answer.filter(|_| later) {
                *first = Some(first.map_or(answer_ns, |it| it.min(answer_ns)));
            }
        }
        by_cpu.into_values().max_by_key(|it| it.unwrap_or(u64::MAX)).flatten()
    }

    /// Why a packet may have been lost that went into a switch at `ns` and waited there.
    pub(super) fn lost_waiting(
        &self,
        flow: &Flow,
        answers: &Answers,
        switch: Node,
        ns: u64,
    ) -> Option<String> {
        if flow.records.is_empty() {
            return None;
        }
        let (switch_id, _) = self.switches.iter().find(|(_, node)| **node == switch)?;
        if answers.refused_while_waiting(*switch_id, ns) {
            return Some("refused: the grant was over".to_string());
        }
        let left_by = self.left_by(*switch_id, flow.shard, ns).unwrap_or(u64::MAX);
        let waited_ns = left_by.saturating_sub(ns).min(WAITS_NS);
        let name = self.name(switch);
        let lost = self.broken(ns, waited_ns, |it| it.touches(name));
        if lost.is_some() || waited_ns < WAITS_NS - SLACK_NS {
            return lost;
        }
        let stalls = |it: &Broken| match it {
            Broken::Fault(fault) => {
                fault.machine().and_then(|node| self.role_of(node)) == Some(Role::Store)
            }
            Broken::Routing(..) => true,
        };
        let cause = self.broken(ns, waited_ns, stalls)?;
        Some(format!("{cause}: waited too long"))
    }
}
