// load_balancer.p4: a layer-4 load balancer for TCP and UDP, that outlives its switch. What it does
// with packets: p4/include/functions/load_balancer.p4.
//
// A conversation gets a backend by weight, by load or by Maglev's hashing: the store's allocator
// BACKENDS decides (systems/redplane/docs/apps/load_balancer.md). Its two bindings are made
// together as a NAT's are: each has a lease of its own, so the two directions may go through
// different switches.
//
// By default the bindings are linearizable: they live in the replicated store, and another switch
// carries on with them when this one dies. With -DLOAD_BALANCER_LOCAL they live in this switch
// only. With -DLOAD_BALANCER_PICK_UP and `policy = "maglev"` a connection whose binding is lost
// mostly gets the backend that it had.
//
// systems/redplane/docs/apps/packets.md has each kind of packet, beside nftables.

#ifdef LOAD_BALANCER_LOCAL
#define LOAD_BALANCER_CONSISTENCY Consistency.LOCAL
#else
#define LOAD_BALANCER_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Entries of `bindings` on this switch; a conversation takes two, one for each direction.
#ifndef LOAD_BALANCER_ENTRIES
#define LOAD_BALANCER_ENTRIES 131072
#endif

#define LOAD_BALANCER_STATE \
    FlowState<conversation_t, binding_t>(LOAD_BALANCER_ENTRIES, LOAD_BALANCER_CONSISTENCY, \
                                         Allocator.BACKENDS) bindings;

// How far the connection has come: what is closed, or was never answered, counts for its backend no
// more, `closed_s` or `half_open_s` later. (A backend is missing also if the store, with
// -DLOAD_BALANCER_LOCAL this switch, has no room. If only this switch has none, the runtime drops
// the packet: `flows_full`.)
#define LOAD_BALANCER_FIND(OPENS, CONVERSATION, BINDING, FOUND) \
    if (OPENS) { \
        FOUND = bindings.get_or_allocate(CONVERSATION, BINDING) == StateResult.HIT; \
    } else { \
        FOUND = bindings.get(CONVERSATION, BINDING) == StateResult.HIT; \
    } \
    if (FOUND && hdr.tcp.isValid() && hdr.tcp.offset_and_flags & TCP_PHASES != 0) { \
        if (hdr.tcp.offset_and_flags & TCP_RST != 0) { \
            bindings.phase(CONVERSATION, FlowPhase.CLOSED); \
        } else if (hdr.tcp.offset_and_flags & TCP_FIN != 0) { \
            bindings.phase(CONVERSATION, FlowPhase.HALF_CLOSED); \
        } else if (meta.direction == Direction.TO_BACKEND \
                   && hdr.tcp.offset_and_flags & TCP_ACK == 0) { \
            bindings.phase(CONVERSATION, FlowPhase.HALF_OPEN); \
        } else { \
            bindings.phase(CONVERSATION, FlowPhase.OPEN); \
        } \
    }

#include <functions/load_balancer.p4>
