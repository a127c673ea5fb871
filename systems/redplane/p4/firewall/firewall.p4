// firewall.p4: a stateful firewall for TCP, UDP and ICMP echo over IPv4 and IPv6, that outlives its
// switch. What it does with packets: p4/include/functions/firewall.p4.
//
// Which state a switch has a lease on decides what it can do without the store, so both directions
// of a connection should go through one switch; systems/redplane/docs/apps/firewall.md says how
// routers see to that. Where they do not, the lease goes to and fro.
//
// systems/redplane/docs/apps/packets.md has each kind of packet, beside nftables.
//
// -DFIREWALL_LOCAL: the same without fault tolerance. With -DFIREWALL_PICK_UP connections whose
// records are lost (by a store that began anew; with -DFIREWALL_LOCAL, by a restart) go on.

#ifdef FIREWALL_LOCAL
#define FIREWALL_CONSISTENCY Consistency.LOCAL
#else
#define FIREWALL_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Connections on this switch.
#ifndef FIREWALL_CONNECTIONS
#define FIREWALL_CONNECTIONS 131072
#endif

#define FIREWALL_STATE \
    FlowState<connection_t, status_t>(FIREWALL_CONNECTIONS, FIREWALL_CONSISTENCY, \
                                      Allocator.ZERO) connections;

#define FIREWALL_FIND(OPENS, CONNECTION, STATUS, PASSES) \
    if (OPENS) { \
        PASSES = connections.get_or_allocate(CONNECTION, STATUS) == StateResult.HIT; \
    } else { \
        PASSES = connections.get(CONNECTION, STATUS) == StateResult.HIT; \
    }

// What is over, or was never answered, leaves the tables early (the store waits its `closed_s` or
// `half_open_s`).
#define FIREWALL_STEP(CONNECTION, STATUS) \
    connections.set(CONNECTION, STATUS); \
    if (STATUS.phase == Phase.CLOSED || STATUS.phase == Phase.RESET) { \
        connections.phase(CONNECTION, FlowPhase.CLOSED); \
    } else if (STATUS.phase == Phase.OPENED_INSIDE || STATUS.phase == Phase.OPENED_OUTSIDE) { \
        connections.phase(CONNECTION, FlowPhase.HALF_OPEN); \
    } else if (STATUS.phase == Phase.ESTABLISHED) { \
        connections.phase(CONNECTION, FlowPhase.OPEN); \
    }

#include <functions/firewall.p4>
