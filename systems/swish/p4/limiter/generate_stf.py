#!/usr/bin/env python3
"""Writes the packet tests of limiter.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/limiter/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import UDP, Case, ethernet, ipv4, udp  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
USER, FREE = "10.66.0.1", "10.67.0.1"
# Bytes a millisecond, bytes; windows of packet tests.
RATE, BURST, WINDOW_US = 100, 300, 1000


def frame(source, sequence):
    return ethernet(MACS[1], MACS[0], ipv4(source, "10.128.0.1", UDP, udp(source, "10.128.0.1", 1000, sequence, b"")))


class Limiter(Case):
    def __init__(self, name, about, setup=""):
        super().__init__(HERE, "LimiterIngress", name, about, setup)
        self.sequence = 1
        self.dropped = 0
        self.lines.append(f"add LimiterIngress.limits h.ipv4.source:0x0a420000/16 LimiterIngress.limit(user:7, rate:{RATE}, burst:{BURST})")

    def send(self, source, passes):
        packet = frame(source, self.sequence)
        self.sequence += 1
        self.packet(0, packet)
        if passes:
            self.expect(1, packet)
        else:
            self.dropped += 1

    def clock(self, microseconds):
        self.lines.append(f"clock {microseconds}us")

    def all_dropped(self):
        self.lines.append(f"check_counter LimiterIngress.limited(7) packets == {self.dropped}")


def bytes_of(source=USER):
    return len(frame(source, 1))


def crosses():
    case = Limiter("crosses", "Packets without a limit go across, and so do those to users; other ports are the kernel's.")
    for _ in range(20):
        case.send(FREE, True)
    back = ethernet(MACS[0], MACS[1], ipv4("10.128.0.1", USER, UDP, b"back"))
    case.packet(1, back)
    case.expect(0, back)
    arp = ethernet("ff:ff:ff:ff:ff:ff", MACS[0], b"\0\1 an ARP request", 0x0806)
    case.packet(0, arp)
    case.expect(1, arp)
    case.to_host(2, back)
    case.all_dropped()
    case.write()


def limits(name, about, setup=""):
    case = Limiter(name, about, setup)
    case.note("The burst.")
    fits = BURST // bytes_of()
    for at in range(fits + 2):
        case.send(USER, at < fits)
    case.all_dropped()
    case.clock(2 * WINDOW_US)
    case.note("What it has earned since, and what was left.")
    credit = min(BURST, BURST - fits * bytes_of() + 2 * WINDOW_US * RATE // 1000)
    fits = credit // bytes_of()
    for at in range(fits + 2):
        case.send(USER, at < fits)
    case.all_dropped()
    case.clock(60_000_000)
    case.note("After a minute it is the burst again, not more.")
    fits = BURST // bytes_of()
    for at in range(fits + 2):
        case.send(USER, at < fits)
    case.send(FREE, True)
    case.all_dropped()
    case.write()


crosses()
limits("limits", "A user has a burst, and then its rate.")
limits("alone", "The same with -DLIMITER_LOCAL, on one switch.", setup="# define: LIMITER_LOCAL")
