// pairs.p4: a packet reads and writes a key of two tables, a set, or a register, and comes back
// with what it read. Tests and simulations compare that with what one switch would have answered.
// With COUNTED (../tally/tally.p4) each packet is counted, too: with SDW, with EWO, and by who came
// last; once, when it leaves or is dropped, however often it ran.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef KEYS
#define KEYS 256
#endif
// Packets with the same lowest bits of the key are counted together: a power of two.
#ifndef CELLS
#define CELLS 64
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
/// what is there, 4 removes the key; 5 reads a register and 6 adds to it; 7 sets `value` for as
/// long as packets come, 4 seconds apart at the most; 8 asks whether the key is there. A set:
/// 9 asks for the key, 10 adds it and 11 removes it. What the packet read comes back. COUNTED: 12
/// sets `value`, and the packet is dropped.
header probe_t {
    bit<8> op;
    bit<8> found;
    bit<8> found_too;
    bit<8> unused;
    bit<32> key;
    bit<32> value;
    bit<32> was;
    bit<32> was_too;
    bit<32> copy;
#ifdef COUNTED
    bit<32> in_windows;
    bit<32> at_once;
    bit<32> last;
#endif
}

struct key_t {
    bit<32> key;
}

struct value_t {
    bit<32> value;
    bit<32> copy;
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

control ProbeIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    SharedTable<key_t, value_t>(KEYS, Shared.SRO) one;
    SharedTable<key_t, value_t>(KEYS, Shared.SRO) other;
    SharedRegister<value_t>(64, Shared.SRO) numbers;
    SharedSet<key_t>(KEYS, Shared.SRO) marks;
#ifdef COUNTED
    SharedCounter(CELLS, Shared.SDW, WhenFull.DROP) in_windows;
    SharedCounter(CELLS, Shared.EWO) at_once;
    SharedRegister<value_t>(CELLS, Shared.EWO) last;
#endif

    apply {
        if (!h.probe.isValid()) {
            to_host();
        } else {
            key_t key = { h.probe.key };
            value_t was;
            value_t was_too;
            bool found = false;
            bool found_too = false;
            if (h.probe.op < 2 || h.probe.op == 3) {
                found = one.get(key, was);
                found_too = other.get(key, was_too);
            } else if (h.probe.op == 8) {
                found = one.has(key);
                found_too = other.has(key);
                was = { 0, 0 };
                was_too = was;
            } else if (h.probe.op == 5 || h.probe.op == 6) {
                numbers.read(h.probe.key, was);
                was_too = was;
            } else {
                was = { 0, 0 };
                was_too = { 0, 0 };
                if (h.probe.op >= 9) {
                    found = marks.has(key);
                    found_too = found;
                }
            }
            value_t now = { h.probe.value, h.probe.value };
            if (h.probe.op == 1) {
                one.insert(key, now);
                other.insert(key, now);
            } else if (h.probe.op == 2) {
                one.set(key, now);
                other.set(key, now);
            } else if (h.probe.op == 3) {
                now.value = was.value + h.probe.value;
                now.copy = now.value;
                one.set(key, now);
                other.set(key, now);
            } else if (h.probe.op == 4) {
                one.remove(key);
                other.remove(key);
            } else if (h.probe.op == 6) {
                now.value = was.value + h.probe.value;
                now.copy = now.value;
                numbers.write(h.probe.key, now);
            } else if (h.probe.op == 7) {
                one.set(key, now, 4);
                other.set(key, now, 4);
            } else if (h.probe.op == 10) {
                marks.add(key);
            } else if (h.probe.op == 11) {
                marks.remove(key);
            }
#ifdef COUNTED
            if (h.probe.op == 12) {
                one.set(key, now);
                other.set(key, now);
            }
            bit<32> cell = h.probe.key & (CELLS - 1);
            value_t before;
            last.read(cell, before);
            h.probe.in_windows = in_windows.get(cell);
            h.probe.at_once = at_once.get(cell);
            h.probe.last = before.value;
            in_windows.add(cell, 1);
            at_once.add(cell, 1);
            last.write(cell, now);
#endif
            h.probe.found = found ? 8w1 : 0;
            h.probe.found_too = found_too ? 8w1 : 0;
            h.probe.was = was.value;
            h.probe.was_too = was_too.value;
            h.probe.copy = was.copy;
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
#ifdef COUNTED
            if (h.probe.op == 12) {
                mark_to_drop(s);
            }
#endif
        }
    }
}

control ProbeEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control ProbeCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), ProbeIngress(), ProbeEgress(), ProbeCompute(), Deparse()) main;
