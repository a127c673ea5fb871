// last.p4: a packet reads and writes a key of a table and of a set, or a register, with EWO, and
// comes back with what it read. Tests, simulations and labs compare that with what the last writer
// wrote.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef KEYS
#define KEYS 256
#endif
#ifndef NUMBERS
#define NUMBERS 64
#endif

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

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

/// UDP port 4000. `op`: 0 reads, 1 inserts `value` if the key is absent, 2 sets it, 3 adds it to
/// what is there, 4 removes the key; 5 reads a register and 6 writes it. What the packet read comes
/// back: of the table and of the set whether the key was there, and three copies of the value.
header probe_t {
    bit<8> op;
    bit<8> found;
    bit<8> found_too;
    bit<8> unused;
    bit<32> key;
    bit<32> value;
    bit<32> was;
    bit<32> was_too;
    bit<32> was_last;
}

struct key_t {
    bit<32> key;
}

/// Longer than what a CPU writes at once.
struct value_t {
    bit<32> value;
    bit<64> copy;
    bit<32> last;
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    probe_t probe;
}

struct metadata {}

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
        transition select(h.ipv4.version_and_length, h.ipv4.protocol) {
            (0x45, 17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(h.udp);
        transition select(h.udp.destination) {
            4000: probe;
            default: accept;
        }
    }
    state probe {
        packet.extract(h.probe);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control LastIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    SharedTable<key_t, value_t>(KEYS, Shared.EWO) values;
    SharedSet<key_t>(KEYS, Shared.EWO) keys;
    @group("numbers") SharedRegister<value_t>(NUMBERS, Shared.EWO) numbers;

    apply {
        if (!h.probe.isValid()) {
            to_host();
        } else {
            key_t key = { h.probe.key };
            value_t was;
            bool found = false;
            if (h.probe.op < 5) {
                found = values.get(key, was);
                h.probe.found_too = keys.has(key) ? 8w1 : 0;
            } else {
                numbers.read(h.probe.key, was);
            }
            bit<32> value = h.probe.value;
            if (h.probe.op == 3) {
                value = value + was.value;
            }
            value_t now = { value, (bit<64>) value << 32 | (bit<64>) value, value };
            if (h.probe.op == 1) {
                values.insert(key, now);
                keys.add(key);
            } else if (h.probe.op == 2 || h.probe.op == 3) {
                values.set(key, now);
                keys.add(key);
            } else if (h.probe.op == 4) {
                values.remove(key);
                keys.remove(key);
            } else if (h.probe.op == 6) {
                numbers.write(h.probe.key, now);
            }
            h.probe.found = found ? 8w1 : 0;
            h.probe.was = was.value;
            h.probe.was_too = was.copy[47:16];
            h.probe.was_last = was.last;
            // Back to the sender.
            s.egress_spec = s.ingress_port;
            bit<48> mac = h.ethernet.destination;
            h.ethernet.destination = h.ethernet.source;
            h.ethernet.source = mac;
            bit<32> address = h.ipv4.destination;
            h.ipv4.destination = h.ipv4.source;
            h.ipv4.source = address;
            bit<16> port = h.udp.destination;
            h.udp.destination = h.udp.source;
            h.udp.source = port;
            h.udp.checksum = 0;
        }
    }
}

control LastEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control LastCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), LastIngress(), LastEgress(), LastCompute(), Deparse()) main;
