//! Seeded bugs, for tests that must find them (`tests/mutations.rs`). Without the feature
//! `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of a recipe.
    pub enum Mutation {
        /// Who waits counts half the lease.
        JudgedEarly,
        /// The holder counts its lease from the reply.
        CountedFromReply,
        /// A reader enters beside a writer.
        ReaderBesideWriter,
        /// A semaphore has one permit more.
        OnePermitMore,
        /// A candidate writes without comparing.
        ElectedByPut,
        /// A barrier opens before its last participant is there.
        BarrierOpensEarly,
        /// An observer misses members that refresh late.
        MemberMissed,
        /// A counter adds again if the outcome is unknown.
        AddedAgain,
        /// A transaction reads before it has its locks.
        ReadBeforeLocks,
    }
}
