//! The engine of output commit (`bpf/core/stateplane_commit.h`): its counters, and the sizes of its
//! maps.

use crate::error::{Error, Result};
use crate::{Dataplane, Object, layout};
use libbpf_rs::{MapCore, MapFlags};

/// In the order of `enum sp_commit_stat`. For a reason to drop a packet: the remedy.
pub const COMMIT_COUNTERS: [(&str, Option<&str>); 19] = [
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
        Some(
            "all slots for waiting packets are taken: is the store up, and how long does it take \
             to answer?",
        ),
    ),
    (
        "commit_refused",
        Some(
            "what packets waited for was refused, and they go: a table is full, or another switch \
             has taken over the flow (a lease ended, or routes flap)",
        ),
    ),
    (
        "expired",
        Some(
            "packets waited longer than commit_hold_ms: did the store's chain change, or is it \
             slow?",
        ),
    ),
    // Frames without room for what they were to carry: two copies went by the loop.
    ("short_frames", None),
    ("idle_copies", None),
    ("commit_faults", Some("a helper of the kernel failed: report this with `stateplane status`")),
    // Packets that found no room and went on in messages: `when_full = "wrap"`.
    ("batch_full_wrapped", None),
    ("lot_full_wrapped", None),
    // Packets that go through the program again later: the batch was full, or they had read two
    // moments several times.
    ("deferred", None),
];

/// Lines of a CPU, as in the C header.
const LINES: u32 = 256;
/// Slots of a CPU, as in the C header.
const SLOTS: u32 = 1_024;
/// "Record" of an update that is in no batch yet, as in the C header.
const UNPLACED: u64 = 63;

/// Memory for waiting packets and their batches, of each CPU: that of the maps below, about.
pub const WAITING_BYTES: u64 = 2_950_000;

impl Object {
    /// Before it is loaded: packets wait in the switch, whose CPUs have numbers below `cpus`.
    /// `false`: no packet of this program waits.
    ///
    /// # Errors
    /// A map cannot be so large.
    pub fn wait_in_switch(&mut self, cpus: u32) -> Result<bool> {
        if !self.set_constant("sp_commit_on", 1)? {
            return Ok(false);
        }
        let sizes = [
            ("sp_commit_lots", 1),
            ("sp_commit_slots", SLOTS),
            ("sp_commit_tails", SLOTS),
            ("sp_commit_streams", LINES),
            ("sp_commit_batches", 2 * LINES),
            ("sp_commit_due", LINES),
            // (Only of a program whose packets may have to run again, as they came in.)
            ("sp_commit_originals", SLOTS),
            // (Of one whose packets change more when they leave.)
            ("sp_commit_noted", SLOTS),
        ];
        for (map, of_each) in sizes {
            self.set_map_size(map, cpus.saturating_mul(of_each))?;
        }
        Ok(true)
    }
}

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

    /// Nothing waits in the switch any more: packets and records are forgotten. No packet may come
    /// to wait meanwhile. What waits in maps that were never used costs nothing.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn forget_waiting(&self) -> Result<()> {
        let maps = ["sp_commit_due", "sp_commit_streams", "sp_commit_lots", "sp_commit_batches"];
        let found = maps.iter().filter(|map| self.has_map(map));
        found.copied().chain(["sp_generator_work"]).try_for_each(|map| self.empty(map))
    }

    /// Is the update durable that has this name, in the line `line`? (As the C header's
    /// `sp_commit_is_durable`; it does not look at what was refused.)
    pub fn is_durable(&self, name: u64, line: u32) -> Result<bool> {
        const MAP: &str = "sp_commit_streams";
        /// Of `acked` in `struct sp_commit_stream`.
        const ACKED_AT: usize = 16;
        let (cpu, record, number) = ((name >> 54) as u32, name >> 48 & 63, name & ((1 << 48) - 1));
        let stream = (cpu * LINES + line % LINES).to_ne_bytes();
        let bytes = self
            .required_map(MAP, "a program whose packets wait")?
            .lookup(&stream, MapFlags::ANY)
            .map_err(|error| Error::libbpf(MAP.to_owned(), error))?;
        let acked = bytes.map_or(0, |bytes| layout::u64_at(&bytes, ACKED_AT));
        Ok(record != UNPLACED && acked >= number)
    }
}
