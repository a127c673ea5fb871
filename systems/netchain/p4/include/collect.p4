// collect.p4: tombstones that are freed, a part of NetChainIngress.
// (systems/netchain/docs/tombstones.md)
//
// In a collecting view the head sends each tombstone below the floor down the chain, with the
// address of each member that it passed as the way back. The tail frees its slot and acknowledges;
// so does each member on the way back.

// The sender is the first one on the way back.
action note_way_back(in bit<32> member) {
    hdr.netchain.hop3 = hdr.netchain.hop2;
    hdr.netchain.hop2 = hdr.netchain.hop1;
    hdr.netchain.hop1 = hdr.netchain.hop0;
    hdr.netchain.hop0 = member;
    hdr.envelope.hops = hdr.envelope.hops + 1;
}

// Frees the slot that was read if it is the message's tombstone; a key written since keeps it.
action free_collected() {
    if (slot.version == hdr.netchain.version
        && is_collectable(slot.version, slot.length, meta.floor)) {
        slots.free({ hdr.netchain.key });
        collected.count(0);
    }
}

// The agent queued this slot, at the head.
action begin_collecting() {
    if (meta.part != Part.MEMBER || meta.position & HEAD == 0 || meta.position & COLLECTING == 0) {
        drop();
    } else {
        hdr.netchain.view = meta.view;
        value_from_slot(hdr, slot);
        recent_from_slot(hdr, slot);
        if (!is_collectable(slot.version, slot.length, meta.floor)) {
            slots.copied(hdr.netchain.number, hdr.netchain.group, meta.view);
            drop();
        } else if (meta.position & TAIL != 0) {
            free_collected();
            drop();
        } else if (hdr.ipv4.destination != meta.next) {
            // Queued in an earlier view. It would pass by a member that has joined since.
            drop();
        } else {
            note_way_back(hdr.ipv4.source);
            step = Step.GENERATED;
        }
    }
}

// At the tail. A packet that has just written the slot cannot free it: the head sends it again.
action collected_by_all(in bool written) {
    if (written) {
        drop();
    } else {
        free_collected();
        hdr.envelope.operation = Operation.COLLECT_ACK;
        step = Step.COLLECTED;
    }
}

// From the tail back to the head, member by member. (At the head nothing is noted of the slot: its
// number may be another key's. What was not freed here is no tombstone, and is noted when the agent
// queues it next.)
action collected_here() {
    free_collected();
    if (hdr.envelope.hops == 0) {
        drop();
    } else {
        step = Step.COLLECTED;
    }
}
