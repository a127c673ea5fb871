#!/usr/bin/env python3
"""Writes the packet tests of serving_gateway.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/serving_gateway/generate_stf.py
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import TCP, UDP, Case, address, ethernet, fragmentation_needed, ipv4, tcp, time_exceeded, udp, with_bytes  # noqa: E402

GATEWAY = "10.99.0.1"
# Base stations and the mobility manager are behind a router on port 0, the packet network behind
# one on port 1, more base stations behind one on port 2.
RADIO_MAC, NETWORK_MAC, RADIO2_MAC = "02:00:00:00:00:05", "02:00:00:00:00:11", "02:00:00:00:00:21"
STATION, STATION2, MANAGER = "10.1.0.21", "10.1.0.22", "10.1.0.9"
USER, USER2, REMOTE = "100.64.0.7", "100.64.0.8", "198.51.100.80"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1", "02:00:00:00:00:a2"]
CREATE, MODIFY, DELETE = 32, 34, 36
ACCEPTED, NOT_FOUND, NO_RESOURCES = 16, 64, 73

SETUP = f"""
# define: SERVING_GATEWAY_LOCAL
# define: SERVING_GATEWAY_USERS=2
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# port: 2 mac {PORT_MACS[2]} address 10.0.2.1/24
# neighbor: 10.0.0.5 mac {RADIO_MAC} port 0
# neighbor: 192.0.2.1 mac {NETWORK_MAC} port 1
# route: 10.1.0.0/16 via 10.0.0.5 port 0
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: {GATEWAY}/32 blackhole

add GatewayIngress.gateways hdr.outer_ipv4.destination:0x0a630001 GatewayIngress.at_gateway()
add GatewayIngress.managers standard_metadata.ingress_port:0 hdr.outer_ipv4.source:0x0a010009 GatewayIngress.allow()
add GatewayIngress.radio_ports standard_metadata.ingress_port:0 GatewayIngress.allow()
add GatewayIngress.radio_ports standard_metadata.ingress_port:2 GatewayIngress.allow()
add GatewayIngress.user_prefixes hdr.ipv4.destination:0x64400000/10 GatewayIngress.to_users(gateway_address:0x0a630001)
"""


def gtp(kind, teid, payload, flags=0x30, optional=b""):
    return struct.pack("!BBHI", flags, kind, len(optional) + len(payload), teid) + optional + payload


def signal(kind, sequence, user=USER, uplink=0, downlink=0, station="0.0.0.0", cause=0, teid=0):
    return struct.pack("!BBHI", 0x48, kind, 28, teid) + sequence.to_bytes(3, "big") + b"\0" + address(user) + struct.pack(
        "!II", uplink, downlink) + address(station) + struct.pack("!BBH", cause, 0, 0)


def tunnelled(packet, teid, station=STATION, **extra):
    return ipv4(station, GATEWAY, UDP, udp(station, GATEWAY, 2152, 2152, gtp(255, teid, packet, **extra)))


class GatewayCase(Case):
    def __init__(self, name, about):
        super().__init__(HERE, "GatewayIngress", name, about, SETUP)

    def radio(self, packet):
        self.packet(0, ethernet(PORT_MACS[0], RADIO_MAC, packet))

    def radio2(self, packet):
        self.packet(2, ethernet(PORT_MACS[2], RADIO2_MAC, packet))

    def network(self, packet):
        self.packet(1, ethernet(PORT_MACS[1], NETWORK_MAC, packet))

    def at_radio(self, packet):
        self.expect(0, ethernet(RADIO_MAC, PORT_MACS[0], packet))

    def at_network(self, packet):
        self.expect(1, ethernet(NETWORK_MAC, PORT_MACS[1], packet))

    def order(self, request, response):
        self.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, request)))
        self.at_radio(ipv4(GATEWAY, MANAGER, UDP, udp(GATEWAY, MANAGER, 2123, 2123, response)))

    def create(self, sequence, uplink, downlink, station, user=USER, cause=ACCEPTED):
        self.order(signal(CREATE, sequence, user, uplink, downlink, station), signal(CREATE + 1, sequence, user, uplink, downlink, station, cause))

    def up(self, teid, user=USER, station=STATION, **extra):
        inner = lambda ttl: ipv4(user, REMOTE, TCP, tcp(user, REMOTE, 40000, 80, b"hello"), ttl=ttl)  # noqa: E731
        self.radio(tunnelled(inner(64), teid, station, **extra))
        self.at_network(inner(63))

    def down(self, teid, user=USER, station=STATION, tos=0):
        inner = lambda ttl: ipv4(REMOTE, user, TCP, tcp(REMOTE, user, 80, 40000, b"there"), ttl=ttl, tos=tos)  # noqa: E731
        self.network(inner(50))
        port = 0xC000 | int.from_bytes(address(user)[2:], "big") & 0x3FFF
        datagram = udp(GATEWAY, station, port, 2152, gtp(255, teid, inner(49)), without_checksum=True)
        self.at_radio(ipv4(GATEWAY, station, UDP, datagram, tos=tos, identification=0))


def tunnels():
    case = GatewayCase("tunnels", "Sessions created, handed over and deleted; users' packets in and out of their tunnels.")
    case.note("nobody yet")
    case.network(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000)))
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53)), 0x1000))
    case.counter("unknown_user", 2)
    case.note("created; both ways")
    case.create(1, 0x1000, 0x2000, STATION)
    case.up(0x1000)
    case.down(0x2000)
    case.down(0x2000, tos=0xB8)
    case.note("with a sequence number; with N-PDU number; with extension headers (service class indicator, RAN container)")
    case.up(0x1000, flags=0x32, optional=b"\x12\x34\0\0")
    case.up(0x1000, flags=0x31, optional=b"\0\0\x05\0")
    case.up(0x1000, flags=0x34, optional=b"\0\0\0\x20" + b"\x01\x40\0\0")
    case.up(0x1000, flags=0x36, optional=b"\0\1\0\x20" + b"\x01\x40\0\x01" + b"\x02" + bytes(6) + b"\0")
    case.note("a second user, of another station, with the same TEID there")
    case.create(2, 0x1001, 0x2000, STATION2, USER2)
    case.up(0x1001, USER2, STATION2)
    case.down(0x2000, USER2, STATION2)
    case.note("no room for a third: its create is answered so")
    case.order(signal(CREATE, 3, "100.64.0.9", 1, 2, STATION), signal(CREATE + 1, 3, "100.64.0.9", cause=NO_RESOURCES))
    case.note("handover to another station; the gateway's TEID stays")
    case.order(signal(MODIFY, 4, downlink=0x2222, station=STATION2), signal(MODIFY + 1, 4, USER, 0x1000, 0x2222, STATION2, ACCEPTED))
    case.down(0x2222, station=STATION2)
    case.up(0x1000, station=STATION2)
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53)), 0x1000))
    case.counter("wrong_tunnel", 1)
    case.note("the same again is answered again, and changes nothing; an older one is dropped")
    case.order(signal(MODIFY, 4, downlink=0x2222, station=STATION2), signal(MODIFY + 1, 4, USER, 0x1000, 0x2222, STATION2, ACCEPTED))
    case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, signal(CREATE, 1, USER, 0x1000, 0x2000, STATION))))
    case.down(0x2222, station=STATION2)
    case.counter("repeated", 1)
    case.counter("late_signalling", 1)
    case.note("deleted, twice; the other user goes on")
    case.order(signal(DELETE, 5), signal(DELETE + 1, 5, cause=ACCEPTED))
    case.order(signal(DELETE, 5), signal(DELETE + 1, 5, cause=ACCEPTED))
    case.network(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000)))
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53)), 0x1000, STATION2))
    case.counter("unknown_user", 4)
    case.up(0x1001, USER2, STATION2)
    case.note("a late copy of what came before that brings nothing back")
    case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, signal(CREATE, 1, USER, 0x1000, 0x2000, STATION))))
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53)), 0x1000))
    case.counter("late_signalling", 2)
    case.counter("unknown_user", 5)
    case.note("what is not there cannot be modified or deleted")
    case.order(signal(MODIFY, 6, downlink=1, station=STATION), signal(MODIFY + 1, 6, cause=NOT_FOUND))
    case.order(signal(DELETE, 7, "100.64.0.9"), signal(DELETE + 1, 7, "100.64.0.9", cause=NOT_FOUND))
    case.note("a session again; the sequence number goes round")
    case.create(0xFFFE00, 0x3000, 0x4000, STATION)
    case.order(signal(MODIFY, 0xFFFFFF, downlink=0x4002, station=STATION), signal(MODIFY + 1, 0xFFFFFF, USER, 0x3000, 0x4002, STATION, ACCEPTED))
    case.order(signal(MODIFY, 0, downlink=0x4001, station=STATION), signal(MODIFY + 1, 0, USER, 0x3000, 0x4001, STATION, ACCEPTED))
    case.down(0x4001)
    case.up(0x3000)
    case.counter("sessions_changed", 7)
    case.counter("rejected", 3)
    case.counter("uplink", 9)
    case.counter("downlink", 6)
    case.write()


def refuses():
    case = GatewayCase("refuses", "What the gateway drops, answers otherwise, or leaves to others.")
    case.create(1, 0x1000, 0x2000, STATION)
    case.note("uplink with another TEID, from another station, in another user's name")
    inner = ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53))
    case.radio(tunnelled(inner, 0x1001))
    case.radio(tunnelled(inner, 0x1000, STATION2))
    case.counter("wrong_tunnel", 2)
    case.radio(tunnelled(ipv4(USER2, REMOTE, UDP, udp(USER2, REMOTE, 5000, 53)), 0x1000))
    case.counter("unknown_user", 1)
    case.note("other GTP messages: error indication, end marker, version 2, an extension that must be understood; IPv6 inside; a length that lies")
    case.radio(tunnelled(inner, 0x1000, flags=0x34, optional=b"\0\0\0\x85" + b"\x01\0\0\0"))
    for kind, flags in ((26, 0x30), (254, 0x30), (255, 0x50)):
        case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(kind, 0x1000, inner, flags))))
    case.radio(tunnelled(b"\x60" + bytes(39), 0x1000))
    case.radio(tunnelled(inner + b"x", 0x1000))
    case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(255, 0x1000, inner)[:-1])))
    case.counter("unsupported", 7)
    case.note("fragments of tunnel packets and of signalling: the first, the middle, the last; IPv4 options; not even the kernel gets them")
    longer = ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53, b"four"))
    for flags_offset in (0x2000, 0x2003, 0x0003):
        case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(255, 0x1000, longer)), flags_offset=flags_offset))
    case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(255, 0x1000, inner)), flags_offset=0x0003, ttl=1))
    case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, signal(DELETE, 2)), flags_offset=0x2000))
    case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(255, 0x1000, inner)), options=b"\1\1\1\0"))
    case.counter("unsupported", 13)
    case.note("users' own fragments go into their tunnel as they are, others' are routed, and other protocols' to the gateway are the kernel's")
    port = 0xC000 | int.from_bytes(address(USER)[2:], "big") & 0x3FFF
    fragment = lambda to, ttl: ipv4(REMOTE, to, UDP, b"the rest", flags_offset=0x0003, ttl=ttl)  # noqa: E731
    case.network(fragment(USER, 50))
    datagram = udp(GATEWAY, STATION, port, 2152, gtp(255, 0x2000, fragment(USER, 49)), without_checksum=True)
    case.at_radio(ipv4(GATEWAY, STATION, UDP, datagram, identification=0))
    inner_fragment = lambda ttl: ipv4(USER, REMOTE, UDP, b"the rest", flags_offset=0x0003, ttl=ttl)  # noqa: E731
    case.radio(tunnelled(inner_fragment(64), 0x1000))
    case.at_network(inner_fragment(63))
    case.network(fragment(STATION, 50))
    case.at_radio(fragment(STATION, 49))
    case.to_host(0, ethernet(PORT_MACS[0], RADIO_MAC, ipv4(STATION, GATEWAY, TCP, b"the rest", flags_offset=0x0003)))
    case.note("an echo request is answered")
    case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(1, 0, b"", 0x32, b"\xbe\xef\0\0"))))
    answer = udp(GATEWAY, STATION, 2152, 2152, gtp(2, 0, b"\x0e\0", 0x32, b"\xbe\xef\0\0"), without_checksum=True)
    case.at_radio(ipv4(GATEWAY, STATION, UDP, answer))
    case.counter("echoes", 1)
    case.note("signalling: from a stranger, of another kind, a response, wrong checksum, wrong length")
    order = signal(MODIFY, 2, downlink=0x6666, station=STATION2)
    case.radio(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2123, 2123, order)))
    for body in (signal(33, 2), signal(38, 2), b"\x40" + order[1:], signal(MODIFY, 2, cause=16)):
        case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, body)))
    case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, order)[:-1] + b"x"))
    case.counter("bad_signalling", 6)
    case.radio(ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, order + b"x")))
    case.counter("unsupported", 14)
    case.note("in the manager's name, but in where the packet network is, or other base stations: what the manager itself may do")
    for body in (order, signal(DELETE, 2), signal(CREATE, 2, USER2, 0x1001, 0x2001, STATION)):
        forged = ipv4(MANAGER, GATEWAY, UDP, udp(MANAGER, GATEWAY, 2123, 2123, body))
        case.network(forged)
        case.radio2(forged)
    case.counter("bad_signalling", 12)
    case.note("a base station's packets, but in where the packet network is")
    case.network(tunnelled(inner, 0x1000))
    case.network(ipv4(STATION, GATEWAY, UDP, udp(STATION, GATEWAY, 2152, 2152, gtp(1, 0, b"", 0x32, b"\xbe\xef\0\0"))))
    case.counter("wrong_port", 2)
    case.counter("echoes", 1)
    case.note("none of these changed anything; nor does it matter behind which radio port the station is")
    case.counter("sessions_changed", 1)
    case.radio2(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53)), 0x1000))
    case.at_network(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53), ttl=63))
    case.down(0x2000)
    case.up(0x1000)
    case.note("hop limits: in the tunnel, outside of it")
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53), ttl=1), 0x1000))
    case.counter("no_route", 1)
    packet = ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000), ttl=1)
    case.network(packet)
    case.at_network(time_exceeded("192.0.2.2", packet))
    case.counter("ttl_expired", 1)
    case.note("no way to where the user's packet goes")
    case.radio(tunnelled(ipv4(USER, "203.0.113.9", UDP, udp(USER, "203.0.113.9", 5000, 53)), 0x1000))
    case.counter("no_route", 2)
    case.note("a user's packet with a wrong header checksum; what gateway_check() refuses of the outer one")
    case.radio(tunnelled(with_bytes(inner, 10, b"\0\0"), 0x1000))
    with_options = lambda ttl: ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53), options=b"\1\1\1\0", ttl=ttl)  # noqa: E731
    case.radio(tunnelled(with_bytes(with_options(64), 20, b"\0"), 0x1000))
    case.counter("bad_checksum", 2)
    case.radio(tunnelled(with_options(64), 0x1000))
    case.at_network(with_options(63))
    case.note("a user's packet to nobody, or to many")
    for to in ("224.0.0.5", "239.255.255.255", "255.255.255.255", "127.0.0.1", "0.0.0.0"):
        case.radio(tunnelled(ipv4(USER, to, UDP, udp(USER, to, 5000, 53)), 0x1000))
    case.counter("bad_destination", 5)
    case.radio(with_bytes(tunnelled(inner, 0x1000), 10, b"\0\0"))
    case.radio(tunnelled(inner, 0x1000)[:-1])
    case.dropped_by_gateway("header_checksum", 1)
    case.dropped_by_gateway("length", 1)
    case.counter("refused", 2)
    case.note("nothing comes from the gateway's own address")
    case.network(ipv4(GATEWAY, USER, UDP, udp(GATEWAY, USER, 5000, 53)))
    case.dropped_by_gateway("martian_source", 1)
    case.note("routed: other destinations, others' tunnels; to the kernel: the gateway's address on other ports, ARP")
    for make in (lambda ttl: ipv4(STATION, REMOTE, TCP, tcp(STATION, REMOTE, 1, 2), ttl=ttl),
                 lambda ttl: ipv4(STATION, REMOTE, UDP, udp(STATION, REMOTE, 2152, 2152, gtp(255, 0x1000, inner)), ttl=ttl)):
        case.radio(make(64))
        case.at_network(make(63))
    case.counter("routed", 3)
    case.to_host(0, ethernet(PORT_MACS[0], RADIO_MAC, ipv4(STATION, GATEWAY, TCP, tcp(STATION, GATEWAY, 1, 2))))
    case.to_host(0, ethernet(PORT_MACS[0], RADIO_MAC, bytes(28), 0x0806))
    case.write()


def user_ports():
    case = GatewayCase("user_ports", "A user's UDP ports 2152 and 2123 are ports like any other: what comes for them goes into the user's tunnel.")
    case.create(1, 0x1000, 0x2000, STATION)
    source_port = 0xC000 | int.from_bytes(address(USER)[2:], "big") & 0x3FFF
    user_packet = ipv4(REMOTE, REMOTE, UDP, udp(REMOTE, REMOTE, 1, 2))
    payloads = [b"", b"short", bytes(60), gtp(255, 0x1000, user_packet), gtp(255, 0x1000, user_packet, 0x32, b"\0\1\0\0"), gtp(255, 0x1000, b"\x45"),
                gtp(1, 0, b"", 0x32, b"\xbe\xef\0\0"), signal(DELETE, 2)]
    for port in (2152, 2123):
        for payload in payloads:
            packet = lambda ttl: ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, port, payload), ttl=ttl)  # noqa: B023, E731
            case.network(packet(50))
            datagram = udp(GATEWAY, STATION, source_port, 2152, gtp(255, 0x2000, packet(49)), without_checksum=True)
            case.at_radio(ipv4(GATEWAY, STATION, UDP, datagram, identification=0))
    case.counter("downlink", 2 * len(payloads))
    case.counter("sessions_changed", 1)
    case.note("extension headers are not kept: dropped")
    extended = gtp(255, 0x1000, user_packet, 0x34, b"\0\0\0\x20" + b"\x01\x40\0\0")
    case.network(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 2152, extended)))
    case.counter("unsupported", 1)
    case.note("but those of tunnels between others the kernel routes")
    case.to_host(1, ethernet(PORT_MACS[1], NETWORK_MAC, ipv4(REMOTE, STATION, UDP, udp(REMOTE, STATION, 2152, 2152, extended))))
    case.note("hop limit")
    packet = ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 2152, bytes(60)), ttl=1)
    case.network(packet)
    case.at_network(time_exceeded("192.0.2.2", packet))
    case.write()


def mtu():
    case = GatewayCase("mtu", "MTUs inside and outside of tunnels; next hops that are not resolved.")
    case.lines = [line.replace("192.0.2.2/24", "192.0.2.2/24 mtu 1400").replace("# route", "# route: 10.2.0.0/16 via 10.0.0.66 port 0\n# route", 1)
                  for line in case.lines]
    case.create(1, 0x1000, 0x2000, STATION)
    case.note("into a tunnel: the error says what fits into it; what may be fragmented, may be so in its tunnel")
    packet = ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000, bytes(1437)))
    case.network(packet)
    case.at_network(fragmentation_needed("192.0.2.2", packet, 1464))
    port = 0xC000 | int.from_bytes(address(USER)[2:], "big") & 0x3FFF
    wrapped = lambda inner, station, flags: ipv4(GATEWAY, station, UDP, udp(GATEWAY, station, port, 2152, gtp(255, 0x2000, inner), True),  # noqa: E731
                                                 flags_offset=flags, identification=0)
    case.network(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000, bytes(1437)), flags_offset=0))
    case.by_kernel(wrapped(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000, bytes(1437)), flags_offset=0, ttl=63), STATION, 0))
    case.note("out of one: the base station is told, for its tunnel; what may be fragmented is")
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53, bytes(1373))), 0x1000))
    case.at_radio(fragmentation_needed("10.0.0.1", tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53, bytes(1373))), 0x1000), 1436))
    case.radio(tunnelled(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53, bytes(1373)), flags_offset=0), 0x1000))
    case.by_kernel(ipv4(USER, REMOTE, UDP, udp(USER, REMOTE, 5000, 53, bytes(1373)), flags_offset=0, ttl=63))
    case.note("next hops that are not resolved: of a user's packet, of its tunnel")
    case.radio(tunnelled(ipv4(USER, "192.0.2.77", UDP, udp(USER, "192.0.2.77", 5000, 53)), 0x1000))
    case.by_kernel(ipv4(USER, "192.0.2.77", UDP, udp(USER, "192.0.2.77", 5000, 53), ttl=63))
    case.order(signal(MODIFY, 2, downlink=0x2000, station="10.2.0.1"), signal(MODIFY + 1, 2, USER, 0x1000, 0x2000, "10.2.0.1", ACCEPTED))
    case.network(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000)))
    case.by_kernel(wrapped(ipv4(REMOTE, USER, UDP, udp(REMOTE, USER, 53, 5000), ttl=63), "10.2.0.1", 0x4000))
    case.write()


for write in (tunnels, refuses, user_ports, mtu):
    write()
