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

/// Values of keys, each in a slot of its own that the key keeps. A value is read and written as
/// one, whatever CPUs packets are on. Nothing is evicted. K and V are structs of bit<W>, int<W>,
/// bool and enum fields (W at most 128); K has at most 64 bytes, V at most 512.
///
/// The program makes the decision between `read` and `write`: `write` replaces what this packet
/// read. If another packet has changed the slot meanwhile, the program runs again on this packet,
/// as it came in. So a packet writes at most once, after it has read the same key.
///
/// Slots can be copied to another switch, part by part: the agent chooses parts, and the packet
/// generator makes a packet for each slot (PeerLeases says how it looks); the program copies.
extern SlotState<K, V> {
    /// `size`: slots, all of them reserved when the program starts.
    SlotState(bit<32> size);
    /// The key's value, at one instant.
    SlotResult read(in K key, out V value);
    /// Replaces the value that this packet read; a key without a slot gets one. `part`: the part of
    /// all slots that the key belongs to, the same each time.
    SlotResult write(in K key, in V value, in bit<16> part);
    /// Gives the slot back that this packet has read: the key has none from then on. A key without
    /// a slot stays so. As with `write`, the program runs again if another packet came in between.
    void free(in K key);
    /// A step of a walk over the keys of a part, by the numbers of their slots: the next key whose
    /// bits in `mask` are those of `prefix`, from slot `at` on. `next`: the slot to go on from; all
    /// ones: there are no more keys. ABSENT: the slots of this step (128 at most) have no such key.
    /// A key whose value's last field ends with the byte `hidden` is skipped. A walk meets each key
    /// that exists from the walk's begin to its end. It may miss keys that are made or deleted.
    SlotResult next(in bit<16> part, in K prefix, in K mask, in bit<8> hidden, in bit<32> at,
                    out K key, out bit<32> next);
    /// The slot with this number needs no (more) messages in this view of its part. Nothing is
    /// noted if the slot has a key of another part by now. The agent queues no message about a slot
    /// with a note of the view that it works for.
    void copied(in bit<32> slot, in bit<16> part, in bit<32> view);
}

/// What is known of a request of a client.
enum WindowState {
    /// No packet had claimed the request. This packet has claimed it now.
    FRESH,
    /// Another packet has claimed the request, and there is no verdict yet.
    RUNNING,
    /// The request was refused.
    REFUSED,
    /// The request was carried out.
    DONE,
    /// A request came whose number is larger by 256 or more: this request is over.
    OLD,
    /// The client is new, and there is no room for another one.
    FULL
}

/// The newest requests of each client, so that a request which comes several times has one verdict.
/// A client numbers its requests, and begins none that is 256 numbers or more behind its oldest
/// unfinished one. K names a client: a struct of at most 32 bytes. Clients that are silent for
/// 60 s are forgotten.
///
/// A packet that claims a request must settle it: otherwise the request stays RUNNING for good. A
/// packet that runs again, because another packet changed its slot, still has its claim.
extern RequestWindow<K> {
    /// `size`: clients at a time. Each takes 1 KiB.
    RequestWindow(bit<32> size);
    /// Claims a request for this packet if nobody has.
    WindowState claim(in K client, in bit<32> number);
    /// Gives the verdict on the request that this packet has claimed: DONE or REFUSED; or FRESH,
    /// for another packet to claim it.
    void settle(in WindowState verdict);
}

/// What a message's tag says.
enum TagResult {
    /// The sender knows the key.
    GENUINE,
    /// The key makes another tag of this message, or the message is cut off.
    FORGED,
    /// There is no such key: it was never issued, or is revoked or out of date.
    UNKNOWN_KEY,
    /// The client sends more than its rate.
    OVER_RATE
}

/// The tags of messages: SipHash-2-4 under a secret of the sender and the receiver. A message is
/// the payload of a UDP datagram in IPv4 without options, in an Ethernet frame; the tag is its
/// second word of eight bytes, and covers all of the message, taken as zero itself. The length of a
/// message is a multiple of four bytes, from 16 to 320.
///
/// Each client has a key of its own, with a number, rights, a prefix of the store's keys that the
/// client may name, and a rate. Members of chains have secrets of their own, which no client knows.
/// The switch's agent has both. Number 0 is for clients without a key, whose tags are 0; if the
/// agent does not allow such clients, the number is unknown.
///
/// The runtime counts messages that are not GENUINE. The program drops such a message, and does not
/// answer. A program can have one object.
extern MessageTag {
    MessageTag();
    /// Checks a client's message of `bytes` bytes, as the packet brought it, and takes it from the
    /// client's rate if it is genuine.
    TagResult verify(in bit<16> key_id, in bit<16> bytes);
    /// Checks a member's message. Its tag covers the packet's addresses too.
    TagResult verify_member(in bit<16> bytes);
    /// May the client use this key of the store? `writes`: the request needs the right to write,
    /// else the right to read.
    bool permits(in bit<16> key_id, in bit<128> key, in bool writes);
    /// The message gets its tag for this client when the packet leaves by a port, after the
    /// deparser. A message whose key is not known does not leave.
    void sign(in bit<16> key_id, in bit<16> bytes);
    /// The same for another member. Of several calls the last one holds.
    void sign_member(in bit<16> bytes);
}

/// What this switch knows of other switches, its peers. The packet generator sends probes to each
/// peer, and the peers return them. The agent says which switches are peers, and gives each a
/// number from 0 to 254.
///
/// A generated packet is an IPv4 packet with an Ethernet header, to another switch, with UDP port
/// 5410 on both sides. Its payload is a message (systems/netchain/docs/design.md) in which are set:
/// format 1, the flag STAMPED, the ring, and
/// - of a probe, 88 bytes: operation 10, `number` the peer's number, `client` a number of this life
///   of the switch's agent, `operand` the clock. The program signs it, and hands the answer to
///   `answered`.
/// - of a message about a slot, 300 bytes: the operation that the agent queued (8, a copy; 12, a
///   tombstone that is collected), `number` the slot's number, `group` its part, `key` its key (an
///   object whose keys have another length has no such messages). The program fills in what the
///   slot has, and signs it. A program can have one object.
extern PeerLeases {
    PeerLeases();
    /// A peer has answered a probe. An answer with another life's number, or from another address
    /// than the peer with this number has, changes nothing. `lease`: the answer also renews the
    /// lease of this peer, which counts from the probe's clock on, as long as the agent says.
    void answered(in bit<32> peer, in bit<32> address, in bit<64> life, in bit<64> clock,
                  in bool lease);
    /// Has this switch a lease now of each of these peers? Four numbers, one in each byte; 255 is
    /// nobody.
    bool hold(in bit<32> peers);
}

#endif
