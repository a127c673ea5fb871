"""Packet tests of functions/load_balancer.p4: those of all its programs, whose generate_stf.py calls
write_all.

Every expected packet is built from scratch, its checksums summed over the whole packet: the
program's incremental updates are checked against an independent computation.
"""
from stf_packets import (ACK, FIN, ICMP, RST, SYN, TCP, UDP, Case, ethernet, fragmentation_needed, icmp, ipv4, split,
                         tcp, tcp_with_mss, time_exceeded, udp, with_bytes)

CLIENT, CLIENT2, CLIENT_ROUTER = "198.51.100.80", "198.51.100.81", "198.51.100.1"
CLIENT_MAC, BACKEND_MAC, BACKEND2_MAC = "02:00:00:00:00:11", "02:00:00:00:00:05", "02:00:00:00:00:06"
VIRTUAL, VIRTUAL2 = "203.0.113.10", "203.0.113.11"
BACKEND, BACKEND2 = "10.0.0.5", "10.0.0.6"
BACKEND_ROUTER = "10.0.0.9"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]


def setup(more):
    return f"""{more}
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24
# neighbor: {BACKEND} mac {BACKEND_MAC} port 0
# neighbor: {BACKEND2} mac {BACKEND2_MAC} port 0
# neighbor: {BACKEND_ROUTER} mac {BACKEND_MAC} port 0
# neighbor: 192.0.2.1 mac {CLIENT_MAC} port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: 203.0.113.0/24 blackhole
{BalancerCase.backends}

add BalancerIngress.services meta.key.destination:0xcb00710a meta.key.destination_port:80 meta.key.protocol:{TCP} BalancerIngress.mark_virtual()
add BalancerIngress.services meta.key.destination:0xcb00710a meta.key.destination_port:53 meta.key.protocol:{UDP} BalancerIngress.mark_virtual()
add BalancerIngress.services meta.key.destination:0xcb00710b meta.key.destination_port:80 meta.key.protocol:{TCP} BalancerIngress.mark_virtual()
add BalancerIngress.servers meta.key.source:0x0a000000/24 meta.key.source_port:8080 meta.key.protocol:{TCP} BalancerIngress.mark_backend()
add BalancerIngress.servers meta.key.source:0x0a000000/24 meta.key.source_port:8080 meta.key.protocol:{UDP} BalancerIngress.mark_backend()
"""


class BalancerCase(Case):
    """One STF file, in `folder`. `backends`: the lines by which the program's only backend is BACKEND, port 8080."""
    folder = None
    backends = None

    def __init__(self, name, about, more=""):
        super().__init__(BalancerCase.folder, "BalancerIngress", name, about, setup(more))

    def client(self, packet):
        self.packet(1, ethernet(PORT_MACS[1], CLIENT_MAC, packet))

    def backend(self, packet):
        self.packet(0, ethernet(PORT_MACS[0], BACKEND_MAC, packet))

    def at_backend(self, packet):
        self.expect(0, ethernet(BACKEND_MAC, PORT_MACS[0], packet))

    def at_client(self, packet):
        self.expect(1, ethernet(CLIENT_MAC, PORT_MACS[1], packet))

    def forward(self, protocol, make, *more, port=40000, client=CLIENT, virtual=VIRTUAL, virtual_port=80, passes=True, **extra):
        """A client's packet, as it comes and as the backend gets it."""
        self.client(ipv4(client, virtual, protocol, make(client, virtual, port, virtual_port, *more), **extra))
        if passes:
            self.at_backend(ipv4(client, BACKEND, protocol, make(client, BACKEND, port, 8080, *more), **{**extra, "ttl": 63}))

    def back(self, protocol, make, *more, port=40000, client=CLIENT, virtual=VIRTUAL, virtual_port=80, **extra):
        """A backend's answer, as it comes and as the client gets it."""
        self.backend(ipv4(BACKEND, client, protocol, make(BACKEND, client, 8080, port, *more), **extra))
        self.at_client(ipv4(virtual, client, protocol, make(virtual, client, virtual_port, port, *more), **{**extra, "ttl": 63}))


def translate():
    case = BalancerCase("translate", "TCP and UDP to a virtual address and back; ICMP errors about both.")
    case.note("TCP: nothing without a SYN")
    for flags in (ACK, SYN | ACK, RST, FIN | ACK, SYN | FIN):
        case.forward(TCP, tcp, b"", flags, passes=False)
    case.counter("no_binding", 5)
    case.note("a conversation, with odd lengths, IP options, padding and TOS")
    case.forward(TCP, tcp, b"", SYN)
    case.back(TCP, tcp, b"", SYN | ACK)
    case.forward(TCP, tcp, b"GET /", 0x5018)
    case.back(TCP, tcp, b"x" * 7, 0x5018, tos=0xB8, options=b"\1" * 8)
    case.forward(TCP, tcp, b"", FIN | ACK, options=b"\1" * 40)
    case.note("a SYN again finds the same binding")
    case.forward(TCP, tcp, b"", SYN)
    case.note("UDP, with checksum and without")
    case.forward(UDP, udp, b"question", port=5000, virtual_port=53)
    case.back(UDP, udp, b"answer", port=5000, virtual_port=53)
    case.forward(UDP, udp, b"question", True, port=5000, virtual_port=53)
    case.note("the same client and port to another virtual address: the only backend's answers could not be told apart")
    case.forward(TCP, tcp, b"", SYN, virtual=VIRTUAL2, passes=False)
    case.counter("no_backend", 1)
    case.forward(TCP, tcp, b"", SYN, port=40001, virtual=VIRTUAL2)
    case.back(TCP, tcp, b"", SYN | ACK, port=40001, virtual=VIRTUAL2)
    case.note("an error from a router on the client's side, about a packet to the client; with TCP's checksum inside, and cut short before it")
    for length in (40, 28):
        about = ipv4(VIRTUAL, CLIENT, TCP, tcp(VIRTUAL, CLIENT, 80, 40000))[:length]
        there = ipv4(BACKEND, CLIENT, TCP, tcp(BACKEND, CLIENT, 8080, 40000))[:length]
        case.client(ipv4(CLIENT_ROUTER, VIRTUAL, ICMP, icmp(3, 4, b"\0\0\x05\0", about)))
        case.at_backend(ipv4(CLIENT_ROUTER, BACKEND, ICMP, icmp(3, 4, b"\0\0\x05\0", there), ttl=63))
    case.note("errors about a packet to the backend: from it, and from a router before it, which the client does not see")
    about = ipv4(CLIENT, BACKEND, UDP, udp(CLIENT, BACKEND, 5000, 8080, b"question"))
    there = ipv4(CLIENT, VIRTUAL, UDP, udp(CLIENT, VIRTUAL, 5000, 53, b"question"))
    for sender in (BACKEND, BACKEND_ROUTER):
        case.backend(ipv4(sender, CLIENT, ICMP, icmp(3, 3, bytes(4), about)))
        case.at_client(ipv4(VIRTUAL, CLIENT, ICMP, icmp(3, 3, bytes(4), there), ttl=63))
    case.note("an error to somebody else than the sender of what it is about")
    case.client(ipv4(CLIENT_ROUTER, VIRTUAL2, ICMP, icmp(3, 4, b"\0\0\x05\0", ipv4(VIRTUAL, CLIENT, TCP, tcp(VIRTUAL, CLIENT, 80, 40000)))))
    case.counter("forged_error", 1)
    case.note("an error about no conversation")
    case.client(ipv4(CLIENT_ROUTER, VIRTUAL, ICMP, icmp(3, 4, b"\0\0\x05\0", ipv4(VIRTUAL, CLIENT, TCP, tcp(VIRTUAL, CLIENT, 80, 40009)))))
    case.counter("no_binding", 6)
    case.counter("to_backend", 9)
    case.counter("to_client", 6)
    case.write()


def route():
    case = BalancerCase("route", "What is routed as it is, or left to the kernel.")
    case.note("a backend's own conversations: from a server's port without a binding, from another port, other protocols")
    for protocol, payload in ((TCP, tcp(BACKEND, CLIENT, 8080, 9)), (TCP, tcp(BACKEND, CLIENT, 22, 9)), (47, bytes(8)), (ICMP, b"f")):
        case.backend(ipv4(BACKEND, CLIENT, protocol, payload))
        case.at_client(ipv4(BACKEND, CLIENT, protocol, payload, ttl=63))
    case.note("to a backend's own address")
    case.client(ipv4(CLIENT, BACKEND, TCP, tcp(CLIENT, BACKEND, 9, 8080, b"", SYN)))
    case.at_backend(ipv4(CLIENT, BACKEND, TCP, tcp(CLIENT, BACKEND, 9, 8080, b"", SYN), ttl=63))
    case.counter("untranslated", 5)
    case.note("a virtual address's other ports and later fragments have no way")
    case.to_host(1, ethernet(PORT_MACS[1], CLIENT_MAC, ipv4(CLIENT, VIRTUAL, TCP, tcp(CLIENT, VIRTUAL, 9, 81, b"", SYN))))
    case.to_host(1, ethernet(PORT_MACS[1], CLIENT_MAC, ipv4(CLIENT, VIRTUAL, UDP, b"part two", flags_offset=1)))
    case.note("hop limit, ARP")
    packet = ipv4(CLIENT, VIRTUAL, TCP, tcp(CLIENT, VIRTUAL, 9, 80, b"", SYN), ttl=1)
    case.client(packet)
    case.at_client(time_exceeded("192.0.2.2", packet))
    case.to_host(1, ethernet(PORT_MACS[1], CLIENT_MAC, bytes(28), 0x0806))
    case.note("what gateway_check() refuses gets no backend: TCP cut short, or reaching into the padding; no IPv4; a wrong checksum; a martian")
    good = ipv4(CLIENT, VIRTUAL, TCP, tcp(CLIENT, VIRTUAL, 9, 80, b"", SYN))
    short = ipv4(CLIENT, VIRTUAL, TCP, tcp(CLIENT, VIRTUAL, 9, 80, b"", SYN)[:19])
    for packet in (short, short + b"\0", with_bytes(good, 0, b"\x65"), good[:19], with_bytes(good, 10, b"\0\0"),
                   ipv4("127.0.0.1", VIRTUAL, TCP, tcp("127.0.0.1", VIRTUAL, 9, 80, b"", SYN))):
        case.client(packet)
    for reason, times in (("length", 2), ("short_header", 2), ("header_checksum", 1), ("martian_source", 1)):
        case.dropped_by_gateway(reason, times)
    case.counter("refused", 6)
    case.note("no way back to the client")
    lost = "192.0.3.1"
    case.forward(TCP, tcp, b"", SYN, client=lost)
    case.backend(ipv4(BACKEND, lost, TCP, tcp(BACKEND, lost, 8080, 40000, b"", SYN | ACK)))
    case.counter("no_route", 1)
    case.note("a client whose next hop is not resolved")
    lost = "192.0.2.77"
    case.forward(TCP, tcp, b"", SYN, client=lost)
    case.backend(ipv4(BACKEND, lost, TCP, tcp(BACKEND, lost, 8080, 40000, b"", SYN | ACK)))
    case.by_kernel(ipv4(VIRTUAL, lost, TCP, tcp(VIRTUAL, lost, 80, 40000, b"", SYN | ACK), ttl=63))
    case.write()


def forged():
    case = BalancerCase("forged", "Nothing comes from a virtual address.")
    case.client(ipv4(VIRTUAL, VIRTUAL, TCP, tcp(VIRTUAL, VIRTUAL, 80, 80, b"", SYN)))
    case.client(ipv4(VIRTUAL2, CLIENT, UDP, udp(VIRTUAL2, CLIENT, 1, 2)))
    case.dropped_by_gateway("martian_source", 2)
    case.forward(TCP, tcp, b"", SYN)
    case.write()


def mtu():
    case = BalancerCase("mtu", "What is larger than its route's MTU: an ICMP error if it must not be fragmented, else the kernel.",
                        more="\n# gateway: clamp_mss")
    case.lines = [line.replace("10.0.0.1/24", "10.0.0.1/24 mtu 1400") for line in case.lines]
    case.note("towards the backend; the error is about the packet as the client knows it")
    packet = ipv4(CLIENT, VIRTUAL, UDP, udp(CLIENT, VIRTUAL, 5000, 53, b"m" * 1373))
    case.client(packet)
    case.at_client(fragmentation_needed("192.0.2.2", packet, 1400))
    case.client(ipv4(CLIENT, VIRTUAL, UDP, udp(CLIENT, VIRTUAL, 5000, 53, b"m" * 1373), flags_offset=0))
    case.by_kernel(ipv4(CLIENT, BACKEND, UDP, udp(CLIENT, BACKEND, 5000, 8080, b"m" * 1373), flags_offset=0, ttl=63))
    case.note("untranslated, the kernel does either")
    case.to_host(1, ethernet(PORT_MACS[1], CLIENT_MAC, ipv4(CLIENT, BACKEND, UDP, udp(CLIENT, BACKEND, 1, 2, b"m" * 1373))))
    case.note("a SYN's maximum segment size")
    case.client(ipv4(CLIENT, VIRTUAL, TCP, tcp_with_mss(CLIENT, VIRTUAL, 40000, 80, 1460)))
    case.at_backend(ipv4(CLIENT, BACKEND, TCP, tcp_with_mss(CLIENT, BACKEND, 40000, 8080, 1360), ttl=63))
    case.write()


def fragments():
    case = BalancerCase("fragments", "Fragments have the ports of their first one.", more="\n# gateway: hold_fragments")
    asked = lambda server, port, ttl: ipv4(CLIENT, server, UDP, udp(CLIENT, server, 5000, port, b"q" * 64), ttl=ttl, flags_offset=0)  # noqa: E731
    case.note("towards the backend, in order")
    for before, after in zip(split(asked(VIRTUAL, 53, 64), 24), split(asked(BACKEND, 8080, 63), 24)):
        case.client(before)
        case.at_backend(after)
    case.note("the answer, the last one first: it is held, and comes back when the first has come")
    answer = lambda server, port, ttl: split(ipv4(server, CLIENT, UDP, udp(server, CLIENT, port, 5000, b"a" * 64), ttl=ttl, flags_offset=0), 32)  # noqa: E731
    case.backend(answer(BACKEND, 8080, 64)[1])
    for at in (0, 1):
        case.backend(answer(BACKEND, 8080, 64)[at])
        case.at_client(answer(VIRTUAL, 53, 63)[at])
    case.counter("to_backend", 2)
    case.counter("to_client", 2)
    case.write()


def pick_up():
    case = BalancerCase("pick_up", "With -DLOAD_BALANCER_PICK_UP an acknowledgement gets a backend, too; still no RST, FIN or SYN+ACK.",
                        more="\n# define: LOAD_BALANCER_PICK_UP")
    for flags in (0x5000, RST, FIN | ACK, SYN | ACK, SYN | FIN):
        case.forward(TCP, tcp, b"", flags, passes=False)
    case.counter("no_binding", 5)
    case.forward(TCP, tcp, b"GET /", 0x5018)
    case.back(TCP, tcp, b"x", 0x5018)
    case.write()


def write_all(folder, backends):
    """Writes the STF files into a folder (see BalancerCase)."""
    BalancerCase.folder, BalancerCase.backends = folder, backends
    for write in (translate, route, forged, mtu, fragments, pick_up):
        write()
