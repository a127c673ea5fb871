#!/usr/bin/env python3
"""Writes the packet tests of usage_monitor.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/usage_monitor/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import (ICMP, TCP, UDP, Case, echo, ethernet, fragmentation_needed, icmp, ipv4, ipv6, split,  # noqa: E402
                         tcp, time_exceeded, udp)

USER, USER2, FREE, USER_MAC = "10.0.0.5", "10.0.0.6", "10.0.0.99", "02:00:00:00:00:05"
SERVER, ROUTER_MAC = "198.51.100.80", "02:00:00:00:00:11"
SITE, SITE2 = "10.0.7.1", "10.0.7.200"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
QUOTA = 1000

SETUP = f"""
# define: USAGE_MONITOR_LOCAL
# define: USAGE_MONITOR_ACCOUNTS=3
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/16 reverse_path strict
# port: 1 mac {PORT_MACS[1]} address 192.0.2.2/24 mtu 600 reverse_path strict
# neighbor: {USER} mac {USER_MAC} port 0
# neighbor: {USER2} mac {USER_MAC} port 0
# neighbor: {FREE} mac {USER_MAC} port 0
# neighbor: {SITE} mac {USER_MAC} port 0
# neighbor: {SITE2} mac {USER_MAC} port 0
# neighbor: 192.0.2.1 mac {ROUTER_MAC} port 1
# route: 198.51.100.0/24 via 192.0.2.1 port 1
# route: 203.0.113.0/24 unreachable
"""
REPLICATED = SETUP.replace("# define: USAGE_MONITOR_LOCAL\n# define: USAGE_MONITOR_ACCOUNTS=3", "# store:")


def hexadecimal(text):
    return "0x" + bytes(int(part) for part in text.split(".")).hex()


def entry(prefix, length, action):
    return f"add UsageIngress.accounts user.address:{hexadecimal(prefix)}/{length} UsageIngress.{action}"


ACCOUNTS = "\n".join((entry("10.0.0.0", 24, f"each({QUOTA}, 5)"), entry("10.0.7.0", 24, f"shared({hexadecimal('10.0.7.0')}, {QUOTA}, 5)"),
                      entry(FREE, 32, "free()")))


class UsageCase(Case):
    def __init__(self, name, about, setup=SETUP, accounts=ACCOUNTS):
        super().__init__(HERE, "UsageIngress", name, about, setup + "\n" + accounts + "\n")

    def send(self, out, make, passes=True):
        """`make` gives the packet for a hop limit."""
        port, macs = (0, (USER_MAC, ROUTER_MAC)) if out else (1, (ROUTER_MAC, USER_MAC))
        self.packet(port, ethernet(PORT_MACS[port], macs[0], make(64)))
        if passes:
            self.expect(1 - port, ethernet(macs[1], PORT_MACS[1 - port], make(63)))

    def up(self, size, passes=True, user=USER):
        """A packet of `size` bytes from a user; at least 28."""
        self.send(True, lambda ttl: ipv4(user, SERVER, UDP, udp(user, SERVER, 4000, 53, b"u" * (size - 28)), ttl=ttl), passes)

    def down(self, size, passes=True, user=USER):
        self.send(False, lambda ttl: ipv4(SERVER, user, UDP, udp(SERVER, user, 53, 4000, b"d" * (size - 28)), ttl=ttl), passes)


def quota():
    case = UsageCase("quota", "Each account gets its quota, to the byte, of both directions together.")
    case.note("1000 bytes: 28, 500, 400; then 73 do not fit, but 72 do")
    case.up(28)
    case.up(500)
    case.down(400)
    case.up(73, False)
    case.down(73, False)
    case.down(72)
    case.note("nothing is left, either way")
    case.up(28, False)
    case.down(28, False)
    case.counter("counted", 4)
    case.counter("over_quota", 4)
    case.note("another user has a quota of its own; so has a site, whose users share it")
    case.up(500, user=USER2)
    case.up(500, user=USER2)
    case.up(28, False, user=USER2)
    case.up(500, user=SITE)
    case.down(472, user=SITE2)
    case.up(29, False, user=SITE)
    case.up(28, user=SITE2)
    case.up(28, False, user=SITE)
    case.note("between two users, of which one has nothing left: the sender's counts")
    case.packet(0, ethernet(PORT_MACS[0], USER_MAC, ipv4(USER, SITE, UDP, udp(USER, SITE, 1, 2))))
    case.counter("counted", 9)
    case.note("not counted: users that are free, with users and others; those without an account")
    case.up(500, user=FREE)
    case.down(500, user=FREE)
    case.packet(0, ethernet(PORT_MACS[0], USER_MAC, ipv4(FREE, USER, UDP, udp(FREE, USER, 1, 2))))
    case.expect(0, ethernet(USER_MAC, PORT_MACS[0], ipv4(FREE, USER, UDP, udp(FREE, USER, 1, 2), ttl=63)))
    case.up(100, user="10.0.9.9")
    case.counter("not_counted", 4)
    case.counter("counted", 9)
    case.write()


def protocols():
    case = UsageCase("protocols", "Whatever is in an IPv4 packet, its bytes are counted.")
    case.note("TCP 40, echo 36, an ICMP error 56, ESP 120, options 32: 284 bytes")
    quoted = ipv4(SERVER, USER, UDP, udp(SERVER, USER, 53, 4000))
    for out, make in ((True, lambda ttl: ipv4(USER, SERVER, TCP, tcp(USER, SERVER, 40000, 80), ttl=ttl)),
                      (False, lambda ttl: ipv4(SERVER, USER, ICMP, echo(0, 7), ttl=ttl)),
                      (True, lambda ttl: ipv4(USER, SERVER, ICMP, icmp(3, 3, bytes(4), quoted), ttl=ttl)),
                      (True, lambda ttl: ipv4(USER, SERVER, 50, bytes(100), ttl=ttl)),
                      (False, lambda ttl: ipv4(SERVER, USER, UDP, udp(SERVER, USER, 53, 4000), ttl=ttl, options=b"\1" * 4))):
        case.send(out, make)
    case.note("fragments of one datagram, in any order: 44 and 60 bytes")
    for part in (1, 0):
        case.send(True, lambda ttl, part=part: split(ipv4(USER, SERVER, UDP, udp(USER, SERVER, 5001, 53, b"q" * 56), ttl=ttl, flags_offset=0), 24)[part])
    case.note("a frame padded behind the packet: the packet's bytes count, which are 28")
    packet = ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2))
    case.packet(0, ethernet(PORT_MACS[0], USER_MAC, packet + bytes(18)))
    case.expect(1, ethernet(ROUTER_MAC, PORT_MACS[1], ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2), ttl=63) + bytes(18)))
    case.note("416 in all")
    case.up(500)
    case.up(85, False)
    case.up(84)
    case.up(28, False)
    case.write()


def periods():
    case = UsageCase("periods", "A newer period begins a new count; an older one changes nothing.")
    case.up(500)
    case.up(500)
    case.up(28, False)
    case.counter("periods", 1)
    case.note("a packet that does not fit in the new period does not begin it")
    case.lines.append(entry("10.0.0.4", 31, "each(30, 6)"))
    case.up(31, False)
    case.counter("periods", 1)
    case.up(30)
    case.up(28, False)
    case.counter("periods", 2)
    case.note("an older period's entry: the quota is that entry's, the count the newer period's")
    case.lines.append(entry(USER, 32, "each(100, 5)"))
    case.up(71, False)
    case.up(70)
    case.counter("periods", 2)
    case.counter("over_quota", 4)
    case.note("numbers go round")
    case.up(28, user=USER2)
    for length, number, size, passes in ((25, 0x80000004, 100, True), (26, 0xFFFFFFFF, 100, True), (27, 2, 100, True), (28, 0xFFFFFFFF, 28, False)):
        case.lines.append(entry("10.0.0.0", length, f"each(100, {number})"))
        case.up(size, passes, user=USER2)
    case.write()


def refuses():
    case = UsageCase("refuses", "What is not forwarded is not counted.")
    frame = lambda packet, kind=0x0800: ethernet(PORT_MACS[0], USER_MAC, packet, kind)  # noqa: E731
    case.note("from where its source cannot be, malformed, not IPv4")
    case.packet(1, ethernet(PORT_MACS[1], ROUTER_MAC, ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2))))
    case.dropped_by_gateway("reverse_path", 1)
    case.packet(0, frame(ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2))[:-1]))
    case.dropped_by_gateway("length", 1)
    case.counter("refused", 2)
    case.packet(0, frame(ipv6("2001:db8:1::5", "2001:db8:2::80", UDP, udp("2001:db8:1::5", "2001:db8:2::80", 1, 2)), 0x86DD))
    case.counter("unsupported", 1)
    case.note("to the kernel: multicast")
    case.to_host(0, frame(ipv4(USER, "224.0.0.5", 89, bytes(44), ttl=1)))
    case.note("a hop limit that ends here, no route, too big for the route: ICMP errors")
    packet = ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2), ttl=1)
    case.packet(0, frame(packet))
    case.expect(0, ethernet(USER_MAC, PORT_MACS[0], time_exceeded("10.0.0.1", packet)))
    for destination in ("203.0.113.1", "100.64.0.1"):
        packet = ipv4(USER, destination, UDP, udp(USER, destination, 1, 2))
        case.packet(0, frame(packet))
        case.expect(0, ethernet(USER_MAC, PORT_MACS[0], ipv4("10.0.0.1", USER, ICMP, icmp(3, 0, bytes(4), packet), tos=0xC0, identification=0)))
    packet = ipv4(USER, SERVER, UDP, udp(USER, SERVER, 1, 2, bytes(573)))
    case.packet(0, frame(packet))
    case.expect(0, ethernet(USER_MAC, PORT_MACS[0], fragmentation_needed("10.0.0.1", packet, 600)))
    for name, value in (("ttl_expired", 1), ("no_route", 2), ("too_big", 1)):
        case.counter(name, value)
    case.note("none of these was counted")
    case.up(500)
    case.up(500)
    case.up(28, False)
    case.counter("counted", 2)
    case.write()


def kernel(name, setup):
    case = UsageCase(name, "The kernel sends what must be fragmented or has an unresolved next hop; it is counted.", setup)
    for destination, size in ((SERVER, 601), ("192.0.2.77", 300)):
        make = lambda ttl: ipv4(USER, destination, UDP, udp(USER, destination, 1, 2, bytes(size - 28)), ttl=ttl, flags_offset=0)  # noqa: E731
        case.packet(0, ethernet(PORT_MACS[0], USER_MAC, make(64)))
        case.by_kernel(make(63))
    case.up(100, False)
    case.up(99)
    case.write()


def full():
    case = UsageCase("full", "More accounts than there is room for: their packets are dropped.")
    case.up(100)
    case.up(100, user=USER2)
    case.up(100, user="10.0.0.7")
    case.up(100, False, user=SITE)
    case.counter("no_room", 1)
    case.down(100)
    case.write()


def fails():
    case = UsageCase("fails", "The switch fails, and the counts go on: they are in the store.", REPLICATED)
    case.up(500)
    case.down(300)
    case.note("The session of the dead switch lives for up to a lease: until then packets wait at the store.")
    case.lines.append("# takes_over: another switch")
    case.up(200)
    leaves = case.lines.pop()
    case.lines += ["no_packet", "clock 300ms", leaves]
    case.up(28, False)
    case.note("The same one again, in its next life, long after: a new period.")
    case.lines += ["clock 3600s", "# takes_over: the same switch", "clock 300ms"]
    case.up(28, False)
    case.lines.append(entry(USER, 32, f"each({QUOTA}, 6)"))
    case.up(500)
    case.down(500)
    case.up(28, False)
    case.write()


quota()
protocols()
periods()
refuses()
kernel("kernel", SETUP)
kernel("kernel_store", REPLICATED)
full()
fails()
