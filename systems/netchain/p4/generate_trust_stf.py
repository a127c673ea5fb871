#!/usr/bin/env python3
"""Writes the packet tests of netchain.p4 on tags and rights (trust*.stf) beside itself. Run it after changing a case:
python3 systems/netchain/p4/generate_trust_stf.py"""
from netchain_packets import (ABSENT, DENIED, DONE, KEYS, NO_VALUE, OLD_VIEW, PORT_MACS, PUT, READ, STAMPED, SWITCHES, CLIENT_MAC,
                              Message, ethernet, from_client, from_fabric, part, setup_of_key, to_client, version, write_file)
from tags import client_tag, tagged


def trust():
    """Notes 13: forged messages, foreign keys, rights, rates. Whoever sends what is not genuine hears nothing."""
    about = "Tags: who is heard, and what a client may do."
    case = write_file("trust", about, "\n".join(map(setup_of_key, (4, 5, 6))) + "\n" + part(0, [0]))
    put = Message(PUT, chain=[0], value=b"x")
    read = Message(READ, chain=[0])
    done = [(0xC1, 1, version(1))]
    from_client(case, put)
    made = dict(made=version(1), done=done)
    to_client(case, put.reply(DONE, **made))

    def unheard(message):
        from_client(case, message)
        case.lines.append("no_packet")

    case.note("a wrong tag, no tag, another client's key, a key that nobody has, none")
    good = put.tag(put.packet()[28:])
    unheard(put.change(tag=good ^ 1 << 63))
    unheard(put.change(tag=0))
    unheard(put.change(tag=read.change(key_id=4).tag(put.packet()[28:])))
    unheard(put.change(key_id=7, tag=good))
    unheard(put.change(key_id=0, tag=0))
    case.note("each byte of a message counts")
    packet = put.packet()
    for at in (28 + 3, 28 + 16, 28 + 40, 28 + 60, 28 + 88, len(packet) - 1):
        forged = bytearray(packet)
        forged[at] ^= 2
        case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, bytes(forged)))
        case.lines.append("no_packet")
    case.note("a client that calls its write a member's")
    unheard(put.change(flags=STAMPED, made=version(9), tag=client_tag(KEYS[3][0], put.packet()[28:])))
    forged = put.change(flags=STAMPED, made=version(9))
    unheard(forged.change(tag=client_tag(KEYS[3][0], tagged(forged.packet()[28:], 0))))
    case.note("nothing of that was done; the same request again is one request")
    from_client(case, put)
    to_client(case, put.reply(DONE, **made))
    case.note("a key that may read what begins with fo")
    for message in (read, read.change(key=b"fop", ttl=64)):
        message = message.change(key_id=4, ttl=64)
        from_client(case, message)
        found = message.fields["key"] == b"foo"
        to_client(case, message.reply(DONE, made=version(1), value=b"x") if found else message.reply(ABSENT, length=NO_VALUE))
    for message in (put.change(key_id=4, ttl=64), read.change(key_id=4, key=b"fa", ttl=64), read.change(key_id=6, ttl=64)):
        from_client(case, message)
        to_client(case, message.reply(DENIED))
    case.note("which every client asks for the chain with: a read in view 0")
    probe = read.change(key_id=6, view=0, ttl=64)
    from_client(case, probe)
    to_client(case, probe.reply(OLD_VIEW, view=1, chain=[0]))
    case.note("a key that may write")
    write = put.change(key_id=6, number=2, ttl=64)
    from_client(case, write)
    both = [(0xC1, 2, version(2))] + done
    to_client(case, write.reply(DONE, made=version(2), done=both))
    case.note("two messages at once, then two a second; a forged one takes nothing from that")
    slow = read.change(key_id=5, ttl=64)
    shown = dict(made=version(2), value=b"x")
    unheard(slow.change(tag=1, ttl=64))
    for _ in range(2):
        from_client(case, slow)
        to_client(case, slow.reply(DONE, **shown))
    unheard(slow)
    case.lines.append("clock 500ms")
    from_client(case, slow)
    to_client(case, slow.reply(DONE, **shown))
    unheard(slow)
    case.write()

    case = write_file("trust_tail", "Tags of members: one that was recorded is no use elsewhere.", part(2, [0, 1, 2]))
    write = Message(PUT, value=b"x", chain=(2,), flags=STAMPED, status=DONE, made=version(1), done=[(0xC1, 1, version(1))])
    case.note("what S0 sent to S1: S2 would have what S1 lacks")
    on_the_way = write.change(destination=SWITCHES[1])
    from_fabric(case, write.change(tag=on_the_way.tag(on_the_way.packet()[28:]), ttl=64))
    case.note("with another client's address: its reply would go there")
    elsewhere = write.change(source="10.0.0.6")
    from_fabric(case, write.change(tag=elsewhere.tag(elsewhere.packet()[28:]), ttl=64))
    case.note("a request that a client's key signed for it")
    from_fabric(case, write.change(tag=client_tag(KEYS[3][0], write.packet()[28:]), ttl=64))
    case.lines.append("no_packet")
    case.note("its own; the client's key tags the reply")
    from_fabric(case, write)
    to_client(case, write.reply(DONE))
    case.note("a client whose key the tail does not know: the write is made, and the reply does not leave")
    from_fabric(case, write.change(key_id=9, made=version(2), ttl=64))
    case.lines.append("no_packet")
    read = Message(READ, chain=[2])
    from_client(case, read)
    to_client(case, read.reply(DONE, made=version(2), value=b"x"))
    case.write()

    case = write_file("trust_open", "Clients without a key are heard if the switch lets them, here: to read.",
                      "# client_key: tags 0 none read\n" + part(0, [0]))
    read = Message(READ, chain=[0], key_id=0)
    from_client(case, read)
    to_client(case, read.reply(ABSENT, length=NO_VALUE))
    put = Message(PUT, chain=[0], key_id=0, value=b"x")
    from_client(case, put)
    to_client(case, put.reply(DENIED))
    case.write()


if __name__ == "__main__":
    trust()
