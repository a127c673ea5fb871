// parts.p4: this switch's part in a group, as its agent says, a part of NetChainIngress.

action know_chain(in bit<32> view, in bit<32> head_since, in bit<16> floor, in bit<8> members,
                  in bit<32> member0, in bit<32> member1, in bit<32> member2,
                  in bit<32> member3) {
    meta.view = view;
    meta.head_since = head_since;
    meta.floor = floor;
    meta.members = members;
    meta.member0 = member0;
    meta.member1 = member1;
    meta.member2 = member2;
    meta.member3 = member3;
}

// `peers`: the numbers of the other members in the agent's list of peers; 255: none.
action take_part(bit<32> view, bit<32> head_since, bit<16> session, bit<16> floor,
                 bit<8> position, bit<32> next, bit<8> members, bit<32> member0,
                 bit<32> member1, bit<32> member2, bit<32> member3, bit<32> peers) {
    know_chain(view, head_since, floor, members, member0, member1, member2, member3);
    meta.part = Part.MEMBER;
    meta.session = session;
    meta.position = position;
    meta.next = next;
    meta.peers = peers;
}

// This switch is no member: it can say who is.
action refer(bit<32> view, bit<32> head_since, bit<16> floor, bit<8> members, bit<32> member0,
             bit<32> member1, bit<32> member2, bit<32> member3) {
    know_chain(view, head_since, floor, members, member0, member1, member2, member3);
    meta.part = Part.OUTSIDE;
}

// It is a member of a view that does not serve yet.
action pause(bit<32> view, bit<32> head_since, bit<16> floor, bit<8> members, bit<32> member0,
             bit<32> member1, bit<32> member2, bit<32> member3) {
    know_chain(view, head_since, floor, members, member0, member1, member2, member3);
    meta.part = Part.PAUSED;
}

action lost(bit<32> view) {
    meta.part = Part.LOST;
    meta.view = view;
}

// Only for the incarnation of the slots: a switch without its slots has no part.
table roles {
    key = { hdr.netchain.group: exact; }
    actions = { take_part; refer; pause; lost; NoAction; }
    const default_action = NoAction();
    stateplane_exchange = true;
    stateplane_per_incarnation = true;
    size = 4096;
}
