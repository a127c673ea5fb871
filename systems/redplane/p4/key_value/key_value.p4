// key_value.p4: a key-value store that the switch itself answers for.
//
// A client sends a UDP datagram to a service address; the switch looks the key up in its own table,
// and turns the datagram round with the answer in it (RedPlane §7.2; operations after NetChain's
// §3). Every switch answers for the same address: the key's lease decides which switch does it from
// its own memory, and which asks the store first. A reply to an update leaves only when the update
// is on every server of the chain, so the store is linearizable per key: who reads after a reply
// sees what it said, whichever switch either went through.
//
// A request and its reply have the same form (kv_t below, systems/redplane/docs/apps/key_value.md).
// A request that comes twice is carried out twice: a client that sends again writes the same value
// once more (the version tells), or uses COMPARE_AND_SET, which can succeed only once a version.
//
// -DKEY_VALUE_LOCAL: the same without fault tolerance; each switch then has a store of its own.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

#ifdef KEY_VALUE_LOCAL
#define KEY_VALUE_CONSISTENCY Consistency.LOCAL
#else
#define KEY_VALUE_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Keys on this switch.
#ifndef KEY_VALUE_KEYS
#define KEY_VALUE_KEYS 65536
#endif

const bit<16> KV_MAGIC = 0x4b56; // "KV"
const bit<16> KV_BYTES = 64;
const bit<16> UDP_BYTES = 8;

enum bit<8> Operation {
    READ = 1,
    // Writes the value; the version counts up.
    UPDATE = 2,
    // The same, if the key's version still is the request's (a key that was never written has
    // version 0).
    COMPARE_AND_SET = 3
}

enum bit<8> Status {
    // Of requests.
    REQUEST = 0,
    // Done. The reply has the value and the version that the key has now.
    DONE = 1,
    // READ: the key was never written.
    ABSENT = 2,
    // COMPARE_AND_SET: the key has another version; the reply has that and its value.
    CONFLICT = 3,
    // The store (-DKEY_VALUE_LOCAL: the switch) has no room for another key. (If only the switch
    // has none, there is no answer: `flows_full`.)
    FULL = 4,
    // The operation is unknown.
    UNKNOWN = 5
}

header kv_t {
    bit<16>   magic;
    Operation operation;
    Status    status;
    // The client's: comes back as it was.
    bit<32>   request;
    bit<128>  key;
    bit<64>   version;
    bit<128>  value_high;
    bit<128>  value_low;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    kv_t       kv;
}

struct key_t {
    bit<128> key;
}

struct entry_t {
    // How often the key was written; 0: never.
    bit<64>  version;
    bit<128> value_high;
    bit<128> value_low;
}

struct metadata_t {
    // The packet is a request that was turned round.
    bool answered;
}

parser KeyValueParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    state start {
        meta.answered = false;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        // Only a datagram of just this size can be a request: its checksum covers these fields and
        // nothing else.
        transition select(hdr.udp.length, hdr.ipv4.total_length) {
            (UDP_BYTES + KV_BYTES, 20 + UDP_BYTES + KV_BYTES): kv;
            default: accept;
        }
    }

    state kv {
        transition select(packet.lookahead<bit<16>>()) {
            KV_MAGIC: request;
            default: accept;
        }
    }

    state request {
        packet.extract(hdr.kv);
        transition accept;
    }
}

control KeyValueVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // The answer gets fresh checksums: a request with a wrong one must not be made to look
        // right.
        verify_checksum(hdr.kv.isValid(),
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                          hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
        // With the checksum itself among the data the sum is 0 if it is right, also where it is
        // 0xffff, which UDP sends for 0 (RFC 768).
        verify_checksum(hdr.kv.isValid() && hdr.udp.checksum != 0,
                        { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol,
                          hdr.udp.length, hdr.udp.source_port, hdr.udp.destination_port,
                          hdr.udp.length, hdr.kv.magic, hdr.kv.operation, hdr.kv.status,
                          hdr.kv.request, hdr.kv.key, hdr.kv.version,
                          hdr.kv.value_high, hdr.kv.value_low, hdr.udp.checksum },
                        16w0, HashAlgorithm.csum16);
    }
}

control KeyValueIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    FlowState<key_t, entry_t>(KEY_VALUE_KEYS, KEY_VALUE_CONSISTENCY, Allocator.ZERO) entries;

    // Requests answered: reads, writes, COMPARE_AND_SETs that found another version, and those
    // without room or of an unknown operation.
    counter(1, CounterType.packets) reads;
    counter(1, CounterType.packets) writes;
    counter(1, CounterType.packets) conflicts;
    counter(1, CounterType.packets) refused;
    // Dropped: sent to the service, but no request, or with a wrong checksum.
    counter(1, CounterType.packets) malformed;
    // Dropped: answered, but no resolved way back to the client.
    counter(1, CounterType.packets) no_next_hop;
    // Routed past, not for the service.
    counter(1, CounterType.packets) routed;
    // To the kernel: not IPv4, hop limit reached, no resolved next hop.
    counter(1, CounterType.packets) to_kernel;

    action serve() { }

    // The service's addresses and ports.
    table services {
        key = {
            hdr.ipv4.destination: exact;
            hdr.udp.destination_port: exact;
        }
        actions = { serve; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    // Back to where the request came from.
    action turn_round() {
        bit<32> client = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = client;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.identification = 0;
        hdr.ipv4.dont_fragment = 1;
        bit<16> port = hdr.udp.source_port;
        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = port;
        meta.answered = true;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || !hdr.ipv4.isValid()
            || hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5
            || hdr.ipv4.ttl == 0) {
            to_kernel.count(0);
            to_host();
            return;
        }

        if (hdr.udp.isValid() && services.apply().hit) {
            if (!hdr.kv.isValid() || hdr.kv.status != Status.REQUEST
                || standard_metadata.checksum_error != 0) {
                malformed.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            bool writing = hdr.kv.operation == Operation.UPDATE
                || hdr.kv.operation == Operation.COMPARE_AND_SET;
            key_t key = { hdr.kv.key };
            entry_t entry;
            StateResult found = StateResult.MISS;
            if (writing) {
                found = entries.get_or_allocate(key, entry);
            } else if (hdr.kv.operation == Operation.READ) {
                found = entries.get(key, entry);
            }
            if (found == StateResult.MISS) {
                entry = { 0, 0, 0 };
            }

            if (writing && found == StateResult.HIT && (hdr.kv.operation == Operation.UPDATE
                                                        || hdr.kv.version == entry.version)) {
                entry = { entry.version + 1, hdr.kv.value_high, hdr.kv.value_low };
                entries.set(key, entry);
                hdr.kv.status = Status.DONE;
                writes.count(0);
            } else if (writing && found == StateResult.HIT) {
                hdr.kv.status = Status.CONFLICT;
                conflicts.count(0);
            } else if (hdr.kv.operation == Operation.READ) {
                // An entry that was made but never written: its first update is still on its way,
                // or was a COMPARE_AND_SET of another version.
                hdr.kv.status = entry.version == 0 ? Status.ABSENT : Status.DONE;
                reads.count(0);
            } else {
                hdr.kv.status = writing ? Status.FULL : Status.UNKNOWN;
                refused.count(0);
            }
            hdr.kv.version = entry.version;
            hdr.kv.value_high = entry.value_high;
            hdr.kv.value_low = entry.value_low;
            turn_round();
        } else if (hdr.ipv4.ttl <= 1) {
            to_kernel.count(0);
            to_host();
            return;
        }

        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        if (hdr.udp.isValid()) {
            source_port = hdr.udp.source_port;
            destination_port = hdr.udp.destination_port;
        }
        if (fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, source_port,
                            destination_port, hdr.ipv4.total_length,
                            hdr.ipv4.tos, standard_metadata.egress_spec, hdr.ethernet.source,
                            hdr.ethernet.destination) != FibResult.FORWARD) {
            if (meta.answered) {
                // The kernel would get the request, not the reply.
                no_next_hop.count(0);
                mark_to_drop(standard_metadata);
            } else {
                to_kernel.count(0);
                to_host();
            }
            return;
        }
        if (!meta.answered) {
            hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, TTL_DECREMENTED);
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            routed.count(0);
        }
    }
}

control KeyValueEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    apply { }
}

control KeyValueComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.answered,
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                          hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.answered,
                        { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol,
                          hdr.udp.length, hdr.udp.source_port, hdr.udp.destination_port,
                          hdr.udp.length, hdr.kv.magic, hdr.kv.operation, hdr.kv.status,
                          hdr.kv.request, hdr.kv.key, hdr.kv.version,
                          hdr.kv.value_high, hdr.kv.value_low },
                        hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control KeyValueDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(KeyValueParser(), KeyValueVerifyChecksum(), KeyValueIngress(), KeyValueEgress(),
         KeyValueComputeChecksum(), KeyValueDeparser()) main;
