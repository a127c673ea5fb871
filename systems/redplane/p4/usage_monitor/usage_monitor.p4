// usage_monitor.p4: counts the bytes of each account, and lets no account have more than its quota
// (the account usage monitor of RedPlane's draft, Table 1).
//
// The table `accounts` says which addresses are users', whose account each is, and what the account
// may use in its present period. A packet to or from a user passes if its bytes still fit in the
// quota, and is dropped otherwise. Its bytes are those of the IPv4 packet. It leaves only when the
// count that has them is on every server of the chain. So the store's count is never less than what
// left, whichever switch dies, and no account gets a byte more than its quota.
//
// The count may be more than what left: a packet may be lost behind its count, by a switch that
// dies, or with a message between switch and store. What this program drops itself is not counted.
//
// A period ends when the table's entry names a newer one. The account's next packet begins the new
// count; that of the period before is kept beside it.
//
// A packet is checked and routed as by a gateway (RFC 1812): gateway_check() drops what is
// malformed or from where its source cannot be, so nobody uses another's quota. What the kernel
// would forward without a count is dropped: all that is not IPv4 (`unsupported`).
//
// -DUSAGE_MONITOR_LOCAL: the same without fault tolerance; each switch then counts for itself.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

#ifdef USAGE_MONITOR_LOCAL
#define USAGE_CONSISTENCY Consistency.LOCAL
#else
#define USAGE_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Accounts on this switch.
#ifndef USAGE_MONITOR_ACCOUNTS
#define USAGE_MONITOR_ACCOUNTS 65536
#endif

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
}

struct account_t {
    // The user's address, or the one that stands for all of a prefix.
    bit<32> account;
}

struct usage_t {
    // Bytes of the present period, from the account's users and to them.
    bit<64> sent;
    bit<64> received;
    // The same of the period before, as it was at its end.
    bit<64> sent_before;
    bit<64> received_before;
    bit<32> period;
    bit<32> period_before;
}

struct metadata_t {
    bit<16> source_port;
    bit<16> destination_port;
}

parser UsageParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        meta = { 0, 0 };
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (5, 0, 0, PROTOCOL_TCP): ports;
            (5, 0, 0, PROTOCOL_UDP): ports;
            default: accept;
        }
    }

    // For the choice among equal routes.
    state ports {
        packet.extract(hdr.ports);
        meta = { hdr.ports.source_port, hdr.ports.destination_port };
        transition accept;
    }
}

control UsageVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control UsageIngress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    FlowState<account_t, usage_t>(USAGE_MONITOR_ACCOUNTS, USAGE_CONSISTENCY,
                                  Allocator.ZERO) usages;

    // Counted and sent on.
    counter(1, CounterType.packets_and_bytes) counted;
    // Dropped: more than what is left of the account's quota.
    counter(1, CounterType.packets_and_bytes) over_quota;
    // Periods that an account has begun, each with its first packet that passed.
    counter(1, CounterType.packets) periods;
    // Routed: neither from a user nor to one, or from or to one that is not counted.
    counter(1, CounterType.packets_and_bytes) not_counted;
    // Dropped: the store (-DUSAGE_MONITOR_LOCAL: this switch) has no room for another account. (If
    // only this switch has none, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_room;
    // Dropped: what gateway_check() refuses; the runtime counts the reasons.
    counter(1, CounterType.packets) refused;
    // Dropped: not IPv4.
    counter(1, CounterType.packets) unsupported;
    // To the kernel, which forwards none: multicast, such as routing protocols'.
    counter(1, CounterType.packets) to_kernel;
    // Answered with an ICMP error: hop limit reached, no route, too big for its route.
    counter(1, CounterType.packets) ttl_expired;
    counter(1, CounterType.packets) no_route;
    counter(1, CounterType.packets) too_big;

    // The address that is looked up, and what `accounts` says of it.
    bit<32> user = 0;
    bool has_account = false;
    account_t account = { 0 };
    bit<64> quota = 0;
    bit<32> period = 0;

    // Each address is an account of its own.
    action each(bit<64> quota_bytes, bit<32> period_number) {
        has_account = true;
        account.account = user;
        quota = quota_bytes;
        period = period_number;
    }

    // All addresses share an account. It is called after one of them, such as the prefix's first.
    action shared(bit<32> account_address, bit<64> quota_bytes, bit<32> period_number) {
        has_account = true;
        account.account = account_address;
        quota = quota_bytes;
        period = period_number;
    }

    // These are users, and are not counted.
    action free() { }

    table accounts {
        key = { user: lpm @name("user.address"); }
        actions = { each; shared; free; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 65536;
    }

    apply {
        if (!hdr.ipv4.isValid()) {
            unsupported.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (!gateway_check()) {
            refused.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (hdr.ipv4.destination[31:28] == 0xe) {
            to_kernel.count(0);
            to_host();
            return;
        }
        if (hdr.ipv4.ttl <= 1) {
            ttl_expired.count(0);
            reply_icmp_error(ICMP_TIME_EXCEEDED, 0, 0);
            return;
        }

        // 1. Where to? (Before it is counted: what cannot be sent on is not.)
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                        meta.source_port, meta.destination_port,
                                        hdr.ipv4.total_length, hdr.ipv4.tos,
                                        standard_metadata.egress_spec, hdr.ethernet.source,
                                        hdr.ethernet.destination);
        if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
            // (Not by the kernel, which might have a route by then.)
            no_route.count(0);
            reply_icmp_error(ICMP_UNREACHABLE, 0, 0);
            return;
        }
        if (way == FibResult.TOO_BIG && hdr.ipv4.dont_fragment == 1) {
            too_big.count(0);
            reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
            return;
        }
        if (way != FibResult.FORWARD) {
            standard_metadata.egress_spec = KERNEL_PORT; // not resolved, or to be fragmented
        }
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, TTL_DECREMENTED);
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;

        // 2. Whose is it? Between two users, the sender's.
        user = hdr.ipv4.source;
        bool sends = accounts.apply().hit;
        if (!sends) {
            user = hdr.ipv4.destination;
            accounts.apply();
        }
        if (!has_account) {
            not_counted.count(0);
            return;
        }

        // 3. Does it fit?
        usage_t usage;
        if (usages.get_or_allocate(account, usage) == StateResult.MISS) {
            no_room.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        // (A switch whose entry still has an earlier period counts in the account's.)
        bit<32> ahead = period - usage.period;
        bool begins = ahead != 0 && ahead[31:31] == 0;
        if (begins) {
            usage = { 0, 0, usage.sent, usage.received, period, usage.period };
        }
        bit<64> bytes = (bit<64>)hdr.ipv4.total_length;
        bit<64> used = usage.sent + usage.received;
        if (used > quota || quota - used < bytes) {
            over_quota.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (sends) {
            usage.sent = usage.sent + bytes;
        } else {
            usage.received = usage.received + bytes;
        }
        usages.set(account, usage);
        if (begins) {
            periods.count(0);
        }
        counted.count(0);
    }
}

control UsageEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    apply { }
}

control UsageComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control UsageDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(UsageParser(), UsageVerifyChecksum(), UsageIngress(), UsageEgress(),
         UsageComputeChecksum(), UsageDeparser()) main;
