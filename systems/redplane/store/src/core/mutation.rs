//! Seeded bugs, for tests that must find them (`systems/redplane/sim/tests/mutations.rs`). Without
//! the feature `mutations` there are none, and nothing is asked.

/// A bug of the store. (Those of its chains: `chain::Mutation`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// An update counts under any epoch.
    NoEpochCheck,
    /// An update counts from anybody.
    NoFence,
    /// A new head takes every session as over.
    HeadForgetsLeases,
    /// READ_COMMIT is answered at once.
    ReadCommitNotHeld,
    /// A flow is granted while another switch's session lives.
    GrantOverOwner,
    /// A session ends half a lease early.
    SessionEndsEarly,
    /// A grant to another switch has the same epoch.
    EpochNotRaised,
    /// A release's value is not recorded.
    ReleaseWithoutValue,
    /// A release of an old epoch counts.
    ReleaseOfAnyEpoch,
    /// An older update overwrites a newer one.
    OldUpdateOverwrites,
    /// Copies of requests are taken.
    ReplaysTaken,
    /// Parts of different snapshots meet.
    SnapshotsMixed,
    /// A snapshot counts with its first part.
    SnapshotOfOnePart,
    /// Nobody is recalled.
    NoRecall,
    /// Nobody is asked whether he has what he was granted.
    NoProbe,
    /// A port or backend is given back twice, the second time when it is somebody else's already.
    FreedTwice,
    /// A port or backend is not given back.
    NeverFreed,
    /// A conversation is idle, whoever owns it.
    OwnedFreed,
    /// Which ports are taken is not asked.
    TakenPortsGiven,
    /// A lease is counted without the drift of clocks.
    DriftIgnored,
    /// A server that caught up, or came back, does not learn of sessions.
    CopyWithoutSessions,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 21] = [
        Mutation::NoEpochCheck,
        Mutation::NoFence,
        Mutation::HeadForgetsLeases,
        Mutation::ReadCommitNotHeld,
        Mutation::GrantOverOwner,
        Mutation::SessionEndsEarly,
        Mutation::EpochNotRaised,
        Mutation::ReleaseWithoutValue,
        Mutation::ReleaseOfAnyEpoch,
        Mutation::OldUpdateOverwrites,
        Mutation::ReplaysTaken,
        Mutation::SnapshotsMixed,
        Mutation::SnapshotOfOnePart,
        Mutation::NoRecall,
        Mutation::NoProbe,
        Mutation::FreedTwice,
        Mutation::NeverFreed,
        Mutation::OwnedFreed,
        Mutation::TakenPortsGiven,
        Mutation::DriftIgnored,
        Mutation::CopyWithoutSessions,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread's servers have that bug, and no other.
#[cfg(feature = "mutations")]
pub fn set_mutation(mutation: Option<Mutation>) {
    CURRENT.set(mutation);
}

/// Has this thread's server that bug?
#[cfg(feature = "mutations")]
pub(super) fn is(mutation: Mutation) -> bool {
    CURRENT.get() == Some(mutation)
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(super) const fn is(_: Mutation) -> bool {
    false
}
