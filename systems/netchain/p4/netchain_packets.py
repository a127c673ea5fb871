"""Messages of NetChain, and the switches, tables and keys of the packet tests (generate_*stf.py)."""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "p4"))
from stf_packets import UDP, Case, address, ethernet, ipv4  # noqa: E402
from tags import client_tag, member_tag, tagged  # noqa: E402

PORT, CLIENT_PORT = 5410, 40000
CLIENT = "10.0.0.5"
SWITCHES = ["10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4"]  # S0, S1, S2, S3
CLIENT_MAC, FABRIC_MAC = "02:00:00:00:00:05", "02:00:00:00:00:11"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
(READ, PUT, INSERT, COMPARE_VERSION, COMPARE_OWNER, ADD, DELETE, COPY, COPY_ACK, PROBE,
 LIST, COLLECT, COLLECT_ACK) = range(1, 14)
(REQUEST, DONE, ABSENT, REFUSED, FULL, OLD_VIEW, NO_GROUP, UNKNOWN, UNDECIDED, NO_ROOM,
 WRONG_SWITCH, LOST, TOO_MANY, DENIED, BAD_FORMAT, WRONG_RING, PAUSED) = range(17)
TELLING = (OLD_VIEW, WRONG_SWITCH, PAUSED)
REPLY, STAMPED, TOLD, MOVED, AGAIN = 0x8000, 0x4000, 0x0004, 0x0002, 0x0001
RING, OTHER_RING = 0x4E455443, 0x4E455444
ROOMS = {0: 0, 1: 16, 2: 64, 3: 128}
HEAD, TAIL, READER, JOINING, COLLECTING = 1, 2, 4, 8, 16
NOBODY = 0xFFFFFFFF  # as the peers of a role
GENERATOR_PORT = 509
NO_VALUE = 255
SINCE = 1  # the view since which the head is this one
GROUP = 7

# What clients' keys have: number → secret, rights, and the rest of the setup line.
KEYS = {
    2: (bytes(range(80, 96)), "read-write"),
    3: (bytes(range(16)), "read-write"),
    4: (bytes(range(16, 32)), "read prefix fo"),
    5: (bytes(range(32, 48)), "read-write rate_per_s 2 burst 2"),
    6: (bytes(range(48, 64)), "write"),
}
SECRET = bytes(range(64, 80))  # the members'


def setup_of_key(key_id):
    secret, granted = KEYS[key_id]
    return f"# client_key: tags {key_id} {secret.hex()} {granted}"


SETUP = f"""
# secret: tags {SECRET.hex()}
{setup_of_key(2)}
{setup_of_key(3)}
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


def take_part(me, chain, view=1, session=1, position=None, peers=NOBODY, group=GROUP, floor=0):
    """The role of a member. The tail reads, unless `position` says something else."""
    at = chain.index(me)
    if position is None:
        position = (HEAD if at == 0 else 0) | (TAIL | READER if at == len(chain) - 1 else 0)
    after = number(SWITCHES[chain[at + 1]]) if at + 1 < len(chain) else "0"
    return role(f"take_part(view:{view}, head_since:{SINCE}, session:{session}, floor:{floor}, position:{position}, next:{after}, {named(chain)}, "
                f"peers:{peers:#x})", group)


def part(me, chain, decision=9, **fields):
    """Entries of switch `me`, which is a member of `chain` (numbers of switches)."""
    lines = destination(me, f"serve(ring:{RING:#x}, version:{decision})")
    return f"{lines}\n{take_part(me, chain, **fields)}" if me in chain else lines


def dead(switch):
    """The switch is dead: what it may still send is dropped, and requests for it are answered in its name."""
    source = f"add NetChainIngress.dead_sources hdr.ipv4.source:{number(SWITCHES[switch])} NetChainIngress.dead()"
    return f"{destination(switch, 'dead()')}\n{source}"


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
                 made=0, length=None, done=(), ttl=64, key_id=3, group=GROUP, ring=RING, tag=None):
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
        if status in TELLING:
            flags, fields = flags | TOLD, {"made": 0, "operand": SINCE, **fields}
        return self.change(status=status, flags=flags, source=f["destination"],
                           destination=f["source"], **{"chain": [], **fields})

    def tag(self, body):
        f = self.fields
        if f["flags"] & STAMPED:
            return member_tag(SECRET, body, address(f["source"]), address(f["destination"]))
        return client_tag(KEYS[f["key_id"]][0], body) if f["key_id"] in KEYS else 0

    def packet(self):
        f = self.fields
        hops = [address(SWITCHES[it]) for it in f["chain"]]
        room = ROOMS[f["room"]]
        length = len(f["value"]) if f["length"] is None else f["length"]
        if f["flags"] & (REPLY | STAMPED) and f["made"] == 0 and f["status"] in (ABSENT, REFUSED):
            length = NO_VALUE
        body = struct.pack("!BBBBHHQ", 1, f["operation"], f["status"], len(hops), f["flags"],
                           f["key_id"], 0)
        body += struct.pack("!IIHBBIQQQ16s", f["ring"], f["view"], f["group"], f["room"], length,
                            f["number"], f["client"], f["made"], f["operand"], f["key"])
        body += b"".join((hops + [bytes(4)] * 4)[:4])
        if f["operation"] not in (READ, PROBE):
            body += recent(*f["done"])
        body += f["value"].ljust(room, b"\0")
        body = tagged(body, self.tag(body) if f["tag"] is None else f["tag"])
        is_reply = f["flags"] & REPLY
        ports = (PORT, CLIENT_PORT) if is_reply else (CLIENT_PORT, PORT)
        if f["operation"] in (COPY, COPY_ACK, PROBE, COLLECT, COLLECT_ACK) and f["flags"] & STAMPED:
            ports = (PORT, PORT)  # from switch to switch
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
