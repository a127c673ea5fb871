//! What the engine of output commit counts (`bpf/core/stateplane_commit.h`).

use crate::Dataplane;
use crate::error::Result;

/// In the order of `enum sp_commit_stat`. For a reason to drop a packet: the remedy.
pub const COMMIT_COUNTERS: [(&str, Option<&str>); 15] = [
    // Packets that waited.
    ("parked", None),
    // Records that left the first time.
    ("recorded", None),
    // Messages, again included; and those of them that were sent again.
    ("batches", None),
    ("batches_resent", None),
    ("batches_acked", None),
    // Acknowledgements of another batch than the one in flight: late, or replays.
    ("stale_acks", None),
    ("records_refused", None),
    // Packets that left in the frame of one that came, or in a copy that came by the loop.
    ("exchanged", None),
    ("copied", None),
    (
        "batch_full",
        Some(
            "the store is slower than updates come: add shards, or spread the flows over switches",
        ),
    ),
    (
        "lot_full",
        Some("too many packets wait: is the store up, and how long does it take to answer?"),
    ),
    (
        "commit_refused",
        Some(
            "another switch has taken over the flow: packets that waited under the old lease go; \
             look for a lease that ended, or for routes that flap",
        ),
    ),
    // Frames without room for what they were to carry: two copies went by the loop.
    ("short_frames", None),
    ("idle_copies", None),
    ("commit_faults", Some("a helper of the kernel failed: report this with `stateplane status`")),
];

impl Dataplane {
    /// One of [`COMMIT_COUNTERS`], summed over CPUs; None: there is no count of that name, or no
    /// packet of the program waits in the switch.
    pub fn commit_count(&self, name: &str) -> Result<Option<u64>> {
        const MAP: &str = "sp_commit_stats";
        let Some(index) = COMMIT_COUNTERS.iter().position(|known| known.0 == name) else {
            return Ok(None);
        };
        self.has_map(MAP).then(|| self.read_count(MAP, index as u32)).transpose()
    }
}
