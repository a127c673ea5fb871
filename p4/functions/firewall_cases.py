"""Packet tests of functions/firewall.p4: those of all its programs, whose generate_stf.py calls write_all.
"""
import struct

from stf_packets import (ACK, FIN, ICMP, ICMP6, RST, SYN, TCP, UDP, Case, address, echo, echo6, ethernet,
                         fragmentation_needed, icmp, icmp6, ipv4, ipv6, packet_too_big, split, tcp, tcp_with_mss, udp, with_bytes)

INSIDE_MAC, OUTSIDE_MAC = "02:00:00:00:00:05", "02:00:00:00:00:11"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
SYN_ACK, FIN_ACK, RST_ACK = SYN | ACK, FIN | ACK, RST | ACK


class Family:
    """Addresses and headers of one family."""

    def __init__(self, number, host, server, remote, remote2, stranger):
        self.number = number
        self.host, self.server, self.remote, self.remote2, self.stranger = host, server, remote, remote2, stranger
        self.icmp = ICMP if number == 4 else ICMP6

    def packet(self, source, destination, protocol, payload, hops=64):
        if self.number == 4:
            return ipv4(source, destination, protocol, payload, ttl=hops)
        return ipv6(source, destination, protocol, payload, hop_limit=hops)

    def echo(self, source, destination, answer, identifier):
        if self.number == 4:
            return echo(0 if answer else 8, identifier)
        return echo6(source, destination, 129 if answer else 128, identifier)

    def error(self, source, destination, about):
        """Time exceeded."""
        return icmp(11, 0, bytes(4), about) if self.number == 4 else icmp6(source, destination, 3, 0, bytes(4), about)

    @property
    def ether_type(self):
        return 0x0800 if self.number == 4 else 0x86DD


V4 = Family(4, "10.0.0.5", "10.0.0.80", "198.51.100.80", "198.51.100.81", "192.0.2.1")
V6 = Family(6, "2001:db8:1::5", "2001:db8:1::80", "2001:db8:2::80", "2001:db8:2::81", "2001:db8:f::1")


def wide(text, length):
    packed = address(text)
    return f"0x{(packed if len(packed) == 16 else bytes(10) + bytes([255, 255]) + packed).hex()}/{length + 128 - 8 * len(packed)}"


SETUP = f"""
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24 address 2001:db8:1::1/64
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24 address 2001:db8:f::2/64
# neighbor: 10.0.0.5 mac {INSIDE_MAC} port 0
# neighbor: 10.0.0.80 mac {INSIDE_MAC} port 0
# neighbor: 2001:db8:1::5 mac {INSIDE_MAC} port 0
# neighbor: 2001:db8:1::80 mac {INSIDE_MAC} port 0
# neighbor: 192.0.2.1 mac {OUTSIDE_MAC} port 1
# neighbor: 2001:db8:f::1 mac {OUTSIDE_MAC} port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: 2001:db8:2::/48 via 2001:db8:f::1 port 1
# route: 203.0.113.0/24 unreachable

add FirewallIngress.inside_sources meta.source:{wide("10.0.0.0", 8)} FirewallIngress.yes()
add FirewallIngress.inside_sources meta.source:{wide("2001:db8:1::", 48)} FirewallIngress.yes()
add FirewallIngress.inside_destinations meta.destination:{wide("10.0.0.0", 8)} FirewallIngress.yes()
add FirewallIngress.inside_destinations meta.destination:{wide("2001:db8:1::", 48)} FirewallIngress.yes()
add FirewallIngress.outside_ports standard_metadata.ingress_port:1 FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("10.0.0.80", 32)} meta.destination_port:80 meta.protocol:{TCP} FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("10.0.0.80", 32)} meta.destination_port:53 meta.protocol:{UDP} FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("10.0.0.80", 32)} meta.destination_port:0 meta.protocol:{ICMP} FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("2001:db8:1::80", 128)} meta.destination_port:80 meta.protocol:{TCP} FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("2001:db8:1::80", 128)} meta.destination_port:53 meta.protocol:{UDP} FirewallIngress.yes()
add FirewallIngress.services meta.key_destination:{wide("2001:db8:1::80", 128)} meta.destination_port:0 meta.protocol:{ICMP6} FirewallIngress.yes()
"""


class FirewallCase(Case):
    folder = None
    define = ""

    def __init__(self, name, about, family=V4, setup=SETUP):
        super().__init__(FirewallCase.folder, "FirewallIngress", name, about, FirewallCase.define + setup)
        self.family = family

    def send(self, outbound, make, passes):
        """`make` gives the packet for a hop limit."""
        port = 0 if outbound else 1
        macs = [INSIDE_MAC, OUTSIDE_MAC]
        self.packet(port, ethernet(PORT_MACS[port], macs[port], make(64), self.family.ether_type))
        if passes:
            self.expect(1 - port, ethernet(macs[1 - port], PORT_MACS[1 - port], make(63), self.family.ether_type))

    def transport(self, outbound, passes, protocol, segment, inside, outside, inside_port, outside_port):
        source, destination, ports = (inside, outside, (inside_port, outside_port)) if outbound else (outside, inside, (outside_port, inside_port))
        self.send(outbound, lambda hops: self.family.packet(source, destination, protocol, segment(source, destination, *ports), hops), passes)

    def tcp(self, way, flags, passes=True, inside=None, outside=None, inside_port=40000, outside_port=443, payload=b""):
        self.transport(way == "out", passes, TCP, lambda *ends: tcp(*ends, payload, flags), inside or self.family.host,
                       outside or self.family.remote, inside_port, outside_port)

    def udp(self, way, passes=True, inside=None, outside=None, inside_port=5000, outside_port=53):
        self.transport(way == "out", passes, UDP, lambda *ends: udp(*ends, b"hello"), inside or self.family.host, outside or self.family.remote,
                       inside_port, outside_port)

    def ping(self, way, answer, passes=True, inside=None, identifier=7):
        inside, outside = inside or self.family.host, self.family.remote
        source, destination = (inside, outside) if way == "out" else (outside, inside)
        self.send(way == "out", lambda hops: self.family.packet(source, destination, self.family.icmp,
                                                                self.family.echo(source, destination, answer, identifier), hops), passes)

    def error(self, way, source, destination, about, passes=True):
        self.send(way == "out", lambda hops: self.family.packet(source, destination, self.family.icmp,
                                                                self.family.error(source, destination, about), hops), passes)

    def opened(self, port):
        """A connection of the inside host from this port."""
        for way, flags in (("out", SYN), ("in", SYN_ACK), ("out", ACK)):
            self.tcp(way, flags, inside_port=port)


def connections(family):
    case = FirewallCase(f"connections_ipv{family.number}", "What opens a connection and what belongs to one: TCP, UDP, echo, ICMP errors.", family)
    f = family
    case.note("outside may open nothing")
    case.tcp("in", SYN, False)
    case.tcp("in", SYN_ACK, False)
    case.udp("in", False)
    case.ping("in", False, False)
    case.ping("in", True, False)
    case.error("in", f.stranger, f.host, f.packet(f.host, f.remote, TCP, tcp(f.host, f.remote, 40000, 443)), False)
    case.counter("no_connection", 6)
    case.note("nor inside, but by SYN")
    for flags in (ACK, SYN_ACK, RST, FIN_ACK, SYN | FIN, SYN | RST, 0x5000):
        case.tcp("out", flags, False)
    case.ping("out", True, False)
    case.counter("no_connection", 14)
    case.note("TCP from inside: SYN (twice), answer, data both ways; 3 steps up to here would be one too many")
    case.tcp("out", SYN)
    case.tcp("out", SYN)
    case.tcp("in", SYN_ACK)
    case.tcp("out", ACK)
    case.tcp("in", ACK, payload=b"hello")
    case.tcp("out", ACK, payload=b"there")
    case.counter("steps", 2)
    case.note("only this very connection: not another port, address, protocol")
    case.tcp("in", ACK, False, outside_port=444)
    case.tcp("in", ACK, False, inside_port=40001)
    case.tcp("in", ACK, False, outside=f.remote2)
    case.tcp("in", ACK, False, inside=f.server)
    case.udp("in", False, inside_port=40000, outside_port=443)
    case.note("errors about it: from a router outside, and from inside; one to somebody else is forged, one about another connection unrelated")
    about = f.packet(f.host, f.remote, TCP, tcp(f.host, f.remote, 40000, 443))
    case.error("in", f.stranger, f.host, about)
    case.error("in", f.remote, f.host, about[:28 if f.number == 4 else 48])
    case.error("in", f.stranger, f.server, about, False)
    case.counter("forged_error", 1)
    case.error("in", f.stranger, f.host, f.packet(f.host, f.remote, TCP, tcp(f.host, f.remote, 40001, 443)), False)
    case.error("out", f.host, f.remote, f.packet(f.remote, f.host, TCP, tcp(f.remote, f.host, 443, 40000)))
    case.note("the end: FIN from inside, data still comes, FIN from outside, last acknowledgement")
    case.tcp("out", FIN_ACK)
    case.tcp("in", ACK, payload=b"more")
    case.tcp("in", FIN_ACK)
    case.tcp("out", ACK)
    case.counter("steps", 4)
    case.note("closed: a FIN said again passes; outside cannot open it, inside can")
    case.tcp("in", FIN_ACK)
    case.tcp("out", SYN)
    case.tcp("in", SYN_ACK)
    case.counter("steps", 6)
    case.note("UDP and echo: answers come in, and errors about them")
    case.udp("out")
    case.udp("in")
    case.udp("in", False, outside=f.remote2)
    case.error("in", f.remote, f.host, f.packet(f.host, f.remote, UDP, udp(f.host, f.remote, 5000, 53)))
    case.ping("out", False)
    case.ping("in", True)
    case.ping("in", True, False, identifier=8)
    case.ping("in", False, False)
    case.error("in", f.stranger, f.host, f.packet(f.host, f.remote, f.icmp, f.echo(f.host, f.remote, False, 7)))
    case.counter("steps", 6)
    case.note("a service: opened from outside, by SYN; the same host's other ports are closed")
    case.tcp("in", SYN, True, f.server, f.remote, 80, 40000)
    case.tcp("out", SYN_ACK, True, f.server, f.remote, 80, 40000)
    case.tcp("in", ACK, True, f.server, f.remote, 80, 40000)
    case.counter("steps", 8)
    case.tcp("in", ACK, False, f.server, f.remote, 80, 40001)
    case.tcp("in", SYN, False, f.server, f.remote, 81, 40000)
    case.tcp("in", SYN, False, f.host, f.remote, 80, 40000)
    case.udp("in", True, f.server, f.remote, 53, 5000)
    case.udp("out", True, f.server, f.remote, 53, 5000)
    case.ping("in", False, True, f.server)
    case.ping("out", True, True, f.server)
    case.error("out", f.server, f.remote, f.packet(f.remote, f.server, UDP, udp(f.remote, f.server, 5000, 53)))
    case.write()


def resets():
    case = FirewallCase("resets", "Resets: what passes after one, and who can open the connection again.")
    case.note("refused: RST instead of an answer")
    case.tcp("out", SYN)
    case.tcp("in", RST_ACK)
    case.tcp("in", RST_ACK)
    case.tcp("in", SYN_ACK, False)
    case.tcp("out", SYN)
    case.tcp("in", SYN_ACK)
    case.tcp("out", ACK)
    case.counter("steps", 4)
    case.note("a reset from outside that the inside end does not believe: its next packet opens the way again, one from outside does not")
    case.tcp("in", RST)
    case.tcp("in", ACK, False, payload=b"x")
    case.tcp("out", ACK)
    case.tcp("in", ACK, payload=b"x")
    case.counter("steps", 6)
    case.note("a reset from inside, and nothing more comes in")
    case.tcp("out", RST)
    case.tcp("in", ACK, False)
    case.tcp("in", SYN, False)
    case.counter("no_connection", 4)
    case.note("FIN from outside first; both at the same time")
    case.opened(41000)
    case.tcp("in", FIN_ACK, inside_port=41000)
    case.tcp("in", FIN_ACK, inside_port=41000)
    case.tcp("out", FIN_ACK, inside_port=41000)
    case.tcp("in", ACK, inside_port=41000)
    case.counter("steps", 11)
    case.note("a SYN while the connection stands changes nothing (the other end answers it with an ACK or a RST)")
    case.opened(42000)
    case.tcp("out", SYN, inside_port=42000)
    case.tcp("in", ACK, inside_port=42000)
    case.counter("steps", 13)
    case.note("simultaneous open is not known: the SYN from outside is part of the connection, its SYN+ACK establishes it")
    case.tcp("out", SYN, inside_port=43000)
    case.tcp("in", SYN, inside_port=43000)
    case.tcp("in", SYN_ACK, inside_port=43000)
    case.counter("steps", 15)
    case.write()


def refuses():
    case = FirewallCase("refuses", "What is neither passed nor tracked.")
    f = V4
    frame = lambda port, packet, kind=0x0800: ethernet(PORT_MACS[port], [INSIDE_MAC, OUTSIDE_MAC][port], packet, kind)  # noqa: E731
    case.note("an inside address on an outside port")
    case.packet(1, frame(1, ipv4(f.host, f.remote, TCP, tcp(f.host, f.remote, 1, 2, b"", SYN))))
    case.packet(1, frame(1, ipv4(f.host, f.server, TCP, tcp(f.host, f.server, 1, 2, b"", SYN))))
    case.counter("spoofed", 2)
    case.note("fragments whose first did not come, and which nobody holds")
    case.packet(0, frame(0, ipv4(f.host, f.remote, UDP, b"part two", flags_offset=1)))
    case.packet(0, frame(0, ipv6(V6.host, V6.remote, 44, fragment6(UDP, 8, False, b"part two")), 0x86DD))
    case.counter("fragments", 2)
    case.note("other protocols and ICMP types; ICMP cut short, or reaching into the padding")
    case.packet(0, frame(0, ipv4(f.host, f.remote, 47, bytes(8))))
    case.packet(0, frame(0, ipv4(f.host, f.remote, 47, bytes(8), flags_offset=1)))
    case.packet(0, frame(0, ipv4(f.host, f.remote, TCP, bytes(16), flags_offset=1)))
    case.packet(0, frame(0, ipv6(V6.host, V6.remote, 44, fragment6(TCP, 8, False, bytes(16))), 0x86DD))
    case.packet(0, frame(0, ipv4(f.host, f.remote, ICMP, icmp(13, 0, bytes(4), bytes(12)))))
    case.packet(0, frame(0, ipv6(V6.host, V6.remote, 0, bytes(8)), 0x86DD))
    case.packet(0, frame(0, ipv4(f.host, f.remote, ICMP, echo(8, 1)[:7])))
    case.packet(0, frame(0, ipv4(f.host, f.remote, ICMP, echo(8, 1)[:7]) + b"\0"))
    case.counter("unsupported", 8)
    case.note("what gateway_check() refuses: lengths, versions, checksums, martians")
    for packet in (ipv4(f.host, f.remote, TCP, tcp(f.host, f.remote, 1, 2, b"", SYN)[:19]), ipv4(f.host, f.remote, TCP, tcp(f.host, f.remote, 1, 2, b"", SYN)[:19]) + b"\0"):
        case.packet(0, frame(0, packet))
    case.packet(0, frame(0, ipv6(V6.host, V6.remote, UDP, udp(V6.host, V6.remote, 1, 2)[:7]) + b"\0", 0x86DD))
    case.dropped_by_gateway("length", 3)
    good = ipv4(f.host, f.remote, TCP, tcp(f.host, f.remote, 1, 2, b"", SYN))
    good6 = ipv6(V6.host, V6.remote, TCP, tcp(V6.host, V6.remote, 1, 2, b"", SYN))
    for packet, kind in ((with_bytes(good, 0, b"\x65"), 0x0800), (with_bytes(good6, 0, b"\x40"), 0x86DD), (good[:19], 0x0800), (good6[:39], 0x86DD)):
        case.packet(0, frame(0, packet, kind))
    case.dropped_by_gateway("short_header", 4)
    case.packet(0, frame(0, with_bytes(good, 10, b"\0\0")))
    case.packet(1, frame(1, ipv4("127.0.0.1", f.server, TCP, tcp("127.0.0.1", f.server, 1, 80, b"", SYN))))
    case.packet(1, frame(1, ipv6("::1", V6.server, TCP, tcp("::1", V6.server, 1, 80, b"", SYN)), 0x86DD))
    case.dropped_by_gateway("martian_source", 2)
    case.counter("refused", 10)
    case.note("neither inside nor outside; inside to inside; not IP; hop limits")
    for port, make in ((1, lambda hops: ipv4(f.stranger, f.remote, 47, bytes(8), ttl=hops)),):
        case.packet(port, frame(port, make(64)))
        case.expect(1, ethernet(OUTSIDE_MAC, PORT_MACS[1], make(63)))
    case.packet(0, frame(0, ipv4(f.host, f.server, TCP, tcp(f.host, f.server, 1, 2))))
    case.expect(0, ethernet(INSIDE_MAC, PORT_MACS[0], ipv4(f.host, f.server, TCP, tcp(f.host, f.server, 1, 2), ttl=63)))
    case.counter("untracked", 2)
    case.to_host(0, frame(0, bytes(28), 0x0806))
    case.to_host(0, frame(0, ipv4(f.host, f.remote, TCP, tcp(f.host, f.remote, 1, 2, b"", SYN), ttl=1)))
    case.to_host(0, frame(0, ipv6(V6.host, V6.remote, TCP, tcp(V6.host, V6.remote, 1, 2, b"", SYN), hop_limit=1), 0x86DD))
    case.counter("ttl_expired", 2)
    case.note("to where there is no way: the kernel answers, and there is no record")
    case.to_host(0, frame(0, ipv4(f.host, "203.0.113.9", TCP, tcp(f.host, "203.0.113.9", 1, 2, b"", SYN))))
    case.counter("no_route", 1)
    case.counter("steps", 0)
    case.write()


def full():
    setup = "\n# define: FIREWALL_CONNECTIONS=1" + SETUP
    case = FirewallCase("full", "A full table.", setup=setup)
    case.note("room for one, then for none; what has room goes on")
    case.tcp("out", SYN)
    case.tcp("out", SYN, False, inside_port=40001)
    case.udp("out", False)
    case.counter("no_room", 2)
    case.tcp("in", SYN_ACK)
    case.write()


def fragment6(next_header, offset, more, payload, identification=0x1234):
    """A fragment header (RFC 8200, 4.5) and what is behind it."""
    return struct.pack("!BBHI", next_header, 0, offset | more, identification) + payload


def gateway():
    setup = "\n# gateway: clamp_mss hold_fragments" + SETUP
    setup = setup.replace("address 192.0.2.2/24", "address 192.0.2.2/24 mtu 1400")
    case = FirewallCase("gateway", "Paths' MTUs, next hops, fragments, maximum segment sizes, of both families.", setup=setup)
    frame = lambda port, packet, kind=0x0800: ethernet(PORT_MACS[port], [INSIDE_MAC, OUTSIDE_MAC][port], packet, kind)  # noqa: E731
    back = lambda packet, kind=0x0800: ethernet(INSIDE_MAC, PORT_MACS[0], packet, kind)  # noqa: E731
    four, six = V4, V6
    case.note("too big and not to be fragmented: an ICMP error, and no record")
    packet = ipv4(four.host, four.remote, UDP, udp(four.host, four.remote, 5000, 53, b"m" * 1373))
    case.packet(0, frame(0, packet))
    case.expect(0, back(fragmentation_needed("10.0.0.1", packet, 1400)))
    packet = ipv6(six.host, six.remote, UDP, udp(six.host, six.remote, 5000, 53, b"m" * 1353))
    case.packet(0, frame(0, packet, 0x86DD))
    case.expect(0, back(packet_too_big("2001:db8:1::1", packet, 1400), 0x86DD))
    case.udp("in", False)
    case.counter("no_connection", 1)
    case.note("what may be fragmented is the kernel's, and opens a connection")
    case.packet(0, frame(0, ipv4(four.host, four.remote, UDP, udp(four.host, four.remote, 5000, 53, b"m" * 1373), flags_offset=0)))
    case.by_kernel(ipv4(four.host, four.remote, UDP, udp(four.host, four.remote, 5000, 53, b"m" * 1373), flags_offset=0, ttl=63))
    case.udp("in")
    case.note("a next hop that is not resolved: the kernel sends the SYN, which is the connection's first step")
    case.packet(0, frame(0, ipv4(four.host, "192.0.2.77", TCP, tcp(four.host, "192.0.2.77", 40000, 80, b"", SYN))))
    case.by_kernel(ipv4(four.host, "192.0.2.77", TCP, tcp(four.host, "192.0.2.77", 40000, 80, b"", SYN), ttl=63))
    case.counter("steps", 1)
    case.note("a SYN's maximum segment size fits both links")
    sent = lambda ttl, most: ipv4(four.host, four.remote, TCP, tcp_with_mss(four.host, four.remote, 41000, 443, most), ttl=ttl)  # noqa: E731
    case.packet(0, frame(0, sent(64, 1460)))
    case.expect(1, ethernet(OUTSIDE_MAC, PORT_MACS[1], sent(63, 1360)))
    sent = lambda hops, most: ipv6(six.host, six.remote, TCP, tcp_with_mss(six.host, six.remote, 41000, 443, most), hop_limit=hops)  # noqa: E731
    case.packet(0, frame(0, sent(64, 1440), 0x86DD))
    case.expect(1, ethernet(OUTSIDE_MAC, PORT_MACS[1], sent(63, 1340), 0x86DD))
    case.note("also if the next hop is not resolved")
    sent = lambda ttl, most: ipv4(four.host, "192.0.2.77", TCP, tcp_with_mss(four.host, "192.0.2.77", 41001, 443, most), ttl=ttl)  # noqa: E731
    case.packet(0, frame(0, sent(64, 1460)))
    case.by_kernel(sent(63, 1360))
    sent = lambda hops, most: ipv6(six.host, "2001:db8:f::77", TCP, tcp_with_mss(six.host, "2001:db8:f::77", 41001, 443, most), hop_limit=hops)  # noqa: E731
    case.packet(0, frame(0, sent(64, 1440), 0x86DD))
    case.by_kernel(sent(63, 1340), "86dd")
    case.note("behind a fragment header too: TCP's data offset, UDP's length; fragments of which no packet can be made")
    segment = with_bytes(tcp(six.remote, six.server, 4000, 80, b"", SYN), 12, b"\xf0")
    datagram = udp(six.remote, six.server, 4000, 53, b"abc")
    for part in (fragment6(TCP, 0, True, segment + bytes(4)), fragment6(UDP, 0, False, datagram[:-1]), fragment6(UDP, 0, True, datagram)[:7]):
        case.packet(1, frame(1, ipv6(six.remote, six.server, 44, part), 0x86DD))
    case.dropped_by_gateway("length", 3)
    for part in (fragment6(UDP, 0, True, datagram), fragment6(UDP, 0xFFF8, False, bytes(16)), fragment6(UDP, 8, True, b"")):
        case.packet(1, frame(1, ipv6(six.remote, six.server, 44, part), 0x86DD))
    case.dropped_by_gateway("fragment", 3)
    case.note("no error about an ICMPv6 error that is too big, behind hop-by-hop options too (RFC 4443, 2.4)")
    error = icmp6("2001:db8:9::1", six.remote, 1, 4, bytes(4), bytes(1400))
    for options in (b"", struct.pack("!BBHI", ICMP6, 0, 0x104, 0)):
        packet = ipv6("2001:db8:9::1", six.remote, 0 if options else ICMP6, options + error)
        case.packet(0, frame(0, packet, 0x86DD))
    case.dropped_by_gateway("icmp_suppressed", 2)
    case.note("fragments: the last one first, which is held; then all in order; the answer's")
    whole = udp(four.host, four.remote, 5001, 53, b"q" * 64)
    parts = lambda ttl: split(ipv4(four.host, four.remote, UDP, whole, ttl=ttl, flags_offset=0), 24)  # noqa: E731
    case.packet(0, frame(0, parts(64)[1]))
    for at in (0, 1):
        case.packet(0, frame(0, parts(64)[at]))
        case.expect(1, ethernet(OUTSIDE_MAC, PORT_MACS[1], parts(63)[at]))
    whole6 = udp(six.remote, six.host, 53, 5001, b"a" * 64)
    parts6 = [(0, True, whole6[:24]), (24, False, whole6[24:])]
    part6 = lambda hops, at: ipv6(six.remote, six.host, 44, fragment6(UDP, *parts6[at]), hop_limit=hops)  # noqa: E731
    case.packet(1, frame(1, part6(64, 0), 0x86DD))
    case.packet(1, frame(1, part6(64, 1), 0x86DD))
    case.counter("no_connection", 3)
    case.packet(0, frame(0, ipv6(six.host, six.remote, UDP, udp(six.host, six.remote, 5001, 53)), 0x86DD))
    case.expect(1, ethernet(OUTSIDE_MAC, PORT_MACS[1], ipv6(six.host, six.remote, UDP, udp(six.host, six.remote, 5001, 53), hop_limit=63), 0x86DD))
    for at in (0, 1):
        case.packet(1, frame(1, part6(64, at), 0x86DD))
        case.expect(0, ethernet(INSIDE_MAC, PORT_MACS[0], part6(63, at), 0x86DD))
    case.counter("fragments", 0)
    case.note("a router on the way says that the first fragment of a packet is too big, and in vain that a later one is")
    whole6 = udp(six.host, six.remote, 5001, 53, b"q" * 1300)
    router = "2001:db8:9::1"
    too_big = lambda hops, offset, quoted: ipv6(router, six.host, ICMP6, icmp6(  # noqa: E731
        router, six.host, 2, 0, struct.pack("!I", 1280), ipv6(six.host, six.remote, 44, fragment6(UDP, offset, True, quoted))), hop_limit=hops)
    case.packet(1, frame(1, too_big(64, 0, whole6[:1000]), 0x86DD))
    case.expect(0, ethernet(INSIDE_MAC, PORT_MACS[0], too_big(63, 0, whole6[:1000]), 0x86DD))
    case.packet(1, frame(1, too_big(64, 0, whole6[:8]), 0x86DD))
    case.expect(0, ethernet(INSIDE_MAC, PORT_MACS[0], too_big(63, 0, whole6[:8]), 0x86DD))
    case.packet(1, frame(1, too_big(64, 0, whole6[:7]), 0x86DD))
    case.packet(1, frame(1, too_big(64, 8, whole6[8:1000]), 0x86DD))
    case.counter("unsupported", 2)
    case.packet(1, frame(1, too_big(64, 0, udp(six.host, six.remote, 5009, 53, b"q" * 99)), 0x86DD))
    case.counter("no_connection", 4)
    case.write()


def pick_up():
    case = FirewallCase("pick_up", "With -DFIREWALL_PICK_UP an inside host's acknowledgement opens a connection, too.",
                        setup="\n# define: FIREWALL_PICK_UP" + SETUP)
    for flags in (SYN_ACK, RST, FIN_ACK, SYN | FIN, 0x5000):
        case.tcp("out", flags, False)
    case.note("nor does what comes from outside, to a service or not")
    case.tcp("in", ACK, False)
    case.tcp("in", ACK, False, V4.server, V4.remote, 80, 40000)
    case.counter("no_connection", 7)
    case.note("established at once: it ends by FIN from both sides")
    case.tcp("out", ACK, payload=b"x")
    case.tcp("in", ACK, payload=b"y")
    case.counter("steps", 1)
    case.tcp("in", FIN_ACK)
    case.tcp("out", FIN_ACK)
    case.counter("steps", 3)
    case.note("closed, it is not opened again by a straggler")
    case.tcp("out", ACK)
    case.counter("steps", 3)
    case.write()


def write_all(folder, define=""):
    """Writes the STF files into a folder. `define`: a line of all of them."""
    FirewallCase.folder, FirewallCase.define = folder, define
    connections(V4)
    connections(V6)
    for write in (resets, refuses, gateway, pick_up):
        write()
