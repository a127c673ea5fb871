//! Seeded bugs, for tests that must find them (`tests/mutations.rs`). Without the feature
//! `mutations` there are none, and nothing is asked.

/// A bug of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 9] = [
        Mutation::JudgedEarly,
        Mutation::CountedFromReply,
        Mutation::ReaderBesideWriter,
        Mutation::OnePermitMore,
        Mutation::ElectedByPut,
        Mutation::BarrierOpensEarly,
        Mutation::MemberMissed,
        Mutation::AddedAgain,
        Mutation::ReadBeforeLocks,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread's recipes have that bug, and no other.
#[cfg(feature = "mutations")]
pub fn set_mutation(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Have this thread's recipes that bug?
#[cfg(feature = "mutations")]
pub(crate) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
