// limiter.p4: limits what users send, also when their packets take several switches (SwiSh §8.3).
// Packets go from port 0 to port 1 and back; users are behind port 0.
//
// systems/swish/docs/limiter.md says how it shares a limit, and why.
//
//   -D LIMITER_EWO     counters that converge, instead of windows that all switches see at once
//   -D LIMITER_LOCAL   each switch limits alone
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#define USERS 1024

// Credits are thousandths of a byte, so that a rate in bytes a millisecond times microseconds is
// one. A user's can be negative: zero is in the middle.
#define ZERO 0x0001000000000000
#define PER_BYTE 1000
// What a user that sent nothing for longer has earned is more than any burst.
#define LONGEST_US 8000000

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_and_length;
    bit<8> tos;
    bit<16> total_length;
    bit<32> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata {
    bit<1> limited;
    bit<32> user;
    /// Bytes a millisecond.
    bit<32> rate;
    /// Bytes.
    bit<32> burst;
}

parser Parse(packet_in packet, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(h.ipv4);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control LimiterIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    /// Packets and bytes beyond a user's limit, by user.
    counter(USERS, CounterType.packets_and_bytes) limited;
#ifdef LIMITER_LOCAL
    register<bit<32>>(USERS) offered;
    register<bit<32>>(USERS) admitted;
#else
#ifdef LIMITER_EWO
    SharedCounter(USERS, Shared.EWO) offered;
    SharedCounter(USERS, Shared.EWO) admitted;
#else
    /// Bytes that came, and bytes that went on, at all switches together.
    SharedCounter(USERS, Shared.SDW, WhenFull.PASS) offered;
    SharedCounter(USERS, Shared.SDW, WhenFull.PASS) admitted;
#endif
#endif
    /// The credit at the last look at the shared counters.
    register<bit<64>>(USERS) credits;
    /// When that was (48 bits), and the window (16 bits).
    register<bit<64>>(USERS) looks;
    /// What the shared counters said then: admitted, offered.
    register<bit<64>>(USERS) seen;
    /// Bytes offered between the two looks before: by all switches, if that was too much, and by
    /// this one.
    register<bit<64>>(USERS) shares;
    /// Bytes since the last look at this switch: admitted, offered.
    register<bit<64>>(USERS) recent;

    action limit(bit<32> user, bit<32> rate, bit<32> burst) {
        m.limited = 1;
        m.user = user;
        m.rate = rate;
        m.burst = burst;
    }

    action unlimited() {}

    /// The limit of each user. `user`: below 1024, another number for each entry.
    table limits {
        key = {
            h.ipv4.source: lpm;
        }
        actions = {
            limit;
            unlimited;
        }
        default_action = unlimited();
        size = USERS;
    }

    apply {
        if (s.ingress_port > 1) {
            to_host();
            return;
        }
        s.egress_spec = s.ingress_port ^ 1;
        if (s.ingress_port != 0 || !h.ipv4.isValid()) {
            return;
        }
        limits.apply();
        if (m.limited == 0 || m.user >= USERS) {
            return;
        }
        bit<48> now_us = s.ingress_global_timestamp;
        bit<32> bytes = s.packet_length;
#ifdef LIMITER_LOCAL
        bit<32> all_offered;
        bit<32> all_admitted;
        offered.read(all_offered, m.user);
        admitted.read(all_admitted, m.user);
#else
        bit<32> all_offered = offered.get(m.user);
        bit<32> all_admitted = admitted.get(m.user);
#endif
#if defined(LIMITER_EWO) || defined(LIMITER_LOCAL)
        bit<16> window = (bit<16>)(now_us >> 10);
#else
        bit<16> window = (bit<16>)offered.window();
#endif
        bit<1> admit = 0;
        @atomic {
            bit<64> credit;
            bit<64> look;
            bit<64> counts;
            bit<64> share;
            bit<64> own;
            credits.read(credit, m.user);
            looks.read(look, m.user);
            seen.read(counts, m.user);
            shares.read(share, m.user);
            recent.read(own, m.user);
            bit<64> most = ZERO + (bit<64>)m.burst * PER_BYTE;
            bit<48> since_us = now_us - look[63:16];
            if (since_us > LONGEST_US) {
                since_us = LONGEST_US;
            }
            bit<64> earned = (bit<64>)since_us * (bit<64>)m.rate;
            if (look == 0) {
                credit = most;
                earned = 0;
                counts = all_admitted ++ all_offered;
                look = now_us ++ window;
            } else if (look[15:0] != window) {
                // What all switches let pass is paid for, and what was earned goes on the account.
                credit = credit + earned - (bit<64>)(all_admitted - counts[63:32]) * PER_BYTE;
                if (credit > most) {
                    credit = most;
                }
                bit<32> demand_before = all_offered - counts[31:0];
                // All that comes may pass: there is nothing to divide.
                if ((bit<64>)demand_before * PER_BYTE <= earned + (earned >> 3)) {
                    demand_before = 0;
                }
                earned = 0;
                share = demand_before ++ own[31:0];
                counts = all_admitted ++ all_offered;
                look = now_us ++ window;
                own = 0;
            }
            // A switch to which nothing came between the looks takes an eighth: the user's packets
            // may just begin to come here.
            bit<64> demand = (bit<64>)(share[63:32] >> 6);
            bit<64> part = (bit<64>)(share[31:0] >> 6);
            if (part < demand >> 3) {
                part = demand >> 3;
            }
            bit<64> has = credit + earned;
            if (has > most) {
                has = most;
            }
            bit<64> used = (bit<64>)(own[63:32] + bytes) * PER_BYTE;
            if (has > ZERO) {
                has = has - ZERO;
                if (part >= demand) {
                    if (used <= has) {
                        admit = 1;
                    }
                } else if (used * demand <= has * part) {
                    admit = 1;
                }
            }
            own = own + (bit<64>)bytes;
            if (admit == 1) {
                own = own + ((bit<64>)bytes << 32);
            }
            credits.write(m.user, credit);
            looks.write(m.user, look);
            seen.write(m.user, counts);
            shares.write(m.user, share);
            recent.write(m.user, own);
        }
#ifdef LIMITER_LOCAL
        offered.read(all_offered, m.user);
        offered.write(m.user, all_offered + bytes);
#else
        offered.add(m.user, bytes);
#endif
        if (admit == 0) {
            limited.count(m.user);
            mark_to_drop(s);
            return;
        }
#ifdef LIMITER_LOCAL
        admitted.read(all_admitted, m.user);
        admitted.write(m.user, all_admitted + bytes);
#else
        admitted.add(m.user, bytes);
#endif
    }
}

control LimiterEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control Compute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), LimiterIngress(), LimiterEgress(), Compute(), Deparse()) main;
