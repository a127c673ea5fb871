//! Seeded bugs, for tests that must find them (`tests/mutations.rs`). Without the feature
//! `mutations` there are none, and nothing is asked.

/// A bug of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 5] = [
        Mutation::BeforeLeaseEnds,
        Mutation::JoinedAtOnce,
        Mutation::AnyLife,
        Mutation::OldCopies,
        Mutation::SentBeforePersisted,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread's controllers have that bug, and no other.
#[cfg(feature = "mutations")]
pub fn set_mutation(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Has this thread's controller that bug?
#[cfg(feature = "mutations")]
pub(crate) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
