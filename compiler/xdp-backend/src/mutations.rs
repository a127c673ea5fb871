//! Bugs that can be planted in the back end, to show that generated programs find them.
//!
//! Without the feature `mutations` none can be, and no code is left of them. The emitted C never
//! has a trace of them.

seeded_bugs::seeded_bugs! {
    /// One bug each; the comment says what goes wrong.
    pub enum Mutation {
        /// Registers: a plain update is a read, then a write.
        SplitUpdates,
        /// Registers: an `@atomic` block takes the lock anew for each access.
        UnlockedBlocks,
        /// Registers: the bits above an element's width are read, too.
        WideElements,
        /// Short packets: one that the deparser leaves with fewer than 14 bytes is lost.
        ShortPacketLost,
        /// Short packets: one that `truncate` cuts to fewer than 14 bytes is lost.
        ShortCutLost,
        /// Parsers and tables: a mask is ignored, its value compared with all bits.
        IgnoredMasks,
        /// Tables: of const entries without priorities the last one wins.
        LastEntryWins,
        /// Tables: of ternary entries the last one that is found wins.
        AnyTernaryEntry,
        /// Externs: fields of invalid headers are counted in hashes and checksums.
        InvalidFieldsCounted,
        /// Externs: a varbit field takes as many bits of a checksum as it can have.
        WidestVarbit,
        /// Slices: what is beside an assigned slice becomes zero.
        SliceClears,
        /// Headers: `setValid` leaves the fields of an invalid header as they are.
        SetValidKeeps,
        /// Stacks: `push_front` and `pop_front` leave the next index.
        NextIndexKept,
        /// Stacks: elements that `push_front` and `pop_front` move count as where they were in the
        /// packet.
        ElementPlacesKept,
        /// Unions: the other members stay valid.
        UnionMembersKept,
        /// Standard metadata: what the target sets anew is what the program wrote there.
        StandardKept,
        /// Headers: a varbit field that is read with all of its header only is not taken from the
        /// packet.
        VarbitNotTaken,
    }
}
