//! Seeded bugs, for tests of the systems, which must find them. Without the feature `mutations`
//! there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the fast path.
    pub enum Mutation {
        /// The head takes batches from whoever sends them, under any grant.
        BatchOfAnybody,
    }
}
