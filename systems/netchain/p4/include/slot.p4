// slot.p4: what a slot holds, and how it comes from a message and goes into one.
#ifndef NETCHAIN_SLOT_P4
#define NETCHAIN_SLOT_P4

struct slot_key_t {
    bit<128> key;
}

// Whose requests have numbers of their own.
struct client_t {
    bit<64> client;
    bit<16> key_id;
}

// The key's newest write that this switch knows.
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

void value_from_slot(inout headers_t hdr, in slot_t slot) {
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

void value_to_slot(in headers_t hdr, inout slot_t slot) {
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

void recent_from_slot(inout headers_t hdr, in slot_t slot) {
    hdr.recent = { slot.client0, slot.number0, slot.status0, slot.version0,
                   slot.client1, slot.number1, slot.status1, slot.version1,
                   slot.client2, slot.number2, slot.status2, slot.version2,
                   slot.client3, slot.number3, slot.status3, slot.version3 };
}

void recent_to_slot(in headers_t hdr, inout slot_t slot) {
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

// Notes that the slot's version is this request's.
void remember(in headers_t hdr, inout slot_t slot) {
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
    slot.status0 = (bit<8>)Status.DONE;
    slot.version0 = slot.version;
}

// The version that this very request made, or 0: the slot has no record of it.
bit<64> recent_version(in headers_t hdr, in slot_t slot) {
    bit<64> client = hdr.netchain.client;
    bit<32> number = hdr.netchain.number;
    bit<64> version = 0;
    if (slot.status0 != 0 && slot.client0 == client && slot.number0 == number) {
        version = slot.version0;
    } else if (slot.status1 != 0 && slot.client1 == client && slot.number1 == number) {
        version = slot.version1;
    } else if (slot.status2 != 0 && slot.client2 == client && slot.number2 == number) {
        version = slot.version2;
    } else if (slot.status3 != 0 && slot.client3 == client && slot.number3 == number) {
        version = slot.version3;
    }
    return version;
}

// A key without a slot may have had one that was collected, with records of requests: it counts as
// having four of nobody, as new as a collected tombstone can be.
void forget_collected(in bit<16> floor, inout slot_t slot) {
    if (slot.version == 0 && floor != 0) {
        bit<8> done = (bit<8>)Status.DONE;
        bit<64> newest = (bit<64>)floor << 48;
        slot.version0 = newest;
        slot.status0 = done;
        slot.version1 = newest;
        slot.status1 = done;
        slot.version2 = newest;
        slot.status2 = done;
        slot.version3 = newest;
        slot.status3 = done;
    }
}

// May this request be one that is forgotten? The slot has the records of all writes since the
// oldest one's version. A write's request has a version that the key had before it was sent first.
bool has_forgotten(in headers_t hdr, in slot_t slot) {
    return slot.status3 != 0 && slot.version3 > hdr.netchain.version;
}

bool has_value(in slot_t slot) {
    return slot.version != 0 && slot.length != NO_VALUE;
}

// Does a write's condition hold?
bool holds(in headers_t hdr, in slot_t slot) {
    bool present = has_value(slot);
    bit<64> operand = hdr.netchain.operand;
    bool result = true;
    if (hdr.envelope.operation == Operation.INSERT) {
        result = !present;
    } else if (hdr.envelope.operation == Operation.COMPARE_VERSION) {
        result = slot.version == operand;
    } else if (hdr.envelope.operation == Operation.COMPARE_OWNER) {
        result = present && slot.w0 == operand;
    } else if (hdr.envelope.operation == Operation.DELETE) {
        result = present && (operand == 0 || slot.version == operand);
    }
    return result;
}

// Is it a write that names the version it follows? (0 names none: a key can have it twice.)
bool names_version(in headers_t hdr) {
    return hdr.netchain.operand != 0
        && (hdr.envelope.operation == Operation.COMPARE_VERSION
            || hdr.envelope.operation == Operation.DELETE);
}

// Is it a tombstone of a session before this floor?
bool is_collectable(in bit<64> version, in bit<8> length, in bit<16> floor) {
    return version != 0 && length == NO_VALUE && version < (bit<64>)floor << 48;
}

// Carries a write out: the slot as it is afterwards.
void carry_out(in headers_t hdr, in bit<16> session, inout slot_t slot) {
    if (hdr.envelope.operation == Operation.DELETE) {
        slot.length = NO_VALUE;
    } else if (hdr.envelope.operation == Operation.ADD) {
        bool present = has_value(slot);
        slot.w0 = (present ? slot.w0 : 0) + hdr.netchain.operand;
        slot.length = present && slot.length > 8 ? slot.length : 8;
    } else {
        value_to_slot(hdr, slot);
    }
    slot.version = next_version(session, slot.version);
    remember(hdr, slot);
}

#endif
