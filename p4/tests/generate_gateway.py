#!/usr/bin/env python3
"""Writes gateway_check.stf and gateway_router.stf beside it: python3 p4/tests/generate_gateway.py

Every expected packet is built from scratch, its checksums summed over the whole packet.
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "apps"))
from stf_packets import (ICMP, ICMP6, TCP, UDP, Case, address, echo, echo6, ethernet, icmp, icmp6,  # noqa: E402
                         ipv4, ipv6, mac, pseudo, tcp, udp)
from stf_packets import checksum  # noqa: E402

PORT_MACS = [f"02:00:00:00:00:a{port}" for port in range(6)]
HOST_MAC = "02:00:00:00:00:05"
IPV6 = 0x86DD
SOURCE, DESTINATION = "10.0.0.5", "198.51.100.80"
SOURCE6, DESTINATION6 = "2001:db8::5", "2001:db8:1::80"


def frame(packet, ether_type=0x0800, destination=PORT_MACS[0]):
    return ethernet(destination, HOST_MAC, packet, ether_type)


def with_bytes(packet, at, new):
    return packet[:at] + new + packet[at + len(new):]


def with_checksum(packet):
    """IPv4's, made right again."""
    words = packet[0] & 15
    header = packet[:10] + b"\0\0" + packet[12:words * 4]
    return with_bytes(packet, 10, struct.pack("!H", checksum(header)))


class Checks(Case):
    def __init__(self):
        super().__init__(HERE, "", "gateway_check",
                         "gateway_check() of what a packet says by itself: lengths, checksum, martians.", "")
        self.counts = {}

    def passes(self, frame):
        self.packet(0, frame)
        self.expect(1, frame)

    def fails(self, reason, frame):
        self.packet(0, frame)
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.lines.append(f"check_gateway {reason} == {self.counts[reason]}")


def gateway_check():
    case = Checks()
    plain = ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1000, 53, b"hello"))
    segment = ipv4(SOURCE, DESTINATION, TCP, tcp(SOURCE, DESTINATION, 1000, 80, b"hello"))
    case.note("Well-formed packets, with Ethernet's padding or an odd number of bytes.")
    case.passes(frame(plain))
    case.passes(frame(plain + b"\0" * 13))
    case.passes(frame(segment))
    case.passes(frame(ipv4(SOURCE, DESTINATION, ICMP, echo(8, 1))))
    case.note("Neither IPv4 nor IPv6; with a tag.")
    case.passes(frame(b"\0" * 46, 0x88B5))
    case.passes(frame(b"\0\1\x08\0" + b"\0" * 40, 0x8100))
    case.passes(frame(b"\0" * 46, 0x0806))
    case.note("IPv4 options: their checksum too.")
    options = b"\x94\4\0\0" + b"\1" * 36
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2), options=options)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2), options=b"\1\1\1\0")))
    wrong = ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2), options=options)
    case.fails("header_checksum", frame(with_bytes(wrong, 59, b"\2")))
    case.fails("header_checksum", frame(with_bytes(plain, 10, b"\0\0")))
    case.fails("header_checksum", frame(with_bytes(plain, 8, b"\x05")))
    case.note("Headers that are none, or cut off.")
    case.fails("short_header", frame(with_bytes(plain, 0, b"\x65")))
    case.fails("short_header", frame(with_bytes(plain, 0, b"\x44")))
    case.fails("short_header", frame(with_checksum(with_bytes(plain, 2, struct.pack("!H", 19)))))
    case.fails("short_header", frame(plain[:19]))
    case.fails("length", frame(wrong[:57]))
    case.note("Total length beyond the frame.")
    case.fails("length", frame(with_checksum(with_bytes(plain, 2, struct.pack("!H", len(plain) + 1)))))
    case.fails("length", frame(plain[:-1]))
    case.note("UDP: length below 8, beyond the packet; a packet that has no room for it.")
    case.fails("length", frame(with_bytes(plain, 24, struct.pack("!H", 7))))
    case.fails("length", frame(with_bytes(plain, 24, struct.pack("!H", 14)) + b"\0\0"))
    case.passes(frame(with_bytes(plain, 24, struct.pack("!H", 12))))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, UDP, b"\0" * 7) + b"\0" * 10))
    case.note("TCP: data offset below 5, beyond the packet; a packet that has no room for it.")
    case.fails("length", frame(with_bytes(segment, 32, b"\x40")))
    case.fails("length", frame(with_bytes(segment, 32, b"\x70")))
    case.passes(frame(with_bytes(segment, 32, b"\x60")))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 19) + b"\0" * 10))
    case.note("Fragments: of the first, UDP's length is the whole packet's; others have no header.")
    first = udp(SOURCE, DESTINATION, 1, 2, b"x" * 100)
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, first[:48], flags_offset=0x2000)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, first[48:], flags_offset=6)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 3, flags_offset=6)))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 16, flags_offset=0x2000)))
    case.note("Martian sources and destinations. Link-local addresses and broadcasts of a network are none.")
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]:
        case.fails("martian_source", frame(ipv4(source, DESTINATION, UDP, udp(source, DESTINATION, 1, 2))))
    for destination in ["0.0.0.0", "0.255.0.1", "127.0.0.1", "240.0.0.1", "255.255.255.255"]:
        case.fails("martian_destination", frame(ipv4(SOURCE, destination, UDP, udp(SOURCE, destination, 1, 2))))
    for source in ["1.0.0.1", "126.0.0.1", "128.0.0.1", "169.254.0.1", "223.255.255.255"]:
        case.passes(frame(ipv4(source, DESTINATION, UDP, udp(source, DESTINATION, 1, 2))))
    case.passes(frame(ipv4(SOURCE, "224.0.0.5", UDP, udp(SOURCE, "224.0.0.5", 1, 2))))

    case.note("IPv6.")
    plain = ipv6(SOURCE6, DESTINATION6, UDP, udp(SOURCE6, DESTINATION6, 1000, 53, b"hello"))
    segment = ipv6(SOURCE6, DESTINATION6, TCP, tcp(SOURCE6, DESTINATION6, 1000, 80, b"hello"))
    case.passes(frame(plain, IPV6))
    case.passes(frame(plain + b"\0" * 4, IPV6))
    case.passes(frame(segment, IPV6))
    case.passes(frame(ipv6(SOURCE6, DESTINATION6, ICMP6, echo6(SOURCE6, DESTINATION6, 128, 1)), IPV6))
    case.passes(frame(ipv6(SOURCE6, DESTINATION6, 59, b""), IPV6))
    case.fails("short_header", frame(plain[:39], IPV6))
    case.fails("short_header", frame(with_bytes(plain, 0, b"\x40"), IPV6))
    case.fails("length", frame(plain[:-1], IPV6))
    case.fails("length", frame(with_bytes(plain, 44, struct.pack("!H", 7)), IPV6))
    case.fails("length", frame(with_bytes(plain, 44, struct.pack("!H", 14)) + b"\0\0", IPV6))
    case.fails("length", frame(with_bytes(segment, 52, b"\x40"), IPV6))
    case.fails("length", frame(with_bytes(segment, 52, b"\x70"), IPV6))
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.5"]:
        case.fails("martian_source", frame(ipv6(source, DESTINATION6, 59, b""), IPV6))
    for destination in ["::", "::1", "::ffff:10.0.0.5"]:
        case.fails("martian_destination", frame(ipv6(SOURCE6, destination, 59, b""), IPV6))
    case.passes(frame(ipv6("::2", DESTINATION6, 59, b""), IPV6))
    case.passes(frame(ipv6(SOURCE6, "ff0e::5", 59, b""), IPV6))
    case.write()


gateway_check()
