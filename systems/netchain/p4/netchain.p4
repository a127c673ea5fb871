// netchain.p4: a coordination service that switches answer (NetChain, NSDI '18).
//
// Each key belongs to a group, and each group to a chain of switches. A write goes from the head to
// the tail, which answers; a read goes to the tail. The head gives each write a version; the others
// apply a write only if it is newer than what they have (Algorithm 1).
// systems/netchain/docs/design.md says where this differs from the paper, and why.
//
// A switch that is no member of a chain routes. A neighbour of a dead switch sends what is for it to
// the next of the chain (Algorithm 2).
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <stateplane/netchain.p4>
#include <headers.p4>
#include <checksum.p4>

// Keys that this switch holds.
#ifndef NETCHAIN_KEYS
#define NETCHAIN_KEYS 65536
#endif

const bit<16> NETCHAIN_PORT = 5410;
const bit<8>  FORMAT = 1;

const bit<16> BASE_BYTES = 20 + 8 + 76;
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
    DELETE = 7
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
    // This switch serves no such group.
    NO_GROUP = 6,
    // No such operation.
    UNKNOWN = 7,
    // A request that came again, and of which nobody knows any more whether it was carried out.
    UNDECIDED = 8,
    // The value is longer than the request has room for.
    NO_ROOM = 9,
    // The request did not come to the switch whose role it needs.
    WRONG_SWITCH = 10
}

// Bits of netchain_t.flags.
const bit<8> REPLY = 0x80;
// The head has given the write its version: it goes down the chain.
const bit<8> STAMPED = 0x40;
// The client may have sent the request before.
const bit<8> AGAIN = 0x01;
// In a reply: the value is that of a later write than the request's.
const bit<8> MOVED = 0x02;

// How long the value can be that a message has room for, in netchain_t.room.
const bit<8> ROOM_NONE = 0;
const bit<8> ROOM_16 = 1;
const bit<8> ROOM_64 = 2;
const bit<8> ROOM_128 = 3;

header netchain_t {
    bit<8>   format;
    Operation operation;
    Status   status;
    bit<8>   flags;
    bit<16>  group;
    // Addresses of the chain that are still to come.
    bit<8>   hops;
    bit<8>   room;
    // Bytes of the value; 255: there is none.
    bit<8>   length;
    bit<8>   reserved;
    bit<16>  key_id;
    bit<32>  view;
    // The client's, random for each process; and the number of its request.
    bit<64>  client;
    bit<32>  number;
    // Session of the head (16 bits), sequence number (48 bits).
    bit<64>  version;
    bit<64>  operand;
    bit<128> key;
    bit<32>  hop0;
    bit<32>  hop1;
    bit<32>  hop2;
    bit<32>  hop3;
}

// A request that was carried out, and the version that it made.
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
    netchain_t  netchain;
    recent_t    recent;
    value_16_t  value_16;
    value_64_t  value_64;
    value_128_t value_128;
}

struct slot_key_t {
    bit<128> key;
}

// What a slot holds: the key's newest write that this switch knows.
struct slot_t {
    // Wide fields first: each lies at a multiple of its size.
    bit<64> version;
    bit<64> w0;
    bit<64> w1;
    bit<64> w2;
    bit<64> w3;
    bit<64> w4;
    bit<64> w5;
    bit<64> w6;
    bit<64> w7;
    bit<64> w8;
    bit<64> w9;
    bit<64> w10;
    bit<64> w11;
    bit<64> w12;
    bit<64> w13;
    bit<64> w14;
    bit<64> w15;
    // The requests that were carried out most recently, the newest first.
    bit<64> client0;
    bit<64> version0;
    bit<64> client1;
    bit<64> version1;
    bit<64> client2;
    bit<64> version2;
    bit<64> client3;
    bit<64> version3;
    bit<32> number0;
    bit<32> number1;
    bit<32> number2;
    bit<32> number3;
    bit<8>  status0;
    bit<8>  status1;
    bit<8>  status2;
    bit<8>  status3;
    bit<8>  length; // NO_VALUE: the key was deleted
}

const bit<8> NO_VALUE = 255;

// Bits of the position in a chain.
const bit<8> HEAD = 1;
const bit<8> TAIL = 2;

struct metadata_t {
    // This switch's part in the group, from its own view; never from what a message says.
    bit<32> view;
    bit<16> session;
    bit<8>  position;
    bit<8>  members;
    bit<32> member0;
    bit<32> member1;
    bit<32> member2;
    bit<32> member3;
    bit<32> next;
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

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination_port, packet.lookahead<bit<8>>()) {
            (NETCHAIN_PORT, FORMAT): netchain;
            default: accept;
        }
    }

    state netchain {
        packet.extract(hdr.netchain);
        transition select(hdr.netchain.operation) {
            Operation.READ: value;
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

control NetChainVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// The bytes of a value that a message has room for.
bit<8> room_bytes(in bit<8> room) {
    return room == ROOM_NONE ? 8w0 : room == ROOM_16 ? 8w16 : room == ROOM_64 ? 8w64 : 8w128;
}

// The version of a head's next write; versions of one key never repeat.
bit<64> next_version(in bit<16> session, in bit<64> before) {
    bit<64> first = (bit<64>)session << 48;
    return before >= first ? before + 1 : first + 1;
}

// The first word of a value, without what is behind its end.
bit<64> first_bytes(in bit<64> word, in bit<8> length) {
    bit<64> all = 0xffffffffffffffff;
    return length >= 8 ? word : length == 0 ? 0 : word & (all << (64 - (length << 3)));
}

control NetChainIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    SlotState<slot_key_t, slot_t>(NETCHAIN_KEYS) slots;

    // Messages, by status of the reply; those passed on down the chain count as REQUEST.
    counter(16, CounterType.packets) answered;
    // Writes that came after a newer one, and went on without being applied.
    counter(1, CounterType.packets) late;
    // Dropped: no message of a length that its fields say.
    counter(1, CounterType.packets) malformed;
    // Dropped: a stamped write from a view that is not this switch's.
    counter(1, CounterType.packets) other_view;
    // Dropped: a stamped write for which this switch has no slot.
    counter(1, CounterType.packets) no_slot;
    // Messages for a dead switch, sent to another one.
    counter(1, CounterType.packets) redirected;
    counter(1, CounterType.packets) no_route;

    slot_t slot;
    bit<64> change;
    bool out_of_slots;

    action serve() { }

    // This switch's own NetChain address.
    table own_address {
        key = { hdr.ipv4.destination: exact; }
        actions = { serve; NoAction; }
        default_action = NoAction();
        size = 16;
    }

    action take_part(bit<32> view, bit<16> session, bit<8> position, bit<32> next, bit<8> members,
                     bit<32> member0, bit<32> member1, bit<32> member2, bit<32> member3) {
        meta.view = view;
        meta.session = session;
        meta.position = position;
        meta.next = next;
        meta.members = members;
        meta.member0 = member0;
        meta.member1 = member1;
        meta.member2 = member2;
        meta.member3 = member3;
    }

    table roles {
        key = { hdr.netchain.group: exact; }
        actions = { take_part; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action pop() {
        hdr.netchain.hop0 = hdr.netchain.hop1;
        hdr.netchain.hop1 = hdr.netchain.hop2;
        hdr.netchain.hop2 = hdr.netchain.hop3;
        hdr.netchain.hop3 = 0;
        hdr.netchain.hops = hdr.netchain.hops - 1;
    }

    action send_to(in bit<32> address) {
        change = change + replaced_address(hdr.ipv4.destination, address);
        hdr.ipv4.destination = address;
    }

    // Algorithm 2, with the new view stamped on: members refuse the old one.
    action redirect(bit<32> view, bit<32> tail) {
        hdr.netchain.view = view;
        if (hdr.netchain.flags & STAMPED == 0) {
            // Another head may have carried it out.
            hdr.netchain.flags = hdr.netchain.flags | AGAIN;
        }
        if (hdr.netchain.hops == 0) {
            send_to(tail);
        } else {
            send_to(hdr.netchain.hop0);
            pop();
        }
        redirected.count(0);
    }

    table redirects {
        key = {
            hdr.ipv4.destination: exact;
            hdr.netchain.group: exact;
        }
        actions = { redirect; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action answer(in Status status) {
        hdr.netchain.status = status;
        hdr.netchain.flags = (hdr.netchain.flags | REPLY) & ~STAMPED;
        hdr.netchain.hops = 0;
        hdr.netchain.hop0 = 0;
        hdr.netchain.hop1 = 0;
        hdr.netchain.hop2 = 0;
        hdr.netchain.hop3 = 0;
        hdr.netchain.view = meta.view;
        bit<32> client = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = client;
        bit<16> port = hdr.udp.source_port;
        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = port;
        answered.count((bit<32>)(bit<8>)status);
    }

    action value_from_slot() {
        hdr.netchain.version = slot.version;
        hdr.netchain.length = slot.version == 0 ? NO_VALUE : slot.length;
        if (hdr.value_16.isValid()) {
            hdr.value_16.w0 = slot.w0;
            hdr.value_16.w1 = slot.w1;
        }
        if (hdr.value_64.isValid()) {
            hdr.value_64.w2 = slot.w2;
            hdr.value_64.w3 = slot.w3;
            hdr.value_64.w4 = slot.w4;
            hdr.value_64.w5 = slot.w5;
            hdr.value_64.w6 = slot.w6;
            hdr.value_64.w7 = slot.w7;
        }
        if (hdr.value_128.isValid()) {
            hdr.value_128.w8 = slot.w8;
            hdr.value_128.w9 = slot.w9;
            hdr.value_128.w10 = slot.w10;
            hdr.value_128.w11 = slot.w11;
            hdr.value_128.w12 = slot.w12;
            hdr.value_128.w13 = slot.w13;
            hdr.value_128.w14 = slot.w14;
            hdr.value_128.w15 = slot.w15;
        }
    }

    action value_to_slot() {
        slot.length = hdr.netchain.length;
        slot.w0 = 0; // (an owner is compared with it, whatever the value's length)
        if (hdr.value_16.isValid()) {
            slot.w0 = first_bytes(hdr.value_16.w0, slot.length);
            slot.w1 = hdr.value_16.w1;
        }
        if (hdr.value_64.isValid()) {
            slot.w2 = hdr.value_64.w2;
            slot.w3 = hdr.value_64.w3;
            slot.w4 = hdr.value_64.w4;
            slot.w5 = hdr.value_64.w5;
            slot.w6 = hdr.value_64.w6;
            slot.w7 = hdr.value_64.w7;
        }
        if (hdr.value_128.isValid()) {
            slot.w8 = hdr.value_128.w8;
            slot.w9 = hdr.value_128.w9;
            slot.w10 = hdr.value_128.w10;
            slot.w11 = hdr.value_128.w11;
            slot.w12 = hdr.value_128.w12;
            slot.w13 = hdr.value_128.w13;
            slot.w14 = hdr.value_128.w14;
            slot.w15 = hdr.value_128.w15;
        }
    }

    action recent_from_slot() {
        hdr.recent = { slot.client0, slot.number0, slot.status0, slot.version0,
                       slot.client1, slot.number1, slot.status1, slot.version1,
                       slot.client2, slot.number2, slot.status2, slot.version2,
                       slot.client3, slot.number3, slot.status3, slot.version3 };
    }

    action recent_to_slot() {
        slot.client0 = hdr.recent.client0;
        slot.number0 = hdr.recent.number0;
        slot.status0 = hdr.recent.status0;
        slot.version0 = hdr.recent.version0;
        slot.client1 = hdr.recent.client1;
        slot.number1 = hdr.recent.number1;
        slot.status1 = hdr.recent.status1;
        slot.version1 = hdr.recent.version1;
        slot.client2 = hdr.recent.client2;
        slot.number2 = hdr.recent.number2;
        slot.status2 = hdr.recent.status2;
        slot.version2 = hdr.recent.version2;
        slot.client3 = hdr.recent.client3;
        slot.number3 = hdr.recent.number3;
        slot.status3 = hdr.recent.status3;
        slot.version3 = hdr.recent.version3;
    }

    action remember(in bit<8> status) {
        slot.client3 = slot.client2;
        slot.number3 = slot.number2;
        slot.status3 = slot.status2;
        slot.version3 = slot.version2;
        slot.client2 = slot.client1;
        slot.number2 = slot.number1;
        slot.status2 = slot.status1;
        slot.version2 = slot.version1;
        slot.client1 = slot.client0;
        slot.number1 = slot.number0;
        slot.status1 = slot.status0;
        slot.version1 = slot.version0;
        slot.client0 = hdr.netchain.client;
        slot.number0 = hdr.netchain.number;
        slot.status0 = status;
        slot.version0 = slot.version;
    }

    // Was this very request carried out? Its version, or 0.
    action find_recent(out bit<64> version) {
        bit<64> client = hdr.netchain.client;
        bit<32> number = hdr.netchain.number;
        version = 0;
        if (slot.status0 != 0 && slot.client0 == client && slot.number0 == number) {
            version = slot.version0;
        } else if (slot.status1 != 0 && slot.client1 == client && slot.number1 == number) {
            version = slot.version1;
        } else if (slot.status2 != 0 && slot.client2 == client && slot.number2 == number) {
            version = slot.version2;
        } else if (slot.status3 != 0 && slot.client3 == client && slot.number3 == number) {
            version = slot.version3;
        }
    }

    // The head's decision: the request's status, and the slot as it is afterwards.
    action decide(out Status status, out bool writes) {
        bit<64> done;
        find_recent(done);
        writes = false;
        status = Status.DONE;
        if (done != 0) {
            // It goes down the chain once more: who is behind catches up.
            if (done != slot.version) {
                hdr.netchain.flags = hdr.netchain.flags | MOVED;
            }
        } else if (hdr.netchain.flags & AGAIN != 0 && slot.status3 != 0) {
            // It may be among those that are forgotten.
            status = Status.UNDECIDED;
        } else {
            bool present = slot.version != 0 && slot.length != NO_VALUE;
            bool holds = true;
            if (hdr.netchain.operation == Operation.INSERT) {
                holds = !present;
            } else if (hdr.netchain.operation == Operation.COMPARE_VERSION) {
                holds = slot.version == hdr.netchain.operand;
            } else if (hdr.netchain.operation == Operation.COMPARE_OWNER) {
                holds = present && slot.w0 == hdr.netchain.operand;
            } else if (hdr.netchain.operation == Operation.DELETE) {
                holds = present && (hdr.netchain.operand == 0
                                    || slot.version == hdr.netchain.operand);
            }
            writes = holds;
            if (!holds) {
                status = Status.REFUSED;
            } else {
                if (hdr.netchain.operation == Operation.DELETE) {
                    slot.length = NO_VALUE;
                } else if (hdr.netchain.operation == Operation.ADD) {
                    slot.w0 = (present ? slot.w0 : 0) + hdr.netchain.operand;
                    slot.length = present && slot.length > 8 ? slot.length : 8;
                } else {
                    value_to_slot();
                }
                slot.version = next_version(meta.session, slot.version);
                remember((bit<8>)status);
            }
        }
    }

    action not_mine(in Status status) {
        answer(status);
        hdr.netchain.hops = meta.members;
        hdr.netchain.hop0 = meta.member0;
        hdr.netchain.hop1 = meta.member1;
        hdr.netchain.hop2 = meta.member2;
        hdr.netchain.hop3 = meta.member3;
    }

    // To the next of the chain, or back to the client.
    action go_on() {
        if (meta.position & TAIL != 0) {
            answer(hdr.netchain.status);
        } else {
            send_to(meta.next);
            if (hdr.netchain.hops != 0) {
                pop();
            }
            answered.count(0);
        }
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl <= 1) {
            to_host();
            return;
        }
        change = TTL_DECREMENTED;
        out_of_slots = false;
        if (hdr.netchain.isValid()) {
            if (hdr.netchain.flags & REPLY == 0) {
                redirects.apply();
            }
            if (own_address.apply().hit) {
                // 1. What is it?
                bit<16> bytes = BASE_BYTES + (bit<16>)room_bytes(hdr.netchain.room);
                if (hdr.netchain.operation != Operation.READ) {
                    bytes = bytes + RECENT_BYTES;
                }
                if (standard_metadata.parser_error != error.NoError
                    || hdr.ipv4.total_length != bytes || hdr.udp.length != bytes - 20
                    || (hdr.netchain.length != NO_VALUE
                        && hdr.netchain.length > room_bytes(hdr.netchain.room))
                    || (hdr.netchain.length == NO_VALUE && hdr.netchain.flags & STAMPED == 0
                        && hdr.netchain.operation >= Operation.PUT
                        && hdr.netchain.operation <= Operation.COMPARE_OWNER)
                    || hdr.netchain.flags & REPLY != 0) {
                    malformed.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                hdr.udp.checksum = 0; // the message's tag says more

                // 2. What is this switch's part?
                bool stamped = hdr.netchain.flags & STAMPED != 0;
                bool member = roles.apply().hit;
                if (member && stamped && hdr.netchain.view != meta.view) {
                    other_view.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                if (!member) {
                    meta.view = 0;
                    answer(Status.NO_GROUP);
                } else if (hdr.netchain.view != meta.view) {
                    not_mine(Status.OLD_VIEW);
                } else if (hdr.netchain.operation == Operation.READ) {
                    // 3. A read: only the tail knows what is on all members.
                    if (meta.position & TAIL == 0) {
                        not_mine(Status.WRONG_SWITCH);
                    } else {
                        slots.read({ hdr.netchain.key }, slot);
                        value_from_slot();
                        if (slot.version == 0 || slot.length == NO_VALUE) {
                            answer(Status.ABSENT);
                        } else if (slot.length > room_bytes(hdr.netchain.room)) {
                            answer(Status.NO_ROOM);
                        } else {
                            answer(Status.DONE);
                        }
                    }
                } else if (stamped == (meta.position & HEAD != 0)) {
                    not_mine(Status.WRONG_SWITCH);
                } else {
                    SlotResult found = slots.read({ hdr.netchain.key }, slot);
                    if (stamped) {
                        // 4. A write on its way down (Algorithm 1, line 9 and on).
                        if (hdr.netchain.version > slot.version) {
                            slot.version = hdr.netchain.version;
                            value_to_slot();
                            recent_to_slot();
                            if (slots.write({ hdr.netchain.key }, slot) == SlotResult.FULL) {
                                no_slot.count(0);
                                mark_to_drop(standard_metadata);
                                return;
                            }
                        } else if (hdr.netchain.version < slot.version) {
                            late.count(0);
                        }
                        go_on();
                    } else if (hdr.netchain.operation > Operation.DELETE
                               || (bit<8>)hdr.netchain.operation == 0) {
                        answer(Status.UNKNOWN);
                    } else {
                        // 5. The head decides.
                        Status status;
                        bool writes;
                        decide(status, writes);
                        bool fits = slot.length == NO_VALUE
                            || slot.length <= room_bytes(hdr.netchain.room);
                        // (A write that could not be passed on must not be made.)
                        if (writes && fits) {
                            out_of_slots = slots.write({ hdr.netchain.key }, slot)
                                           == SlotResult.FULL;
                        }
                        if (!fits) {
                            answer(Status.NO_ROOM);
                        } else if (out_of_slots) {
                            answer(Status.FULL);
                        } else {
                            // A refused request, too, goes down: the tail answers, and members that
                            // are behind take over what it was compared with.
                            hdr.netchain.status = status;
                            hdr.netchain.flags = hdr.netchain.flags | STAMPED;
                            value_from_slot();
                            recent_from_slot();
                            go_on();
                        }
                    }
                }
            }
        }

        // 6. On its way.
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                        hdr.udp.source_port, hdr.udp.destination_port,
                                        hdr.ipv4.total_length, hdr.ipv4.tos,
                                        standard_metadata.egress_spec, hdr.ethernet.source,
                                        hdr.ethernet.destination);
        if (way == FibResult.UNREACHABLE) {
            no_route.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (way != FibResult.FORWARD) {
            standard_metadata.egress_spec = KERNEL_PORT;
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, change);
    }
}

control NetChainEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    apply { }
}

control NetChainComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NetChainDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(NetChainParser(), NetChainVerifyChecksum(), NetChainIngress(), NetChainEgress(),
         NetChainComputeChecksum(), NetChainDeparser()) main;
