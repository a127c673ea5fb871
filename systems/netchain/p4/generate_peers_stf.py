#!/usr/bin/env python3
"""Writes the packet tests of netchain.p4 on messages between switches (leases, copies) beside itself. Run it after changing
a case: python3 systems/netchain/p4/generate_peers_stf.py"""
from netchain_packets import (ABSENT, CLIENT, COPY, COPY_ACK, DONE, GENERATOR_PORT, HEAD, JOINING, NO_VALUE, OTHER_RING, PAUSED, PORT_MACS,
                              PROBE, PUT, READ, READER, REPLY, SINCE, STAMPED, SWITCHES, TAIL, UNKNOWN, WRONG_SWITCH, Message, ethernet,
                              from_client, from_fabric, named, part, role, take_part, to_client, to_fabric, version, write_file)

LIFE, LEASE_MS, MS = 0x11FE, 100, 1_000_000
# S2's peers: S0 has number 0, S1 number 1.
PEERS = f"# peers: leases lease_ms {LEASE_MS} life {LIFE} {SWITCHES[0]} {SWITCHES[1]}\n"
OTHERS = 0x0001FFFF


class Peer:
    """A probe that S2 sent to another switch, and what that one answers."""

    def __init__(self, number, at_ms):
        self.probe = Message(PROBE, chain=[number], source=SWITCHES[2], flags=STAMPED, room=0, length=NO_VALUE, key_id=0, view=0,
                             group=0, key=b"", client=LIFE, number=number, operand=at_ms * MS)

    def answer(self, made, **fields):
        """With the version of the peer's decision."""
        f = self.probe.fields
        changed = dict(flags=STAMPED | REPLY, source=f["destination"], destination=SWITCHES[2], made=made, chain=[])
        return self.probe.change(**{**changed, **fields})


class Reader:
    """S2, the tail of S0, S1, S2, which reads in a lease of both others."""

    def __init__(self, name, about, decision=9, entries=None):
        entries = entries or part(2, [0, 1, 2], decision=decision, peers=OTHERS)
        self.case = write_file(name, about, PEERS + entries)
        self.now_ms, self.denied = 1000, 0  # (a test's clock begins at one second)

    def clock(self, ms):
        self.now_ms += ms
        self.case.lines.append(f"clock {ms}ms")

    def read(self, answered):
        """A read is answered, or the client is told to wait."""
        read = Message(READ, chain=(2, 1, 0))
        from_client(self.case, read)
        if answered:
            to_client(self.case, read.reply(ABSENT, length=NO_VALUE))
        else:
            self.denied += 1
            to_client(self.case, read.reply(PAUSED, chain=[0, 1, 2]))
            self.case.counter("no_lease", self.denied)

    def heard(self, peer, made, at_ms=None, **fields):
        """S2 hears the answer to the probe that it sent then."""
        at_ms = self.now_ms if at_ms is None else at_ms
        from_fabric(self.case, Peer(peer, at_ms).answer(made, **fields))
        self.case.lines.append("no_packet")


def leases():
    """Design, "Leases": a read is answered while the reader has a lease of each other member."""
    reader = Reader("leases", "A reader answers while it has a lease of each other member.")
    note = reader.case.note
    note("nobody has answered")
    reader.read(False)
    note("one of them is not enough")
    reader.heard(0, 9)
    reader.read(False)
    reader.heard(1, 9)
    reader.read(True)
    note("a lease counts from the probe's clock, not from its answer")
    reader.clock(99)
    reader.read(True)
    reader.clock(1)
    reader.read(False)
    reader.heard(0, 9, at_ms=1090)
    reader.heard(1, 9, at_ms=1050)
    reader.read(True)
    reader.clock(49)
    reader.read(True)
    reader.clock(1)
    reader.read(False)
    note("an answer that comes again changes nothing, nor an older one after a newer one")
    reader.heard(1, 9)
    reader.heard(0, 9)
    reader.heard(1, 9, at_ms=1050)
    reader.clock(99)
    reader.read(True)
    reader.clock(1)
    reader.heard(1, 9, at_ms=1150)
    reader.heard(0, 9, at_ms=1150)
    reader.read(False)
    reader.case.write()

    reader = Reader("leases_version", "Which answers renew a lease: of a decision that this switch has, or an older one.")
    note = reader.case.note
    reader.heard(0, 9)
    note("a switch without a decision may have had this one in an earlier life")
    reader.heard(1, 0)
    reader.read(False)
    note("one with a newer decision may be in a view that this one does not have")
    reader.heard(1, 10)
    reader.heard(1, (1 << 64) - 1)
    reader.read(False)
    note("an older decision is none that this switch lacks")
    reader.heard(1, 8)
    reader.read(True)
    note("neither takes a lease away that there is")
    reader.heard(1, 10)
    reader.read(True)
    reader.case.write()

    reader = Reader("leases_none", "A switch without a decision has no lease.", decision=0)
    for made in (0, 1):
        reader.heard(0, made)
        reader.heard(1, made)
        reader.read(False)
    reader.case.write()

    reader = Reader("leases_foreign", "Answers that are none to this switch's own probes of that peer.")
    note = reader.case.note
    reader.heard(0, 9)
    note("of an earlier life, with its clock")
    reader.heard(1, 9, client=LIFE + 1)
    reader.read(False)
    note("from another switch than has the number; with a number that nobody has")
    reader.heard(1, 9, number=0)
    reader.heard(0, 9, number=1)
    reader.heard(1, 9, number=2)
    reader.heard(1, 9, number=255)
    reader.heard(1, 9, number=256 + 1)
    reader.read(False)
    note("of another cluster; forged")
    reader.heard(1, 9, ring=OTHER_RING)
    reader.case.counter("other_ring", 1)
    reader.heard(1, 9, tag=1)
    reader.read(False)
    note("its own probe, which came round")
    probe = Peer(1, 1000).probe.change(destination=SWITCHES[2], made=9)
    from_fabric(reader.case, probe)
    to_fabric(reader.case, probe.change(flags=STAMPED | REPLY, source=SWITCHES[2], destination=SWITCHES[2]))
    reader.read(False)
    note("the right one")
    reader.heard(1, 9)
    reader.read(True)
    reader.case.write()


def readers():
    """Who reads is told apart from who is the tail."""
    about = "S1 joins behind S0, the only other member. S0 may have a write that S1 misses: nobody reads."
    alone = take_part(0, [0, 1], position=HEAD | READER)
    reader = Reader("reader", about, entries=part(0, []) + "\n" + alone)
    read = Message(READ, chain=[0])
    from_client(reader.case, read)
    to_client(reader.case, read.reply(PAUSED, chain=[0, 1]))
    reader.case.write()
    case = write_file("reader_tail", about, part(1, [0, 1], position=TAIL))
    read = Message(READ, chain=[1])
    from_client(case, read)
    to_client(case, read.reply(WRONG_SWITCH, chain=[0, 1]))
    case.write()


def probes():
    """What a switch answers to a probe, and what becomes of its own."""
    case = write_file("probes", "S1 answers probes with the version of its decision, and signs its own.",
                      PEERS + part(1, [0, 1, 2], decision=7))
    peer = Peer(1, 1000)
    from_fabric(case, peer.probe)
    to_fabric(case, peer.answer(7))
    case.note("of another cluster; not a member's")
    from_fabric(case, peer.probe.change(ring=OTHER_RING, ttl=64))
    case.counter("other_ring", 1)
    from_fabric(case, peer.probe.change(tag=1, ttl=64))
    case.lines.append("no_packet")
    case.note("with the room of a value, but no records")
    from_fabric(case, peer.probe.change(room=1, ttl=64))
    to_fabric(case, peer.answer(7, room=1))
    case.note("others on their way")
    from_client(case, Peer(0, 1000).probe)
    to_fabric(case, Peer(0, 1000).probe.change())
    case.note("one that the packet generator made for S2; no other port has its number")
    own = Message(PROBE, chain=[2], source=SWITCHES[1], flags=STAMPED, room=0, length=NO_VALUE, key_id=0, view=0, group=0, key=b"",
                  client=LIFE, number=1, operand=5, tag=0)
    case.packet(GENERATOR_PORT, bytes(12) + ethernet(PORT_MACS[0], PORT_MACS[0], own.packet())[12:])
    to_fabric(case, own.change(tag=None))
    case.write()


def paused():
    """A member of a view that does not serve yet."""
    told = role(f"pause(view:2, head_since:{SINCE}, floor:0, {named([0, 2])})")
    case = write_file("paused", "S2 is in view 2, which does not serve yet.", f"{part(2, [])}\n{told}")
    for view in (0, 1, 2, 3):
        for operation in (READ, PUT):
            request = Message(operation, chain=[2], view=view, value=b"x" if operation == PUT else b"")
            from_client(case, request)
            to_client(case, request.reply(PAUSED, view=2, chain=[0, 2]))
    case.note("a write of any view")
    for i, view in enumerate((1, 2)):
        from_fabric(case, Message(PUT, value=b"x", chain=[2], view=view, flags=STAMPED, status=DONE, made=version(1)))
        case.counter("paused", i + 1)
    case.write()


def copy(**fields):
    """A copy of a slot that the reader S2 sends to S1, which joins; room is for all values."""
    usual = dict(source=SWITCHES[2], flags=STAMPED, room=3, key_id=0, view=2, client=0, number=5)
    return Message(COPY, **{**usual, "chain": [1], **fields})


def acknowledged(message):
    """What S1 returns."""
    f = message.fields
    return message.change(operation=COPY_ACK, source=f["destination"], destination=f["source"])


def copies():
    """Design, "Joining": slots that the reader copies to a new member."""
    everything = HEAD | TAIL | READER | JOINING  # (so that the test can read what is there)
    case = write_file("copies", "A member that joins takes copies that are newer than what it has.",
                      part(1, [1], view=2, position=everything))
    done = [(0xC1, 9, version(3))]

    def taken(message):
        from_fabric(case, message)
        to_fabric(case, acknowledged(message))

    def shows(key, made, value, length=None):
        read = Message(READ, chain=[1], key=key, view=2, room=3)
        from_client(case, read)
        to_client(case, read.reply(DONE if length is None else ABSENT, made=made, value=value, length=length))

    first = copy(made=version(3), value=b"new", done=done)
    taken(first)
    shows(b"foo", version(3), b"new")
    case.note("an older one; the same one once more; both are acknowledged, and change nothing")
    taken(copy(made=version(2), value=b"old"))
    taken(first)
    shows(b"foo", version(3), b"new")
    case.counter("late", 1)
    case.note("its records came with it")
    again = Message(PUT, chain=[1], value=b"new", view=2, number=9)
    from_client(case, again)
    to_client(case, again.reply(DONE, made=version(3), done=done))
    case.note("a tombstone: what was deleted stays so")
    taken(copy(made=version(4), length=NO_VALUE, value=b"gone"))
    shows(b"foo", version(4), b"gone", NO_VALUE)
    taken(copy(made=version(3), value=b"new"))
    shows(b"foo", version(4), b"gone", NO_VALUE)
    case.note("of another view, or group")
    for i, other in enumerate((dict(view=1), dict(view=3), dict(group=8))):
        from_fabric(case, copy(made=version(9), value=b"x", **other))
        case.counter("other_view", i + 1)
    case.note("of somebody else")
    from_fabric(case, copy(made=version(9), value=b"x", tag=1))
    asked = copy(made=version(9), value=b"x", flags=0, key_id=3, source=CLIENT)
    from_client(case, asked)
    to_client(case, asked.reply(UNKNOWN))
    shows(b"foo", version(4), b"gone", NO_VALUE)
    case.write()

    case = write_file("copies_full", "What does not fit is not acknowledged.\ndefine: NETCHAIN_KEYS=1",
                      part(1, [1], view=2, position=JOINING))
    first = copy(made=version(3), value=b"new")
    from_fabric(case, first)
    to_fabric(case, acknowledged(first))
    from_fabric(case, copy(made=version(3), value=b"x", key=b"bar"))
    case.counter("no_slot", 1)
    case.write()

    case = write_file("copies_member", "A member that does not join takes no copies.", part(1, [0, 1, 2], view=2))
    from_fabric(case, copy(made=version(3), value=b"new"))
    case.counter("other_view", 1)
    case.write()

    case = write_file("copies_reader", "The reader S2 fills in the copies that its packet generator makes.",
                      part(2, [0, 1, 2], view=2))
    write = Message(PUT, chain=[2], view=2, value=b"new", flags=STAMPED, status=DONE, made=version(3), done=[(0xC1, 1, version(3))])
    from_fabric(case, write)
    to_client(case, write.reply(DONE))

    def generated(key):
        frame = copy(key=key, view=0, tag=0, length=NO_VALUE).packet()
        case.packet(GENERATOR_PORT, bytes(12) + ethernet(PORT_MACS[0], PORT_MACS[0], frame)[12:])

    generated(b"foo")
    to_fabric(case, copy(made=version(3), value=b"new", done=[(0xC1, 1, version(3))], ttl=63))
    case.note("a key without a slot")
    generated(b"bar")
    case.lines.append("no_packet")
    case.note("the acknowledgement ends here; of another view it counts for nothing")
    ack = acknowledged(copy(made=version(3), value=b"new"))
    from_fabric(case, ack)
    case.lines.append("no_packet")
    from_fabric(case, ack.change(view=1, ttl=64))
    case.counter("other_view", 1)
    case.write()

    case = write_file("copies_paused", "Nothing is copied before the view serves.",
                      f"{part(2, [])}\n" + role(f"pause(view:2, head_since:{SINCE}, floor:0, {named([0, 1, 2])})"))
    generated(b"foo")
    case.lines.append("no_packet")
    from_fabric(case, ack)
    case.counter("paused", 1)
    case.write()


if __name__ == "__main__":
    for function in (leases, readers, probes, paused, copies):
        function()
