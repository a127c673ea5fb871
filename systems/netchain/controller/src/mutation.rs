//! Seeded bugs, for tests that must find them (`tests/mutations.rs`). Without the feature
//! `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the controller.
    pub enum Mutation {
        /// Members go on while the old reader has its lease.
        BeforeLeaseEnds,
        /// A member that joins counts as one that has everything.
        JoinedAtOnce,
        /// A switch that returns with empty slots keeps its place.
        AnyLife,
        /// What was copied in an older view counts.
        OldCopies,
        /// A decision is sent before it is persistent.
        SentBeforePersisted,
        /// A new head counts as the one before.
        SameHead,
        /// Tombstones are collected without a session of their own.
        CollectsInOldSession,
        /// Tombstones are collected while a member joins.
        CollectsWhileOneJoins,
        /// The member that is too many leaves before the better one has everything.
        LeavesBeforeJoined,
        /// A switch gets groups back as soon as it returns.
        MovesAtOnce,
        /// A chain moves while others change.
        MovesInUnrest,
    }
}
