#!/usr/bin/env python3
"""Writes the packet tests of key_value.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/key_value/generate_stf.py
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import TCP, UDP, Case, ethernet, ipv4, tcp, udp  # noqa: E402

CLIENT, CLIENT_MAC = "10.0.0.5", "02:00:00:00:00:05"
FAR, ROUTER_MAC = "198.51.100.80", "02:00:00:00:00:11"
SERVICE, PORT = "10.99.0.1", 5409
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
READ, UPDATE, COMPARE_AND_SET = 1, 2, 3
REQUEST, DONE, ABSENT, CONFLICT, FULL, UNKNOWN = 0, 1, 2, 3, 4, 5

SETUP = f"""
# define: KEY_VALUE_LOCAL
# define: KEY_VALUE_KEYS=4
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# neighbor: {CLIENT} mac {CLIENT_MAC} port 0
# neighbor: 192.0.2.1 mac {ROUTER_MAC} port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: {SERVICE}/32 blackhole

add KeyValueIngress.services hdr.ipv4.destination:0x0a630001 hdr.udp.destination_port:{PORT} KeyValueIngress.serve()
"""


def message(operation, key, version=0, value=b"", status=REQUEST, tag=0x01020304, magic=0x4B56):
    return struct.pack("!HBBI16sQ32s", magic, operation, status, tag, key, version, value)


def request(body, source=CLIENT, **extra):
    return ipv4(source, SERVICE, UDP, udp(source, SERVICE, 40000, PORT, body, **extra))


def reply(body, client=CLIENT):
    return ipv4(SERVICE, client, UDP, udp(SERVICE, client, PORT, 40000, body), identification=0)


class KeyValueCase(Case):
    def __init__(self, name, about):
        super().__init__(HERE, "KeyValueIngress", name, about, SETUP)

    def near(self, packet):
        self.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, packet))

    def ask(self, body, answer, **extra):
        self.near(request(body, **extra))
        self.expect(0, ethernet(CLIENT_MAC, PORT_MACS[0], reply(answer)))


def answers():
    case = KeyValueCase("answers", "Reads, updates and COMPARE_AND_SET of several keys; the request comes back as the reply.")
    one, two, three = b"one".ljust(16), b"two".ljust(16), bytes(16)
    case.note("never written")
    case.ask(message(READ, one), message(READ, one, 0, b"", ABSENT))
    case.note("a request whose checksum comes to 0, which UDP sends as 0xffff (RFC 768)")
    case.ask(message(READ, one, tag=0x54EA0304), message(READ, one, 0, b"", ABSENT, tag=0x54EA0304))
    case.note("written, read, written again")
    case.ask(message(UPDATE, one, 0, b"first"), message(UPDATE, one, 1, b"first", DONE))
    case.ask(message(READ, one), message(READ, one, 1, b"first", DONE))
    case.ask(message(UPDATE, one, 77, b"x" * 32), message(UPDATE, one, 2, b"x" * 32, DONE))
    case.note("what a read's value and version fields say does not matter; its tag comes back")
    case.ask(message(READ, one, 9, b"junk", tag=0xFFFFFFFF), message(READ, one, 2, b"x" * 32, DONE, tag=0xFFFFFFFF))
    case.note("another key is another entry; the key of zeros too")
    case.ask(message(READ, two), message(READ, two, 0, b"", ABSENT))
    case.ask(message(UPDATE, three, 0, b"zero"), message(UPDATE, three, 1, b"zero", DONE))
    case.ask(message(READ, one), message(READ, one, 2, b"x" * 32, DONE))
    case.note("COMPARE_AND_SET: of a key that is not there, of another version, of the right one")
    case.ask(message(COMPARE_AND_SET, two, 0, b"lock: a"), message(COMPARE_AND_SET, two, 1, b"lock: a", DONE))
    case.ask(message(COMPARE_AND_SET, two, 0, b"lock: b"), message(COMPARE_AND_SET, two, 1, b"lock: a", CONFLICT))
    case.ask(message(COMPARE_AND_SET, two, 1, b"lock: b"), message(COMPARE_AND_SET, two, 2, b"lock: b", DONE))
    case.note("a COMPARE_AND_SET of a wrong version writes nothing: the key stays unwritten")
    four = b"four".ljust(16)
    case.ask(message(COMPARE_AND_SET, four, 5, b"x"), message(COMPARE_AND_SET, four, 0, b"", CONFLICT))
    case.ask(message(READ, four), message(READ, four, 0, b"", ABSENT))
    case.note("without a UDP checksum; the reply has one")
    case.ask(message(READ, two), message(READ, two, 2, b"lock: b", DONE), without_checksum=True)
    case.note("a client behind a router; a hop limit of 1 is enough to get here")
    case.packet(1, ethernet(PORT_MACS[1], ROUTER_MAC, ipv4(FAR, SERVICE, UDP, udp(FAR, SERVICE, 40000, PORT, message(READ, two)), ttl=1)))
    case.expect(1, ethernet(ROUTER_MAC, PORT_MACS[1], reply(message(READ, two, 2, b"lock: b", DONE), FAR)))
    case.note("a frame padded behind the packet")
    case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, request(message(READ, three)) + b"\0" * 6))
    case.expect(0, ethernet(CLIENT_MAC, PORT_MACS[0], reply(message(READ, three, 1, b"zero", DONE)) + b"\0" * 6))
    case.counter("reads", 10)
    case.counter("writes", 5)
    case.counter("conflicts", 2)
    case.counter("malformed", 0)
    case.write()


def refuses():
    case = KeyValueCase("refuses", "What is no request, what there is no room for, and what is not for the service.")
    key = b"key".ljust(16)
    case.note("an unknown operation")
    case.ask(message(0, key, 3, b"v"), message(0, key, 0, b"", UNKNOWN))
    case.ask(message(255, key), message(255, key, 0, b"", UNKNOWN))
    case.counter("refused", 2)
    case.note("no request: another magic, a reply, a byte too few or too many, a length that lies")
    case.near(request(message(READ, key, magic=0x4B57)))
    case.near(request(message(READ, key, status=DONE)))
    case.near(request(message(READ, key)[:-1]))
    case.near(request(message(READ, key) + b"x"))
    case.near(request(message(READ, key))[:-1])
    good = request(message(UPDATE, key, 0, b"value"))
    case.counter("malformed", 4)
    case.note("(the packet that is shorter than it says goes to the kernel, as it came)")
    case.lines.append(f"expect host {ethernet(PORT_MACS[0], CLIENT_MAC, request(message(READ, key))[:-1]).hex()}$")
    case.note("wrong checksums: UDP, IPv4")
    case.near(good[:-1] + b"x")
    case.near(good[:10] + b"\0\0" + good[12:])
    case.counter("malformed", 6)
    case.note("none of these left anything")
    case.ask(message(READ, key), message(READ, key, 0, b"", ABSENT))
    case.counter("writes", 0)
    case.note("an expired hop limit")
    case.to_host(0, ethernet(PORT_MACS[0], CLIENT_MAC, ipv4(CLIENT, SERVICE, UDP, udp(CLIENT, SERVICE, 40000, PORT, message(READ, key)), ttl=0)))
    case.note("not for the service: another port there (which has no route: to the kernel), routed by, TTL 1, ARP")
    case.to_host(0, ethernet(PORT_MACS[0], CLIENT_MAC, ipv4(CLIENT, SERVICE, UDP, udp(CLIENT, SERVICE, 40000, PORT + 1, message(READ, key)))))
    for make in (lambda ttl: ipv4(CLIENT, FAR, UDP, udp(CLIENT, FAR, 40000, PORT, message(READ, key)), ttl=ttl),
                 lambda ttl: ipv4(CLIENT, FAR, TCP, tcp(CLIENT, FAR, 40000, 80, b"hello"), ttl=ttl),
                 lambda ttl: ipv4(CLIENT, FAR, UDP, b"fragment", ttl=ttl, flags_offset=1),
                 lambda ttl: ipv4(CLIENT, FAR, UDP, udp(CLIENT, FAR, 40000, PORT), ttl=ttl, options=b"\1" * 4)):
        case.near(make(64))
        case.expect(1, ethernet(ROUTER_MAC, PORT_MACS[1], make(63)))
    case.counter("routed", 4)
    case.to_host(0, ethernet(PORT_MACS[0], CLIENT_MAC, ipv4(CLIENT, FAR, TCP, tcp(CLIENT, FAR, 40000, 80), ttl=1)))
    case.to_host(0, ethernet(PORT_MACS[0], CLIENT_MAC, bytes(28), 0x0806))
    case.note("no way back to the client")
    case.packet(0, ethernet(PORT_MACS[0], CLIENT_MAC, request(message(READ, key), "203.0.113.9")))
    case.counter("no_next_hop", 1)
    case.write()


def full():
    case = KeyValueCase("full", "A switch with room for four keys: the fifth is refused, the others go on.")
    for number in range(4):
        key = bytes([number]) * 16
        case.ask(message(UPDATE, key, 0, b"v"), message(UPDATE, key, 1, b"v", DONE))
    case.ask(message(UPDATE, b"4" * 16, 0, b"v"), message(UPDATE, b"4" * 16, 0, b"", FULL))
    case.ask(message(UPDATE, bytes(16), 0, b"w"), message(UPDATE, bytes(16), 2, b"w", DONE))
    case.ask(message(READ, b"4" * 16), message(READ, b"4" * 16, 0, b"", ABSENT))
    case.counter("refused", 1)
    case.write()


for write in (answers, refuses, full):
    write()
