"""Packet tests of functions/nat.p4: those of all its programs, whose generate_stf.py calls write_all.

Every expected packet is built from scratch, its checksums summed over the whole packet: nothing
here is incremental, so the incremental updates of nat.p4 are checked against an independent
computation.
"""
import re

import stf_packets
from stf_packets import ACK, FIN, ICMP, RST, SYN, TCP, UDP, echo, ethernet, fragmentation_needed, icmp, ipv4, split, tcp, time_exceeded, udp, with_bytes

HOST, HOST_MAC = "10.0.0.5", "02:00:00:00:00:05"
HOST2, HOST2_MAC = "10.0.0.6", "02:00:00:00:00:06"
INSIDE_ROUTER, INSIDE_ROUTER_MAC = "10.0.0.2", "02:00:00:00:00:02"
BEHIND_ROUTER = "10.1.0.7"
EXTERNAL = "203.0.113.1"
NEXT_HOP, NEXT_HOP_MAC = "192.0.2.1", "02:00:00:00:00:11"
REMOTE = "198.51.100.80"
REMOTE_ROUTER = "198.51.100.1"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]

SETUP = f"""
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# neighbor: {HOST} mac {HOST_MAC} port 0
# neighbor: {HOST2} mac {HOST2_MAC} port 0
# neighbor: {INSIDE_ROUTER} mac {INSIDE_ROUTER_MAC} port 0
# neighbor: {NEXT_HOP} mac {NEXT_HOP_MAC} port 1
# route: 10.1.0.0/16 via {INSIDE_ROUTER} port 0
# route: 198.51.100.0/24 via {NEXT_HOP} port 1
# pool: 1024-65535

add NatIngress.inside hdr.ipv4.source:0x0a000000/8 NatIngress.mark_inside()
add NatIngress.external hdr.ipv4.destination:0xcb007101/32 NatIngress.mark_external()
add NatIngress.external hdr.ipv4.destination:0x0a000000/8 NatIngress.route_untranslated()
"""


class Case(stf_packets.Case):
    """One STF file, in `folder`. `pool`: the line that gives EXTERNAL's ports from one to another to the program."""
    folder = None
    pool = None

    def __init__(self, name, about, setup=SETUP):
        first, last = map(int, re.search("# pool: (\\d+)-(\\d+)\n", setup).groups())
        setup = re.sub("# pool: .*\n", lambda _: Case.pool(first, last), setup)
        super().__init__(Case.folder, "NatIngress", name, about, setup)

    def out(self, inner, outer, sender=HOST_MAC):
        """An inside host's packet `inner` goes out as `outer`."""
        self.packet(0, ethernet(PORT_MACS[0], sender, inner))
        self.expect(1, ethernet(NEXT_HOP_MAC, PORT_MACS[1], outer))

    def back(self, outer, inner, receiver=HOST_MAC):
        """A packet from outside `outer` comes in as `inner`."""
        self.packet(1, ethernet(PORT_MACS[1], NEXT_HOP_MAC, outer))
        self.expect(0, ethernet(receiver, PORT_MACS[0], inner))

    def outside(self, frame):
        self.packet(1, ethernet(PORT_MACS[1], NEXT_HOP_MAC, frame))

    def inside(self, frame):
        self.packet(0, ethernet(PORT_MACS[0], HOST_MAC, frame))


def syn(*ends):
    return tcp(*ends, flags=SYN)


def syn_ack(*ends):
    return tcp(*ends, flags=SYN | ACK)


def out_and_back(case, protocol, make, port, remote_port, host=HOST, host_mac=HOST_MAC, payload=b"hello", **extra):
    """A packet and its answer; of TCP (unless `make` says otherwise) a SYN and its answer."""
    ask, answer = (syn, syn_ack) if make is tcp else (make, make)
    case.out(ipv4(host, REMOTE, protocol, ask(host, REMOTE, port, remote_port, payload), **extra),
             ipv4(EXTERNAL, REMOTE, protocol, ask(EXTERNAL, REMOTE, port, remote_port, payload), **{**extra, "ttl": 63}), host_mac)
    case.back(ipv4(REMOTE, EXTERNAL, protocol, answer(REMOTE, EXTERNAL, remote_port, port, payload + b"!"), ttl=50),
              ipv4(REMOTE, host, protocol, answer(REMOTE, host, remote_port, port, payload + b"!"), ttl=49), host_mac)


def data(*ends):
    return tcp(*ends)


def translate():
    case = Case("translate", "TCP, UDP and ICMP echo, out and back; the allocator keeps the source port where it is free.")
    case.note("TCP")
    out_and_back(case, TCP, tcp, 40000, 80)
    case.note("TCP, odd length, the same binding again: data")
    out_and_back(case, TCP, data, 40000, 80, payload=b"x")
    case.note("TCP, the same inside port to another remote port: another binding, the same external port")
    out_and_back(case, TCP, tcp, 40000, 443)
    case.note("UDP")
    out_and_back(case, UDP, udp, 5000, 53)
    case.note("UDP from a host behind an inside router")
    case.out(ipv4(BEHIND_ROUTER, REMOTE, UDP, udp(BEHIND_ROUTER, REMOTE, 6000, 53, b"q")),
             ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 6000, 53, b"q"), ttl=63), INSIDE_ROUTER_MAC)
    case.back(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 6000, b"a")),
              ipv4(REMOTE, BEHIND_ROUTER, UDP, udp(REMOTE, BEHIND_ROUTER, 53, 6000, b"a"), ttl=63), INSIDE_ROUTER_MAC)
    case.note("UDP without a checksum stays without")
    case.out(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5001, 53, b"q", True)),
             ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5001, 53, b"q", True), ttl=63))
    case.note("UDP whose checksum becomes 0 is sent as ffff")
    # One word of payload, chosen so that everything sums up to ffff with the external address.
    probe = udp(EXTERNAL, REMOTE, 5002, 53, b"\0\0")
    word = probe[6:8]
    assert udp(EXTERNAL, REMOTE, 5002, 53, word)[6:8] == b"\xff\xff"
    case.out(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5002, 53, word)),
             ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5002, 53, word), ttl=63))
    case.note("ICMP echo")
    case.out(ipv4(HOST, REMOTE, ICMP, echo(8, 0x4321)), ipv4(EXTERNAL, REMOTE, ICMP, echo(8, 0x4321), ttl=63))
    case.back(ipv4(REMOTE, EXTERNAL, ICMP, echo(0, 0x4321)), ipv4(REMOTE, HOST, ICMP, echo(0, 0x4321), ttl=63))
    case.note("IP options and padding stay; ports lie behind them")
    options = bytes.fromhex("94040000 0101 0100".replace(" ", ""))
    out_and_back(case, TCP, tcp, 40001, 80, options=options)
    case.out(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5003, 53), options=options * 5),
             ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5003, 53), ttl=63, options=options * 5))
    case.note("a frame padded to 60 bytes: the padding is not part of the packet, and stays")
    short = ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5004, 53, b"q"))
    translated = ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5004, 53, b"q"), ttl=63)
    case.out(short + b"\0" * 17, translated + b"\0" * 17)
    case.note("a first fragment has its ports; identification, flags and TOS stay")
    case.out(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5005, 53, b"part one"), flags_offset=0x2000, tos=0xB9, identification=0xBEEF),
             ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5005, 53, b"part one"), flags_offset=0x2000, tos=0xB9, identification=0xBEEF, ttl=63))
    case.counter("translated_out", 12)
    case.counter("translated_in", 7)
    case.write()


def conflict():
    case = Case("conflict", """Two inside hosts with the same port and remote: the second gets another external port, which only the allocator knows, so
the second packet is compared without port and checksum. Each host's packets keep their binding.""")
    case.note("first host: its own port")
    out_and_back(case, TCP, tcp, 40000, 80)
    case.note("second host: another port; the first one's replies are not disturbed")
    frame = ethernet(NEXT_HOP_MAC, PORT_MACS[1], ipv4(EXTERNAL, REMOTE, TCP, syn(EXTERNAL, REMOTE, 40000, 80, b"hello"), ttl=63)).hex()
    port_at, checksum_at = 2 * 34, 2 * 50
    frame = frame[:port_at] + "****" + frame[port_at + 4:checksum_at] + "****" + frame[checksum_at + 4:]
    case.packet(0, ethernet(PORT_MACS[0], HOST2_MAC, ipv4(HOST2, REMOTE, TCP, syn(HOST2, REMOTE, 40000, 80, b"hello"))))
    case.lines.append(f"expect 1 {frame}$")
    out_and_back(case, TCP, tcp, 40000, 80)
    case.counter("translated_out", 3)
    case.counter("no_binding", 0)
    case.write()

    case = Case("exhausted", "A pool of one port: the second conversation with the same remote gets none, is dropped and counted.",
                SETUP.replace("1024-65535", "40000-40000"))
    case.note("the only port")
    out_and_back(case, UDP, udp, 40000, 53)
    case.note("taken (for this remote)")
    case.packet(0, ethernet(PORT_MACS[0], HOST2_MAC, ipv4(HOST2, REMOTE, UDP, udp(HOST2, REMOTE, 40000, 53, b"hello"))))
    case.counter("no_binding", 1)
    case.note("another remote port is another conversation: the same external port serves it")
    out_and_back(case, UDP, udp, 40000, 123, HOST2, HOST2_MAC)
    case.write()


def refuse():
    case = Case("refuse", "What is not translated: dropped and counted, or handed to the kernel as it came (output `host`).")
    case.note("unknown inbound TCP, UDP, ICMP echo request and reply")
    case.outside(ipv4(REMOTE, EXTERNAL, TCP, tcp(REMOTE, EXTERNAL, 80, 40000)))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5000)))
    case.outside(ipv4(REMOTE, EXTERNAL, ICMP, echo(8, 77)))
    case.outside(ipv4(REMOTE, EXTERNAL, ICMP, echo(0, 77)))
    case.counter("unknown_inbound", 4)
    case.note("a binding lets in only the very conversation: not another remote port, address or protocol")
    out_and_back(case, TCP, tcp, 40000, 80)
    case.outside(ipv4(REMOTE, EXTERNAL, TCP, tcp(REMOTE, EXTERNAL, 81, 40000)))
    case.outside(ipv4(REMOTE_ROUTER, EXTERNAL, TCP, tcp(REMOTE_ROUTER, EXTERNAL, 80, 40000)))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 80, 40000)))
    case.counter("unknown_inbound", 7)
    case.note("an echo request from outside, to the identifier of a ping from inside, is still unknown")
    case.out(ipv4(HOST, REMOTE, ICMP, echo(8, 0x4321)), ipv4(EXTERNAL, REMOTE, ICMP, echo(8, 0x4321), ttl=63))
    case.outside(ipv4(REMOTE, EXTERNAL, ICMP, echo(8, 0x4321)))
    case.counter("unknown_inbound", 8)
    case.note("an inside host's ping of an external address")
    case.inside(ipv4(HOST, EXTERNAL, ICMP, echo(8, 5)))
    case.inside(ipv4(HOST, EXTERNAL, ICMP, echo(0, 5)))
    case.counter("unknown_inbound", 10)
    case.note("an inside host's echo reply makes no binding")
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(0, 5)))
    case.counter("no_binding", 1)
    case.note("TTL 1 and 0, out and in: time exceeded about the packet as its sender knows it")
    for ttl in (1, 0):
        packet = ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), ttl=ttl)
        case.inside(packet)
        case.expect(0, ethernet(HOST_MAC, PORT_MACS[0], time_exceeded("10.0.0.1", packet)))
    packet = ipv4(REMOTE, EXTERNAL, TCP, tcp(REMOTE, EXTERNAL, 80, 40000), ttl=1)
    case.outside(packet)
    case.expect(1, ethernet(NEXT_HOP_MAC, PORT_MACS[1], time_exceeded("192.0.2.2", packet)))
    case.counter("ttl_expired", 3)
    case.note("TTL 2 is enough")
    case.out(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), ttl=2),
             ipv4(EXTERNAL, REMOTE, TCP, tcp(EXTERNAL, REMOTE, 40000, 80), ttl=1))
    case.note("later fragments, out and in, whose first did not come, and which nobody holds")
    case.inside(ipv4(HOST, REMOTE, UDP, b"part two", flags_offset=0x0001))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, b"part two", flags_offset=0x2001))
    case.counter("fragments", 2)
    case.note("protocols and ICMP types without ports, whole and in fragments; an echo request that is shorter than its identifier")
    case.inside(ipv4(HOST, REMOTE, 47, b"\0" * 8))
    case.inside(ipv4(HOST, REMOTE, 47, b"\0" * 8, flags_offset=0x0001))
    case.inside(ipv4(HOST, REMOTE, ICMP, icmp(13, 0, b"\0\1\0\1", b"\0" * 12)))
    case.outside(ipv4(REMOTE, EXTERNAL, 50, b"\0" * 8))
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(8, 5)[:7]))
    case.counter("unsupported", 5)
    case.note("ICMP headers that reach into the padding behind the IPv4 packet")
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(8, 5)[:7]) + b"\0")
    about = ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 40000, 80))
    case.outside(ipv4(REMOTE, EXTERNAL, ICMP, icmp(3, 3, bytes(4), about[:27])) + about[27:])
    case.counter("unsupported", 7)
    case.note("what gateway_check() refuses makes no binding: TCP and UDP cut short, or into the padding; no IPv4; a wrong checksum; martians")
    good = ipv4(HOST, REMOTE, TCP, syn(HOST, REMOTE, 41000, 80))
    wrong = [ipv4(HOST, REMOTE, TCP, syn(HOST, REMOTE, 41000, 80)[:19]), ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 41000, 80)[:7]),
             ipv4(HOST, REMOTE, TCP, syn(HOST, REMOTE, 41000, 80)[:19]) + b"\0", ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 41000, 80)[:7]) + b"\0",
             good[:-1], ipv4(HOST, REMOTE, TCP, b"", options=b"\1" * 40)[:59]]
    for packet in wrong:
        case.inside(packet)
    case.dropped_by_gateway("length", len(wrong))
    for packet in (with_bytes(good, 0, b"\x65"), with_bytes(good, 0, b"\x44"), with_bytes(good, 2, b"\0\x13"), good[:19]):
        case.inside(packet)
    case.dropped_by_gateway("short_header", 4)
    case.inside(with_bytes(good, 10, b"\0\0"))
    case.dropped_by_gateway("header_checksum", 1)
    for source in ("127.0.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255"):
        case.outside(ipv4(source, EXTERNAL, UDP, udp(source, EXTERNAL, 1, 2)))
    case.dropped_by_gateway("martian_source", 4)
    case.counter("refused", len(wrong) + 9)
    case.counter("no_binding", 1)
    case.note("ARP and IPv6 go to the kernel")
    for ether_type, payload in ((0x0806, bytes(28)), (0x86DD, stf_packets.ipv6("2001:db8::5", "2001:db8:1::80", 59, b""))):
        frame = ethernet(PORT_MACS[0], HOST_MAC, payload, ether_type)
        case.packet(0, frame)
        case.expect("host", frame)
    case.counter("not_ipv4", 2)
    case.write()


def tcp_opens():
    about = "Which TCP segments make a binding: only a SYN. Null, FIN, ACK, RST and SYN with FIN or RST make none."
    case = Case("tcp_opens", about)
    others = [0x5000, FIN, RST, ACK, RST | ACK, FIN | ACK, SYN | ACK, SYN | FIN, SYN | RST, 0x5029]
    for flags in others:
        case.inside(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80, b"", flags)))
    case.counter("no_binding", len(others))
    case.note("a SYN does, and then all of them use it; so does the other end's SYN (simultaneous open, RFC 5382 REQ-2)")
    out_and_back(case, TCP, lambda *ends: tcp(*ends[:4], b"", SYN), 40000, 80)
    for flags in others:
        out_and_back(case, TCP, lambda *ends: tcp(*ends[:4], b"", flags), 40000, 80)
    case.counter("no_binding", len(others))
    case.counter("translated_out", 1 + len(others))
    case.note("ECN's flags belong to a SYN (RFC 3168)")
    out_and_back(case, TCP, lambda *ends: tcp(*ends[:4], b"", SYN | 0xC0), 40001, 80)
    case.write()

    case = Case("pick_up", "With -DNAT_PICK_UP an acknowledgement makes a binding, too; still no RST, FIN or SYN+ACK.",
                "\n# define: NAT_PICK_UP" + SETUP)
    refused = [0x5000, RST, RST | ACK, FIN | ACK, SYN | ACK, SYN | FIN]
    for flags in refused:
        case.inside(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80, b"", flags)))
    case.counter("no_binding", len(refused))
    out_and_back(case, TCP, data, 40000, 80)
    case.counter("translated_out", 1)
    case.write()


def route():
    case = Case("route", "What is routed without translation, and what has no way on.",
                SETUP.replace("# pool", "# route: 198.51.101.0/24 via 192.0.2.9 port 1\n# pool"))
    case.note("inside to inside")
    frame = ipv4(HOST, BEHIND_ROUTER, TCP, tcp(HOST, BEHIND_ROUTER, 40000, 80, b"hello"))
    case.packet(0, ethernet(PORT_MACS[0], HOST_MAC, frame))
    case.expect(0, ethernet(INSIDE_ROUTER_MAC, PORT_MACS[0], ipv4(HOST, BEHIND_ROUTER, TCP, tcp(HOST, BEHIND_ROUTER, 40000, 80, b"hello"), ttl=63)))
    case.note("outside to outside, with options; any protocol; a later fragment; cut short behind the IPv4 header")
    for packet in (lambda ttl: ipv4(NEXT_HOP, REMOTE, UDP, udp(NEXT_HOP, REMOTE, 1, 2, b"hi"), ttl=ttl, options=b"\1" * 8),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, 89, b"x" * 20, ttl=ttl),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, UDP, b"y" * 8, ttl=ttl, flags_offset=0x0010),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, ICMP, b"z" * 3, ttl=ttl)):
        case.packet(1, ethernet(PORT_MACS[1], NEXT_HOP_MAC, packet(64)))
        case.expect(1, ethernet(NEXT_HOP_MAC, PORT_MACS[1], packet(63)))
    case.counter("untranslated", 5)
    case.note("TTL words at the edges of the incremental checksum")
    for ttl, identification in ((255, 0), (128, 0xFFFF), (2, 0x8000), (64, 0x3B02)):
        case.packet(1, ethernet(PORT_MACS[1], NEXT_HOP_MAC, ipv4(NEXT_HOP, REMOTE, 89, b"", ttl=ttl, identification=identification)))
        case.expect(1, ethernet(NEXT_HOP_MAC, PORT_MACS[1], ipv4(NEXT_HOP, REMOTE, 89, b"", ttl=ttl - 1, identification=identification)))
    case.note("no route: to the kernel as it came (it answers network unreachable), untranslated and outbound")
    for frame in (ethernet(PORT_MACS[1], NEXT_HOP_MAC, ipv4(NEXT_HOP, "192.88.99.1", UDP, udp(NEXT_HOP, "192.88.99.1", 1, 2))),
                  ethernet(PORT_MACS[0], HOST_MAC, ipv4(HOST, "192.88.99.1", UDP, udp(HOST, "192.88.99.1", 5000, 2)))):
        case.packet(0, frame)
        case.expect("host", frame)
    case.note("next hop not resolved: an untranslated packet goes to the kernel as it came, a translated one as it is then")
    frame = ethernet(PORT_MACS[1], NEXT_HOP_MAC, ipv4(NEXT_HOP, "198.51.101.1", UDP, udp(NEXT_HOP, "198.51.101.1", 1, 2)))
    case.packet(1, frame)
    case.expect("host", frame)
    case.inside(ipv4(HOST, "198.51.101.1", UDP, udp(HOST, "198.51.101.1", 5000, 2)))
    case.by_kernel(ipv4(EXTERNAL, "198.51.101.1", UDP, udp(EXTERNAL, "198.51.101.1", 5000, 2), ttl=63))
    case.counter("translated_out", 1)
    case.note("the same inbound; an inside host to which there is no route any more cannot be reached")
    lost = "10.0.0.77"
    case.out(ipv4(lost, REMOTE, UDP, udp(lost, REMOTE, 6000, 53)), ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 6000, 53), ttl=63))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 6000)))
    case.by_kernel(ipv4(REMOTE, lost, UDP, udp(REMOTE, lost, 53, 6000), ttl=63))
    lost = "10.2.0.1"
    case.out(ipv4(lost, REMOTE, UDP, udp(lost, REMOTE, 6001, 53)), ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 6001, 53), ttl=63))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 6001)))
    case.counter("no_route", 1)
    case.write()


def mtu():
    case = Case("mtu", "What is larger than its route's MTU, both ways: an ICMP error if it must not be fragmented, else the kernel.",
                SETUP.replace("192.0.2.2/24", "192.0.2.2/24 mtu 1400").replace("10.0.0.1/24", "10.0.0.1/24 mtu 1300")
                .replace("# pool", "# gateway: clamp_mss\n# pool"))
    case.note("outbound: the error is about the packet as the inside host knows it, and there is no binding")
    packet = ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5000, 53, b"m" * 1373))
    case.inside(packet)
    case.expect(0, ethernet(HOST_MAC, PORT_MACS[0], fragmentation_needed("10.0.0.1", packet, 1400)))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5000)))
    case.counter("unknown_inbound", 1)
    case.note("what may be fragmented is the kernel's")
    case.inside(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5000, 53, b"m" * 1373), flags_offset=0))
    case.by_kernel(ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 5000, 53, b"m" * 1373), flags_offset=0, ttl=63))
    case.note("inbound: the error is about the packet as the remote end knows it")
    packet = ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5000, b"m" * 1273))
    case.outside(packet)
    case.expect(1, ethernet(NEXT_HOP_MAC, PORT_MACS[1], fragmentation_needed("192.0.2.2", packet, 1300)))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5000, b"m" * 1273), flags_offset=0))
    case.by_kernel(ipv4(REMOTE, HOST, UDP, udp(REMOTE, HOST, 53, 5000, b"m" * 1273), flags_offset=0, ttl=63))
    case.note("a SYN's maximum segment size fits both links (RFC 879: less 40), of a SYN only")
    with_mss = lambda *ends: stf_packets.tcp_with_mss(*ends[:4], ends[4])  # noqa: E731
    case.out(ipv4(HOST, REMOTE, TCP, with_mss(HOST, REMOTE, 40000, 80, 1460)),
             ipv4(EXTERNAL, REMOTE, TCP, with_mss(EXTERNAL, REMOTE, 40000, 80, 1260), ttl=63))
    case.write()


def fragments():
    case = Case("fragments", "Fragments have the ports of their first one (RFC 4787, REQ-14).",
                SETUP.replace("# pool", "# gateway: hold_fragments\n# pool"))
    sent = lambda source, ttl: ipv4(source, REMOTE, UDP, udp(source, REMOTE, 5000, 53, b"q" * 64), ttl=ttl, flags_offset=0)  # noqa: E731
    came = lambda target, ttl: ipv4(REMOTE, target, UDP, udp(REMOTE, target, 53, 5000, b"a" * 64), ttl=ttl, flags_offset=0)  # noqa: E731
    case.note("out and in, in order")
    for inner, outer in zip(split(sent(HOST, 64), 24), split(sent(EXTERNAL, 63), 24)):
        case.out(inner, outer)
    for outer, inner in zip(split(came(EXTERNAL, 64), 24), split(came(HOST, 63), 24)):
        case.back(outer, inner)
    case.note("the last one first: it is held. When the first has come, the others have its ports")
    pings = [split(ipv4(source, REMOTE, ICMP, echo(8, 0x4321, payload=b"p" * 64), ttl=ttl, flags_offset=0, identification=7), 32)
             for source, ttl in ((HOST, 64), (EXTERNAL, 63))]
    case.inside(pings[0][1])
    case.counter("fragments", 0)
    case.out(pings[0][0], pings[1][0])
    case.out(pings[0][1], pings[1][1])
    case.note("TCP; and the next packet of the same hosts is another one")
    segments = [split(ipv4(source, REMOTE, TCP, syn(source, REMOTE, 40000, 80, b"s" * 64), ttl=ttl, flags_offset=0, identification=8), 40)
                for source, ttl in ((HOST, 64), (EXTERNAL, 63))]
    for inner, outer in zip(*segments):
        case.out(inner, outer)
    case.inside(ipv4(HOST, REMOTE, TCP, b"s" * 64, flags_offset=5, identification=9))
    case.note("one that would overwrite the flags in its first one (RFC 1858)")
    case.inside(ipv4(HOST, REMOTE, TCP, b"s" * 64, flags_offset=1, identification=8))
    case.counter("unsupported", 1)
    case.note("of a conversation that nobody has")
    for part in split(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5009, b"a" * 64), flags_offset=0, identification=10), 24):
        case.outside(part)
    case.counter("unknown_inbound", 2)
    case.counter("translated_out", 6)
    case.counter("translated_in", 2)
    case.write()


def hairpin():
    case = Case("hairpin", "Inside hosts that reach each other by their external addresses (RFC 4787, REQ-9; RFC 5382, REQ-8).")

    def through(sender, receiver, protocol, make, ports, passes=True, **extra):
        macs = {HOST: HOST_MAC, HOST2: HOST2_MAC}
        case.packet(0, ethernet(PORT_MACS[0], macs[sender], ipv4(sender, EXTERNAL, protocol, make(sender, EXTERNAL, *ports))))
        if passes:
            case.expect(0, ethernet(macs[receiver], PORT_MACS[0], ipv4(EXTERNAL, receiver, protocol, make(EXTERNAL, receiver, *ports), ttl=63)))

    case.note("the first packet of an inside host on its port, and hairpin: it is taken for inbound")
    through(HOST, HOST2, UDP, udp, (5000, 6000), False)
    case.counter("unknown_inbound", 1)
    case.note("UDP: as from outside, the first packet meets no binding; once both have sent, both are let in")
    through(HOST, HOST2, UDP, udp, (5000, 6000), False)
    case.counter("unknown_inbound", 2)
    through(HOST2, HOST, UDP, udp, (6000, 5000))
    through(HOST, HOST2, UDP, udp, (5000, 6000))
    case.note("only the two of them")
    through(HOST, HOST2, UDP, udp, (5001, 6000), False)
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 5000, 6000)))
    case.counter("unknown_inbound", 4)
    case.note("TCP: both open; an ACK alone makes no binding")
    through(HOST, HOST2, TCP, data, (40000, 41000), False)
    case.counter("no_binding", 1)
    through(HOST, HOST2, TCP, syn, (40000, 41000), False)
    through(HOST2, HOST, TCP, syn, (41000, 40000))
    through(HOST, HOST2, TCP, syn_ack, (40000, 41000))
    through(HOST2, HOST, TCP, data, (41000, 40000))
    case.note("an error about it: both addresses of the packet that it is about are translated")
    about = lambda source, target: ipv4(source, target, UDP, udp(source, target, 6000, 5000))[:28]  # noqa: E731
    case.inside(ipv4(HOST, EXTERNAL, ICMP, icmp(3, 3, bytes(4), about(EXTERNAL, HOST))))
    case.expect(0, ethernet(HOST2_MAC, PORT_MACS[0], ipv4(EXTERNAL, HOST2, ICMP, icmp(3, 3, bytes(4), about(HOST2, EXTERNAL)), ttl=63)))
    case.counter("translated_in", 6)
    case.write()


def ingress():
    case = Case("ingress", "What comes in where it cannot be from, or is for another host, makes no binding.",
                SETUP.replace("10.0.0.1/24", "10.0.0.1/24 own_mac reverse_path strict").replace("192.0.2.2/24", "192.0.2.2/24 own_mac reverse_path strict"))
    case.note("an inside source on the outside port, an outside one on the inside port, this host's own")
    query = lambda source, target=REMOTE: ipv4(source, target, UDP, udp(source, target, 5000, 53))  # noqa: E731
    case.outside(query(HOST))
    case.inside(query(REMOTE_ROUTER))
    case.dropped_by_gateway("reverse_path", 2)
    case.inside(query("10.0.0.1"))
    case.dropped_by_gateway("martian_source", 1)
    case.note("this network's own, whatever routes say: an external address, a broadcast")
    case.outside(query(EXTERNAL, HOST))
    case.inside(query("10.0.0.255"))
    case.dropped_by_gateway("martian_source", 3)
    case.note("frames for another MAC; a unicast packet in a broadcast frame; a broadcast, which is this host's")
    case.to_host(0, ethernet("ff:ff:ff:ff:ff:ff", HOST_MAC, query(HOST, "10.0.0.255")))
    case.packet(0, ethernet("02:00:00:00:00:99", HOST_MAC, query(HOST)))
    case.dropped_by_gateway("other_mac", 1)
    case.packet(0, ethernet("ff:ff:ff:ff:ff:ff", HOST_MAC, query(HOST)))
    case.dropped_by_gateway("broadcast_frame", 1)
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, udp(REMOTE, EXTERNAL, 53, 5000)))
    case.counter("unknown_inbound", 1)
    case.note("the same, where it is right")
    out_and_back(case, UDP, udp, 5000, 53)
    case.write()


def malformed():
    case = Case("malformed", "Options and fragments of which nothing can be made: dropped, and no binding.")
    case.note("lengths of options: 1, beyond the header, cut off; then such that fit")
    question = udp(HOST, REMOTE, 5000, 53)
    for options in (b"\7\1\0\0", b"\7\5\4\0", b"\1\1\1\7"):
        case.inside(ipv4(HOST, REMOTE, UDP, question, options=options))
    case.dropped_by_gateway("options", 3)
    case.note("a fragment with more behind it that is no multiple of 8 bytes, or empty; one beyond the longest packet")
    case.inside(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5000, 53, b"12345"), flags_offset=0x2000))
    case.inside(ipv4(HOST, REMOTE, UDP, b"", flags_offset=0x2001))
    case.inside(ipv4(HOST, REMOTE, ICMP, bytes(1000), flags_offset=0x1FFD))
    case.dropped_by_gateway("fragment", 3)
    case.counter("translated_out", 0)
    sent = lambda source, ttl: ipv4(source, REMOTE, UDP, udp(source, REMOTE, 5000, 53), ttl=ttl, options=b"\7\4\4\0\0\xff\xff\xff")  # noqa: E731
    case.out(sent(HOST, 64), sent(EXTERNAL, 63))
    case.write()


def clamp():
    setup = SETUP.replace("192.0.2.2/24", "192.0.2.2/24 mtu 1400").replace(f"# neighbor: {NEXT_HOP} mac {NEXT_HOP_MAC} port 1\n", "")
    case = Case("clamp", "The maximum segment size of a SYN fits its route, also if the next hop is not resolved.",
                setup.replace("# pool", "# gateway: clamp_mss\n# pool"))
    case.inside(ipv4(HOST, REMOTE, TCP, stf_packets.tcp_with_mss(HOST, REMOTE, 40000, 80, 1460)))
    case.by_kernel(ipv4(EXTERNAL, REMOTE, TCP, stf_packets.tcp_with_mss(EXTERNAL, REMOTE, 40000, 80, 1360), ttl=63))
    case.write()


def icmp_errors():
    case = Case("icmp_errors", """ICMP errors about translated packets, both ways (RFC 5508, section 4): the embedded packet becomes the one that the
receiver of the error knows, with all checksums.""")

    def cut(packet, extra=0):
        header = (packet[0] & 15) * 4
        return packet[:header + 8 + extra]

    options = b"\x94\x04\0\0"
    shapes = [
        ("TCP, time exceeded", TCP, lambda s, d, sp, dp: syn(s, d, sp, dp, b"segment"), 40000, 80, 11, 0, b"\0\0\0\0", b"", 0),
        ("TCP, fragmentation needed, the whole packet embedded", TCP, lambda s, d, sp, dp: syn(s, d, sp, dp, b"segment!"), 40001, 80, 3, 4,
         b"\0\0\x05\x78", b"", 20),
        ("UDP, port unreachable", UDP, lambda s, d, sp, dp: udp(s, d, sp, dp, b"query"), 5000, 53, 3, 3, b"\0\0\0\0", b"", 5),
        ("UDP without checksum", UDP, lambda s, d, sp, dp: udp(s, d, sp, dp, b"query", True), 5001, 53, 3, 1, b"\0\0\0\0", b"", 0),
        ("UDP with options, parameter problem", UDP, lambda s, d, sp, dp: udp(s, d, sp, dp, b"query"), 5002, 53, 12, 0, b"\x14\0\0\0", options, 0),
    ]
    for name, protocol, make, port, remote_port, kind, code, rest, opts, extra in shapes:
        case.note(f"{name}: about a packet that went out, from a router outside")
        sent = lambda source, ttl: ipv4(source, REMOTE, protocol, make(source, REMOTE, port, remote_port), ttl=ttl, options=opts)
        case.out(sent(HOST, 64), sent(EXTERNAL, 63))
        case.back(ipv4(REMOTE_ROUTER, EXTERNAL, ICMP, icmp(kind, code, rest, cut(sent(EXTERNAL, 1), extra)), tos=0xC0),
                  ipv4(REMOTE_ROUTER, HOST, ICMP, icmp(kind, code, rest, cut(sent(HOST, 1), extra)), tos=0xC0, ttl=63))
        case.note(f"{name}: about a packet that came in, from the host itself, then from a router inside, whose address does not show")
        came = lambda target, ttl: ipv4(REMOTE, target, protocol, make(REMOTE, target, remote_port, port), ttl=ttl, options=opts)
        case.back(came(EXTERNAL, 64), came(HOST, 63))
        for source, source_mac in ((HOST, HOST_MAC), (INSIDE_ROUTER, INSIDE_ROUTER_MAC)):
            case.out(ipv4(source, REMOTE, ICMP, icmp(kind, code, rest, cut(came(HOST, 1), extra))),
                     ipv4(EXTERNAL, REMOTE, ICMP, icmp(kind, code, rest, cut(came(EXTERNAL, 1), extra)), ttl=63), source_mac)

    case.note("ICMP echo: about a request that went out, and about the reply to it")
    request = lambda source, ttl: ipv4(source, REMOTE, ICMP, echo(8, 0x4321), ttl=ttl)
    reply = lambda target, ttl: ipv4(REMOTE, target, ICMP, echo(0, 0x4321), ttl=ttl)
    case.out(request(HOST, 64), request(EXTERNAL, 63))
    case.back(ipv4(REMOTE_ROUTER, EXTERNAL, ICMP, icmp(11, 0, b"\0\0\0\0", request(EXTERNAL, 1)[:28])),
              ipv4(REMOTE_ROUTER, HOST, ICMP, icmp(11, 0, b"\0\0\0\0", request(HOST, 1)[:28]), ttl=63))
    case.back(reply(EXTERNAL, 64), reply(HOST, 63))
    case.out(ipv4(INSIDE_ROUTER, REMOTE, ICMP, icmp(11, 0, b"\0\0\0\0", reply(HOST, 1)[:28])),
             ipv4(EXTERNAL, REMOTE, ICMP, icmp(11, 0, b"\0\0\0\0", reply(EXTERNAL, 1)[:28]), ttl=63), INSIDE_ROUTER_MAC)

    case.note("about a conversation that nobody has: dropped")
    stranger = ipv4(EXTERNAL, REMOTE, TCP, tcp(EXTERNAL, REMOTE, 41000, 80))
    case.outside(ipv4(REMOTE_ROUTER, EXTERNAL, ICMP, icmp(11, 0, b"\0\0\0\0", stranger[:28])))
    case.counter("unknown_inbound", 1)
    stranger = ipv4(REMOTE, HOST, TCP, tcp(REMOTE, HOST, 80, 41000))
    case.inside(ipv4(HOST, REMOTE, ICMP, icmp(3, 3, b"\0\0\0\0", stranger[:28])))
    case.counter("no_binding", 1)
    case.note("forged: sent to an address that is not the embedded packet's source")
    forged = ipv4(NEXT_HOP, REMOTE, TCP, tcp(NEXT_HOP, REMOTE, 40000, 80))
    case.outside(ipv4(REMOTE_ROUTER, EXTERNAL, ICMP, icmp(11, 0, b"\0\0\0\0", forged[:28])))
    case.counter("unknown_inbound", 2)
    case.note("no ports in it: embedded packet cut short, a later fragment, an error itself, another protocol, no IPv4")
    known = ipv4(EXTERNAL, REMOTE, TCP, tcp(EXTERNAL, REMOTE, 40000, 80))
    for embedded in (known[:23], known[:6] + b"\0\1" + known[8:28], ipv4(EXTERNAL, REMOTE, ICMP, icmp(3, 0, b"\0\0\0\0", b"")),
                     ipv4(EXTERNAL, REMOTE, 47, b"\0" * 8), b"\x65" + known[1:28], b"\x44" + known[1:28], known[:19]):
        case.outside(ipv4(REMOTE_ROUTER, EXTERNAL, ICMP, icmp(11, 0, b"\0\0\0\0", embedded)))
    case.counter("unsupported", 7)
    case.note("an error that concerns no translation is routed as it is")
    about = ipv4(NEXT_HOP, REMOTE, TCP, tcp(NEXT_HOP, REMOTE, 40000, 80))[:28]
    error = lambda ttl: ethernet(NEXT_HOP_MAC, PORT_MACS[1] if ttl < 64 else PORT_MACS[1],
                                 ipv4(REMOTE_ROUTER, NEXT_HOP, ICMP, icmp(11, 0, b"\0\0\0\0", about), ttl=ttl))
    case.packet(1, error(64))
    case.expect(1, error(63))
    case.write()


def write_all(folder, pool):
    """Writes the STF files into a folder (see Case)."""
    Case.folder, Case.pool = folder, pool
    for write in (translate, conflict, refuse, tcp_opens, route, mtu, fragments, hairpin, ingress, malformed, clamp, icmp_errors):
        write()
