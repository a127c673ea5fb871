// phase.p4: how far a TCP connection has come, for programs that keep an entry of each. Other
// protocols stay half open.
#ifndef SWISH_PHASE_P4
#define SWISH_PHASE_P4

#include <headers.p4>

const bit<8> PHASE_HALF_OPEN = 0;
const bit<8> PHASE_OPEN = 1;
const bit<8> PHASE_CLOSED = 2;

/// The phase after a segment. `opens`: it may open the connection anew.
bit<8> phase_after(in bit<8> phase, in bit<16> flags, in bool opens) {
    if (flags & (TCP_FIN | TCP_RST) != 0) {
        return PHASE_CLOSED;
    }
    if (opens) {
        return phase == PHASE_CLOSED ? PHASE_HALF_OPEN : phase;
    }
    return phase == PHASE_HALF_OPEN ? PHASE_OPEN : phase;
}

#endif
