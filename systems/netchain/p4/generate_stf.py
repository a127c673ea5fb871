#!/usr/bin/env python3
"""Writes the packet tests of netchain.p4 (*.stf) beside itself. Run it after changing a case:
python3 systems/netchain/p4/generate_stf.py

Each file is one switch of the chain S0, S1, S2 (or of one that lost a member); what one sends is
what the next one gets in its file."""
import struct

from netchain_packets import *  # noqa: F403 (all of it is for these cases)


def figure_5():
    """Fig. 5 of the paper: W1 and W2 change places between S0 and S1, and again before S2."""
    w1 = Message(PUT, value=b"B", number=1)
    w2 = Message(PUT, value=b"C", number=2)
    first = [(0xC1, 1, version(1))]
    both = [(0xC1, 2, version(2))] + first

    case = write_file("figure_5_head", "S0 of Fig. 5: the head numbers both writes.", part(0, [0, 1, 2]))
    at_s1 = [down(w1, made=version(1), status=DONE, done=first),
             down(w2, made=version(2), status=DONE, done=both)]
    for write, passed_on in zip((w1, w2), at_s1):
        from_client(case, write)
        to_fabric(case, passed_on)
    case.write()

    case = write_file("figure_5_middle", "S1 of Fig. 5: W2 comes first; W1 goes on without being applied.",
                      part(1, [0, 1, 2]))
    at_s2 = [down(message) for message in at_s1]
    for at in (1, 0):
        from_fabric(case, at_s1[at])
        to_fabric(case, at_s2[at])
    case.counter("late", 1)
    case.write()

    case = write_file("figure_5_tail", "S2 of Fig. 5: both are acknowledged, and a read sees the newer.",
                      part(2, [0, 1, 2]))
    for at in (1, 0):
        from_fabric(case, at_s2[at])
        to_client(case, at_s2[at].reply(DONE))
    case.counter("late", 1)
    read = Message(READ, chain=(2, 1, 0), number=3)
    from_client(case, read)
    to_client(case, read.reply(DONE, value=b"C", made=version(2)))
    case.write()


def one_switch():
    """All operations on a chain of one."""
    case = write_file("operations", "All operations, on a chain of one switch.", part(0, [0]))
    count = [0]
    done = []

    def ask(operation, status, made, value=b"", length=None, sent=b"", writes=True, **fields):
        count[0] += 1
        message = Message(operation, chain=[0], number=count[0], value=sent, **fields)
        from_client(case, message)
        if operation != READ and status == DONE and writes:
            done.insert(0, (0xC1, count[0], made))
        to_client(case, message.reply(status, made=made, value=value, length=length, done=done[:4]))

    case.note("nothing is there")
    ask(READ, ABSENT, 0)
    ask(DELETE, REFUSED, 0)
    ask(COMPARE_OWNER, REFUSED, 0, sent=b"x")
    case.note("insert, and once more")
    ask(INSERT, DONE, version(1), b"owner--1rest", sent=b"owner--1rest")
    ask(INSERT, REFUSED, version(1), b"owner--1rest", sent=b"another")
    ask(READ, DONE, version(1), b"owner--1rest")
    case.note("by version")
    ask(COMPARE_VERSION, REFUSED, version(1), b"owner--1rest", sent=b"new", operand=version(2))
    ask(COMPARE_VERSION, DONE, version(2), b"owner--2", sent=b"owner--2", operand=version(1))
    case.note("by owner")
    owner = int.from_bytes(b"owner--2", "big")
    ask(COMPARE_OWNER, REFUSED, version(2), b"owner--2", sent=b"mine", operand=owner + 1)
    ask(COMPARE_OWNER, DONE, version(3), b"owner--3", sent=b"owner--3", operand=owner)
    case.note("a tombstone has a version, too")
    ask(DELETE, REFUSED, version(3), b"owner--3", operand=version(1))
    ask(DELETE, DONE, version(4), b"owner--3", NO_VALUE, operand=version(3))
    ask(READ, ABSENT, version(4), b"owner--3", NO_VALUE)
    case.note("a counter")
    ask(ADD, DONE, version(5), struct.pack("!Q", 5), operand=5)
    ask(ADD, DONE, version(6), struct.pack("!Q", 3), operand=(1 << 64) - 2)
    case.note("an owner is what the value says, not what is behind its end or was there before")
    ask(PUT, DONE, version(7), b"", sent=b"", room=0)
    ask(COMPARE_OWNER, REFUSED, version(7), b"", sent=b"mine", operand=3)
    ask(COMPARE_OWNER, DONE, version(8), b"mine", sent=b"mine", operand=0)
    case.note("64 and 128 bytes; a value longer than the room of a request")
    ask(PUT, DONE, version(9), bytes(range(64)), sent=bytes(range(64)), room=2)
    ask(PUT, DONE, version(10), bytes(range(128)), sent=bytes(range(128)), room=3)
    ask(READ, DONE, version(10), bytes(range(128)), room=3)
    ask(READ, NO_ROOM, version(10), bytes(range(64)), 128, room=2)
    ask(READ, NO_ROOM, version(10), b"", 128, room=0)
    case.note("what cannot be passed on is not done")
    message = Message(ADD, chain=[0], number=98, operand=1)
    from_client(case, message)
    to_client(case, message.reply(NO_ROOM))
    ask(READ, DONE, version(10), bytes(range(128)), room=3)
    case.note("no such operation for clients")
    for operation in (0, COPY, COPY_ACK, PROBE, 12, 255):
        message = Message(operation, chain=[0], number=99)
        from_client(case, message)
        to_client(case, message.reply(UNKNOWN))
    case.write()


def refused_goes_down():
    """Notes 1: only the tail answers, and a refused request repairs who is behind."""
    lost = Message(COMPARE_VERSION, value=b"A", operand=0, number=1, client=0xA)
    second = Message(COMPARE_VERSION, value=b"B", operand=0, number=1, client=0xB)
    done = [(0xA, 1, version(1))]
    case = write_file("refused_head", "The head passes a refused request on, with the state that it was compared with.",
                      part(0, [0, 1, 2]))
    from_client(case, lost)
    to_fabric(case, down(lost, made=version(1), status=DONE, done=done))
    from_client(case, second)
    refused = down(second, made=version(1), status=REFUSED, value=b"A", done=done)
    to_fabric(case, refused)
    case.write()
    case = write_file("refused_tail", "The tail lacks what a refused request was compared with: it takes it over, then answers.",
                      part(2, [0, 1, 2]))
    refused = down(refused)
    from_fabric(case, refused)
    to_client(case, refused.reply(REFUSED))
    read = Message(READ, chain=(2, 1, 0))
    from_client(case, read)
    to_client(case, read.reply(DONE, value=b"A", made=version(1)))
    case.write()


class OneSwitch:
    """A chain of one switch, and a key that counts; `done` are its newest records."""

    def __init__(self, name, about):
        self.case = write_file(name, about, part(0, [0]))
        self.done, self.count = [], 0

    def add(self, client, number, **fields):
        """An ADD of 1 that is carried out."""
        self.count += 1
        self.done = ([(client, number, version(self.count))] + self.done)[:4]
        message = Message(ADD, chain=[0], operand=1, client=client, number=number, **fields)
        self.answered(message, DONE)
        return message

    def answered(self, message, status, **fields):
        """The reply shows the key as it is."""
        from_client(self.case, message)
        shown = dict(made=version(self.count), value=struct.pack("!Q", self.count), length=None, done=self.done)
        to_client(self.case, message.reply(status, **{**shown, **fields}))


def exactly_once():
    """Notes 4: a request has one verdict in a view, however many copies of it come, and whenever."""
    one = OneSwitch("retries", "A request that comes several times is carried out once.")
    first = one.add(0xA, 1)
    again = first.change(flags=AGAIN, ttl=64)
    one.case.note("with nothing in between; AGAIN says that another head may have had a copy")
    for copy in (first, again):
        one.answered(copy, DONE)
    one.case.note("after another client's: both versions are told")
    for i in range(3):
        one.add(0xB, i)
    for copy in (first, again):
        one.answered(copy, DONE, flags=MOVED, operand=version(1))
    one.case.note("after so many that its record is gone: its version is not known any more")
    one.add(0xB, 5)
    for copy in (first, again):
        one.answered(copy, DONE, flags=MOVED, operand=0)
    one.case.note("an earlier head's, of which the records say nothing: nobody knows, as often as it comes")
    other = Message(ADD, chain=[0], operand=1, client=0xA, number=2, flags=AGAIN)
    one.answered(other, UNDECIDED)
    one.answered(other.change(made=version(1), ttl=64), UNDECIDED)
    one.case.note("the key's version shows that it was not carried out, or nothing")
    one.answered(Message(COMPARE_VERSION, chain=[0], value=b"x", operand=version(4), client=0xA, number=3,
                         flags=AGAIN), UNDECIDED)
    one.count += 1
    one.done = [(0xA, 4, version(6))] + one.done[:3]
    one.answered(Message(COMPARE_VERSION, chain=[0], value=struct.pack("!Q", 6), operand=version(5), client=0xA,
                         number=4, flags=AGAIN), DONE)
    one.case.note("its client had heard the oldest record's version before: it is not in the records, so it was not carried out")
    oldest = one.done[-1][2]
    one.answered(Message(ADD, chain=[0], operand=1, client=0xA, number=5, flags=AGAIN, made=oldest - 1), UNDECIDED)
    one.add(0xA, 5, flags=AGAIN, made=oldest)
    one.case.write()

    one = OneSwitch("retries_early", "An earlier head's request, where the records are whole.")
    one.add(0xA, 1, flags=AGAIN)
    one.add(0xB, 1)
    one.add(0xA, 2, flags=AGAIN)
    one.case.write()

    one = OneSwitch("refused_again", "What was refused is refused for good, though its condition holds now.")
    one.add(0xB, 1)
    insert = Message(INSERT, chain=[0], value=b"x", client=0xA)
    one.answered(insert, REFUSED)
    one.count += 1
    one.done = [(0xB, 2, version(2))] + one.done
    gone = dict(value=struct.pack("!Q", 1), length=NO_VALUE)
    one.answered(Message(DELETE, chain=[0], client=0xB, number=2), DONE, **gone)
    one.answered(insert, REFUSED, flags=MOVED, **gone)
    one.case.note("another request is decided anew")
    one.count += 1
    one.done = [(0xA, 2, version(3))] + one.done
    one.answered(insert.change(number=2, ttl=64), DONE, value=b"x")
    one.case.write()

    one = OneSwitch("no_room", "A request without room for the reply is not decided.")
    one.case.note("a value that the key has, and that a later write replaces")
    big = Message(PUT, chain=[0], value=bytes(range(128)), room=3, client=0xB)
    one.count, one.done = 1, [(0xB, 1, version(1))]
    one.answered(big, DONE, value=bytes(range(128)))
    insert = Message(INSERT, chain=[0], value=b"x", client=0xA)
    add = Message(ADD, chain=[0], operand=1, client=0xA, number=2)
    for message in (insert, add, insert):
        one.answered(message, NO_ROOM, made=0, value=message.fields["value"], done=[])
    one.case.note("with room they are")
    one.answered(insert.change(room=3, ttl=64), REFUSED, value=bytes(range(128)))
    one.count, one.done = 2, [(0xA, 2, version(2)), (0xB, 1, version(1))]
    sum_of = struct.pack("!Q", 0x0001020304050608) + bytes(range(8, 128))
    one.answered(add.change(room=3, ttl=64), DONE, value=sum_of)
    one.case.note("one that was carried out keeps its verdict")
    one.answered(add, NO_ROOM, made=0, value=b"", done=[])
    one.answered(add.change(room=3, ttl=64), DONE, value=sum_of)
    one.case.note("also if only its record was known: here, in the window of another key")
    foreign = add.change(key_id=2, ttl=64)
    one.answered(foreign, NO_ROOM, made=0, value=b"", done=[])
    for i in range(2, 6):
        one.count += 1
        one.done = ([(0xB, i, version(one.count))] + one.done)[:4]
        one.answered(Message(PUT, chain=[0], value=b"y", client=0xB, number=i), DONE, value=b"y")
    one.answered(foreign, DONE, value=b"y", flags=MOVED, operand=0)
    one.case.write()

    one = OneSwitch("old", "A request is over when the client's numbers have moved on by 256.")
    one.add(0xA, 44)
    one.add(0xA, 300)
    from_client(one.case, Message(ADD, chain=[0], operand=1, client=0xA, number=44))
    one.case.counter("old", 1)
    one.add(0xA, 45)
    one.case.note("another client's numbers, or another key's, are others")
    one.add(0xB, 44)
    other = Message(ADD, chain=[0], operand=1, client=0xA, number=44, key_id=2, key=b"bar")
    one.answered(other, DONE, made=version(1), value=struct.pack("!Q", 1), done=[(0xA, 44, version(1))])
    one.case.write()

    one = OneSwitch("too_many", "The head has no room for another client.\ndefine: NETCHAIN_CLIENTS=1")
    one.add(0xA, 1)
    one.answered(Message(PUT, chain=[0], value=b"x", client=0xB), TOO_MANY, made=0, value=b"x", done=[])
    one.case.note("which may read")
    one.answered(Message(READ, chain=[0], client=0xB, number=2), DONE)
    one.add(0xA, 2)
    one.case.write()

    case = write_file("retries_head", "A copy goes down the chain once more: what was lost on the way gets there.",
                      part(0, [0, 1, 2]))
    write = Message(PUT, value=b"A")
    made = down(write, made=version(1), status=DONE, done=[(0xC1, 1, version(1))])
    for _ in range(2):
        from_client(case, write)
        to_fabric(case, made)
    case.write()


def views():
    """Notes 2 and 5: messages of another view are refused; roles come from the switch's own view."""
    case = write_file("views", "S0 in view 2 of the chain S0, S2.", part(0, [0, 2], view=2))
    chain = dict(chain=[0, 2])
    case.note("the head's next is S2, whatever the client's list says")
    write = Message(PUT, value=b"x", chain=[0, 1, 2], view=2)
    from_client(case, write)
    stamped = write.change(destination=SWITCHES[2], chain=[2], flags=STAMPED, made=version(1), status=DONE,
                           done=[(0xC1, 1, version(1))])
    to_fabric(case, stamped)
    case.note("an old view, or none, gets the newest chain")
    for view in (1, 0):
        old = Message(PUT, value=b"x", view=view)
        from_client(case, old)
        to_client(case, old.reply(OLD_VIEW, view=2, **chain))
    case.note("a stamped write of an old view is dropped")
    from_fabric(case, Message(PUT, value=b"x", view=1, flags=STAMPED, made=version(9), chain=[0, 2]))
    case.counter("other_view", 1)
    case.note("the head answers no read, and takes no stamped write")
    read = Message(READ, chain=[0, 2], view=2)
    from_client(case, read)
    to_client(case, read.reply(WRONG_SWITCH, **chain))
    from_fabric(case, Message(PUT, value=b"x", view=2, flags=STAMPED, made=version(9), chain=[0, 2]))
    case.counter("other_view", 2)
    case.note("a read is not stamped")
    from_fabric(case, Message(READ, view=2, flags=STAMPED, chain=[0, 2]))
    case.counter("other_view", 3)
    case.note("another group")
    unknown = Message(READ, chain=[0], group=8, view=2)
    from_client(case, unknown)
    to_client(case, unknown.reply(NO_GROUP, view=0))
    from_fabric(case, Message(PUT, value=b"x", group=8, view=2, flags=STAMPED, made=version(9), chain=[0]))
    case.counter("other_view", 4)
    case.write()

    case = write_file("views_tail", "S2 in view 2 of the chain S0, S2: it takes no request for a write.",
                      part(2, [0, 2], view=2))
    write = Message(PUT, value=b"x", chain=[2], view=2)
    from_client(case, write)
    to_client(case, write.reply(WRONG_SWITCH, **chain))
    case.write()

    told = f"refer(view:2, head_since:{SINCE}, floor:0, {named([0, 2])})"
    case = write_file("outside", "S1 has left the chain: it knows who is in it.", f"{part(1, [])}\n{role(told)}")
    for view, status in ((1, OLD_VIEW), (2, WRONG_SWITCH)):
        for operation in (READ, PUT):
            request = Message(operation, chain=[1], view=view)
            from_client(case, request)
            to_client(case, request.reply(status, view=2, **chain))
    from_fabric(case, Message(PUT, value=b"x", chain=[1, 2], view=2, flags=STAMPED, made=version(1)))
    case.counter("other_view", 1)
    case.write()

    case = write_file("lost", "All members of the group were lost.", f"{part(0, [])}\n{role('lost(view:5)')}")
    for request in (Message(READ, chain=[0]), Message(PUT, chain=[0], value=b"x"), Message(READ, chain=[0], view=5)):
        from_client(case, request)
        to_client(case, request.reply(LOST, view=5))
    from_fabric(case, Message(PUT, value=b"x", chain=[0], view=5, flags=STAMPED, made=version(1)))
    case.counter("other_view", 1)
    case.write()


def other_clusters():
    """A message belongs to one cluster, and to one format."""
    case = write_file("wrong_ring", "Messages of another cluster: requests are told, stamped writes are dropped.",
                      part(1, [0, 1, 2]))
    for operation in (READ, PUT):
        request = Message(operation, chain=[1], value=b"x", ring=OTHER_RING)
        from_client(case, request)
        to_client(case, request.reply(WRONG_RING, ring=RING, view=0))
    from_fabric(case, Message(PUT, value=b"x", chain=[1, 2], ring=OTHER_RING, flags=STAMPED, made=version(1)))
    case.counter("other_ring", 1)
    case.write()

    case = write_file("bad_format", "Another format is answered in the size it came.", part(0, [0]))

    def other(size, flags=0, destination=SWITCHES[0], source=CLIENT, ports=(CLIENT_PORT, PORT), ttl=64, answered=False):
        body = struct.pack("!BBBBHHQ", 1 if answered else 2, 77, BAD_FORMAT if answered else 0, 9, flags, 3, 0)
        body = (body + bytes(range(200)))[:size]
        if size >= 16:
            body = tagged(body, client_tag(KEYS[3][0], body))
        return ipv4(source, destination, UDP, struct.pack("!HHHH", *ports, 8 + len(body), 0) + body, ttl=ttl)

    def sent(packet):
        case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, packet))

    for size in (16, 40, 216):
        sent(other(size))
        reply = other(size, REPLY, CLIENT, SWITCHES[0], (PORT, CLIENT_PORT), 63, True)
        case.expect(0, ethernet(CLIENT_MAC, PORT_MACS[0], reply))
    case.note("but for replies, stamped writes, and what has no sixteen bytes: else two switches would talk for ever")
    for i, packet in enumerate((other(40, REPLY), other(40, STAMPED), other(15), other(0))):
        sent(packet)
        case.counter("malformed", i + 1)
    case.note("others on their way are left alone")
    sent(other(40, destination=SWITCHES[1]))
    case.expect(1, ethernet(FABRIC_MAC, PORT_MACS[1], other(40, destination=SWITCHES[1], ttl=63)))
    case.write()


def passes(case, message):
    """From the fabric to the client's side, or the other way, without a change."""
    if message.fields["destination"] == CLIENT:
        from_fabric(case, message)
        to_client(case, message.change())
    else:
        from_client(case, message)
        to_fabric(case, message.change())


def dead_switches():
    """Notes 5: nothing comes from a switch that counts as dead, and nobody writes through it."""
    entries = f"{part(3, [])}\n{dead(1)}\n" + role(f"refer(view:2, head_since:{SINCE}, floor:0, {named([0, 2])})")
    case = write_file("dead", "S1 is dead, and this switch is no member: it answers in the name of S1.", entries)
    case.note("a write, a read, a retry; also in the newest view")
    for request in (Message(PUT, value=b"x", chain=(1, 2)), Message(READ, chain=(1, 0)),
                    Message(ADD, operand=1, chain=(1, 2), flags=AGAIN), Message(READ, chain=(1,), view=2)):
        from_client(case, request)
        to_client(case, request.reply(OLD_VIEW, view=2, chain=[0, 2]))
    case.note("a stamped message is dropped: with the new view it would get past the members that refuse its own")
    for i in range(2):
        from_fabric(case, Message(PUT, value=b"x", chain=(1, 2)[:2 - i], flags=STAMPED, made=version(1)))
        case.counter("stamped_for_dead", i + 1)
    from_fabric(case, Message(PROBE, chain=[1], source=SWITCHES[0], flags=STAMPED, room=0))
    case.counter("stamped_for_dead", 3)
    case.note("a group of which this switch knows nothing")
    unknown = Message(READ, chain=(1,), group=8)
    from_client(case, unknown)
    to_client(case, unknown.reply(NO_GROUP, view=0))
    case.note("what S1 itself still sends")
    reply = Message(READ, chain=(1,), status=DONE, value=b"x").reply(DONE)
    from_s1 = (Message(PUT, value=b"x", chain=(2,), flags=STAMPED, made=version(1), source=SWITCHES[1]), reply,
               Message(PROBE, chain=[0], source=SWITCHES[1], flags=STAMPED, room=0),
               Message(PROBE, chain=[0], source=SWITCHES[1], flags=STAMPED | REPLY, status=OLD_VIEW, room=0))
    for i, message in enumerate(from_s1):
        from_fabric(case, message)
        case.counter("from_dead", i + 1)
    case.note("a reply is nothing to answer")
    packet = bytearray(Message(READ, chain=(1,)).packet())
    packet[28 + 4] = REPLY >> 8
    case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, bytes(packet)))
    case.counter("malformed", 1)
    case.note("other switches' messages, and what is no message of NetChain, go their way")
    passes(case, Message(PUT, value=b"x", chain=(0, 2), view=2))
    passes(case, Message(READ, chain=(0,)).reply(DONE))
    for ports in ((53, 53), (PORT + 1, PORT + 1)):
        datagram = struct.pack("!HHHH", *ports, 8 + 20, 0) + bytes(20)
        case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, ipv4(CLIENT, SWITCHES[1], UDP, datagram)))
        case.expect(1, ethernet(FABRIC_MAC, PORT_MACS[1], ipv4(CLIENT, SWITCHES[1], UDP, datagram, ttl=63)))
    case.note("what another switch answers for S1 has its address, and no state")
    request = Message(PUT, value=b"x", chain=(1, 2))
    passes(case, request.reply(OLD_VIEW, view=2, chain=[0, 2]))
    for status in (NO_GROUP, LOST, BAD_FORMAT):
        passes(case, request.reply(status))
    for i, status in enumerate((DONE, REFUSED, WRONG_SWITCH, PAUSED)):
        from_fabric(case, request.reply(status))
        case.counter("from_dead", len(from_s1) + i + 1)
    case.write()

    case = write_file("dead_lost", "S1 is dead, and with it all that its group had.",
                      f"{part(3, [])}\n{dead(1)}\n{role('lost(view:5)')}")
    request = Message(READ, chain=[1])
    from_client(case, request)
    to_client(case, request.reply(LOST, view=5))
    case.write()


def failover():
    """In the place of Algorithm 2: members of the new view answer requests for S1, which is dead."""
    case = write_file("failover_middle", "N = S0: the head of S0, S2 stands in for S1, the dead middle.",
                      f"{part(0, [0, 2], view=2)}\n{dead(1)}")
    case.note("a write of the new view goes to S2")
    write = Message(PUT, value=b"x", chain=(0, 2), view=2)
    from_client(case, write)
    to_fabric(case, down(write, made=version(1), status=DONE, done=[(0xC1, 1, version(1))]))
    case.note("what S0 had stamped for S1 in view 1 is dropped")
    from_fabric(case, Message(PUT, value=b"x", chain=(1, 2), flags=STAMPED, made=version(1), source=CLIENT))
    case.counter("stamped_for_dead", 1)
    case.note("a client that takes S1 for the tail")
    read = Message(READ, chain=(1, 0))
    from_client(case, read)
    to_client(case, read.reply(OLD_VIEW, view=2, chain=[0, 2]))
    case.write()

    case = write_file("failover_head", "N = S2: it stands in for the dead head S1, and is the new one, in a session of its own.",
                      f"{part(2, [2], view=2, session=2)}\n{dead(1)}")
    write = Message(PUT, value=b"x", chain=(1, 2))
    from_client(case, write)
    to_client(case, write.reply(OLD_VIEW, view=2, chain=[2]))
    case.note("the client sends it again itself; the dead head may have carried it out")
    write = Message(PUT, value=b"x", chain=(2,), view=2, flags=AGAIN)
    made = version(1, session=2)
    from_client(case, write)
    to_client(case, write.reply(DONE, made=made, done=[(0xC1, 1, made)]))
    case.write()


def full():
    case = write_file("full", "No slot is left: the head says so, and changes nothing.\ndefine: NETCHAIN_KEYS=1", part(0, [0]))
    first = Message(PUT, chain=[0], value=b"x")
    from_client(case, first)
    to_client(case, first.reply(DONE, made=version(1), done=[(0xC1, 1, version(1))]))
    second = Message(PUT, chain=[0], value=b"x", key=b"bar", number=2)
    from_client(case, second)
    to_client(case, second.reply(FULL))
    case.note("a copy of it has the same verdict")
    from_client(case, second)
    to_client(case, second.reply(REFUSED, value=bytes(16), length=NO_VALUE, flags=MOVED))
    case.write()

    case = write_file("full_middle", "S1 has no slot left: a new key stops there, and is never acknowledged."
                      "\ndefine: NETCHAIN_KEYS=1", part(1, [0, 1, 2]))
    first = down(Message(PUT, value=b"A"), made=version(1), status=DONE, done=[(0xC1, 1, version(1))])
    from_fabric(case, first)
    to_fabric(case, down(first))
    from_fabric(case, down(Message(PUT, value=b"B", key=b"bar", number=2), made=version(1), status=DONE,
                           done=[(0xC1, 2, version(1))]))
    case.counter("no_slot", 1)
    case.note("a key that has a slot is written as before")
    again = down(Message(PUT, value=b"C", number=3), made=version(2), status=DONE,
                 done=[(0xC1, 3, version(2)), (0xC1, 1, version(1))])
    from_fabric(case, again)
    to_fabric(case, down(again))
    case.write()


def malformed():
    case = write_file("malformed", "Messages of other lengths than their fields say are dropped.", part(0, [0]))
    good = Message(PUT, chain=[0], value=b"x").packet()
    message = bytearray(good)
    for i, change in enumerate([
            (28 + 26, 4),  # no such room
            (28 + 26, 2),  # room that is not there
            (28 + 27, 17),  # a value longer than its room
            (28 + 27, NO_VALUE),  # nothing to write
            (28 + 1, READ),  # records in a read
            (28 + 4, REPLY >> 8)]):
        at, byte = change
        message = bytearray(good)
        message[at] = byte
        case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, bytes(message)))
        case.counter("malformed", i + 1)
    case.write()


if __name__ == "__main__":
    for function in (figure_5, one_switch, refused_goes_down, exactly_once, views, other_clusters, dead_switches, failover,
                     full, malformed):
        function()
