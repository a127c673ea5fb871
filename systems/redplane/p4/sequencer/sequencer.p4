// sequencer.p4: gives the datagrams of each session consecutive numbers on their way to their
// receiver (the in-network sequencer of RedPlane's draft, Table 1).
//
// A sender puts a header in front of its payload (sequence_t below; its form is on
// systems/redplane/docs/apps/sequencer.md) and sends the datagram to the receiver. The switch
// writes the session's next number into it. The datagram leaves only when the number is on every
// server of the chain, so no number is given twice, whichever switch dies.
//
// None is skipped without notice either. A number may be given and its datagram lost. The receiver
// hears of that in one of two ways:
// - The next datagram's number shows the gap. Behind the last one, a query shows it: the switch
//   answers with the last number that was given.
// - A sender that counts its requests sends again what was not acknowledged. If it still is the
//   session's last counted request, it leaves with the number that it got before: then no number is
//   skipped. A session remembers one counted request.
//
// A datagram that comes with a number is dropped: only this switch, or the other, gives numbers.
//
// -DSEQUENCER_LOCAL: the same without fault tolerance; each switch then has numbers of its own.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

#ifdef SEQUENCER_LOCAL
#define SEQUENCER_CONSISTENCY Consistency.LOCAL
#else
#define SEQUENCER_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Sessions on this switch.
#ifndef SEQUENCER_SESSIONS
#define SEQUENCER_SESSIONS 65536
#endif

const bit<16> SEQUENCE_MAGIC = 0x5351; // "SQ"
const bit<16> SEQUENCE_BYTES = 24;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8;

enum bit<8> Type {
    // From a sender, to the receiver.
    REQUEST = 1,
    // What becomes of it.
    NUMBERED = 2,
    // From a receiver, to the sequencer's address.
    QUERY = 3,
    // The answer.
    LAST = 4
}

// In front of the payload; of a query there need not be any.
header sequence_t {
    bit<16> magic;
    Type    type;
    bit<8>  reserved;
    // Of this receiver.
    bit<32> session;
    // Who sends, and which of its requests this is: they count up, modulo 2^32. Request 0 is not
    // counted: it gets a number whenever it comes.
    bit<32> sender;
    bit<32> request;
    // NUMBERED: the datagram's, from 1. LAST: the last one given, 0 if none was. Else 0.
    bit<64> number;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    sequence_t sequence;
}

struct session_t {
    bit<32> receiver;
    bit<32> session;
}

struct numbers_t {
    // The last one given.
    bit<64> last;
    // The counted request that came last, and the number that it got (0: none came).
    bit<64> number;
    bit<32> sender;
    bit<32> request;
}

struct metadata_t {
}

parser SequencerParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    state start {
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
        transition select(hdr.udp.length >= UDP_BYTES + SEQUENCE_BYTES
                          && hdr.ipv4.total_length == IPV4_BYTES + hdr.udp.length) {
            true: sequence;
            default: accept;
        }
    }

    state sequence {
        transition select(packet.lookahead<bit<16>>()) {
            SEQUENCE_MAGIC: header_;
            default: accept;
        }
    }

    state header_ {
        packet.extract(hdr.sequence);
        transition accept;
    }
}

control SequencerVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // A damaged header must neither take a number nor be remembered.
        verify_checksum(hdr.sequence.isValid(),
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                          hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
        // (With the checksum itself among the data the sum is 0 if it is right.)
        verify_checksum_with_payload(hdr.sequence.isValid() && hdr.udp.checksum != 0,
                                     { hdr.ipv4.source, hdr.ipv4.destination, 8w0,
                                       hdr.ipv4.protocol, hdr.udp.length, hdr.udp.source_port,
                                       hdr.udp.destination_port, hdr.udp.length,
                                       hdr.sequence.magic, hdr.sequence.type,
                                       hdr.sequence.reserved, hdr.sequence.session,
                                       hdr.sequence.sender, hdr.sequence.request,
                                       hdr.sequence.number, hdr.udp.checksum },
                                     16w0, HashAlgorithm.csum16);
    }
}

control SequencerIngress(inout headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    FlowState<session_t, numbers_t>(SEQUENCER_SESSIONS, SEQUENCER_CONSISTENCY,
                                    Allocator.ZERO) sessions;

    // Requests that got the next number, and those that got theirs again.
    counter(1, CounterType.packets) numbered;
    counter(1, CounterType.packets) repeated;
    // Queries answered.
    counter(1, CounterType.packets) answered;
    // Dropped: older than the sender's request that was numbered last.
    counter(1, CounterType.packets) late;
    // Dropped: to a receiver, with a number already.
    counter(1, CounterType.packets) has_number;
    // Dropped: to a receiver's or the sequencer's port, but neither request nor query, or with a
    // wrong checksum.
    counter(1, CounterType.packets) malformed;
    // Dropped: UDP to a receiver or the sequencer in fragments or with IPv4 options.
    counter(1, CounterType.packets) unsupported;
    // Dropped: the store (-DSEQUENCER_LOCAL: this switch) has no room for another session. (If only
    // this switch has none, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_room;
    // Dropped: answered, but no resolved way back.
    counter(1, CounterType.packets) no_next_hop;
    // Routed as they are.
    counter(1, CounterType.packets) routed;
    // To the kernel: not IPv4, hop limit reached, no route; of what is routed as it is, also no
    // resolved next hop.
    counter(1, CounterType.packets) to_kernel;

    // The port of the receiver or sequencer at the packet's destination.
    bit<16> port = 0;
    bool at_receiver = false;

    action receiver(bit<16> udp_port) {
        port = udp_port;
        at_receiver = true;
    }

    action sequencer(bit<16> udp_port) {
        port = udp_port;
    }

    // The receivers' addresses, and the sequencer's: that belongs to no host.
    table addresses {
        key = { hdr.ipv4.destination: exact; }
        actions = { receiver; sequencer; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action hop() {
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, TTL_DECREMENTED);
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    // Type and number of what came with number 0.
    action become(Type type, bit<64> number) {
        bit<64> difference = replaced_word((bit<8>)hdr.sequence.type ++ hdr.sequence.reserved,
                                           (bit<8>)type ++ hdr.sequence.reserved)
            + replaced_address(0, number[63:32]) + replaced_address(0, number[31:0]);
        hdr.sequence.type = type;
        hdr.sequence.number = number;
        hdr.udp.checksum = adjusted_udp(hdr.udp.checksum, difference);
    }

    // Back to where the query came from. (Exchanged words do not change a sum.)
    action turn_round() {
        bit<32> asker = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = asker;
        bit<16> asker_port = hdr.udp.source_port;
        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = asker_port;
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum,
                                     replaced_word(hdr.ipv4.ttl ++ 8w0, 0x4000));
        hdr.ipv4.ttl = 64;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || !hdr.ipv4.isValid()
            || hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5 || hdr.ipv4.ttl == 0) {
            to_kernel.count(0);
            to_host();
            return;
        }

        // 1. Is it for a receiver, or for the sequencer?
        bool known = addresses.apply().hit;
        if (known && hdr.ipv4.protocol == PROTOCOL_UDP && !hdr.udp.isValid()) {
            // (Its port is not known; a number in it would not be seen.)
            unsupported.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        bool ours = known && hdr.udp.isValid() && hdr.udp.destination_port == port;
        bool query = ours && !at_receiver;
        if (ours) {
            if (hdr.sequence.isValid() && at_receiver && hdr.sequence.type == Type.NUMBERED) {
                has_number.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (!hdr.sequence.isValid() || standard_metadata.checksum_error != 0
                || hdr.sequence.type != (query ? Type.QUERY : Type.REQUEST)
                || hdr.sequence.number != 0) {
                malformed.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
        }
        if (!query && hdr.ipv4.ttl <= 1) {
            to_kernel.count(0);
            to_host();
            return;
        }

        // 2. Where to? (Before it gets a number: what cannot be sent on gets none.)
        session_t session = { hdr.ipv4.destination, hdr.sequence.session };
        if (query) {
            session.receiver = hdr.ipv4.source;
            turn_round();
        }
        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        if (hdr.udp.isValid()) {
            source_port = hdr.udp.source_port;
            destination_port = hdr.udp.destination_port;
        }
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                        source_port, destination_port, hdr.ipv4.total_length,
                                        hdr.ipv4.tos, standard_metadata.egress_spec,
                                        hdr.ethernet.source, hdr.ethernet.destination);
        if (way != FibResult.FORWARD) {
            if (query) {
                no_next_hop.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (way == FibResult.TOO_BIG && ours && hdr.ipv4.dont_fragment == 1) {
                reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
                return;
            }
            if (!ours || way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
                to_kernel.count(0);
                to_host();
                return;
            }
            // Not resolved, or to be fragmented: the kernel sends it with its number.
            standard_metadata.egress_spec = KERNEL_PORT;
        }
        if (!ours) {
            hop();
            routed.count(0);
            return;
        }

        // 3. Which number?
        numbers_t numbers;
        if (query) {
            if (sessions.get(session, numbers) == StateResult.MISS) {
                numbers.last = 0;
            }
            become(Type.LAST, numbers.last);
            answered.count(0);
            return;
        }
        if (sessions.get_or_allocate(session, numbers) == StateResult.MISS) {
            no_room.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        bool counted = hdr.sequence.request != 0;
        bit<32> behind = numbers.request - hdr.sequence.request;
        bit<64> number = numbers.last + 1;
        if (counted && numbers.number != 0 && numbers.sender == hdr.sequence.sender
            && behind[31:31] == 0) {
            if (behind != 0) {
                late.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            number = numbers.number;
            repeated.count(0);
        } else {
            numbers.last = number;
            if (counted) {
                numbers.number = number;
                numbers.sender = hdr.sequence.sender;
                numbers.request = hdr.sequence.request;
            }
            sessions.set(session, numbers);
            numbered.count(0);
        }
        become(Type.NUMBERED, number);
        hop();
    }
}

control SequencerEgress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    apply { }
}

control SequencerComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SequencerDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(SequencerParser(), SequencerVerifyChecksum(), SequencerIngress(), SequencerEgress(),
         SequencerComputeChecksum(), SequencerDeparser()) main;
