//! Seeded bugs, for tests that must find them (`systems/redplane/sim/tests/mutations.rs`). Without
//! the feature `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the fast path.
    pub enum Mutation {
        /// The head takes batches from whoever sends them, under any grant.
        BatchOfAnybody,
    }
}
