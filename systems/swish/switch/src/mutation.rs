//! Seeded bugs of a switch's rules, which tests must find.

seeded_bugs::seeded_bugs! {
    /// A mistake that a test plants.
    pub enum Mutation {
        /// What an earlier agent had counted in a base counts in the next one again.
        CountedTwice,
        /// A base has its name before its cells are written.
        NamedEarly,
        /// A switch takes a view without folding what is over.
        Unfolded,
        /// With SDW, a window that begins again keeps what its first attempt merged.
        AttemptKept,
        /// A switch that returns hands in rotations that have counted.
        CountedHandedIn,
        /// In large windows, too, all frames begin on the CPU that looks.
        OnOneCpu,
        /// Frames that are to begin on all CPUs begin on none.
        OnNoCpu,
    }
}
