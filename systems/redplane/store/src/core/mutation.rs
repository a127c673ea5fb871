//! Seeded bugs, for tests that must find them (`systems/redplane/sim/tests/mutations.rs`). Without
//! the feature `mutations` there are none, and nothing is asked.

seeded_bugs::seeded_bugs! {
    /// A bug of the store. (Those of its chains: `chain::Mutation`.)
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
        /// A snapshot that comes twice is added twice to what is merged.
        SnapshotAddedTwice,
        /// Of a contribution that is merged, what the snapshot before it had is not taken off.
        MergedWithoutTakingOff,
        /// Nobody is recalled.
        NoRecall,
        /// Nobody is asked whether he has what he was granted.
        NoProbe,
        /// A port or backend is given back twice, the second time when it is somebody else's
        /// already.
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
        /// A record of a batch counts under any epoch, from anybody.
        BatchOfOldEpoch,
        /// Records of a batch that are refused are acknowledged.
        RefusedNotTold,
        /// What came by the fast path is taken for recorded everywhere.
        FastUpdateIsEverywhere,
        /// An effect takes an update back that overtook it by the fast path.
        EffectTakesBack,
        /// Of records that are refused with their group, those count that would count alone.
        HalfOfGroup,
    }
}
