// nat.p4: a network address and port translator (RFC 3022) for TCP, UDP and ICMP, on several
// switches at once (SwiSh §8.1). What it does with packets: p4/include/functions/nat.p4.
//
// All switches of the group share the bindings with SRO: a conversation may go out through one
// switch, and come back through another one. The packet that makes a binding leaves when all
// switches have it; packets that use one are served by the switch that they come to.
//
// `pools` says which external address and ports an inside host's conversations get. A switch tries
// the inside host's own port, then three by a hash of the conversation, and the head of the chain
// refuses one that somebody else has taken meanwhile: then the packet tries again. So all switches
// may have the same ports, and nobody need adopt those of a dead one. (Ports are shared by remote
// ends: one is taken only for the conversations with one address and port.) Where each switch is to
// have ports of its own, give each its own range; an operator gives a dead one's to another one by
// an entry.
//
// A conversation without packets is over after NAT_..._S seconds.

// Entries of `bindings`; a conversation takes two, one for each direction.
#ifndef NAT_ENTRIES
#define NAT_ENTRIES 131072
#endif

// TCP: RFC 5382, REQ-5; what was never answered, or is over, sooner. UDP: RFC 4787, REQ-5.
#ifndef NAT_OPEN_S
#define NAT_OPEN_S 7440
#endif
#ifndef NAT_HALF_OPEN_S
#define NAT_HALF_OPEN_S 240
#endif
#ifndef NAT_OTHERS_S
#define NAT_OTHERS_S 300
#endif

#include "../include/phase.p4"

// (A binding and its reverse are read together, so that both have had a packet when one has.)
#define NAT_STATE \
    SharedTable<five_tuple_t, held_t>(NAT_ENTRIES, Shared.SRO) bindings; \
    \
    bit<32> pool_address = 0; \
    bit<16> pool_first_port = 0; \
    bit<16> pool_ports = 0; \
    \
    action use_pool(bit<32> address, bit<16> first_port, bit<16> ports) { \
        pool_address = address; \
        pool_first_port = first_port; \
        pool_ports = ports; \
    } \
    \
    table pools { \
        key = { hdr.ipv4.source: lpm; } \
        actions = { use_pool; NoAction; } \
        default_action = NoAction(); \
        size = 1024; \
    } \
    \
    action follow(in five_tuple_t one, in held_t one_held, in five_tuple_t other, \
                  in held_t other_held, in bool outbound) { \
        bit<16> flags = hdr.tcp.offset_and_flags; \
        bit<8> phase = phase_after(one_held.phase, flags, outbound && tcp_opens(flags)); \
        if (phase != one_held.phase) { \
            held_t now = one_held; \
            held_t other_now = other_held; \
            now.phase = phase; \
            other_now.phase = phase; \
            bit<16> idle_s = phase == PHASE_OPEN ? (bit<16>)NAT_OPEN_S : NAT_HALF_OPEN_S; \
            bindings.set(one, now, idle_s); \
            bindings.set(other, other_now, idle_s); \
        } \
    }

// Is the port in `HELD` free for this conversation?
#define NAT_TAKE(KEY, BACK, HELD, FOUND) \
    BACK = { KEY.destination, pool_address, KEY.destination_port, HELD.port, KEY.protocol }; \
    FOUND = !bindings.has(BACK);

#define NAT_TRY(SALT, KEY, BACK, HELD, FOUND) \
    if (!FOUND) { \
        hash(HELD.port, HashAlgorithm.crc32, pool_first_port, \
             { KEY.source, KEY.destination, KEY.source_port, KEY.destination_port, KEY.protocol, \
               SALT }, (bit<32>)pool_ports); \
        NAT_TAKE(KEY, BACK, HELD, FOUND) \
    }

#define NAT_FIND_OUTBOUND(OPENS, KEY, OUTER, FOUND) \
    held_t held; \
    held_t back_held; \
    five_tuple_t back; \
    FOUND = bindings.get(KEY, held); \
    if (FOUND) { \
        back = { KEY.destination, held.address, KEY.destination_port, held.port, KEY.protocol }; \
        bool both = bindings.get(back, back_held); \
        if (both && hdr.tcp.isValid()) { \
            follow(KEY, held, back, back_held, true); \
        } \
    } else if (OPENS && pools.apply().hit) { \
        held.address = pool_address; \
        held.phase = PHASE_HALF_OPEN; \
        held.port = KEY.source_port; \
        if (held.port - pool_first_port < pool_ports) { \
            NAT_TAKE(KEY, back, held, FOUND) \
        } \
        NAT_TRY(8w0, KEY, back, held, FOUND) \
        NAT_TRY(8w1, KEY, back, held, FOUND) \
        NAT_TRY(8w2, KEY, back, held, FOUND) \
        if (FOUND) { \
            back_held = { KEY.source, KEY.source_port, PHASE_HALF_OPEN }; \
            bit<16> idle_s = hdr.tcp.isValid() ? (bit<16>)NAT_HALF_OPEN_S : NAT_OTHERS_S; \
            bindings.set(KEY, held, idle_s); \
            bindings.set(back, back_held, idle_s); \
        } \
    } \
    OUTER = { held.address, held.port };

#define NAT_FIND_INBOUND(KEY, INNER, FOUND) \
    held_t held; \
    FOUND = bindings.get(KEY, held); \
    INNER = { held.address, held.port }; \
    if (FOUND) { \
        five_tuple_t back = { held.address, KEY.source, held.port, KEY.source_port, \
                              KEY.protocol }; \
        held_t back_held; \
        bool both = bindings.get(back, back_held); \
        if (both && hdr.tcp.isValid()) { \
            follow(KEY, held, back, back_held, false); \
        } \
    }

/// What a binding's source or destination becomes.
struct held_t {
    bit<32> address;
    bit<16> port;
    bit<8>  phase;
}

#include <functions/nat.p4>
