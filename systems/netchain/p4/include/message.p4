// message.p4: NetChain's messages, and the parser. systems/netchain/docs/design.md, "Message", has
// the table of fields.
#ifndef NETCHAIN_MESSAGE_P4
#define NETCHAIN_MESSAGE_P4

const bit<16> NETCHAIN_PORT = 5410;
const bit<8>  FORMAT = 1;

// Bytes of a packet without records and value: IPv4, UDP, message.
const bit<16> BASE_BYTES = 20 + 8 + 88;
const bit<16> RECENT_BYTES = 84;

enum bit<8> Operation {
    READ = 1,
    // Writes the value.
    PUT = 2,
    // The same if the key has no value.
    INSERT = 3,
    // The same if the key's version is the operand.
    COMPARE_VERSION = 4,
    // The same if the value's first eight bytes are the operand.
    COMPARE_OWNER = 5,
    // Adds the operand to the value's first eight bytes. A key without a value counts from 0.
    ADD = 6,
    // Removes the value if the key's version is the operand; with operand 0, whichever it is.
    DELETE = 7,
    // Between switches, with the flag STAMPED: a slot for a member that joins; it has that version
    // or a newer one; a sign of life.
    COPY = 8,
    COPY_ACK = 9,
    PROBE = 10,
    // The next keys of a group that begin with a prefix: list.p4.
    LIST = 11,
    // Between switches, STAMPED: a tombstone that all members may free, on its way down the chain;
    // all have it, on its way back: collect.p4.
    COLLECT = 12,
    COLLECT_ACK = 13
}

enum bit<8> Status {
    REQUEST = 0,
    // Done; the reply has the key's version and value.
    DONE = 1,
    // READ: the key has no value.
    ABSENT = 2,
    // The condition does not hold; the reply has the version and value that it was compared with.
    REFUSED = 3,
    // The head has no slot for another key.
    FULL = 4,
    // The request's view is not the group's; the reply has the group's view and chain.
    OLD_VIEW = 5,
    // This switch has no part in the group.
    NO_GROUP = 6,
    // No such operation.
    UNKNOWN = 7,
    // A request that came again, and of which nobody knows any more whether it was carried out.
    UNDECIDED = 8,
    // The key's value is longer than the request has room for; nothing is decided.
    NO_ROOM = 9,
    // The request did not come to the switch whose part it needs; the reply has view and chain.
    WRONG_SWITCH = 10,
    // All members of the group were lost, and its keys with them.
    LOST = 11,
    // The head has no room for another client.
    TOO_MANY = 12,
    // The client's key may not do that.
    DENIED = 13,
    // The message has another format; the reply has the one that this switch speaks.
    BAD_FORMAT = 14,
    // The message belongs to another cluster; the reply has this one's fingerprint.
    WRONG_RING = 15,
    // The switch's view does not serve yet, or it has no lease; the reply has view and chain.
    PAUSED = 16
}

// Bits of envelope_t.flags.
const bit<16> REPLY = 0x8000;
// Of a member: the head has given the write its version, and it goes down the chain; or it is no
// write, but a message from switch to switch.
const bit<16> STAMPED = 0x4000;
// In a reply: version and value are not those of the verdict. Of DONE they are a later write's, and
// the request made the version in `operand` (0: nobody knows it any more).
const bit<16> MOVED = 0x0002;
// In a reply with the group's chain: version is the group's floor, and operand the view since which
// the head is this one.
const bit<16> TOLD = 0x0004;
// A copy of the request went to an earlier head, which may have carried it out.
const bit<16> AGAIN = 0x0001;

// How long the value can be that a message has room for, in netchain_t.room.
const bit<8> ROOM_NONE = 0;
const bit<8> ROOM_16 = 1;
const bit<8> ROOM_64 = 2;
const bit<8> ROOM_128 = 3;

// In netchain_t.length: the key has no value.
const bit<8> NO_VALUE = 255;

// The first 16 bytes, which are the same in all formats.
header envelope_t {
    bit<8>    format;
    Operation operation;
    Status    status;
    // Addresses of the chain that are still to come.
    bit<8>    hops;
    bit<16>   flags;
    // The client's key, also while switches pass the message on.
    bit<16>   key_id;
    bit<64>   tag;
}

// The rest of format 1.
header netchain_t {
    // Fingerprint of the ring that the cluster was founded with.
    bit<32>  ring;
    bit<32>  view;
    bit<16>  group;
    bit<8>   room;
    // Bytes of the value, or NO_VALUE.
    bit<8>   length;
    // Of the request; and the client's identity, random for each process.
    bit<32>  number;
    bit<64>  client;
    // Session of the head (16 bits), sequence number (48 bits). In a write's request: a version
    // that the key had before the first copy was sent; 0: the client knows none.
    bit<64>  version;
    bit<64>  operand;
    bit<128> key;
    bit<32>  hop0;
    bit<32>  hop1;
    bit<32>  hop2;
    bit<32>  hop3;
}

// The requests of the key that were carried out most recently, and the versions that they made.
header recent_t {
    bit<64> client0;
    bit<32> number0;
    bit<8>  status0;
    bit<64> version0;
    bit<64> client1;
    bit<32> number1;
    bit<8>  status1;
    bit<64> version1;
    bit<64> client2;
    bit<32> number2;
    bit<8>  status2;
    bit<64> version2;
    bit<64> client3;
    bit<32> number3;
    bit<8>  status3;
    bit<64> version3;
}

header value_16_t {
    bit<64> w0;
    bit<64> w1;
}

header value_64_t {
    bit<64> w2;
    bit<64> w3;
    bit<64> w4;
    bit<64> w5;
    bit<64> w6;
    bit<64> w7;
}

header value_128_t {
    bit<64> w8;
    bit<64> w9;
    bit<64> w10;
    bit<64> w11;
    bit<64> w12;
    bit<64> w13;
    bit<64> w14;
    bit<64> w15;
}

struct headers_t {
    ethernet_t  ethernet;
    ipv4_t      ipv4;
    udp_t       udp;
    envelope_t  envelope;
    netchain_t  netchain;
    recent_t    recent;
    value_16_t  value_16;
    value_64_t  value_64;
    value_128_t value_128;
}

parser NetChainParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
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

    // Of a reply to a client the envelope is enough.
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination_port, hdr.udp.source_port) {
            (NETCHAIN_PORT, _): envelope;
            (_, NETCHAIN_PORT): envelope;
            default: accept;
        }
    }

    state envelope {
        packet.extract(hdr.envelope);
        transition select(hdr.envelope.format, hdr.udp.destination_port) {
            (FORMAT, NETCHAIN_PORT): netchain;
            default: accept;
        }
    }

    state netchain {
        packet.extract(hdr.netchain);
        transition select(hdr.envelope.operation) {
            Operation.READ: value;
            Operation.PROBE: value;
            default: recent;
        }
    }

    state recent {
        packet.extract(hdr.recent);
        transition value;
    }

    state value {
        transition select(hdr.netchain.room) {
            ROOM_NONE: accept;
            ROOM_16: value_16;
            ROOM_64: value_16;
            ROOM_128: value_16;
            default: reject;
        }
    }

    state value_16 {
        packet.extract(hdr.value_16);
        transition select(hdr.netchain.room) {
            ROOM_16: accept;
            default: value_64;
        }
    }

    state value_64 {
        packet.extract(hdr.value_64);
        transition select(hdr.netchain.room) {
            ROOM_64: accept;
            default: value_128;
        }
    }

    state value_128 {
        packet.extract(hdr.value_128);
        transition accept;
    }
}

// The bytes of a value that a message has room for.
bit<8> room_bytes(in bit<8> room) {
    return room == ROOM_NONE ? 8w0 : room == ROOM_16 ? 8w16 : room == ROOM_64 ? 8w64 : 8w128;
}

bool is_write(in Operation operation) {
    return operation >= Operation.PUT && operation <= Operation.DELETE;
}

// Is it a request, a stamped write or a message between switches, of the length that its fields
// say? `parsed`: the parser found no error.
bool is_well_formed(in headers_t hdr, in bool parsed) {
    bit<8> room = room_bytes(hdr.netchain.room);
    bit<16> bytes = BASE_BYTES + (bit<16>)room;
    bool probes = hdr.envelope.operation == Operation.PROBE;
    if (hdr.envelope.operation != Operation.READ && !probes) {
        bytes = bytes + RECENT_BYTES;
    }
    // (Of replies, only the answer to a probe is for a switch.)
    bit<16> reply = probes && hdr.envelope.flags & STAMPED != 0 ? 16w0 : REPLY;
    bool writes_value = hdr.envelope.operation >= Operation.PUT
                        && hdr.envelope.operation <= Operation.COMPARE_OWNER;
    return parsed && hdr.netchain.isValid() && hdr.envelope.flags & reply == 0
        && hdr.ipv4.total_length == bytes && hdr.udp.length == bytes - 20
        && (hdr.netchain.length == NO_VALUE
            ? !writes_value || hdr.envelope.flags & STAMPED != 0
            : hdr.netchain.length <= room);
}

// May it be what another switch answers in a dead one's name? Such a reply carries no state.
bool may_stand_in(in headers_t hdr) {
    return hdr.envelope.flags & REPLY != 0 && hdr.envelope.flags & STAMPED == 0
        && (hdr.envelope.status == Status.OLD_VIEW || hdr.envelope.status == Status.NO_GROUP
            || hdr.envelope.status == Status.LOST || hdr.envelope.status == Status.BAD_FORMAT);
}

#endif
