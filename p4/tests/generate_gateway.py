#!/usr/bin/env python3
"""Writes gateway_check.stf and gateway_router.stf beside it: python3 p4/tests/generate_gateway.py

Every expected packet is built from scratch, its checksums summed over the whole packet.
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from stf_packets import (ICMP, ICMP6, TCP, UDP, Case, checksum, echo, echo6, ethernet,  # noqa: E402
                         icmp, icmp6, ipv4, ipv6, pseudo, tcp, udp)

PORT_MACS = [f"02:00:00:00:00:a{port}" for port in range(6)]
HOST_MAC = "02:00:00:00:00:05"
IPV6 = 0x86DD
SOURCE, DESTINATION = "10.0.0.5", "198.51.100.80"
# Odd, and long enough for what is checked in line.
PAYLOAD = b"hello, world" * 3 + b"!"
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
        about = "gateway_check() of what a packet says by itself: lengths, checksum, martians."
        super().__init__(HERE, "", "gateway_check", about, "")
        self.counts = {}

    def passes(self, frame):
        self.packet(0, frame)
        self.expect(1, frame)

    def fails(self, reason, frame):
        self.packet(0, frame)
        self.counted(reason)

    def counted(self, name, by=1):
        self.counts[name] = self.counts.get(name, 0) + by
        self.lines.append(f"check_gateway {name} == {self.counts[name]}")


def checks(case):
    plain = ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1000, 53, PAYLOAD))
    segment = ipv4(SOURCE, DESTINATION, TCP, tcp(SOURCE, DESTINATION, 1000, 80, PAYLOAD))
    case.note("Well-formed packets, with Ethernet's padding or an odd number of bytes.")
    case.passes(frame(plain))
    case.passes(frame(plain + b"\0" * 13))
    case.passes(frame(segment))
    case.passes(frame(ipv4(SOURCE, DESTINATION, ICMP, echo(8, 1))))
    case.note("Neither IPv4 nor IPv6; with a tag.")
    case.passes(frame(b"\0" * 46, 0x88B5))
    case.passes(frame(b"\0\1\x08\0" + b"\0" * 40, 0x8100))
    for tag in (0x8100, 0x88A8):
        case.passes(frame(b"\x10\1\x08\0" + plain, tag))
        case.fails("priority_tag", frame(b"\0\0\x08\0" + plain, tag))
        case.fails("priority_tag", frame(b"\xf0\0\x86\xdd" + plain, tag))
        case.fails("priority_tag", frame(b"\0\0\x81\0\0\0\x08\0" + plain, tag))
        case.passes(frame(b"\0\0\x08\x06" + b"\0" * 40, tag))
    case.passes(frame(b"\0" * 46, 0x0806))
    case.note("IPv4 options: their checksum too.")
    options = b"\x94\4\0\0" + b"\1" * 36
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2),
                           options=options)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2),
                           options=b"\1\1\1\0")))
    wrong = ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2), options=options)
    case.fails("header_checksum", frame(with_bytes(wrong, 59, b"\2")))
    case.fails("header_checksum", frame(with_bytes(plain, 10, b"\0\0")))
    case.fails("header_checksum", frame(with_bytes(plain, 8, b"\x05")))
    def optioned(options):
        return frame(ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2),
                          options=options))
    for options in [b"\7\0\0\0", b"\7\1\0\0", b"\7\5\4\0", b"\1\1\1\7", b"\x94\4\0\0\x88\xff\0\0",
                    b"\1" * 39 + b"\x94"]:
        case.fails("options", optioned(options))
    for options in [b"\7\4\4\0", b"\0\7\1\0", b"\x94\2\x88\2", b"\7\x28" + bytes(38)]:
        case.passes(optioned(options))
    case.note("Headers that are none, or cut off.")
    case.fails("short_header", frame(with_checksum(with_bytes(plain, 0, b"\x65"))))
    case.fails("short_header", frame(with_checksum(with_bytes(plain, 0, b"\x44"))))
    for protocol in (UDP, ICMP):
        short = with_bytes(with_bytes(plain, 9, bytes([protocol])), 2, struct.pack("!H", 19))
        case.fails("short_header", frame(with_checksum(short)))
    case.fails("short_header", frame(plain[:19]))
    case.fails("length", frame(wrong[:57]))
    case.note("Total length beyond the frame.")
    case.fails("length", frame(with_checksum(with_bytes(plain, 2, struct.pack("!H",
                                                                              len(plain) + 1)))))
    case.fails("length", frame(plain[:-1]))
    case.note("UDP: length below 8, beyond the packet; a packet that has no room for it.")
    case.fails("length", frame(with_bytes(plain, 24, struct.pack("!H", 7))))
    case.fails("length", frame(with_bytes(plain, 24, struct.pack("!H",
                                                                 9 + len(PAYLOAD))) + b"\0\0"))
    case.passes(frame(with_bytes(plain, 24, struct.pack("!H", 12))))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, UDP, b"\0" * 7) + b"\0" * 30))
    case.note("TCP: data offset below 5, beyond the packet; a packet that has no room for it.")
    case.fails("length", frame(with_bytes(segment, 32, b"\x40")))
    case.fails("length", frame(with_bytes(segment, 32, b"\xf0") + b"\0" * 10))
    case.passes(frame(with_bytes(segment, 32, b"\x60")))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 19) + b"\0" * 30))
    case.note("Fragments: of the first, UDP's length is the whole packet's; others have no header.")
    first = udp(SOURCE, DESTINATION, 1, 2, b"x" * 100)
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, first[:48], flags_offset=0x2000)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, UDP, first[48:], flags_offset=6)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 3, flags_offset=6)))
    case.fails("length", frame(ipv4(SOURCE, DESTINATION, TCP, b"\0" * 16, flags_offset=0x2000)))
    for payload, flags_offset in [(b"\0" * 9, 0x2001), (b"", 0x2001), (b"\0" * 7, 0x2000),
                                  (b"\0" * 8, 0x1FFF), (b"\0" * 16, 0x3FFE)]:
        case.fails("fragment", frame(ipv4(SOURCE, DESTINATION, ICMP, payload,
                                          flags_offset=flags_offset)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, ICMP, b"\0" * 3, flags_offset=0x1FFD)))
    case.passes(frame(ipv4(SOURCE, DESTINATION, ICMP, b"\0" * 8, flags_offset=0x2001)))
    case.note("Martian sources and destinations. Link-local addresses and broadcasts of a network are none.")
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.1", "224.0.0.1", "240.0.0.1",
                   "255.255.255.255"]:
        case.fails("martian_source", frame(ipv4(source, DESTINATION, UDP, udp(source,
                                                                              DESTINATION, 1, 2, PAYLOAD))))
    def towards(destination):
        return frame(ipv4(SOURCE, destination, UDP, udp(SOURCE, destination, 1, 2, PAYLOAD)))
    for destination in ["0.0.0.0", "0.255.0.1", "127.0.0.1"]:
        case.fails("martian_destination", towards(destination))
    case.passes(towards("240.0.0.1"))
    case.fails("martian_destination", towards("255.255.255.255"))
    for source in ["1.0.0.1", "126.0.0.1", "128.0.0.1", "169.254.0.1", "223.255.255.255"]:
        case.passes(frame(ipv4(source, DESTINATION, UDP, udp(source, DESTINATION, 1, 2, PAYLOAD))))
    case.passes(frame(ipv4(SOURCE, "224.0.0.5", UDP, udp(SOURCE, "224.0.0.5", 1, 2))))

    case.note("IPv6.")
    plain = ipv6(SOURCE6, DESTINATION6, UDP, udp(SOURCE6, DESTINATION6, 1000, 53, b"hello"))
    segment = ipv6(SOURCE6, DESTINATION6, TCP, tcp(SOURCE6, DESTINATION6, 1000, 80, b"hello"))
    case.passes(frame(plain, IPV6))
    case.passes(frame(plain + b"\0" * 4, IPV6))
    case.passes(frame(segment, IPV6))
    case.passes(frame(ipv6(SOURCE6, DESTINATION6, ICMP6, echo6(SOURCE6, DESTINATION6, 128, 1)),
                      IPV6))
    case.passes(frame(ipv6(SOURCE6, DESTINATION6, 59, b""), IPV6))
    case.fails("short_header", frame(plain[:39], IPV6))
    case.fails("short_header", frame(with_bytes(plain, 0, b"\x40"), IPV6))
    case.fails("length", frame(plain[:-1], IPV6))
    case.fails("length", frame(with_bytes(plain, 44, struct.pack("!H", 7)), IPV6))
    case.fails("length", frame(with_bytes(plain, 44, struct.pack("!H", 14)) + b"\0\0", IPV6))
    case.fails("length", frame(with_bytes(segment, 52, b"\x40"), IPV6))
    case.fails("length", frame(with_bytes(segment, 52, b"\x70"), IPV6))
    def fragment6(next_header, offset, payload):
        header = struct.pack("!BBHI", next_header, 0, offset, 1)
        return frame(ipv6(SOURCE6, DESTINATION6, 44, header + payload), IPV6)
    case.note("IPv6's fragment header, and what is behind it.")
    datagram = udp(SOURCE6, DESTINATION6, 1, 2, b"x" * 24)
    for payload, offset in [(b"\0" * 9, 9), (b"", 9), (b"\0" * 8, 0xFFF8), (b"\0" * 16, 0xFFF1)]:
        case.fails("fragment", fragment6(ICMP6, offset, payload))
    case.passes(fragment6(ICMP6, 0xFFF8, b"\0" * 7))
    case.passes(fragment6(UDP, 0, datagram))
    case.passes(fragment6(UDP, 1, datagram[:16]))
    case.passes(fragment6(TCP, 8, b"\0" * 3))
    case.fails("length", fragment6(UDP, 0, datagram[:16]))
    case.fails("length", fragment6(TCP, 0, tcp(SOURCE6, DESTINATION6, 1, 2)[:19]))
    case.fails("length", fragment6(TCP, 1, with_bytes(tcp(SOURCE6, DESTINATION6, 1, 2) + bytes(4),
                                                      12, b"\x70")))
    case.fails("length", frame(ipv6(SOURCE6, DESTINATION6, 44, b"\x11" + bytes(6)), IPV6))
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.5"]:
        case.fails("martian_source", frame(ipv6(source, DESTINATION6, 59, b""), IPV6))
    for destination in ["::", "::1", "::ffff:10.0.0.5"]:
        case.fails("martian_destination", frame(ipv6(SOURCE6, destination, 59, b""), IPV6))
    case.passes(frame(ipv6("::2", DESTINATION6, 59, b""), IPV6))
    case.passes(frame(ipv6(SOURCE6, "ff0e::5", 59, b""), IPV6))


def gateway_check():
    case = Checks()
    checks(case)
    case.write()


ROUTER_SETUP = f"""
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24 address 2001:db8::1/64 own_mac reverse_path strict
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24 address 2001:db8:f::2/64 mtu 1400 reverse_path loose
# port: 2 mac {PORT_MACS[2]} address 192.0.3.2/24
# port: 3 mac {PORT_MACS[3]} reverse_path strict sibling 0
# gateway: icmp_rate_per_s 4 clamp_mss hold_fragments
# neighbor: {SOURCE} mac {HOST_MAC} port 0
# neighbor: 192.0.2.1 mac 02:00:00:00:00:11 port 1
# neighbor: {SOURCE6} mac {HOST_MAC} port 0
# neighbor: 2001:db8:f::1 mac 02:00:00:00:00:11 port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: 203.0.113.0/24 via 192.0.3.1 port 2
# route: 198.18.0.0/15 blackhole
# route: 2001:db8:1::/48 via 2001:db8:f::1 port 1
"""
NEXT_HOP_MAC = "02:00:00:00:00:11"


class Router(Checks):
    def __init__(self):
        about = "A gateway between ports of unequal MTUs."
        Case.__init__(self, HERE, "RouterIngress", "gateway_router", about, ROUTER_SETUP)
        self.counts = {}

    def passes(self, frame):
        """What checks() lets pass is routed, or not, by other cases."""

    def routed(self, port, packet, ether_type=0x0800, out=1, sent=None, source=None):
        """It leaves by `out`, as `sent` or with one hop less."""
        self.packet(port, frame(packet, ether_type, PORT_MACS[port]))
        self.expect(out, ethernet(NEXT_HOP_MAC if out == 1 else HOST_MAC, source or PORT_MACS[out],
                                  sent or one_hop_less(packet), ether_type))

    def dropped(self, port, packet, ether_type=0x0800, destination=None):
        self.packet(port, frame(packet, ether_type, destination or PORT_MACS[port]))

    def by_kernel(self, port, packet):
        """Its Ethernet header is the agent's affair."""
        self.packet(port, frame(packet, 0x0800, PORT_MACS[port]))
        self.lines.append(f"expect 510 {'*' * 24} 0800 {one_hop_less(packet).hex()}$")

    def wait(self, time):
        self.lines.append(f"clock {time}")


def one_hop_less(packet):
    if packet[0] >> 4 == 6:
        return with_bytes(packet, 7, bytes([packet[7] - 1]))
    return with_checksum(with_bytes(packet, 8, bytes([packet[8] - 1])))


def about(packet, kind, code, rest):
    """The router's ICMP error about a packet that came in on port 0."""
    if packet[0] >> 4 == 6:
        error = icmp6("2001:db8::1", SOURCE6, kind, code, rest, packet[:1280 - 48])
        return ethernet(HOST_MAC, PORT_MACS[0],
                        ipv6("2001:db8::1", SOURCE6, ICMP6, error, traffic_class=0xC0,
                             flow_label=0), IPV6)
    return ethernet(HOST_MAC, PORT_MACS[0], ipv4("10.0.0.1", SOURCE, ICMP, icmp(kind, code, rest,
                                                                                packet[:576 - 28]),
                                                 tos=0xC0, identification=0))


def packet_of(size, protocol=UDP, **more):
    payload = bytes(i & 255 for i in range(size - 28))
    return ipv4(SOURCE, DESTINATION, protocol, udp(SOURCE, DESTINATION, 1000, 53, payload), **more)


def packet_of6(size):
    payload = bytes(i & 255 for i in range(size - 48))
    return ipv6(SOURCE6, DESTINATION6, UDP, udp(SOURCE6, DESTINATION6, 1000, 53, payload))


def frames(case):
    case.note("A frame for another MAC; a unicast packet in a broadcast and a multicast frame; a multicast packet.")
    plain = packet_of(100)
    case.routed(0, plain)
    case.dropped(0, plain, destination="02:00:00:00:00:99")
    case.counted("other_mac")
    case.dropped(0, plain, destination="ff:ff:ff:ff:ff:ff")
    case.counted("broadcast_frame")
    case.dropped(0, plain, destination="01:00:5e:00:00:01")
    case.counted("broadcast_frame")
    plain = packet_of6(100)
    case.routed(0, plain, IPV6)
    case.dropped(0, plain, IPV6, destination="02:00:00:00:00:99")
    case.counted("other_mac")
    case.dropped(0, plain, IPV6, destination="33:33:00:00:00:01")
    case.counted("broadcast_frame")
    case.note("(Port 1 takes frames for any MAC, none of them broadcast.)")
    back = ipv4(DESTINATION, SOURCE, UDP, udp(DESTINATION, SOURCE, 53, 1000, PAYLOAD))
    for _ in range(2):
        case.packet(1, frame(back, destination="02:00:00:00:00:99"))
        case.expect(0, ethernet(HOST_MAC, PORT_MACS[0], one_hop_less(back)))
    case.packet(1, frame(back, destination="ff:ff:ff:ff:ff:ff"))
    case.counted("broadcast_frame")


def sources(case):
    def plain(source, destination=DESTINATION):
        return ipv4(source, destination, UDP, udp(source, destination, 1, 2, PAYLOAD))

    def plain6(source, destination=DESTINATION6):
        return ipv6(source, destination, UDP, udp(source, destination, 1, 2))

    case.note("Strict: the source's route must lead back, twice each, as what routes say is remembered.")
    for source in ["10.0.0.77", "10.0.0.77"]:
        case.routed(0, plain(source))
    for source, reason in [("198.51.100.9", "reverse_path"), ("8.8.8.8", "reverse_path"),
                           ("198.18.0.1", "reverse_path"),
                           ("10.0.0.1", "martian_source"), ("192.0.3.2", "martian_source")]:
        for _ in range(2):
            case.dropped(0, plain(source))
            case.counted(reason)
    case.note("(The next hop of 10.0.0.77 is not resolved: the way is known all the same.)")
    for _ in range(2):
        case.routed(0, plain6("2001:db8::77"), IPV6)
        case.dropped(0, plain6("2001:db8:1::9"), IPV6)
        case.counted("reverse_path")
        case.dropped(0, plain6("2001:db8::1"), IPV6)
        case.counted("martian_source")
    case.note("Loose: any route. It may lead back out of another port.")
    for _ in range(2):
        case.routed(1, plain("203.0.113.7", SOURCE), out=0)
        case.dropped(1, plain("8.8.8.8", SOURCE))
        case.counted("reverse_path")
        case.dropped(1, plain("198.18.0.1", SOURCE))
        case.counted("reverse_path")
        case.dropped(1, plain("10.0.0.1", SOURCE))
        case.counted("martian_source")
        case.dropped(1, plain6("2001:db9::1", SOURCE6), IPV6)
        case.counted("reverse_path")
    case.note("Off: only own addresses are refused.")
    case.routed(2, plain("8.8.8.8", SOURCE), out=0)
    case.dropped(2, plain("10.0.0.1", SOURCE))
    case.counted("martian_source")
    case.routed(2, plain6("2001:db9::1", SOURCE6), IPV6, out=0)
    case.dropped(2, plain6("2001:db8::1", SOURCE6), IPV6)
    case.counted("martian_source")
    case.note("A port that shares a multipath route with port 0, and none with port 1.")
    case.routed(3, plain("10.0.0.78"))
    case.dropped(3, plain("198.51.100.9"))
    case.counted("reverse_path")


def too_big(case):
    mtu = struct.pack("!I", 1400)
    case.note("As long as the route's MTU; longer with DF: answered, and nothing else leaves.")
    case.routed(0, packet_of(1400))
    for size in (1401, 1500):
        case.packet(0, frame(packet_of(size)))
        case.expect(0, about(packet_of(size), 3, 4, mtu))
        case.counted("icmp_sent")
    case.note("Options are quoted; Ethernet's padding is not.")
    options = ipv4(SOURCE, DESTINATION, UDP, udp(SOURCE, DESTINATION, 1, 2, b"x" * 1400),
                   options=b"\1" * 40)
    case.packet(0, frame(options))
    case.expect(0, about(options, 3, 4, mtu))
    case.note("IPv6: packet too big.")
    case.routed(0, packet_of6(1400), IPV6)
    case.packet(0, frame(packet_of6(1401), IPV6))
    case.expect(0, about(packet_of6(1401), 2, 0, mtu))
    case.counted("icmp_sent", 2)
    case.note("Four a second: no more now, one more after a quarter of it.")
    case.packet(0, frame(packet_of(1500)))
    case.counted("icmp_rate_limited")
    case.wait("250ms")
    case.packet(0, frame(packet_of(1500)))
    case.expect(0, about(packet_of(1500), 3, 4, mtu))
    case.packet(0, frame(packet_of(1500)))
    case.counted("icmp_sent")
    case.counted("icmp_rate_limited")
    case.wait("10s")
    case.note("None about an ICMP error, but about an echo request.")
    error = icmp(3, 1, b"\0" * 4, packet_of(600))
    echoed = echo(8, 1, payload=b"x" * 1400)
    case.packet(0, frame(ipv4(SOURCE, DESTINATION, ICMP, error + b"\0" * 1000)))
    case.counted("icmp_suppressed")
    case.packet(0, frame(ipv4(SOURCE, DESTINATION, ICMP, echoed)))
    case.expect(0, about(ipv4(SOURCE, DESTINATION, ICMP, echoed), 3, 4, mtu))
    case.counted("icmp_sent")
    error = icmp6(SOURCE6, DESTINATION6, 1, 0, b"\0" * 4, packet_of6(1400))
    case.packet(0, frame(ipv6(SOURCE6, DESTINATION6, ICMP6, error), IPV6))
    case.counted("icmp_suppressed")
    case.note("None about a packet with DF that is a fragment after the first.")
    case.packet(0, frame(packet_of(100, identification=7, flags_offset=0x2000)))
    case.expect(1, ethernet(NEXT_HOP_MAC, "02:00:03:e8:00:35",
                            one_hop_less(packet_of(100, identification=7, flags_offset=0x2000))))
    later = packet_of(1500, identification=7, flags_offset=0x4009)
    case.packet(0, frame(later))
    case.counted("icmp_suppressed")
    case.note("A port without an address cannot answer.")
    case.packet(3, frame(packet_of(1500), destination=PORT_MACS[3]))
    case.counted("icmp_no_address")


def kernel(case):
    case.note("To the kernel as the router made it: too big without DF; a next hop that is not resolved.")
    case.by_kernel(0, packet_of(1401, flags_offset=0))
    case.by_kernel(0, packet_of(1500, flags_offset=0))
    unresolved = ipv4(SOURCE, "203.0.113.9", UDP, udp(SOURCE, "203.0.113.9", 1, 2))
    case.by_kernel(0, unresolved)


def fragments(case):
    whole = udp(SOURCE, DESTINATION, 1000, 53, b"x" * 200)

    def fragment(identification, offset, size=48, more=True, protocol=UDP):
        return ipv4(SOURCE, DESTINATION, protocol, whole[offset:offset + size],
                    identification=identification,
                    flags_offset=(0x2000 if more else 0) | offset // 8)

    ports = "02:00:03:e8:00:35"
    case.note("Fragments after the first get its ports.")
    case.routed(0, fragment(1, 0), source=ports)
    case.counted("fragments_remembered", 2)
    case.routed(0, fragment(1, 48), source=ports)
    case.routed(0, fragment(1, 96, 200, more=False), source=ports)
    case.note("Of another packet, protocol or source they are held: the agent has them.")
    case.packet(0, frame(fragment(2, 48)))
    case.packet(0, frame(fragment(1, 48, protocol=TCP)))
    other = ipv4("10.0.0.6", DESTINATION, UDP, whole[48:], identification=1, flags_offset=6)
    case.packet(0, frame(other))
    case.counted("fragments_held", 3)
    case.note("They are known for thirty seconds after the first.")
    case.wait("29999ms")
    case.routed(0, fragment(1, 48), source=ports)
    case.wait("1ms")
    case.packet(0, frame(fragment(1, 48)))
    case.counted("fragments_held")
    case.lines.append("check_counter RouterIngress.full(0) packets == 0")


def mss(case):
    def syn(options, flags=2, payload=b""):
        words = 5 + len(options) // 4
        head = struct.pack("!HHIIHHHH", 1000, 80, 1, 0, words << 12 | flags, 0xFFFF, 0, 0)
        return head + options + payload

    def segment(text, source=SOURCE, destination=DESTINATION):
        value = checksum(pseudo(source, destination, TCP, len(text)) + text)
        return with_bytes(text, 16, struct.pack("!H", value))

    def option(value):
        return struct.pack("!BBH", 2, 4, value)

    def clamped(before, after, **more):
        case.routed(0, ipv4(SOURCE, DESTINATION, TCP, segment(syn(before, **more))),
                    sent=one_hop_less(ipv4(SOURCE, DESTINATION, TCP, segment(syn(after, **more)))))

    case.note("The MSS that a SYN names fits the smaller MTU.")
    clamped(option(1460), option(1360))
    clamped(option(1360), option(1360))
    clamped(option(536), option(536))
    clamped(option(1460), option(1360), flags=0x12)
    case.note("Behind other options, at an odd place too; not behind the end of the options, nor in a cut one.")
    clamped(b"\4\2\1\1" + option(1460), b"\4\2\1\1" + option(1360))
    clamped(b"\1" + option(1460) + b"\1\1\0", b"\1" + option(1360) + b"\1\1\0")
    clamped(b"\x08\x0a" + b"\2\4" * 4 + b"\1\1" + option(1460),
            b"\x08\x0a" + b"\2\4" * 4 + b"\1\1" + option(1360))
    clamped(b"\1" * 36 + option(9000), b"\1" * 36 + option(1360))
    for options in [b"\0\0\0\0" + option(1460), b"\0\1\1\1" + option(1460), b"\1\2\4\5",
                    b"\3\0\1\1" + option(1460), b"\3\x14\1\1" + option(1460), b"\2\6\x23\x28\x23\x28\1\1", b""]:
        clamped(options, options)
    clamped(b"\1\1\2\4", b"\1\1\2\4", payload=struct.pack("!H", 9000) * 4)
    case.note("Only of a SYN.")
    clamped(option(1460), option(1460), flags=0x10)
    case.note("IPv6; and towards the larger MTU, which the ingress port's own limits.")
    case.routed(0, ipv6(SOURCE6, DESTINATION6, TCP, segment(syn(option(1440)), SOURCE6,
                                                            DESTINATION6)), IPV6,
                sent=one_hop_less(ipv6(SOURCE6, DESTINATION6, TCP, segment(syn(option(1340)),
                                                                           SOURCE6, DESTINATION6))))
    case.routed(1, ipv4(DESTINATION, SOURCE, TCP, segment(syn(option(1460), 0x12), DESTINATION,
                                                          SOURCE)), out=0,
                sent=one_hop_less(ipv4(DESTINATION, SOURCE, TCP, segment(syn(option(1360), 0x12),
                                                                         DESTINATION, SOURCE))))


def gateway_router():
    case = Router()
    case.note("What a packet says by itself, from a source that the routes were asked about.")
    for _ in range(2):
        case.routed(0, packet_of(100))
        case.routed(0, ipv4(SOURCE, DESTINATION, TCP, tcp(SOURCE, DESTINATION, 1, 2, b"x" * 100)))
        case.routed(0, ipv4(SOURCE, DESTINATION, ICMP, echo(8, 1, payload=b"x" * 100)))
    checks(case)
    frames(case)
    sources(case)
    too_big(case)
    kernel(case)
    fragments(case)
    mss(case)
    case.write()


gateway_check()
gateway_router()
