//! Seeded bugs, for tests that must find them (`tests/mutations.rs`, and those of the systems whose
//! state a chain replicates). Without the feature `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the chain.
    pub enum Mutation {
        /// Whoever orders an entry answers it.
        ReplyBeforeTail,
        /// Entries after a gap are applied.
        GapInChain,
        /// Entries that were applied are applied again.
        EntriesAgain,
        /// Messages of any view are taken.
        AnyView,
        /// Updates go through the chain without an entry also while a replica joins.
        SteadyWhileJoining,
        /// What entries touch during a copy is not copied again.
        TouchedNotCopied,
    }
}
