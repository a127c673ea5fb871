//! What a replica counts.

use wire::Malformed;

/// Calls a macro with what is in the braces, and behind it, after `chain`, the name and the meaning
/// of each number that a replica counts. A store that shows these numbers beside its own takes them
/// from here.
#[macro_export]
macro_rules! with_chain_counters {
    ($macro:ident { $($own:tt)* }) => {
        $macro! {
            $($own)*
            chain
            /// Replies sent by the tail.
            replies,
            /// Messages dropped because the chain does not keep up.
            dropped_back_pressure,
            /// Chain messages dropped because they came from no neighbour.
            chain_not_neighbour,
            /// Chain messages dropped because their sender is in another view.
            chain_other_view,
            /// Chain entries applied.
            chain_applied,
            /// Chain entries dropped because they were applied before.
            chain_duplicates,
            /// Chain messages dropped because an entry before them is missing.
            chain_gaps,
            /// Items of copies taken while this server joined a chain.
            copied,
            /// Times the unacknowledged entries were sent again.
            chain_resends,
        }
    };
}

macro_rules! counters {
    (chain $($(#[doc = $help:literal])+ $name:ident,)*) => {
        /// Events since the replica began.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)*
            /// Messages dropped as malformed, by reason, in the order of `Malformed::ALL`.
            pub malformed: [u64; Malformed::ALL.len()],
        }
    };
}

with_chain_counters! { counters {} }

impl Counters {
    pub(crate) fn count_malformed(&mut self, reason: Malformed) {
        if let Some(at) = Malformed::ALL.iter().position(|candidate| *candidate == reason) {
            self.malformed[at] += 1;
        }
    }
}
