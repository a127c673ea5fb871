#!/usr/bin/env python3
"""Writes the packet tests of LIST (list*.stf) beside itself. Run it after changing a case:
python3 systems/netchain/p4/generate_list_stf.py"""

from netchain_packets import *  # noqa: F403 (all of it is for these cases)

END = 0xFFFFFFFF  # as the cursor of a reply: there are no more keys


def ask_for_keys(prefix, cursor=0, mask=None, **fields):
    """A request for the keys that begin with a prefix."""
    if mask is None:
        mask = (b"\xff" * len(prefix)).ljust(16, b"\0")
    fields = {"chain": [0], "room": 3, **fields}
    return Message(LIST, key=prefix, value=mask, operand=cursor, **fields)


def page(request, keys, cursor=END, **fields):
    """Its reply; `keys` by their places, None: there is none."""
    places = sum(1 << place for place, key in enumerate(keys) if key is not None)
    value = b"".join((key or b"").ljust(16, b"\0") for key in keys).ljust(128, b"\0")
    return request.reply(DONE, made=places, value=value, operand=cursor, **fields)


def lists():
    """Keys by prefix, page by page, in the order of their slots."""
    case = write_file("list", "LIST on a chain of one switch: pages, prefixes, deleted keys, other groups.",
                      part(0, [0]) + "\n" + take_part(0, [0], group=GROUP + 1))
    made = {}

    def write(operation, key, group=GROUP, value=b"v"):
        made[key] = made.get(key, 0) + 1
        message = Message(operation, key=key, value=value, chain=[0], number=sum(made.values()), group=group)
        from_client(case, message)
        length = NO_VALUE if operation == DELETE else None
        records.setdefault(key, []).insert(0, (0xC1, message.fields["number"], version(made[key])))
        to_client(case, message.reply(DONE, made=version(made[key]), done=records[key], length=length, value=b"v"))

    def listed(request, keys, cursor=END):
        from_client(case, request)
        to_client(case, page(request, keys, cursor))

    records = {}
    case.note("no key")
    listed(ask_for_keys(b""), [])
    case.note("ten keys of the group, one of another")
    names = [b"a%d" % number for number in range(5)] + [b"b%d" % number for number in range(5)]
    for key in names[:3]:
        write(PUT, key)
    write(PUT, b"other", group=GROUP + 1)
    for key in names[3:]:
        write(PUT, key)
    listed(ask_for_keys(b""), names[:8], 9)
    listed(ask_for_keys(b"", 9), names[8:])
    listed(ask_for_keys(b"", group=GROUP + 1), [b"other"])
    case.note("by prefix; a whole key is one, too")
    listed(ask_for_keys(b"b"), names[5:])
    listed(ask_for_keys(b"a3"), [b"a3"])
    listed(ask_for_keys(b"a3".ljust(16, b"\0")), [b"a3"])
    listed(ask_for_keys(b"a3x"), [])
    case.note("only bits of the mask count")
    listed(ask_for_keys(b"\xff3", mask=bytes([0, 255]).ljust(16, b"\0")), [b"a3", b"b3"])
    case.note("a deleted key is not listed; written again it is, in its slot")
    write(DELETE, b"a1", value=b"")
    listed(ask_for_keys(b"a"), [b"a0", b"a2", b"a3", b"a4"])
    write(PUT, b"a1")
    listed(ask_for_keys(b"a"), [b"a0", b"a1", b"a2", b"a3", b"a4"])
    case.note("a cursor behind the end, or the end itself")
    listed(ask_for_keys(b"", 11), [])
    listed(ask_for_keys(b"", 1000), [])
    listed(ask_for_keys(b"", END), [])
    case.note("the reply has no room")
    for room in (1, 2):
        request = ask_for_keys(b"a", room=room)
        from_client(case, request)
        to_client(case, request.reply(NO_ROOM, made=0))
    request = ask_for_keys(b"a", room=0).change(value=b"", ttl=64)
    from_client(case, request)
    to_client(case, request.reply(NO_ROOM))
    case.write()


def list_sparse():
    """Few keys in many slots."""
    case = write_file("list_sparse", "LIST over slots of another group: each of its eight steps looks at 128.",
                      part(0, [0]) + "\n" + take_part(0, [0], group=GROUP + 1))
    for number in range(132):
        key, group = b"x%d" % number, GROUP + (number not in (0, 130))
        message = Message(PUT, key=key, room=0, chain=[0], number=number + 1, group=group)
        from_client(case, message)
        to_client(case, message.reply(DONE, made=version(1), done=[(0xC1, number + 1, version(1))]))
    case.note("the first step ends at slot 0, the second looks at 1 to 128, the third ends at 130")
    request = ask_for_keys(b"")
    from_client(case, request)
    to_client(case, page(request, [b"x0", None, b"x130"]))
    case.note("from slot 1 on: its first step finds nothing, its second one does")
    request = ask_for_keys(b"", 1)
    from_client(case, request)
    to_client(case, page(request, [None, b"x130"]))
    case.write()


def list_roles():
    """Only who may answer reads answers LIST."""
    case = write_file("list_head", "LIST at a head that is no tail: it says who is.", part(0, [0, 1, 2]))
    request = ask_for_keys(b"", chain=(0, 1, 2))
    from_client(case, request)
    to_client(case, request.reply(WRONG_SWITCH, chain=[0, 1, 2]))
    case.note("another view: the cursor may mean other slots by now")
    request = ask_for_keys(b"", 5, chain=(0, 1, 2), view=9)
    from_client(case, request)
    to_client(case, request.reply(OLD_VIEW, chain=[0, 1, 2], view=1))
    case.write()
    case = write_file("list_no_lease", "LIST at a tail without leases.", part(2, [0, 1, 2], peers=0x0001FFFF))
    request = ask_for_keys(b"", chain=(2, 1, 0))
    from_client(case, request)
    to_client(case, request.reply(PAUSED, chain=[0, 1, 2]))
    case.counter("no_lease", 1)
    case.write()


def list_trust():
    """A key with a prefix lists what begins with it, and nothing else."""
    case = write_file("list_trust", "LIST by a client that may read what begins with fo.",
                      f"{setup_of_key(4)}\n{setup_of_key(6)}\n{part(0, [0])}")
    put = Message(PUT, chain=[0], value=b"x")
    from_client(case, put)
    to_client(case, put.reply(DONE, made=version(1), done=[(0xC1, 1, version(1))]))
    for prefix in (b"fo", b"foo"):
        request = ask_for_keys(prefix, key_id=4)
        from_client(case, request)
        to_client(case, page(request, [b"foo"]))
    case.note("shorter, another one; bits beside the mask are no way round; a key that may only write")
    short = ask_for_keys(b"f", key_id=4)
    for request in (short, ask_for_keys(b"", key_id=4), ask_for_keys(b"fa", key_id=4),
                    short.change(key=b"fo", ttl=64), short.change(key=b"fo".ljust(16, b"\xff"), ttl=64),
                    ask_for_keys(b"fo", key_id=6)):
        from_client(case, request)
        to_client(case, request.reply(DENIED))
    case.write()


if __name__ == "__main__":
    for function in (lists, list_sparse, list_roles, list_trust):
        function()
