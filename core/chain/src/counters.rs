//! What a replica counts.

use wire::Malformed;

/// Events since the replica began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Replies sent by the tail.
    pub replies: u64,
    /// Messages dropped because the chain does not keep up.
    pub dropped_back_pressure: u64,
    /// Chain messages dropped because they came from no neighbour.
    pub chain_not_neighbour: u64,
    /// Chain messages dropped because their sender is in another view.
    pub chain_other_view: u64,
    /// Chain entries applied.
    pub chain_applied: u64,
    /// Chain entries dropped because they were applied before.
    pub chain_duplicates: u64,
    /// Chain messages dropped because an entry before them is missing.
    pub chain_gaps: u64,
    /// Items of copies taken while this replica joined a chain.
    pub copied: u64,
    /// Times the unacknowledged entries were sent again.
    pub chain_resends: u64,
    /// Messages dropped as malformed, by reason, in the order of `Malformed::ALL`.
    pub malformed: [u64; Malformed::ALL.len()],
}

impl Counters {
    pub(crate) fn count_malformed(&mut self, reason: Malformed) {
        if let Some(at) = Malformed::ALL.iter().position(|candidate| *candidate == reason) {
            self.malformed[at] += 1;
        }
    }
}
