//! Seeded bugs, for tests that must find them (`tests/mutations.rs`, and those of the systems whose
//! state a chain replicates). Without the feature `mutations` there are none, and nothing is asked.

/// A bug of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Whoever orders an entry answers it.
    ReplyBeforeTail,
    /// Entries after a gap are applied.
    GapInChain,
    /// Entries that were applied are applied again.
    EntriesAgain,
    /// Messages of any view are taken.
    AnyView,
    /// What entries touch during a copy is not copied again.
    TouchedNotCopied,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 5] = [
        Mutation::ReplyBeforeTail,
        Mutation::GapInChain,
        Mutation::EntriesAgain,
        Mutation::AnyView,
        Mutation::TouchedNotCopied,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread's replicas have that bug, and no other.
#[cfg(feature = "mutations")]
pub fn set_mutation(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Has this thread's replica that bug?
#[cfg(feature = "mutations")]
pub(crate) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
