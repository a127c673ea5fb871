#!/usr/bin/env python3
"""Writes the packet tests of netchain.p4 on collected tombstones (systems/netchain/docs/tombstones.md) beside itself. Run it after changing a
case: python3 systems/netchain/p4/generate_collect_stf.py"""
from netchain_packets import (ABSENT, AGAIN, CLIENT, COLLECT, COLLECT_ACK, COLLECTING, COMPARE_VERSION, DELETE, DONE, GENERATOR_PORT,
                              HEAD, INSERT, MOVED, NO_VALUE, OLD_VIEW, PORT_MACS, PUT, READ, READER, REFUSED, SINCE, STAMPED, SWITCHES, TAIL,
                              UNDECIDED, Message, down, ethernet, from_client, from_fabric, named, part, role, to_client, to_fabric,
                              version, write_file)

VIEW, FLOOR = 3, 2
NOBODYS = [(0, 0, version(0, FLOOR))] * 4
MADE = version(4)  # of the tombstone: the session before the floor


def tombstone(at, made=MADE, **fields):
    """COLLECT as it comes to switch `at` of the chain S0, S1, S2: the way back is behind it."""
    back = list(range(at))[::-1]
    values = dict(flags=STAMPED, key_id=0, client=0, number=5, room=3, length=NO_VALUE, made=made, view=VIEW, chain=back,
                  source=SWITCHES[0], destination=SWITCHES[at])
    return Message(COLLECT, **{**values, **fields})


def on(message, at):
    """What member `at` passes on."""
    f = message.fields
    return message.change(destination=SWITCHES[at + 1], chain=[at] + f["chain"])


def back(message, at):
    """The acknowledgement that member `at` sends to the one before."""
    chain = message.fields["chain"]
    return message.change(operation=COLLECT_ACK, source=SWITCHES[at], destination=SWITCHES[chain[0]], chain=chain[1:])


def stamped(operation, sequence, session=1, **fields):
    """A write on its way from the head."""
    made = version(sequence, session)
    values = dict(view=VIEW, flags=STAMPED, status=DONE, made=made, done=[(0xC1, sequence, made)], number=sequence)
    return Message(operation, **{**values, **fields})


def tail():
    case = write_file("collect_tail", "The tail S2 frees tombstones below the floor, and acknowledges them.",
                      part(2, [0, 1, 2], view=VIEW, session=2, floor=FLOOR, position=TAIL | READER | COLLECTING))

    def write(operation, sequence, **fields):
        message = stamped(operation, sequence, chain=[2], **fields)
        from_fabric(case, message)
        to_client(case, message.reply(DONE))

    def shows(made, value=b"", done=ABSENT):
        read = Message(READ, chain=[2], view=VIEW, room=3)
        from_client(case, read)
        to_client(case, read.reply(done, made=made, value=value, length=NO_VALUE if done == ABSENT else None))

    def collected(count):
        message = tombstone(2)
        from_fabric(case, message)
        to_fabric(case, back(message, 2))
        case.counter("collected", count)

    write(PUT, 3, value=b"x")
    write(DELETE, 4, length=NO_VALUE)
    shows(MADE)
    collected(1)
    shows(0)
    case.note("its acknowledgement was lost: it comes again")
    collected(1)
    case.note("a late refusal with the tombstone does not bring it back")
    late = stamped(INSERT, 4, chain=[2], status=REFUSED, value=b"", length=NO_VALUE)
    from_fabric(case, late)
    to_client(case, late.reply(REFUSED))
    shows(0)
    case.note("a value of the session before does: M and T may have missed it")
    write(PUT, 6, value=b"y")
    shows(version(6), b"y", DONE)
    case.note("a newer value stays")
    collected(1)
    shows(version(6), b"y", DONE)
    case.note("of another view, or of somebody else")
    from_fabric(case, tombstone(2, view=VIEW - 1))
    case.counter("other_view", 1)
    from_fabric(case, tombstone(2, tag=1))
    case.lines.append("no_packet")
    case.write()

    case = write_file("collect_behind", "The delete was lost on its way to the tail S2, which has the older value.",
                      part(2, [0, 1, 2], view=VIEW, session=2, floor=FLOOR, position=TAIL | READER | COLLECTING))
    write(PUT, 3, value=b"x")
    case.note("it takes the tombstone over, and frees it when it comes again")
    from_fabric(case, tombstone(2))
    case.lines.append("no_packet")
    shows(MADE)
    collected(1)
    shows(0)
    case.write()

    case = write_file("collect_not_now", "Tombstones are freed in a collecting view only.",
                      part(2, [0, 1, 2], view=VIEW, session=2, floor=FLOOR))
    write(PUT, 3, value=b"x")
    write(DELETE, 4, length=NO_VALUE)
    from_fabric(case, tombstone(2))
    case.counter("other_view", 1)
    shows(MADE)
    case.write()


def middle():
    case = write_file("collect_middle", "S1 passes tombstones on, and frees them when they come back.",
                      part(1, [0, 1, 2], view=VIEW, session=2, floor=FLOOR, position=COLLECTING))
    for write in (stamped(PUT, 3, chain=[1, 2], value=b"x"), stamped(DELETE, 4, chain=[1, 2], length=NO_VALUE)):
        from_fabric(case, write)
        to_fabric(case, down(write))
    message = tombstone(1)
    from_fabric(case, message)
    to_fabric(case, on(message, 1))
    case.counter("collected", 0)
    returned = back(on(message, 1), 2).change(ttl=64)
    from_fabric(case, returned)
    to_fabric(case, returned.change(source=SWITCHES[1], destination=SWITCHES[0], chain=[]))
    case.counter("collected", 1)
    case.note("once more: there is none any more, and it goes the same ways")
    from_fabric(case, message)
    to_fabric(case, on(message, 1))
    from_fabric(case, returned)
    to_fabric(case, returned.change(source=SWITCHES[1], destination=SWITCHES[0], chain=[]))
    case.counter("collected", 1)
    case.write()


def generated(case, key=b"foo", to=1):
    frame = tombstone(to, key=key, view=0, made=0, chain=[], tag=0, length=NO_VALUE).packet()
    case.packet(GENERATOR_PORT, bytes(12) + ethernet(PORT_MACS[0], PORT_MACS[0], frame)[12:])


def head():
    # (Session 1 under a floor of 2: the tombstone that the test makes is below it.)
    case = write_file("collect_head", "The head S0 sends its tombstones down the chain, and frees them last.",
                      part(0, [0, 1, 2], view=VIEW, session=1, floor=FLOOR, position=HEAD | COLLECTING))

    def write(operation, made, done, status=DONE, **fields):
        message = Message(operation, view=VIEW, **fields)
        from_client(case, message)
        value = {} if operation == PUT else dict(value=b"x", length=NO_VALUE)  # (what is behind the end does not matter)
        to_fabric(case, down(message, status=status, made=made, done=done, **value))

    put, deleted = (0xC1, 1, version(1)), (0xC1, 2, version(2))
    write(PUT, version(1), [put, *NOBODYS], number=1, value=b"x")
    generated(case)
    case.lines.append("no_packet")
    case.note("it has a value")
    write(DELETE, version(2), [deleted, put, *NOBODYS], number=2)
    case.note("queued in an earlier view, when S2 was the next one")
    generated(case, to=2)
    case.lines.append("no_packet")
    generated(case)
    gone = tombstone(1, made=version(2), value=b"x", done=[deleted, put, *NOBODYS], chain=[0], ttl=63)
    to_fabric(case, gone)
    case.counter("collected", 0)
    from_fabric(case, gone.change(operation=COLLECT_ACK, source=SWITCHES[1], destination=SWITCHES[0], chain=[], ttl=64))
    case.lines.append("no_packet")
    case.counter("collected", 1)
    generated(case)
    case.lines.append("no_packet")
    case.note("a copy of the delete: the window knows its verdict, and nobody its version")
    copy = Message(DELETE, view=VIEW, number=2)
    from_client(case, copy)
    moved = copy.change(flags=MOVED, ttl=64)
    to_fabric(case, down(moved, status=DONE, made=0, done=NOBODYS, value=b"", length=NO_VALUE))
    case.note("a copy of what an earlier head may have carried out, and has forgotten")
    lost = Message(COMPARE_VERSION, view=VIEW, number=3, value=b"y", flags=AGAIN)
    from_client(case, lost)
    to_fabric(case, down(lost, status=UNDECIDED, made=0, done=NOBODYS, value=b"", length=NO_VALUE))
    case.note("its client knew the floor: nobody has forgotten it")
    known = lost.change(number=4, made=version(0, FLOOR), ttl=64)
    from_client(case, known)
    done = [(0xC1, 4, version(1)), *NOBODYS]
    to_fabric(case, down(known, status=DONE, made=version(1), done=done))
    case.note("who asks in another view hears the floor")
    other = Message(READ, view=1, chain=[0])
    from_client(case, other)
    to_client(case, other.reply(OLD_VIEW, view=VIEW, chain=[0, 1, 2], made=version(0, FLOOR), length=0))
    case.write()

    case = write_file("collect_alone", "A switch that is alone in its chain frees its tombstones at once.",
                      part(0, [0], view=VIEW, session=1, floor=FLOOR, position=HEAD | TAIL | READER | COLLECTING))
    for number, operation, done in ((1, PUT, [put, *NOBODYS]), (2, DELETE, [deleted, put, *NOBODYS])):
        length = None if operation == PUT else NO_VALUE
        message = Message(operation, view=VIEW, chain=[0], number=number, value=b"x", length=length)
        from_client(case, message)
        to_client(case, message.reply(DONE, made=version(number), done=done))
    generated(case)
    case.lines.append("no_packet")
    case.counter("collected", 1)
    read = Message(READ, chain=[0], view=VIEW)
    from_client(case, read)
    to_client(case, read.reply(ABSENT, made=0))
    case.write()

    told = f"refer(view:{VIEW}, head_since:{SINCE}, floor:{FLOOR}, {named([0, 2])})"
    case = write_file("collect_outside", "S1 is outside: it tells the floor with the chain.", f"{part(1, [])}\n{role(told)}")
    request = Message(PUT, view=1, chain=[1], made=version(77), value=b"x", source=CLIENT)
    from_client(case, request)
    to_client(case, request.reply(OLD_VIEW, view=VIEW, chain=[0, 2], made=version(0, FLOOR)))
    case.write()


if __name__ == "__main__":
    for function in (tail, middle, head):
        function()
