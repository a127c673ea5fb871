//! Seeded bugs, for tests that must find them (`core/controller/tests/mutations.rs`). Without the
//! feature `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the controller.
    pub enum Mutation {
        /// A shard begins anew as soon as no member is heard, without proof that they are gone.
        EmptyIsLost,
        /// A joining server becomes a member before it has everything.
        MemberBeforeSynced,
        /// Views are sent before they are persistent.
        SentBeforePersisted,
        /// A decision has the number of the view before.
        ViewNumbersAgain,
        /// What servers say of their place in older views counts.
        OldViewsCount,
        /// No join is given up.
        JoinsForEver,
        /// Members change places while entries are on their way between them.
        ReorderedUndrained,
        /// A server in another life is taken for the member that it was.
        AnyLife,
    }
}
