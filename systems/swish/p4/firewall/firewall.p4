// firewall.p4: a stateful firewall for TCP, UDP and ICMP echo over IPv4 and IPv6, on several
// switches at once (SwiSh §8.1). What it does with packets: p4/include/functions/firewall.p4.
//
// All switches of the group share the connections with SRO: one may open at a switch, and be
// answered through another one. A packet that changes a connection's state leaves when all switches
// have that. All others are served by the switch that they come to. So routing may be asymmetric.
//
// A connection without packets is over after FIREWALL_..._S seconds.
#ifndef FIREWALL_CONNECTIONS
#define FIREWALL_CONNECTIONS 131072
#endif

// TCP: RFC 5382, REQ-5; what was never answered, or is over, sooner. UDP: RFC 4787, REQ-5. ICMP:
// RFC 5508, REQ-2.
#ifndef FIREWALL_OPEN_S
#define FIREWALL_OPEN_S 7440
#endif
#ifndef FIREWALL_HALF_OPEN_S
#define FIREWALL_HALF_OPEN_S 240
#endif
#ifndef FIREWALL_CLOSED_S
#define FIREWALL_CLOSED_S 60
#endif
#ifndef FIREWALL_OTHERS_S
#define FIREWALL_OTHERS_S 300
#endif

#define FIREWALL_STATE \
    SharedTable<connection_t, status_t>(FIREWALL_CONNECTIONS, Shared.SRO) connections;

// (A TCP connection's record is made by its first step.)
#define FIREWALL_FIND(OPENS, CONNECTION, STATUS, PASSES) \
    PASSES = connections.get(CONNECTION, STATUS); \
    if (!PASSES && OPENS) { \
        PASSES = true; \
        if (meta.kind != Kind.TCP) { \
            connections.insert(CONNECTION, STATUS, FIREWALL_OTHERS_S); \
        } \
    }

#define FIREWALL_STEP(CONNECTION, STATUS) \
    bit<16> idle_s = FIREWALL_OPEN_S; \
    if (STATUS.phase == Phase.CLOSED || STATUS.phase == Phase.RESET) { \
        idle_s = FIREWALL_CLOSED_S; \
    } else if (STATUS.phase == Phase.OPENED_INSIDE || STATUS.phase == Phase.OPENED_OUTSIDE) { \
        idle_s = FIREWALL_HALF_OPEN_S; \
    } \
    connections.set(CONNECTION, STATUS, idle_s);

#include <functions/firewall.p4>
