//! Seeded bugs, for tests that must find them (`core/controller/tests/mutations.rs`). Without the
//! feature `mutations` there are none, and nothing is asked.

/// A bug of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 8] = [
        Mutation::EmptyIsLost,
        Mutation::MemberBeforeSynced,
        Mutation::SentBeforePersisted,
        Mutation::ViewNumbersAgain,
        Mutation::OldViewsCount,
        Mutation::JoinsForEver,
        Mutation::ReorderedUndrained,
        Mutation::AnyLife,
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
pub(super) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(super) const fn is(_: Mutation) -> bool {
    false
}
