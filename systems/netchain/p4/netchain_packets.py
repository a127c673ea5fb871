"""Messages of NetChain, and the switches and tables of the packet tests (generate_stf.py)."""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "p4"))
from stf_packets import UDP, Case, address, ethernet, ipv4  # noqa: E402

PORT, CLIENT_PORT = 5410, 40000
CLIENT = "10.0.0.5"
SWITCHES = ["10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4"]  # S0, S1, S2, S3
CLIENT_MAC, FABRIC_MAC = "02:00:00:00:00:05", "02:00:00:00:00:11"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
(READ, PUT, INSERT, COMPARE_VERSION, COMPARE_OWNER, ADD, DELETE, COPY, COPY_ACK, PROBE,
 LIST) = range(1, 12)
(REQUEST, DONE, ABSENT, REFUSED, FULL, OLD_VIEW, NO_GROUP, UNKNOWN, UNDECIDED, NO_ROOM,
 WRONG_SWITCH, LOST, TOO_MANY, DENIED, BAD_FORMAT, WRONG_RING) = range(16)
REPLY, STAMPED, MOVED, AGAIN = 0x8000, 0x4000, 0x0002, 0x0001
RING, OTHER_RING = 0x4E455443, 0x4E455444
ROOMS = {0: 0, 1: 16, 2: 64, 3: 128}
HEAD, TAIL = 1, 2
NO_VALUE = 255
GROUP = 7

SETUP = f"""
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# neighbor: {CLIENT} mac {CLIENT_MAC} port 0
# neighbor: 192.0.2.1 mac {FABRIC_MAC} port 1
# route: 10.9.0.0/24 via 192.0.2.1 port 1
"""


def number(text):
    return f"0x{address(text).hex()}"


def destination(switch, action):
    return f"add NetChainIngress.destinations hdr.ipv4.destination:{number(SWITCHES[switch])} NetChainIngress.{action}"


def named(chain):
    """A chain as action data."""
    members = ([number(SWITCHES[it]) for it in chain] + ["0"] * 4)[:4]
    return f"members:{len(chain)}, " + ", ".join(f"member{i}:{it}" for i, it in enumerate(members))


def role(action, group=GROUP):
    return f"add NetChainIngress.roles hdr.netchain.group:{group} NetChainIngress.{action}"


def part(me, chain, view=1, session=1):
    """Entries of switch `me`, which is a member of `chain` (numbers of switches)."""
    lines = destination(me, f"serve(ring:{RING:#x})")
    if me not in chain:
        return lines
    at = chain.index(me)
    position = (HEAD if at == 0 else 0) | (TAIL if at == len(chain) - 1 else 0)
    after = number(SWITCHES[chain[at + 1]]) if at + 1 < len(chain) else "0"
    taken = f"take_part(view:{view}, session:{session}, position:{position}, next:{after}, {named(chain)})"
    return f"{lines}\n{role(taken)}"


def fenced(switch):
    """No message may go to this switch, and none may come from it."""
    source = f"add NetChainIngress.fenced_sources hdr.ipv4.source:{number(SWITCHES[switch])} NetChainIngress.fence()"
    return f"{destination(switch, 'fence()')}\n{source}"


def dead(switch, view, chain):
    """A neighbour answers for a dead switch; what that one may still send is dropped."""
    key = f"hdr.ipv4.destination:{number(SWITCHES[switch])} hdr.netchain.group:{GROUP}"
    source = f"add NetChainIngress.fenced_sources hdr.ipv4.source:{number(SWITCHES[switch])} NetChainIngress.fence()"
    return f"""{destination(switch, 'bounce_by_group()')}
add NetChainIngress.bounces {key} NetChainIngress.bounce(view:{view}, {named(chain)})
{source}"""


def version(sequence, session=1):
    return session << 48 | sequence


def recent(*records):
    """Records of requests that were carried out: (client, number, version), the newest first."""
    records = [(client, number, DONE, made) for client, number, made in records]
    return b"".join(struct.pack("!QIBQ", *it) for it in (records + [(0, 0, 0, 0)] * 4)[:4])


class Message:
    """A message and where it is; `change` makes another one of it."""

    def __init__(self, operation, key=b"foo", value=b"", room=1, chain=(0, 1, 2), source=CLIENT,
                 destination=None, client=0xC1, number=1, view=1, operand=0, flags=0, status=REQUEST,
                 made=0, length=None, done=(), ttl=64, key_id=3, group=GROUP, ring=RING, tag=0):
        chain = list(chain)
        if destination is None:
            destination, chain = SWITCHES[chain[0]], chain[1:]
        self.fields = dict(locals())
        del self.fields["self"]

    def change(self, **fields):
        return Message(**{**self.fields, "ttl": self.fields["ttl"] - 1, **fields})

    def reply(self, status, **fields):
        """What the switch that has it answers."""
        f = self.fields
        flags = (f["flags"] | fields.pop("flags", 0) | REPLY) & ~STAMPED
        return self.change(status=status, flags=flags, source=f["destination"],
                           destination=f["source"], **{"chain": [], **fields})

    def packet(self):
        f = self.fields
        hops = [address(SWITCHES[it]) for it in f["chain"]]
        room = ROOMS[f["room"]]
        length = len(f["value"]) if f["length"] is None else f["length"]
        if f["flags"] & (REPLY | STAMPED) and f["made"] == 0 and f["status"] in (ABSENT, REFUSED):
            length = NO_VALUE
        body = struct.pack("!BBBBHHQ", 1, f["operation"], f["status"], len(hops), f["flags"],
                           f["key_id"], f["tag"])
        body += struct.pack("!IIHBBIQQQ16s", f["ring"], f["view"], f["group"], f["room"], length,
                            f["number"], f["client"], f["made"], f["operand"], f["key"])
        body += b"".join((hops + [bytes(4)] * 4)[:4])
        if f["operation"] != READ:
            body += recent(*f["done"])
        body += f["value"].ljust(room, b"\0")
        is_reply = f["flags"] & REPLY
        ports = (PORT, CLIENT_PORT) if is_reply else (CLIENT_PORT, PORT)
        datagram = struct.pack("!HHHH", *ports, 8 + len(body), 0) + body
        return ipv4(f["source"], f["destination"], UDP, datagram, ttl=f["ttl"])


def write_file(name, about, entries):
    return Case(HERE, "NetChainIngress", name, about, SETUP + "\n" + entries)


def from_client(case, message):
    case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, message.packet()))


def from_fabric(case, message):
    case.packet(1, ethernet(PORT_MACS[1], FABRIC_MAC, message.packet()))


def to_fabric(case, message):
    case.expect(1, ethernet(FABRIC_MAC, PORT_MACS[1], message.packet()))


def to_client(case, message):
    case.expect(0, ethernet(CLIENT_MAC, PORT_MACS[0], message.packet()))


def down(message, **fields):
    """What a member passes on to the next of the chain."""
    chain = message.fields["chain"]
    flags = message.fields["flags"] | STAMPED
    return message.change(destination=SWITCHES[chain[0]], chain=chain[1:], flags=flags, **fields)
