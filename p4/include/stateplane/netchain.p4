// stateplane/netchain.p4: state for coordination served by switches (NetChain).
//
// stateplane.p4 includes it.
#ifndef STATEPLANE_NETCHAIN_P4
#define STATEPLANE_NETCHAIN_P4

/// What became of an access to a slot.
enum SlotResult {
    /// The key has a slot, and the value is the slot's.
    FOUND,
    /// The key has no slot, and the value is all zero.
    ABSENT,
    /// Written.
    DONE,
    /// The key has no slot, and no slot is free. Nothing was written.
    FULL
}

/// Values of keys, each in a slot of its own that the key keeps. A value is read and written as one,
/// whatever CPUs packets are on. Nothing is evicted. K and V are structs of bit<W>, int<W>, bool
/// and enum fields (W at most 128); K has at most 64 bytes, V at most 512.
///
/// The program makes the decision between `read` and `write`: `write` replaces what this packet
/// read. If another packet has changed the slot meanwhile, the program runs again on this packet,
/// as it came in. So a packet writes at most once, after it has read the same key.
extern SlotState<K, V> {
    /// `size`: slots, all of them reserved when the program starts.
    SlotState(bit<32> size);
    /// The key's value, at one instant.
    SlotResult read(in K key, out V value);
    /// Replaces the value that this packet read; a key without a slot gets one.
    SlotResult write(in K key, in V value);
}

#endif
