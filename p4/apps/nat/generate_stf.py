#!/usr/bin/env python3
"""Writes the packet tests of nat.p4 (*.stf) beside itself. Run it after changing a case: python3 p4/apps/nat/generate_stf.py

Every expected packet is built from scratch, its checksums summed over the whole packet: nothing here is incremental, so the incremental updates of
nat.p4 are checked against an independent computation.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from stf_packets import ICMP, TCP, UDP, echo, ethernet, icmp, ipv4, tcp, udp  # noqa: E402

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
# define: NAT_LOCAL
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# neighbor: {HOST} mac {HOST_MAC} port 0
# neighbor: {HOST2} mac {HOST2_MAC} port 0
# neighbor: {INSIDE_ROUTER} mac {INSIDE_ROUTER_MAC} port 0
# neighbor: {NEXT_HOP} mac {NEXT_HOP_MAC} port 1
# route: 10.1.0.0/16 via {INSIDE_ROUTER} port 0
# route: 198.51.100.0/24 via {NEXT_HOP} port 1
# nat_pool: NatIngress.bindings {EXTERNAL} ports 1024-65535

add NatIngress.inside hdr.ipv4.source:0x0a000000/8 NatIngress.mark_inside()
add NatIngress.external hdr.ipv4.destination:0xcb007101/32 NatIngress.mark_external()
add NatIngress.external hdr.ipv4.destination:0x0a000000/8 NatIngress.route_untranslated()
"""


class Case:
    """One STF file."""

    def __init__(self, name, about, setup=SETUP):
        self.name, self.lines = name, [f"# {line}" for line in about.strip().split("\n")]
        self.lines.append("# Written by generate_stf.py.")
        self.lines.append(setup.strip("\n"))

    def note(self, text):
        self.lines += ["", f"# {text}"]

    def packet(self, port, frame):
        self.lines.append(f"packet {port} {frame.hex()}")

    def expect(self, port, frame):
        self.lines.append(f"expect {port} {frame if isinstance(frame, str) else frame.hex()}$")

    def counter(self, name, value):
        self.lines.append(f"check_counter NatIngress.{name}(0) packets == {value}")

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

    def write(self):
        (HERE / f"{self.name}.stf").write_text("\n".join(self.lines) + "\n")


def out_and_back(case, protocol, make, port, remote_port, host=HOST, host_mac=HOST_MAC, payload=b"hello", **extra):
    case.out(ipv4(host, REMOTE, protocol, make(host, REMOTE, port, remote_port, payload), **extra),
             ipv4(EXTERNAL, REMOTE, protocol, make(EXTERNAL, REMOTE, port, remote_port, payload), **{**extra, "ttl": 63}), host_mac)
    case.back(ipv4(REMOTE, EXTERNAL, protocol, make(REMOTE, EXTERNAL, remote_port, port, payload + b"!"), ttl=50),
              ipv4(REMOTE, host, protocol, make(REMOTE, host, remote_port, port, payload + b"!"), ttl=49), host_mac)


def translate():
    case = Case("translate", "TCP, UDP and ICMP echo, out and back; the allocator keeps the source port where it is free.")
    case.note("TCP")
    out_and_back(case, TCP, tcp, 40000, 80)
    case.note("TCP, odd length, the same binding again")
    out_and_back(case, TCP, tcp, 40000, 80, payload=b"x")
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
    frame = ethernet(NEXT_HOP_MAC, PORT_MACS[1], ipv4(EXTERNAL, REMOTE, TCP, tcp(EXTERNAL, REMOTE, 40000, 80, b"hello"), ttl=63)).hex()
    port_at, checksum_at = 2 * 34, 2 * 50
    frame = frame[:port_at] + "****" + frame[port_at + 4:checksum_at] + "****" + frame[checksum_at + 4:]
    case.packet(0, ethernet(PORT_MACS[0], HOST2_MAC, ipv4(HOST2, REMOTE, TCP, tcp(HOST2, REMOTE, 40000, 80, b"hello"))))
    case.expect(1, frame)
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
    case.note("hairpinning is not supported")
    case.inside(ipv4(HOST, EXTERNAL, TCP, tcp(HOST, EXTERNAL, 40000, 80)))
    case.counter("unknown_inbound", 9)
    case.note("an inside host's echo reply makes no binding")
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(0, 5)))
    case.counter("no_binding", 1)
    case.note("TTL 1 and 0, out and in: to the kernel, untouched, for time exceeded")
    for frame in (ethernet(PORT_MACS[0], HOST_MAC, ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), ttl=1)),
                  ethernet(PORT_MACS[0], HOST_MAC, ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), ttl=0))):
        case.packet(0, frame)
        case.expect("host", frame)
    frame = ethernet(PORT_MACS[1], NEXT_HOP_MAC, ipv4(REMOTE, EXTERNAL, TCP, tcp(REMOTE, EXTERNAL, 80, 40000), ttl=1))
    case.packet(1, frame)
    case.expect("host", frame)
    case.counter("ttl_expired", 3)
    case.note("TTL 2 is enough")
    case.out(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), ttl=2),
             ipv4(EXTERNAL, REMOTE, TCP, tcp(EXTERNAL, REMOTE, 40000, 80), ttl=1))
    case.note("later fragments, out and in")
    case.inside(ipv4(HOST, REMOTE, UDP, b"part two", flags_offset=0x0001))
    case.outside(ipv4(REMOTE, EXTERNAL, UDP, b"part two", flags_offset=0x2001))
    case.counter("fragments", 2)
    case.note("protocols and ICMP types without ports; TCP cut short; a header shorter than its ports")
    case.inside(ipv4(HOST, REMOTE, 47, b"\0" * 8))
    case.inside(ipv4(HOST, REMOTE, ICMP, icmp(13, 0, b"\0\1\0\1", b"\0" * 12)))
    case.outside(ipv4(REMOTE, EXTERNAL, 50, b"\0" * 8))
    case.inside(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80)[:19]))
    case.inside(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 40000, 80)[:7]))
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(8, 5)[:7]))
    case.counter("unsupported", 6)
    case.note("transport headers that reach into the padding behind the IPv4 packet")
    case.inside(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80)[:19]) + b"\0")
    case.inside(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 40000, 80)[:7]) + b"\0")
    case.inside(ipv4(HOST, REMOTE, ICMP, echo(8, 5)[:7]) + b"\0")
    about = ipv4(EXTERNAL, REMOTE, UDP, udp(EXTERNAL, REMOTE, 40000, 80))
    case.outside(ipv4(REMOTE, EXTERNAL, ICMP, icmp(3, 3, bytes(4), about[:27])) + about[27:])
    case.counter("unsupported", 10)
    case.note("not IPv4 inside an IPv4 frame: version 6, header of 16 bytes, total length of 19, cut short in the header, in the options")
    case.inside(ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80), version=6))
    good = ipv4(HOST, REMOTE, TCP, tcp(HOST, REMOTE, 40000, 80))
    case.inside(b"\x44" + good[1:])
    case.inside(good[:2] + b"\0\x13" + good[4:])
    case.inside(good[:19])
    case.inside(ipv4(HOST, REMOTE, TCP, b"", options=b"\1" * 40)[:59])
    case.counter("malformed", 5)
    case.note("ARP and IPv6 go to the kernel")
    for ether_type, payload in ((0x0806, bytes(28)), (0x86DD, b"\x60" + bytes(39))):
        frame = ethernet(PORT_MACS[0], HOST_MAC, payload, ether_type)
        case.packet(0, frame)
        case.expect("host", frame)
    case.counter("not_ipv4", 2)
    case.write()


def route():
    case = Case("route", "What is routed without translation, and what has no way on.",
                SETUP.replace("# nat_pool", "# route: 198.51.101.0/24 via 192.0.2.9 port 1\n# nat_pool"))
    case.note("inside to inside")
    frame = ipv4(HOST, BEHIND_ROUTER, TCP, tcp(HOST, BEHIND_ROUTER, 40000, 80, b"hello"))
    case.packet(0, ethernet(PORT_MACS[0], HOST_MAC, frame))
    case.expect(0, ethernet(INSIDE_ROUTER_MAC, PORT_MACS[0], ipv4(HOST, BEHIND_ROUTER, TCP, tcp(HOST, BEHIND_ROUTER, 40000, 80, b"hello"), ttl=63)))
    case.note("outside to outside, with options; any protocol; a later fragment; cut short behind the IPv4 header")
    for packet in (lambda ttl: ipv4(NEXT_HOP, REMOTE, UDP, udp(NEXT_HOP, REMOTE, 1, 2, b"hi"), ttl=ttl, options=b"\1" * 8),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, 89, b"x" * 20, ttl=ttl),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, UDP, b"y" * 8, ttl=ttl, flags_offset=0x0010),
                   lambda ttl: ipv4(NEXT_HOP, REMOTE, TCP, b"z" * 4, ttl=ttl)):
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
    case.note("next hop not resolved: an untranslated packet goes to the kernel, a translated one nowhere")
    frame = ethernet(PORT_MACS[1], NEXT_HOP_MAC, ipv4(NEXT_HOP, "198.51.101.1", UDP, udp(NEXT_HOP, "198.51.101.1", 1, 2)))
    case.packet(1, frame)
    case.expect("host", frame)
    case.inside(ipv4(HOST, "198.51.101.1", UDP, udp(HOST, "198.51.101.1", 5000, 2)))
    case.counter("no_next_hop", 1)
    case.note("larger than the next hop's MTU: the same")
    case.inside(ipv4(HOST, REMOTE, UDP, udp(HOST, REMOTE, 5000, 2, b"m" * 1473)))
    case.counter("no_next_hop", 2)
    case.write()


def icmp_errors():
    case = Case("icmp_errors", """ICMP errors about translated packets, both ways (RFC 5508, section 4): the embedded packet becomes the one that the
receiver of the error knows, with all checksums.""")

    def cut(packet, extra=0):
        header = (packet[0] & 15) * 4
        return packet[:header + 8 + extra]

    options = b"\x94\x04\0\0"
    shapes = [
        ("TCP, time exceeded", TCP, lambda s, d, sp, dp: tcp(s, d, sp, dp, b"segment"), 40000, 80, 11, 0, b"\0\0\0\0", b"", 0),
        ("TCP, fragmentation needed, the whole packet embedded", TCP, lambda s, d, sp, dp: tcp(s, d, sp, dp, b"segment!"), 40001, 80, 3, 4,
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


translate()
conflict()
refuse()
route()
icmp_errors()
