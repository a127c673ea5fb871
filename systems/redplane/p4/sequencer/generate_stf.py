#!/usr/bin/env python3
"""Writes the packet tests of sequencer.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/sequencer/generate_stf.py
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import TCP, UDP, Case, ethernet, fragmentation_needed, ipv4, tcp, udp, with_bytes  # noqa: E402

SENDER, SENDER_MAC = "10.0.0.5", "02:00:00:00:00:05"
RECEIVER, OTHER, ROUTER_MAC = "198.51.100.80", "198.51.100.81", "02:00:00:00:00:11"
UNRESOLVED = "192.0.2.77"
SEQUENCER, PORT = "10.99.0.2", 5410
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
REQUEST, NUMBERED, QUERY, LAST = 1, 2, 3, 4


def hexadecimal(text):
    return "0x" + bytes(int(part) for part in text.split(".")).hex()


SETUP = f"""
# define: SEQUENCER_LOCAL
# define: SEQUENCER_SESSIONS=5
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24 mtu 600
# neighbor: {SENDER} mac {SENDER_MAC} port 0
# neighbor: 192.0.2.1 mac {ROUTER_MAC} port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: {SEQUENCER}/32 blackhole

add SequencerIngress.addresses hdr.ipv4.destination:{hexadecimal(RECEIVER)} SequencerIngress.receiver({PORT})
add SequencerIngress.addresses hdr.ipv4.destination:{hexadecimal(OTHER)} SequencerIngress.receiver({PORT})
add SequencerIngress.addresses hdr.ipv4.destination:{hexadecimal(UNRESOLVED)} SequencerIngress.receiver({PORT})
add SequencerIngress.addresses hdr.ipv4.destination:{hexadecimal(SEQUENCER)} SequencerIngress.sequencer({PORT})
"""
REPLICATED = SETUP.replace("# define: SEQUENCER_LOCAL\n# define: SEQUENCER_SESSIONS=5", "# store:")


def message(type_, session, number=0, sender=0, request=0, payload=b"", magic=0x5351, reserved=0):
    return struct.pack("!HBBIIIQ", magic, type_, reserved, session, sender, request, number) + payload


class SequencerCase(Case):
    def __init__(self, name, about, setup=SETUP):
        super().__init__(HERE, "SequencerIngress", name, about, setup)

    def near(self, packet):
        """From the sender's side."""
        self.packet(0, ethernet(PORT_MACS[0], SENDER_MAC, packet))

    def far(self, packet):
        self.expect(1, ethernet(ROUTER_MAC, PORT_MACS[1], packet))

    def request(self, session, number, sender=0, request=0, payload=b"payload", receiver=RECEIVER, reserved=0, **extra):
        """A request that leaves with this number, or does not leave (None)."""
        made = [ipv4(SENDER, receiver, UDP, udp(SENDER, receiver, 40000, PORT,
                                                message(type_, session, value or 0, sender, request, payload, reserved=reserved), **extra), ttl=ttl)
                for type_, value, ttl in ((REQUEST, 0, 64), (NUMBERED, number, 63))]
        self.near(made[0])
        if number is not None:
            self.far(made[1])

    def query(self, session, last, receiver=RECEIVER, sender=0, request=0, ttl=64):
        """The receiver asks, and hears this number."""
        asked = message(QUERY, session, 0, sender, request)
        self.packet(1, ethernet(PORT_MACS[1], ROUTER_MAC, ipv4(receiver, SEQUENCER, UDP, udp(receiver, SEQUENCER, PORT, PORT, asked), ttl=ttl)))
        told = message(LAST, session, last, sender, request)
        self.far(ipv4(SEQUENCER, receiver, UDP, udp(SEQUENCER, receiver, PORT, PORT, told)))


def numbers():
    case = SequencerCase("numbers", "Consecutive numbers for each session of each receiver; queries; counted requests.")
    case.note("no number given yet")
    case.query(7, 0)
    case.note("one session; payloads of any length; without a UDP checksum, then there is none afterwards")
    case.request(7, 1)
    case.request(7, 2, payload=b"")
    case.request(7, 3, payload=b"odd", without_checksum=True)
    case.request(7, 4, payload=b"x" * 500, reserved=0x5A)
    case.note("a request whose checksum comes to 0xffff; one whose answer's does")
    for receiver, wanted, number in ((RECEIVER, 0, 5), (RECEIVER, number_bytes(6), 6)):
        case.request(7, number, payload=payload_for(receiver, wanted, number))
    case.note("other sessions, and other receivers' sessions, begin at 1")
    case.request(8, 1)
    case.request(7, 1, receiver=OTHER)
    case.request(0, 1)
    case.request(7, 7)
    case.note("what the receiver is told; each is told of its own; a hop limit of 1 is enough to get there")
    case.query(7, 7)
    case.query(8, 1, sender=5, request=6)
    case.query(7, 1, OTHER, ttl=1)
    case.query(8, 0, OTHER)
    case.note("a counted request again and again: its number; numbers of others in between")
    case.request(9, 1, 1, 1)
    case.request(9, 1, 1, 1)
    case.request(9, 2)
    case.request(9, 1, 1, 1)
    case.request(9, 3, 1, 2)
    case.request(9, 3, 1, 2, b"another payload")
    case.note("late ones are dropped")
    case.request(9, None, 1, 1)
    case.counter("late", 1)
    case.note("another sender's: the first one's is forgotten")
    case.request(9, 4, 2, 1)
    case.request(9, 4, 2, 1)
    case.request(9, 5, 1, 2)
    case.note("counted modulo 2^32")
    case.request(9, 6, 3, 0xFFFFFFFF)
    case.request(9, 7, 3, 1)
    case.request(9, None, 3, 0xFFFFFFFF)
    case.request(9, 8, 3, 0x80000000)
    case.request(9, None, 3, 0x7FFFFFFF)
    case.request(9, None, 3, 1)
    case.query(9, 8)
    for name, value in (("numbered", 18), ("repeated", 4), ("late", 4), ("answered", 6), ("malformed", 0)):
        case.counter(name, value)
    case.write()


def number_bytes(number):
    """What the first checksum must be for the one after the change to come to 0xffff."""
    return (number + ((NUMBERED - REQUEST) << 8)) % 0xFFFF


def payload_for(receiver, wanted, number):
    """Two bytes of payload with which the request's UDP checksum is `wanted` modulo 0xffff."""
    bare = udp(SENDER, receiver, 40000, PORT, message(REQUEST, 7, payload=b"\0\0"))
    return struct.pack("!H", (struct.unpack("!H", bare[6:8])[0] - wanted) % 0xFFFF)


def refuses():
    case = SequencerCase("refuses", "What gets no number, and what is not for a receiver or the sequencer.")
    make = lambda body, receiver=RECEIVER, port=PORT, **extra: ipv4(SENDER, receiver, UDP, udp(SENDER, receiver, 40000, port, body), **extra)  # noqa: E731
    good = make(message(REQUEST, 7, payload=b"payload"))
    case.note("with a number already")
    case.near(make(message(NUMBERED, 7, 1)))
    case.counter("has_number", 1)
    case.note("neither request nor query: another magic, type, or number; a byte too few; nothing; a UDP length that is not the packet's")
    wrong = [message(REQUEST, 7, magic=0x5352), message(QUERY, 7), message(LAST, 7), message(0, 7), message(REQUEST, 7, 1), message(REQUEST, 7)[:-1], b""]
    for body in wrong:
        case.near(make(body))
    case.near(ipv4(SENDER, RECEIVER, UDP, udp(SENDER, RECEIVER, 40000, PORT, message(REQUEST, 7)) + b"beyond"))
    for type_ in (REQUEST, NUMBERED, LAST):
        case.near(make(message(type_, 7), SEQUENCER))
    case.note("wrong checksums: UDP by header or payload, IPv4")
    case.near(with_bytes(good, 40, b"x"))
    case.near(good[:-1] + b"x")
    case.near(with_bytes(good, 10, b"\0\0"))
    case.counter("malformed", 14)
    case.note("fragments and options: the port is not known, or the header is not looked at")
    case.near(make(message(REQUEST, 7), flags_offset=0x2000))
    case.near(ipv4(SENDER, RECEIVER, UDP, b"later...", flags_offset=1))
    case.near(make(message(NUMBERED, 7), options=b"\1" * 4))
    case.near(make(message(QUERY, 7), SEQUENCER, options=b"\1" * 4))
    case.counter("unsupported", 4)
    case.note("none of these took a number")
    case.query(7, 0)
    case.note("other ports, other protocols, other destinations are routed as they are")
    for made in (lambda ttl: make(message(REQUEST, 7), port=PORT + 1, ttl=ttl),
                 lambda ttl: ipv4(SENDER, RECEIVER, TCP, tcp(SENDER, RECEIVER, 40000, PORT, b"hello"), ttl=ttl),
                 lambda ttl: make(message(REQUEST, 7), "198.51.100.9", ttl=ttl),
                 lambda ttl: make(message(REQUEST, 7), "198.51.100.9", ttl=ttl, options=b"\1" * 4)):
        case.near(made(64))
        case.far(made(63))
    case.counter("routed", 4)
    case.note("to the kernel: an expired hop limit, no route, a packet that is shorter than it says, ARP")
    for packet in (make(message(REQUEST, 7), ttl=1), make(message(REQUEST, 7), "203.0.113.1"), make(message(QUERY, 7), SEQUENCER, PORT + 1),
                   make(message(REQUEST, 7))[:-1]):
        case.to_host(0, ethernet(PORT_MACS[0], SENDER_MAC, packet))
    case.to_host(0, ethernet(PORT_MACS[0], SENDER_MAC, bytes(28), 0x0806))
    case.counter("to_kernel", 5)
    case.note("no way back to who asks")
    case.near(ipv4("203.0.113.9", SEQUENCER, UDP, udp("203.0.113.9", SEQUENCER, PORT, PORT, message(QUERY, 7))))
    case.counter("no_next_hop", 1)
    case.note("too big for its route: an ICMP error and no number")
    big = make(message(REQUEST, 7, payload=b"x" * 600))
    case.near(big)
    case.expect(0, ethernet(SENDER_MAC, PORT_MACS[0], fragmentation_needed("10.0.0.1", big, 600)))
    case.write()


def full():
    case = SequencerCase("full", "More sessions than there is room for.")
    for session in range(1, 6):
        case.request(session, 1)
    case.request(6, None)
    case.counter("no_room", 1)
    case.note("those that are there go on; of one that is not, no number was given")
    case.request(1, 2)
    case.query(6, 0)
    case.write()


def by_kernel(setup, name):
    case = SequencerCase(name, "The kernel sends what must be fragmented or has an unresolved next hop, with its number.", setup)
    sent = lambda receiver, number, ttl, size, type_: ipv4(  # noqa: E731
        SENDER, receiver, UDP, udp(SENDER, receiver, 40000, PORT, message(type_, 7, number, payload=b"x" * size)), ttl=ttl, flags_offset=0)
    for receiver, number, size in ((RECEIVER, 1, 600), (RECEIVER, 2, 600), (UNRESOLVED, 1, 10)):
        case.near(sent(receiver, 0, 64, size, REQUEST))
        case.by_kernel(sent(receiver, number, 63, size, NUMBERED))
    case.request(7, 3)
    case.write()


def fails():
    case = SequencerCase("fails", "The switch fails, and the numbers go on: they are in the store.", REPLICATED)
    case.request(7, 1)
    case.request(7, 2, 1, 10)
    case.counter("numbered", 2)
    case.note("The session of the dead switch lives for up to a lease: until then packets wait at the store.")
    case.lines.append("# takes_over: another switch")
    case.request(7, 2, 1, 10)
    leaves = case.lines.pop()
    case.lines += ["no_packet", "clock 300ms", leaves]
    case.counter("repeated", 1)
    case.request(7, 3)
    case.request(7, 4, 1, 11)
    case.note("The same one again, in its next life, long after.")
    case.lines += ["clock 3600s", "# takes_over: the same switch", "clock 300ms"]
    case.query(7, 4)
    case.request(7, None, 1, 10)
    case.request(7, 4, 1, 11)
    case.request(7, 5)
    case.write()


numbers()
refuses()
full()
by_kernel(SETUP, "kernel")
by_kernel(REPLICATED, "kernel_store")
fails()
