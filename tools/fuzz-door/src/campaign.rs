//! What a system lets `stateplane-fuzz` run.

use crate::StateKind;

/// A long run of random inputs, judged by the system itself: a word of `stateplane-fuzz`.
pub struct Campaign {
    /// The word.
    pub name: &'static str,
    /// What it does, for the help.
    pub about: &'static str,
    /// What `--count` counts, for the help.
    pub counts: &'static str,
    /// How many without `--count`.
    pub count: u64,
    /// Runs so many inputs (the second number) of a seed (the first), and prints what they did.
    /// An error is a finding; its text is all that it takes to repeat it.
    pub run: fn(u64, u64) -> anyhow::Result<()>,
}

/// What a system lets `stateplane-fuzz` run.
pub trait Campaigns: Sync {
    /// Its words.
    fn campaigns(&self) -> &'static [Campaign] {
        &[]
    }

    /// The state objects that generated programs may have.
    fn state(&self) -> &'static [&'static dyn StateKind] {
        &[]
    }
}
