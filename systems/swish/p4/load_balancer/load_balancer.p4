// load_balancer.p4: a layer-4 load balancer for TCP and UDP, on several switches at once (SwiSh
// §8.1). What it does with packets: p4/include/functions/load_balancer.p4.
//
// All switches of the group share the bindings with SRO: a client's packets may come to one switch,
// and the backend's answers to another one. The packet that makes a binding leaves when all
// switches have it. If two switches see the first packets of one conversation at once, the head of
// the chain decides, and the other packet follows.
//
// A conversation's hash says which entry of `backends` it gets: BUCKETS of them, the operator's to
// fill (several for a backend with more weight). To drain a backend, give its buckets to others:
// conversations that it has stay.
//
// One end of a client that talks to two virtual addresses at once, whose buckets have the same
// backend, gets none for the second one (`no_backend`): the answers of both would look alike.
//
// A conversation without packets is over after LOAD_BALANCER_..._S seconds.

// Entries of `bindings`; a conversation takes two, one for each direction.
#ifndef LOAD_BALANCER_ENTRIES
#define LOAD_BALANCER_ENTRIES 131072
#endif

#ifndef LOAD_BALANCER_BUCKETS
#define LOAD_BALANCER_BUCKETS 256
#endif

// TCP: RFC 5382, REQ-5; what was never answered, or is over, sooner. UDP: RFC 4787, REQ-5.
#ifndef LOAD_BALANCER_OPEN_S
#define LOAD_BALANCER_OPEN_S 7440
#endif
#ifndef LOAD_BALANCER_HALF_OPEN_S
#define LOAD_BALANCER_HALF_OPEN_S 240
#endif
#ifndef LOAD_BALANCER_OTHERS_S
#define LOAD_BALANCER_OTHERS_S 300
#endif

#include "../include/phase.p4"

/// What the server of a conversation becomes, and how far the connection has come.
struct held_t {
    bit<32> address;
    bit<16> port;
    bit<8>  phase;
}

#define LOAD_BALANCER_STATE \
    SharedTable<conversation_t, held_t>(LOAD_BALANCER_ENTRIES, Shared.SRO) bindings; \
    \
    bit<32> bucket = 0; \
    held_t held = { 0, 0, PHASE_HALF_OPEN }; \
    \
    action use_backend(bit<32> address, bit<16> port) { \
        held.address = address; \
        held.port = port; \
    } \
    \
    table backends { \
        key = { \
            meta.conversation.server: exact; \
            meta.conversation.server_port: exact; \
            bucket: exact; \
        } \
        actions = { use_backend; NoAction; } \
        default_action = NoAction(); \
        size = 16384; \
    }

// (A binding and its reverse are read together, so that both have had a packet when one has.)
#define LOAD_BALANCER_FIND(OPENS, CONVERSATION, BINDING, FOUND) \
    held_t other_held; \
    conversation_t other = CONVERSATION; \
    FOUND = bindings.get(CONVERSATION, held); \
    if (FOUND) { \
        other.server = held.address; \
        other.server_port = held.port; \
        bool both = bindings.get(other, other_held); \
        if (both && hdr.tcp.isValid()) { \
            bit<16> flags = hdr.tcp.offset_and_flags; \
            bit<8> phase = phase_after(held.phase, flags, tcp_opens(flags)); \
            if (phase != held.phase) { \
                held.phase = phase; \
                other_held.phase = phase; \
                bit<16> idle_s = phase == PHASE_OPEN ? (bit<16>)LOAD_BALANCER_OPEN_S \
                    : LOAD_BALANCER_HALF_OPEN_S; \
                bindings.set(CONVERSATION, held, idle_s); \
                bindings.set(other, other_held, idle_s); \
            } \
        } \
    } else if (OPENS) { \
        hash(bucket, HashAlgorithm.crc32, 32w0, \
             { CONVERSATION.client, CONVERSATION.server, CONVERSATION.client_port, \
               CONVERSATION.server_port, CONVERSATION.protocol }, \
             (bit<32>)LOAD_BALANCER_BUCKETS); \
        FOUND = backends.apply().hit; \
        held.phase = PHASE_HALF_OPEN; \
        other.server = held.address; \
        other.server_port = held.port; \
        if (FOUND) { \
            FOUND = !bindings.has(other); \
        } \
        if (FOUND) { \
            other_held = { CONVERSATION.server, CONVERSATION.server_port, held.phase }; \
            bit<16> idle_s = hdr.tcp.isValid() ? (bit<16>)LOAD_BALANCER_HALF_OPEN_S \
                : LOAD_BALANCER_OTHERS_S; \
            bindings.set(CONVERSATION, held, idle_s); \
            bindings.set(other, other_held, idle_s); \
        } \
    } \
    BINDING = { held.address, held.port };

#include <functions/load_balancer.p4>
