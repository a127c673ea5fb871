// list.p4: the answer to LIST, a part of NetChainIngress.
//
// A request has the bits of the keys that are wanted as its key, the bits that count as the first
// 16 bytes of its value, and a cursor as its operand. The reply has up to eight keys in the place
// of the value; bit n of its version says that place n has one; its operand is the next cursor.

// May the client do that? It may list if each key with the prefix begins as its own keys do: the
// bits that do not count are tried as zeros and as ones.
action check_rights(out bool permitted) {
    bool lists = hdr.envelope.operation == Operation.LIST;
    bit<128> all = (bit<128>)64w0xffffffffffffffff << 64 | (bit<128>)64w0xffffffffffffffff;
    bit<128> mask = lists && hdr.value_128.isValid()
                    ? (bit<128>)hdr.value_16.w0 << 64 | (bit<128>)hdr.value_16.w1 : all;
    bool writes = hdr.envelope.operation != Operation.READ && !lists;
    permitted = tags.permits(hdr.envelope.key_id, hdr.netchain.key & mask, writes);
    if (permitted && lists) {
        permitted = tags.permits(hdr.envelope.key_id, hdr.netchain.key | ~mask, false);
    }
}

// The next key that is wanted, in one place of the reply.
action list_next(in bit<128> prefix, in bit<128> mask, in bit<64> place, out bit<64> high,
                 out bit<64> low) {
    slot_key_t key;
    bit<32> next;
    SlotResult result = slots.next(hdr.netchain.group, { prefix }, { mask }, NO_VALUE,
                                   (bit<32>)hdr.netchain.operand, key, next);
    bool found = result == SlotResult.FOUND;
    high = found ? key.key[127:64] : 0;
    low = found ? key.key[63:0] : 0;
    hdr.netchain.version = hdr.netchain.version | (found ? place : 0);
    hdr.netchain.operand = (bit<64>)next;
}

action list_keys() {
    if (!hdr.value_128.isValid()) {
        answer(Status.NO_ROOM);
    } else {
        bit<128> mask = (bit<128>)hdr.value_16.w0 << 64 | (bit<128>)hdr.value_16.w1;
        hdr.netchain.version = 0;
        hdr.netchain.length = 128;
        list_next(hdr.netchain.key, mask, 1, hdr.value_16.w0, hdr.value_16.w1);
        list_next(hdr.netchain.key, mask, 2, hdr.value_64.w2, hdr.value_64.w3);
        list_next(hdr.netchain.key, mask, 4, hdr.value_64.w4, hdr.value_64.w5);
        list_next(hdr.netchain.key, mask, 8, hdr.value_64.w6, hdr.value_64.w7);
        list_next(hdr.netchain.key, mask, 16, hdr.value_128.w8, hdr.value_128.w9);
        list_next(hdr.netchain.key, mask, 32, hdr.value_128.w10, hdr.value_128.w11);
        list_next(hdr.netchain.key, mask, 64, hdr.value_128.w12, hdr.value_128.w13);
        list_next(hdr.netchain.key, mask, 128, hdr.value_128.w14, hdr.value_128.w15);
        answer(Status.DONE);
    }
}
