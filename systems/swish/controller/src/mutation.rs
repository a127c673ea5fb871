//! Seeded bugs of the rules, which tests must find.

seeded_bugs::seeded_bugs! {
    /// A mistake that a test plants.
    pub enum Mutation {
        /// A decision is told before it is persistent.
        ToldBeforePersisted,
        /// It is made from what switches report without a seal.
        DecidedWithoutSeal,
        /// What the dead brought counts if a member has some of it.
        DeadInPart,
        /// What counted by a decision before is forgotten when the window runs again.
        KeptForgotten,
        /// All that a removed switch had is said not to have counted.
        CountedForgotten,
        /// A switch leaves before all that its packets updated has counted.
        LeavesAtOnce,
        /// A switch joins before all members have taken the decision.
        JoinsEarly,
        /// With EWO: a switch that was removed is said to have nothing any more.
        AwayForgotten,
        /// With EWO: slots are folded while a switch that is no member may have others.
        FoldedWhileAway,
        /// With EWO: slots are folded although members do not have the same.
        FoldedUnlike,
        /// With EWO: a life is taken to be over when the switch has another agent.
        LifeOfAgent,
    }
}
