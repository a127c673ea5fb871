// stateplane/redplane.p4: state of flows and of sketches, kept in a replicated store (RedPlane).
//
// stateplane.p4 includes it.
#ifndef STATEPLANE_REDPLANE_P4
#define STATEPLANE_REDPLANE_P4

/// How the state of a FlowState object behaves when switches fail or traffic moves.
enum Consistency {
    /// The state lives in this switch only and dies with it: the baseline.
    LOCAL,
    /// Per-flow linearizable (RedPlane Definition 4): the state lives in the replicated store, one
    /// switch at a time holds a lease on a flow, and no output leaves before the update that it
    /// depends on is on every server of the chain.
    LINEARIZABLE,
    /// The same store, owners and hand-over (a flow that moves between living switches goes on
    /// where it was), but packets do not wait for the store: they leave at once, and updates follow
    /// in the background, many in one. A switch that dies takes the updates of its last few
    /// milliseconds with it. For counters and the like. (RedPlane's "weak consistency mode")
    ASYNCHRONOUS
}

/// How far a flow's life has come, as the program sees it: when its state, and what was allocated
/// with it, may go.
enum FlowPhase {
    /// In use; lives until it is idle for long.
    OPEN,
    /// Asked for, not answered yet: a TCP connection of which one end has sent its SYN. A binding
    /// is half open until its other direction is used or is OPEN.
    HALF_OPEN,
    /// Closed in the direction of this key. A binding is closed once both of its directions are.
    HALF_CLOSED,
    /// Closed: nothing more comes.
    CLOSED
}

/// Who makes the first value of a flow that has none, when asked by get_or_allocate.
enum Allocator {
    /// Every field zero.
    ZERO,
    /// NAT (RFC 4787, endpoint-dependent): the key must be { bit<32> source address, bit<32>
    /// destination address, bit<16> source port, bit<16> destination port, bit<8> protocol } and
    /// the value { bit<32> address, bit<16> port }, under any names. The value is an external
    /// address and port for the key's source; the binding of the reverse direction, keyed as
    /// returning packets look, is made together with it.
    NAT_PORTS,
    /// Load balancing: keys are { client address, server address, client port, server port,
    /// protocol } in either direction, values { address, port } of the same widths as those of
    /// NAT_PORTS. Towards the service the server is the virtual address and port, and the value is
    /// the backend that the conversation goes to. The binding of the other direction is made
    /// together with it: its server is the backend, its value the virtual address and port. (In the
    /// backend's answers the client is thus the destination. Both keys begin with the client, so
    /// both are in one shard, whichever backend is picked.)
    BACKENDS
}

/// What a lookup found.
enum StateResult {
    /// The value is there and this switch may use it.
    HIT,
    /// There is no such state. For `get_or_allocate` and SnapshotState: none could be made either,
    /// because the store has no room (if the object lives in this switch only: this switch's
    /// table), or the allocator has nothing left. The packet may be processed further (most
    /// programs drop it). Linearizable: a packet can get this result for one key only. A program
    /// does not see one case: if the store has room but this switch's table has none, the packet is
    /// dropped, and counted as `flows_full`.
    MISS,
    /// Programs never see this result: without a lease the packet, as it came in, goes to the
    /// store, and enters the program again with the lease. (RedPlane §5.1: state initialisation)
    PENDING
}

/// State kept per flow. K and V are structs of bit<W>, int<W> (W at most 128), bool and enum
/// fields, 256 bytes each at the most. The compiler refuses what breaks the rules below wherever it
/// can see it (docs/p4-support.md has them all). A packet sets one flow, or one flow in each of up
/// to four LINEARIZABLE objects whose keys begin with the same values (`shard_fields`); what else
/// it sets is refused, or drops the packet, which is counted as `commit_conflicts`. It may set a
/// flow more than once, and look up flows in between: its own lookups find the new value. All takes
/// effect when the packet has gone through the program, or nothing does.
extern FlowState<K, V> {
    /// `size`: flows that this switch can hold at a time. Packets of further flows are dropped, and
    /// counted as `flows_full`; only with Consistency.LOCAL the program sees them (MISS).
    FlowState(bit<32> size, Consistency consistency, Allocator allocator);
    /// The same. `shard_fields`: the shard of a key is that of its first so many fields, at least
    /// one. Keys that have the same values there are in one shard of the store, also those of other
    /// objects whose first fields are as wide. (Allocator.ZERO only: the others pick keys for their
    /// shard.)
    FlowState(bit<32> size, Consistency consistency, Allocator allocator, bit<32> shard_fields);
    /// The flow's state, if there is any.
    StateResult get(in K key, out V value);
    /// The same; a flow without state gets one from the allocator.
    StateResult get_or_allocate(in K key, out V value);
    /// Replaces the flow's state. The last lookup in this object on this packet must have been of
    /// the same key, and must have returned HIT. (If it was of another key, the packet is dropped,
    /// and counted as `commit_conflicts`: the new value follows from no value.)
    void set(in K key, in V value);
    /// Says how far the flow's life has come. Closed flows leave the switch, and the store after
    /// its `closed_s`. Flows that are never answered leave the store after its `half_open_s`. Call
    /// it only after `get` or `get_or_allocate` returned HIT for the same key on this packet; a
    /// flow that this switch does not have is left alone. CLOSED stays until OPEN or HALF_OPEN. If
    /// the packet also calls `set`, call `phase` after it: the store then gets both at once, and
    /// still has the phase when this switch is gone.
    void phase(in K key, in FlowPhase phase);
}

/// What a SnapshotState does with a packet while the store lacks updates older than ε.
enum Overdue {
    /// Drops the packet (counted): nothing is counted that a failure could take back by more than
    /// ε.
    DROP,
    /// Goes on, also without a lease, with the switch's own copy; the program asks `is_overdue` and
    /// marks the packet in its own way. (The program must ask.)
    MARK,
    /// Goes on, also without a lease, with the switch's own copy; the runtime counts such packets.
    CONTINUE
}

/// Whether several switches count for a key of a SnapshotState at the same time. Each switch then
/// has slots of its own, and its packets see these. The store merges all switches' newest whole
/// snapshots slot by slot into one array of the key. Queries to the store read that array
/// (RedPlane's draft, §6: "the state store merges updates for each slot in the sketches").
enum Merge {
    /// No: a key is one switch's at a time.
    NONE,
    /// Each slot is the sum of the switches', modulo 2^32 (2^64 if T is wider than 32 bits).
    SUM,
    /// The largest: highest marks.
    MAX,
    /// The bits that any has: Bloom filters.
    OR
}

/// Arrays of `slots` unsigned numbers, one array a key, in bounded-inconsistency mode (RedPlane
/// §4.4, §5.4): packets update the switch's own copy and leave at once; every `period_us`
/// microseconds the state of an array that changed goes to the replicated store, as it was at one
/// instant. When the switch fails, another goes on from the newest whole snapshot. K is a struct
/// like FlowState's, but of 64 bytes at the most; T is bit<W>, W at most 64.
///
/// All accesses of one packet must be to the same key, and come after the lookups and updates of
/// FlowState objects: a packet that waits for a lease runs through the program again, and would
/// count twice (such a packet is dropped, and counted as `commit_conflicts`).
extern SnapshotState<K, T> {
    /// `instances`: keys that this switch can hold at a time; packets of further keys are dropped,
    /// and counted as `flows_full`. `slots`: of each, 1 to 16384 (8192 if T is wider than 32 bits).
    /// `period_us`: the time between two snapshots of a key, at least 100; 0: none at all, the
    /// state lives in this switch only and dies with it (the baseline). `epsilon_us` (ε): a failure
    /// takes back no update that is older than this, or else `overdue` applies; more than
    /// `period_us`.
    SnapshotState(bit<32> instances, bit<32> slots, bit<32> period_us, bit<32> epsilon_us,
                  Overdue overdue);
    /// The same with `merge`: what the store makes of several switches' slots. The key then has 60
    /// bytes at the most, and 32 switches may count for it.
    SnapshotState(bit<32> instances, bit<32> slots, bit<32> period_us, bit<32> epsilon_us,
                  Overdue overdue, Merge merge);
    /// One slot. HIT: `value` is set. MISS: the store has no room for another key
    /// (or, if there are no snapshots, this switch). Without the key's state the packet waits for
    /// it, or is dropped.
    /// As in registers, an index out of range reads 0 and writes nothing.
    StateResult read(in K key, in bit<32> index, out T value);
    /// Replaces one slot's value.
    StateResult write(in K key, in bit<32> index, in T value);
    /// Adds to one slot, modulo 2^W; `result` is the sum. Atomic: no other packet comes in between.
    StateResult add(in K key, in bit<32> index, in T delta, out T result);
    /// Adds to several slots at once, all or none in any snapshot: the rows of a sketch. I is a
    /// struct or list of bit<32>, R a struct of as many T.
    StateResult add_each<I, R>(in K key, in I indices, in T delta, out R results);
    /// Windows: from the first packet of a newer window on, all slots count from zero, at one
    /// instant. The object's last slot is the number of the window that the others are of: declare
    /// one slot more, at most 4096 in all, and leave it alone (reading it is fine). Call it before
    /// the packet's other accesses; `window` must grow, by less than half of T's range at a time,
    /// and not be 0. A window that is not newer than the key's changes nothing: a packet then
    /// counts in the key's. So snapshots, and a switch that takes over, have the counts of one
    /// window, never a mix, however clocks differ.
    StateResult begin(in K key, in T window);
    /// Does the store lack an update of this key that is older than ε? Then a failure now would
    /// take back more than ε. Or (MARK, CONTINUE) is the lease over, so that another switch may
    /// have the key?
    bool is_overdue(in K key);
}

#endif
