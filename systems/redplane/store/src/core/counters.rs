//! What a server counts.

use wire::Malformed;

macro_rules! counters {
    (
        $($(#[doc = $help:literal])+ $name:ident,)*
        chain $($(#[doc = $of_chain:literal])+ $chain:ident,)*
    ) => {
        /// Events since the server started.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)*
            $($(#[doc = $of_chain])+ pub $chain: u64,)*
            /// Datagrams dropped as malformed, by reason, in the order of `Malformed::ALL`.
            pub malformed: [u64; Malformed::ALL.len()],
        }

        impl Counters {
            /// Every counter with its name and meaning, except `malformed`.
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![
                    $((stringify!($name), concat!($($help),+), self.$name),)*
                    $((stringify!($chain), concat!($($of_chain),+), self.$chain),)*
                ]
            }

            /// Adds what another part of the server counted.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
                $(self.$chain += other.$chain;)*
                self.add_malformed(&other.malformed);
            }

            /// Adds what a replica's chain counted.
            pub(crate) fn add_chain(&mut self, other: &chain::Counters) {
                $(self.$chain += other.$chain;)*
                self.add_malformed(&other.malformed);
            }
        }
    };
}

chain::with_chain_counters! { counters {
    /// Requests received at the head.
    requests,
    /// Flows granted, new and to another owner.
    grants,
    /// Flows granted again to the owner that asked.
    regrants,
    /// Heartbeats answered.
    heartbeats,
    /// Heartbeats dropped because a newer one came before.
    heartbeats_stale,
    /// Requests that did not prolong their session because a recall is unanswered.
    leases_withheld,
    /// Sessions begun.
    sessions_begun,
    /// Sessions ended: a flow was taken from them, or nothing was heard of their switch for long.
    sessions_ended,
    /// Recalls begun.
    recalls,
    /// Recalls sent again.
    recalls_resent,
    /// Owners asked whether they have a flow that they were granted, as nothing showed it.
    probes,
    /// Of those that answered that they have it.
    probes_held,
    /// Flows released.
    releases,
    /// Parts of snapshots recorded.
    snapshot_parts,
    /// Parts of snapshots that were recorded before, or are older than what is recorded.
    snapshot_parts_stale,
    /// Releases of grants that were over: acknowledged again.
    releases_stale,
    /// Releases dropped because they are of a grant that was never made.
    releases_unknown,
    /// Releases without a value that came too soon after a change of the head to be told from late
    /// ones; they come again.
    releases_of_unknown_age,
    /// Datagrams dropped because their tag is not genuine.
    bad_tag,
    /// Requests dropped because newer ones of their switch came more than a second before.
    replayed,
    /// Requests dropped because a later life of their switch is known.
    old_incarnation,
    /// Requests dropped because there are too many sessions.
    dropped_sessions_full,
    /// Updates recorded.
    updates,
    /// Updates that were recorded before: acknowledged again.
    updates_stale,
    /// Batches answered; their records count one by one, as those of messages do. Those that the
    /// fast path's program took are in its own counters.
    batches,
    /// Batches of the fast path that the program on this host did not take, taken by user space.
    passed_batches,
    /// The same, dropped: of another view, from another member, or ahead of a grant. They come
    /// again.
    passed_batches_dropped,
    /// READ_COMMITs answered.
    read_commits,
    /// Requests for state that does not exist.
    absent,
    /// Allocations refused because no port, or no record, was free.
    exhausted,
    /// Requests, and records of batches, refused: not the owner, or not the current epoch.
    refused,
    /// Grants ended because a newer value of their flow was refused for its group.
    grants_ended,
    /// State created by an allocator.
    allocated,
    /// Records removed because they were idle.
    freed,
    /// Requests held at the head until a flow is released or an update comes.
    held,
    /// Held requests dropped because their time was over.
    held_expired,
    /// Requests dropped because too many are held.
    held_overflow,
    /// Requests dropped (records of batches refused) because this server is not the head of the
    /// shard's chain, or the key of another shard.
    dropped_not_head,
    /// Requests dropped because the chain is not serving.
    dropped_not_serving,
    /// Requests dropped (records of batches refused) because their object is unknown.
    dropped_unknown_object,
    /// Requests dropped (records of batches refused) because key or value are not as long as the
    /// object's.
    dropped_wrong_size,
    /// Datagrams dropped because their type does not belong here.
    dropped_wrong_direction,
    /// Requests dropped because a flow's epochs are used up.
    dropped_epochs_used_up,
    /// Conversations taken away because their backend was gone.
    conversations_dropped,
    /// Views dropped because they are no newer than those that are here.
    views_old,
    /// Times a controller wanted the views and did not get them, because another controller runs.
    views_kept,
    /// Status requests answered.
    status_requests,
    /// Questions of `stateplane state` answered.
    state_requests,
} }

impl Counters {
    pub(crate) fn count_malformed(&mut self, reason: Malformed) {
        if let Some(at) = Malformed::ALL.iter().position(|candidate| *candidate == reason) {
            self.malformed[at] += 1;
        }
    }

    fn add_malformed(&mut self, other: &[u64; Malformed::ALL.len()]) {
        for (sum, count) in self.malformed.iter_mut().zip(other) {
            *sum += count;
        }
    }

    /// Adds what the server counted beside its replicas.
    pub(crate) fn add_node(&mut self, node: &chain::NodeCounters) {
        let chain::NodeCounters { no_replica, wrong_direction, views_old, views_kept, malformed } =
            *node;
        self.add(&Counters {
            dropped_not_head: no_replica,
            dropped_wrong_direction: wrong_direction,
            views_old,
            views_kept,
            malformed,
            ..Counters::default()
        });
    }

    /// All datagrams dropped as malformed.
    pub fn malformed_total(&self) -> u64 {
        self.malformed.iter().sum()
    }
}
