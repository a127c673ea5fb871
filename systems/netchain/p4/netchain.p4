// netchain.p4: a coordination service that switches answer (NetChain, NSDI '18).
//
// Each key belongs to a group, and each group to a chain of switches. A write goes from the head to
// the tail, which answers; a read goes to the tail. The head gives each write a version; the others
// apply a write only if it is newer than what they have (Algorithm 1).
// systems/netchain/docs/design.md says where this differs from the paper, and why.
//
// Every switch knows every group's chain, and answers requests for a dead switch with it (in the
// place of Algorithm 2). Reads are answered while the other members, by their answers to
// this switch's probes, have no newer view.
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
// Clients whose requests it remembers; each takes 1 KiB.
#ifndef NETCHAIN_CLIENTS
#define NETCHAIN_CLIENTS 16384
#endif

// Bits of the position in a chain.
const bit<8> HEAD = 1;
const bit<8> TAIL = 2;
// It answers reads.
const bit<8> READER = 4;
// It takes copies of slots.
const bit<8> JOINING = 8;
// Tombstones below the floor are freed in this view.
const bit<8> COLLECTING = 16;

// What this switch is to the message's destination.
enum bit<8> Place {
    ON_THE_WAY = 0,
    THERE = 1,
    // It is dead, and this switch answers requests for it.
    DEAD = 2
}

// This switch's part in a group.
enum bit<8> Part {
    NONE = 0,
    MEMBER = 1,
    // It only knows the chain.
    OUTSIDE = 2,
    // All members were lost.
    LOST = 3,
    // A member of a view that does not serve yet.
    PAUSED = 4
}

// What becomes of a message.
enum bit<8> Step {
    ROUTE = 0,
    // To the next of the chain; from the tail to the client.
    PASS_ON = 1,
    ANSWER = 2,
    // The same with the group's chain.
    REFER = 3,
    DROP = 4,
    // Back to the switch that sent it.
    RETURN = 5,
    // To the switch that the packet generator made it for.
    GENERATED = 6,
    // Up the chain, to the member before.
    COLLECTED = 7
}

struct metadata_t {
    Place   place;
    // All that follows is from this switch's own tables; never from what a message says.
    bit<32> ring;
    // Of the decision that the parts are from.
    bit<64> version;
    Part    part;
    bit<32> view;
    bit<16> session;
    // Tombstones of earlier sessions may have been collected.
    bit<16> floor;
    // The view since which the head is this one.
    bit<32> head_since;
    bit<8>  position;
    bit<32> next;
    bit<8>  members;
    bit<32> member0;
    bit<32> member1;
    bit<32> member2;
    bit<32> member3;
    // The other members, by their numbers as peers.
    bit<32> peers;
}

#include "include/message.p4"
#include "include/slot.p4"

control NetChainVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NetChainIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    SlotState<slot_key_t, slot_t>(NETCHAIN_KEYS) slots;
    RequestWindow<client_t>(NETCHAIN_CLIENTS) windows;
    MessageTag() tags;
    PeerLeases() leases;

    // Messages, by status of the reply; those passed on down the chain count as REQUEST.
    counter(17, CounterType.packets) answered;
    // Writes and copies that came after a newer one, and went on without being applied.
    counter(1, CounterType.packets) late;
    // Tombstones whose slots were freed.
    counter(1, CounterType.packets) collected;
    // Dropped: from a dead switch; and stamped messages for one.
    counter(1, CounterType.packets) from_dead;
    counter(1, CounterType.packets) stamped_for_dead;
    // Dropped: no message of a length that its fields say.
    counter(1, CounterType.packets) malformed;
    // Dropped: a stamped write of another cluster.
    counter(1, CounterType.packets) other_ring;
    // Dropped: a stamped message that this switch has no part in: its view or group is another one.
    counter(1, CounterType.packets) other_view;
    // Dropped: a stamped message of a view that does not serve here yet.
    counter(1, CounterType.packets) paused;
    // Reads that were not answered, as this switch had no lease.
    counter(1, CounterType.packets) no_lease;
    // Dropped: copies of a request that another packet is deciding, and of one that is over.
    counter(1, CounterType.packets) running;
    counter(1, CounterType.packets) old;
    // Dropped: a stamped write for which this switch has no slot.
    counter(1, CounterType.packets) no_slot;
    counter(1, CounterType.packets) no_route;

    slot_t slot;
    bit<64> change; // of the IP header's sum
    Step step;
    Status status;

    // This switch's own NetChain address, in the cluster that was founded with this ring; and the
    // version of the decision that its parts are from, which it gets after them.
    action serve(bit<32> ring, bit<64> version) {
        meta.place = Place.THERE;
        meta.ring = ring;
        meta.version = version;
    }

    // The switch is dead. What `roles` says is told in its name.
    action dead() {
        meta.place = Place.DEAD;
    }

    table destinations {
        key = { hdr.ipv4.destination: exact; }
        actions = { serve; dead; NoAction; }
        const default_action = NoAction();
        stateplane_exchange = true;
        size = 1024;
    }

    // Switches from which no message may come, but for the answers that others give for them.
    table dead_sources {
        key = { hdr.ipv4.source: exact; }
        actions = { dead; NoAction; }
        const default_action = NoAction();
        stateplane_exchange = true;
        size = 1024;
    }

#include "include/parts.p4"

    action drop() {
        step = Step.DROP;
    }

    action answer(in Status what) {
        step = Step.ANSWER;
        status = what;
    }

    action refer_to_chain(in Status what) {
        step = Step.REFER;
        status = what;
    }

    // What becomes of a write at the head, and the slot as it then is. `known`: FRESH, DONE or
    // REFUSED. FRESH as the verdict: it is not decided.
    action decide(in WindowState known, out WindowState verdict, out bool writes) {
        forget_collected(meta.floor, slot);
        bit<64> done = recent_version(hdr, slot);
        bool possible = holds(hdr, slot);
        verdict = WindowState.FRESH;
        writes = false;
        if (done != 0 || known == WindowState.DONE) {
            // It goes down the chain once more: who is behind catches up.
            status = Status.DONE;
            verdict = WindowState.DONE;
            if (done == 0 || done != slot.version) {
                hdr.envelope.flags = hdr.envelope.flags | MOVED;
                hdr.netchain.operand = done;
            }
        } else if (known == WindowState.REFUSED) {
            // The state that it shows is no reason: by now the condition may hold.
            status = Status.REFUSED;
            hdr.envelope.flags = hdr.envelope.flags | MOVED;
            hdr.netchain.operand = 0;
        } else if (hdr.envelope.flags & AGAIN != 0 && has_forgotten(hdr, slot)
                   && !(possible && names_version(hdr))) {
            // Another head may have carried it out. (Not if its version is still the key's.)
            status = Status.UNDECIDED;
        } else if (possible) {
            status = Status.DONE;
            verdict = WindowState.DONE;
            writes = true;
            carry_out(hdr, meta.session, slot);
        } else {
            status = Status.REFUSED;
            verdict = WindowState.REFUSED;
        }
    }

#include "include/list.p4"
#include "include/collect.p4"

    action pop() {
        hdr.netchain.hop0 = hdr.netchain.hop1;
        hdr.netchain.hop1 = hdr.netchain.hop2;
        hdr.netchain.hop2 = hdr.netchain.hop3;
        hdr.netchain.hop3 = 0;
        hdr.envelope.hops = hdr.envelope.hops - 1;
    }

    // Down the chain as this switch's own view has it.
    action send_down() {
        hdr.envelope.flags = hdr.envelope.flags | STAMPED;
        change = change + replaced_address(hdr.ipv4.destination, meta.next);
        if (hdr.envelope.operation == Operation.COLLECT) {
            note_way_back(hdr.ipv4.destination);
        } else if (hdr.envelope.hops != 0) {
            pop();
        }
        hdr.ipv4.destination = meta.next;
        answered.count(0);
    }

    // To the member that the message passed before this one.
    action send_up() {
        bit<32> own = hdr.ipv4.destination;
        change = change + replaced_address(hdr.ipv4.source, own)
                 + replaced_address(own, hdr.netchain.hop0);
        hdr.ipv4.source = own;
        hdr.ipv4.destination = hdr.netchain.hop0;
        pop();
    }

    // To whom it came from, as long as it is: a veth frame has no room to grow.
    action turn_round() {
        bit<32> sender = hdr.ipv4.source;
        hdr.ipv4.source = hdr.ipv4.destination;
        hdr.ipv4.destination = sender;
        bit<16> port = hdr.udp.source_port;
        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = port;
    }

    // The message becomes its own reply.
    action send_back() {
        hdr.envelope.format = FORMAT;
        hdr.envelope.status = status;
        hdr.envelope.flags = (hdr.envelope.flags | REPLY) & ~STAMPED;
        turn_round();
        answered.count((bit<32>)(bit<8>)status);
        if (hdr.netchain.isValid()) {
            bool told = step == Step.REFER;
            hdr.netchain.view = meta.view;
            if (told) {
                // (What a client's writes make is newer; and this head has all verdicts since.)
                hdr.envelope.flags = hdr.envelope.flags | TOLD;
                hdr.netchain.version = (bit<64>)meta.floor << 48;
                hdr.netchain.operand = (bit<64>)meta.head_since;
            }
            hdr.envelope.hops = told ? meta.members : 0;
            hdr.netchain.hop0 = told ? meta.member0 : 0;
            hdr.netchain.hop1 = told ? meta.member1 : 0;
            hdr.netchain.hop2 = told ? meta.member2 : 0;
            hdr.netchain.hop3 = told ? meta.member3 : 0;
        }
    }

    apply {
        if (!hdr.ipv4.isValid()) {
            to_host();
            return;
        }
        change = TTL_DECREMENTED;
        step = Step.ROUTE;
        status = Status.REQUEST;
        bool stamped = hdr.envelope.flags & STAMPED != 0;
        bool generated = standard_metadata.ingress_port == GENERATOR_PORT;

        // 1. What this switch is to the destination, and who is dead.
        bool for_switch = hdr.udp.isValid() && hdr.udp.destination_port == NETCHAIN_PORT;
        bool by_switch = hdr.udp.isValid() && hdr.udp.source_port == NETCHAIN_PORT;
        if (for_switch) {
            destinations.apply();
        }
        if ((for_switch || by_switch) && !(by_switch && may_stand_in(hdr))) {
            if (dead_sources.apply().hit) {
                from_dead.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
        }
        if (hdr.ipv4.ttl <= 1) {
            to_host();
            return;
        }

        // 2. What is it?
        if (generated) {
            if (meta.place != Place.ON_THE_WAY) {
                drop();
            } else if (hdr.envelope.operation == Operation.PROBE) {
                step = Step.GENERATED;
            } else {
                // A copy of a slot, for a member of this view that joins; or a tombstone.
                roles.apply();
                slots.read({ hdr.netchain.key }, slot);
                if (hdr.envelope.operation == Operation.COLLECT) {
                    begin_collecting();
                } else if (meta.part != Part.MEMBER || meta.position & READER == 0 || slot.version == 0) {
                    drop();
                } else {
                    hdr.netchain.view = meta.view;
                    value_from_slot(hdr, slot);
                    recent_from_slot(hdr, slot);
                    step = Step.GENERATED;
                }
            }
        } else if (meta.place != Place.ON_THE_WAY) {
            bool other_format = hdr.envelope.isValid() && hdr.envelope.format != FORMAT
                                && hdr.envelope.flags & (REPLY | STAMPED) == 0;
            TagResult tag = TagResult.GENUINE;
            bool well_formed = other_format
                || is_well_formed(hdr, standard_metadata.parser_error == error.NoError);
            if (well_formed && stamped) {
                tag = tags.verify_member(hdr.udp.length - 8);
            } else if (well_formed) {
                tag = tags.verify(hdr.envelope.key_id, hdr.udp.length - 8);
            }
            if (!well_formed) {
                malformed.count(0);
                drop();
            } else if (tag != TagResult.GENUINE) {
                drop(); // (counted by its reason; whoever sent it hears nothing)
            } else if (other_format) {
                answer(Status.BAD_FORMAT);
            } else if (stamped && meta.place == Place.DEAD) {
                // With another view it would get past the members that refuse its own.
                stamped_for_dead.count(0);
                drop();
            } else if (meta.place == Place.THERE && hdr.netchain.ring != meta.ring) {
                if (stamped) {
                    other_ring.count(0);
                    drop();
                } else {
                    hdr.netchain.ring = meta.ring;
                    answer(Status.WRONG_RING);
                }
            } else if (stamped && hdr.envelope.operation == Operation.PROBE) {
                if (hdr.envelope.flags & REPLY == 0) {
                    hdr.netchain.version = meta.version;
                    hdr.envelope.flags = hdr.envelope.flags | REPLY;
                    step = Step.RETURN;
                } else {
                    // A peer without a decision may have had this one in an earlier life; and one
                    // with a newer one may be in a view that this switch does not have.
                    leases.answered(hdr.netchain.number, hdr.ipv4.source, hdr.netchain.client,
                                    hdr.netchain.operand,
                                    hdr.netchain.version != 0
                                    && hdr.netchain.version <= meta.version);
                    drop();
                }
            } else {
                roles.apply();
                bool permitted = true;
                bool reads = hdr.envelope.operation == Operation.READ
                             || hdr.envelope.operation == Operation.LIST;
                if (!stamped && meta.place == Place.THERE && meta.part == Part.MEMBER
                    && hdr.netchain.view == meta.view) {
                    check_rights(permitted);
                }
                if (stamped) {
                    bool in_view = meta.part == Part.MEMBER && hdr.netchain.view == meta.view;
                    // 3. A write on its way down (Algorithm 1, line 9 and on), or a copy.
                    bool is_down = meta.position & HEAD == 0 && is_write(hdr.envelope.operation);
                    bool is_copy = meta.position & JOINING != 0
                                   && hdr.envelope.operation == Operation.COPY;
                    bool collects = meta.position & COLLECTING != 0;
                    bool is_tombstone = collects && meta.position & HEAD == 0
                                        && hdr.envelope.operation == Operation.COLLECT;
                    bool is_collected = collects
                                        && hdr.envelope.operation == Operation.COLLECT_ACK;
                    if (meta.part == Part.PAUSED) {
                        paused.count(0);
                        drop();
                    } else if (in_view && is_collected) {
                        slots.read({ hdr.netchain.key }, slot);
                        collected_here();
                    } else if (in_view && (is_down || is_copy || is_tombstone)) {
                        step = is_copy ? Step.RETURN : Step.PASS_ON;
                        status = hdr.envelope.status;
                        slots.read({ hdr.netchain.key }, slot);
                        // What has no slot here has been collected, or never came.
                        bool stays_free = collects && slot.version == 0
                            && is_collectable(hdr.netchain.version, hdr.netchain.length,
                                              meta.floor);
                        bool applies = hdr.netchain.version > slot.version && !stays_free;
                        if (applies) {
                            slot.version = hdr.netchain.version;
                            value_to_slot(hdr, slot);
                            recent_to_slot(hdr, slot);
                            if (slots.write({ hdr.netchain.key }, slot, hdr.netchain.group)
                                == SlotResult.FULL) {
                                no_slot.count(0);
                                drop();
                            }
                        } else if (hdr.netchain.version < slot.version) {
                            late.count(0);
                        }
                        if (is_copy) {
                            hdr.envelope.operation = Operation.COPY_ACK;
                        } else if (is_tombstone && meta.position & TAIL != 0) {
                            collected_by_all(applies);
                        }
                    } else if (in_view && meta.position & READER != 0
                               && hdr.envelope.operation == Operation.COPY_ACK) {
                        slots.copied(hdr.netchain.number, hdr.netchain.group, meta.view);
                        drop();
                    } else {
                        other_view.count(0);
                        drop();
                    }
                } else if (meta.part == Part.NONE) {
                    answer(Status.NO_GROUP);
                } else if (meta.part == Part.LOST) {
                    answer(Status.LOST);
                } else if (meta.place == Place.DEAD) {
                    refer_to_chain(Status.OLD_VIEW);
                } else if (meta.part == Part.PAUSED) {
                    refer_to_chain(Status.PAUSED);
                } else if (hdr.netchain.view != meta.view) {
                    refer_to_chain(Status.OLD_VIEW);
                } else if (!permitted) {
                    // (Every client may learn the chain: it asks for it with a read in view 0.)
                    answer(Status.DENIED);
                } else if (reads) {
                    // 4. A read: only the reader knows what is on all members, and only while none
                    // of them has a newer view.
                    if (meta.position & READER == 0) {
                        refer_to_chain(Status.WRONG_SWITCH);
                    } else if (meta.position & TAIL == 0) {
                        // The tail joins, and may miss a write that this head has: who read that
                        // would see it go when reads move to the tail.
                        refer_to_chain(Status.PAUSED);
                    } else if (!leases.hold(meta.peers)) {
                        no_lease.count(0);
                        refer_to_chain(Status.PAUSED);
                    } else if (hdr.envelope.operation == Operation.LIST) {
                        list_keys();
                    } else {
                        slots.read({ hdr.netchain.key }, slot);
                        value_from_slot(hdr, slot);
                        answer(!has_value(slot) ? Status.ABSENT
                               : slot.length > room_bytes(hdr.netchain.room) ? Status.NO_ROOM
                               : Status.DONE);
                    }
                } else if (meta.position & HEAD == 0) {
                    refer_to_chain(Status.WRONG_SWITCH);
                } else if (!is_write(hdr.envelope.operation)) {
                    answer(Status.UNKNOWN);
                } else {
                    // 5. The head decides, once for each request, however many copies come.
                    WindowState known =
                        windows.claim({ hdr.netchain.client, hdr.envelope.key_id },
                                      hdr.netchain.number);
                    if (known == WindowState.RUNNING) {
                        running.count(0);
                        drop();
                    } else if (known == WindowState.OLD) {
                        old.count(0);
                        drop();
                    } else if (known == WindowState.FULL) {
                        answer(Status.TOO_MANY);
                    } else {
                        slots.read({ hdr.netchain.key }, slot);
                        WindowState verdict;
                        bool writes;
                        decide(known, verdict, writes);
                        if (slot.length != NO_VALUE
                            && slot.length > room_bytes(hdr.netchain.room)) {
                            // What could not be passed on must not be done.
                            answer(Status.NO_ROOM);
                            verdict = writes || verdict == WindowState.REFUSED
                                      ? WindowState.FRESH : verdict;
                        } else if (writes
                                   && slots.write({ hdr.netchain.key }, slot, hdr.netchain.group)
                                      == SlotResult.FULL) {
                            answer(Status.FULL);
                            verdict = WindowState.REFUSED;
                        } else {
                            // A refused request, too, goes down: the tail answers, and members that
                            // are behind take over what it was compared with.
                            step = Step.PASS_ON;
                            value_from_slot(hdr, slot);
                            recent_from_slot(hdr, slot);
                        }
                        if (known == WindowState.FRESH) {
                            windows.settle(verdict);
                        }
                    }
                }
            }
        }
        if (step == Step.DROP) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (step != Step.ROUTE) {
            hdr.envelope.status = status;
            hdr.udp.checksum = 0; // the message's tag says more
            // Fields change at each hop, so each hop tags anew.
            if (step == Step.PASS_ON && meta.position & TAIL == 0) {
                send_down();
                tags.sign_member(hdr.udp.length - 8);
            } else if (step == Step.RETURN || step == Step.GENERATED
                       || step == Step.COLLECTED) {
                if (step == Step.RETURN) {
                    turn_round();
                } else if (step == Step.COLLECTED) {
                    send_up();
                }
                tags.sign_member(hdr.udp.length - 8);
            } else {
                send_back();
                tags.sign(hdr.envelope.key_id, hdr.udp.length - 8);
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
