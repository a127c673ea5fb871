// stateplane/swish.p4: variables that several switches share (SwiSh).
//
// stateplane.p4 includes it.
#ifndef STATEPLANE_SWISH_P4
#define STATEPLANE_SWISH_P4

/// How the switches of a group see each other's writes (systems/swish/README.md says which one
/// when).
enum Shared {
    /// Strong read optimized: a write is in all switches before its packet leaves; reads are local
    /// and linearizable.
    SRO,
    /// Eventual write optimized: reads and writes are local; values converge.
    EWO,
    /// Strong delayed writes: writes are local, and all switches see them in the same window. A
    /// read misses at most r = 2NB updates, of N switches with B updates each.
    SDW
}

/// What becomes of a packet whose update finds no room: of an object with SDW, the switch has made
/// as many updates since its last window as its configuration allows (`bound`).
enum WhenFull {
    /// The packet is dropped, and counted.
    DROP,
    /// It goes on without this update, which is counted.
    PASS
}

/// What a sketch's cells are, and how those of several switches become one.
enum Sketch {
    /// Counters: the sum, modulo 2^32.
    COUNTERS,
    /// Sets of 32 bits: their union.
    BITS,
    /// Numbers: the largest one.
    MAXIMA,
    /// What `@merge("NAME")` before the declaration says: a function of the program,
    /// `bit<32> NAME(in bit<32> a, in bit<32> b)`, makes one cell of two. It must be commutative
    /// and associative, and 0 changes nothing; with EWO a value merged with itself is that value.
    /// `stateplane check` and `compile` try these laws.
    OWN
}

/// Counters that all switches of a group add to. A packet's updates take effect at its end, and not
/// at all if it is dropped by `WhenFull.DROP`; so a packet does not read its own. One that waits
/// for its writes with SRO is counted when it leaves, once, however often it ran.
///
/// `@group("NAME")` puts the object into a group: with SDW its objects advance together, so a
/// packet reads all of them in one window. Without it the group is `main`. The configuration says
/// which switches share a group; a switch alone sees its own updates, with SDW a window later.
///
/// With SDW a group has up to 32 switches. `@members(N)` before one of its objects makes room for N
/// of them, 4,096 at the most, in all groups of the program.
///
/// With EWO a switch reads its own updates at once and those of others as they come.
/// `@slots(N)`: each switch of the group takes a slot of every counter, and so does each that
/// restarts; 16 without it.
extern SharedCounter {
    /// `size`: counters. `consistency`: Shared.SDW.
    SharedCounter(bit<32> size, Shared consistency, WhenFull when_full);
    /// `period`: counters begin anew at 0 every so many windows, on all switches at once: a packet
    /// of window w sees what was counted since the newest window below w that is a multiple of it.
    SharedCounter(bit<32> size, Shared consistency, WhenFull when_full, bit<32> period);
    /// `consistency`: Shared.EWO, with which every update finds room.
    SharedCounter(bit<32> size, Shared consistency);
    /// Adds, modulo 2^32. An index out of range changes nothing.
    void add(in bit<32> index, in bit<32> amount);
    /// Subtracts, modulo 2^32. With EWO, counters of which a program subtracts take two cells.
    void sub(in bit<32> index, in bit<32> amount);
    /// The counter. SDW: as all switches have it in this window. 0: the index is out of range.
    bit<32> get(in bit<32> index);
    /// The number of the window that this packet sees; 0: the group has not begun. SDW only.
    bit<64> window();
    /// Microseconds since this switch began that window: how old its values are. SDW only.
    bit<32> age();
}

/// A sketch that all switches of a group write to: as SharedCounter, with other cells.
extern SharedSketch {
    /// `size`: cells. `consistency`: Shared.SDW.
    SharedSketch(bit<32> size, Sketch kind, Shared consistency, WhenFull when_full);
    /// `period`: as SharedCounter's.
    SharedSketch(bit<32> size, Sketch kind, Shared consistency, WhenFull when_full,
                 bit<32> period);
    /// `consistency`: Shared.EWO. Only counters take slots.
    SharedSketch(bit<32> size, Sketch kind, Shared consistency);
    /// Adds the value, its bits or itself, as the kind says; OWN: the cell becomes what the
    /// function makes of it and the value. An index out of range changes nothing.
    void update(in bit<32> index, in bit<32> value);
    /// The cell, as SharedCounter.get.
    bit<32> get(in bit<32> index);
    /// As SharedCounter.window.
    bit<64> window();
    /// As SharedCounter.age.
    bit<32> age();
}

/// A table that all switches of a group read and write. K and V are structs of bit<W>, int<W>, bool
/// and enum fields (W at most 128); K has at most 40 bytes (EWO: 32), V at most 64. A packet does
/// not see its own writes.
///
/// SRO: a packet's writes take effect together, or none does, in all switches before the packet
/// leaves. If a key that it writes is not any more what the packet read, or `insert` finds the key
/// written meanwhile, the program runs again on this packet, as it came in, and reads what is there
/// by then. One that is answered with an ICMP error writes nothing. One that goes to the host
/// cannot wait: it is dropped and counted if it writes. All such objects of a program are in one
/// group. A packet writes 8 records with SRO at the most, of 512 bytes in all: key and value, each
/// rounded up to 8 bytes, and 16 bytes. A program with a way on which a packet may write more is
/// refused.
///
/// EWO: a packet's writes take effect here when it leaves, and in other switches as they come. Of
/// two writes of a key the last one wins, by clocks that are set alike (TAI), and never below what
/// the switch has seen. A removed key takes its place until all switches have heard of it.
extern SharedTable<K, V> {
    /// `size`: keys at the most. `consistency`: Shared.SRO, Shared.EWO. SRO: a packet that would
    /// write one more is dropped and counted. EWO: it goes on without that write, which is counted.
    SharedTable(bit<32> size, Shared consistency);
    /// The key's value, and whether the key is there; if not, the value is all zero. SRO: the
    /// packet leaves when all switches have what it read.
    bool get(in K key, out V value);
    /// Whether the key is there. To ask does not keep it (`idle_s`).
    bool has(in K key);
    /// Writes the value if the key is not there, and nothing if it is. EWO: if this switch has not
    /// got it.
    void insert(in K key, in V value);
    /// Writes the value, whether the key is there or not.
    void set(in K key, in V value);
    /// SRO. As above; the key is removed when no packet of any switch has read or written it for
    /// `idle_s` seconds (0: it stays). From a quarter of that on, a packet that reads the key
    /// writes that it was there, and waits for it: so each `get` counts as a write. V has at most
    /// 56 bytes then, and a value takes 8 bytes more. The switches' clocks must agree within a
    /// second.
    void insert(in K key, in V value, in bit<16> idle_s);
    void set(in K key, in V value, in bit<16> idle_s);
    /// The key is not there from then on. EWO: nothing, if this switch has not got it.
    void remove(in K key);
}

/// Values that all switches of a group read and write: as SharedTable, with numbers as keys, each
/// of which has a value: all zero at first. T is a struct, as V there.
extern SharedRegister<T> {
    /// `size`: values. `consistency`: Shared.SRO, Shared.EWO.
    SharedRegister(bit<32> size, Shared consistency);
    /// The value, as one write made it; all zero of an index out of range.
    void read(in bit<32> index, out T value);
    /// Writes the value. SRO: after `read` of the same index in this packet it is a
    /// compare-and-swap: if another packet came in between, the program runs again. An index out of
    /// range changes nothing.
    void write(in bit<32> index, in T value);
}

/// Keys that all switches of a group read and write: as SharedTable, without values.
extern SharedSet<K> {
    /// `size`: keys at the most. `consistency`: Shared.EWO or Shared.SRO.
    SharedSet(bit<32> size, Shared consistency);
    /// Is the key there?
    bool has(in K key);
    /// The key is there from then on.
    void add(in K key);
    /// The key is not there from then on. EWO: nothing, if this switch has not got it.
    void remove(in K key);
}

#endif
