//! Bugs that can be planted in the elaboration, to show that generated programs find them.
//!
//! Without the feature `mutations` none can be, and no code is left of them.

seeded_bugs::seeded_bugs! {
    /// One bug for each family.
    pub enum Mutation {
        /// An `inout` argument is read after the arguments behind it have had their effects.
        UnsavedArguments,
        /// Named arguments and fields are evaluated as declared, not as written.
        DeclarationOrder,
        /// An element whose index is computed with effects is a copy: what is written to it is
        /// lost.
        IndexedCopy,
        /// Of entries with priorities the smallest wins.
        SmallestPriority,
        /// Arguments are copied out as the parameters are declared, not as they are written.
        CopyOutAsDeclared,
        /// What a parser or control declares survives to its next application.
        SurvivingLocals,
        /// Both branches of `?:`, and both operands of `&&` and `||`, have their effects.
        EagerBranches,
        /// `exit` copies nothing out.
        LostCopiesAtExit,
        /// Headers of `out` parameters come in valid if their arguments are.
        ValidOutHeaders,
        /// Parameters are not copies: two of one argument are one.
        AliasedArguments,
        /// Arguments of extern functions are read after the arguments behind them have had their
        /// effects.
        UnsavedExternArguments,
        /// What an extern function writes to a slice is lost.
        LostSlices,
        /// A table's key is read after the keys behind it have had their effects.
        UnsavedKeys,
        /// A sub-parser's `out` and `inout` arguments are not copied out.
        LostParserCopies,
        /// The index in an assignment's target is read after the value has had its effects.
        LateIndex,
    }
}
