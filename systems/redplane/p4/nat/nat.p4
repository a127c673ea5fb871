// nat.p4: a network address and port translator (RFC 3022) for TCP, UDP and ICMP, that outlives its
// switch. What it does with packets: p4/include/functions/nat.p4.
//
// By default the bindings are linearizable: they live in the replicated store, and another switch
// carries on with them when this one dies. With -DNAT_LOCAL they live in this switch only: the same
// NAT without fault tolerance. With -DNAT_PICK_UP connections whose bindings are lost (by a store
// that began anew; with -DNAT_LOCAL, by a restart) go on.
//
// systems/redplane/docs/apps/packets.md has each kind of packet, beside nftables.

#ifdef NAT_LOCAL
#define NAT_CONSISTENCY Consistency.LOCAL
#else
#define NAT_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Entries of `bindings` on this switch; a conversation takes two, one for each direction.
#ifndef NAT_ENTRIES
#define NAT_ENTRIES 131072
#endif

#include <stateplane.p4>
#include <headers.p4>

// How far a connection is after a segment with SYN, FIN or RST; after a SYN alone, `after_syn`. A
// connection that is closed or half open gives its external port back early (`closed_s`,
// `half_open_s`). A forged RST with the right addresses and ports costs an idle connection its
// binding: RFC 5382 leaves that to the NAT.
FlowPhase tcp_phase(in bit<16> offset_and_flags, in FlowPhase after_syn) {
    if (offset_and_flags & TCP_RST != 0) {
        return FlowPhase.CLOSED;
    }
    return offset_and_flags & TCP_FIN != 0 ? FlowPhase.HALF_CLOSED : after_syn;
}

#define NAT_STATE \
    FlowState<five_tuple_t, binding_t>(NAT_ENTRIES, NAT_CONSISTENCY, Allocator.NAT_PORTS) bindings;

// A binding is missing (`no_binding`) if the pool of external ports is used up, or the store
// (-DNAT_LOCAL: this switch) has no room. (If only this switch has none, the runtime drops the
// packet: `flows_full`.)
#define NAT_FIND_OUTBOUND(OPENS, KEY, OUTER, FOUND) \
    if (OPENS) { \
        FOUND = bindings.get_or_allocate(KEY, OUTER) == StateResult.HIT; \
    } else { \
        FOUND = bindings.get(KEY, OUTER) == StateResult.HIT; \
    } \
    if (FOUND && hdr.tcp.isValid() && hdr.tcp.offset_and_flags & TCP_PHASES != 0) { \
        bool asks = hdr.tcp.offset_and_flags & TCP_ACK == 0; \
        bindings.phase(KEY, tcp_phase(hdr.tcp.offset_and_flags, \
                                      asks ? FlowPhase.HALF_OPEN : FlowPhase.OPEN)); \
    }

#define NAT_FIND_INBOUND(KEY, INNER, FOUND) \
    FOUND = bindings.get(KEY, INNER) == StateResult.HIT; \
    if (FOUND && hdr.tcp.isValid() && hdr.tcp.offset_and_flags & TCP_PHASES != 0) { \
        bindings.phase(KEY, tcp_phase(hdr.tcp.offset_and_flags, FlowPhase.OPEN)); \
    }

#include <functions/nat.p4>
