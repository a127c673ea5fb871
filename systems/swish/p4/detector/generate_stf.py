#!/usr/bin/env python3
"""Writes the packet tests of detector.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/detector/generate_stf.py
"""
import ipaddress
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import UDP, Case, ethernet, ipv4, udp  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
ATTACKER, OTHER = "10.66.0.1", "10.66.0.2"
# Windows of packet tests; with BLOCKED_FOR, of blocks.
WINDOW_US, BLOCKED_FOR = 1000, 6000
# Windows of a unit of blocks' ends.
UNIT = 128
THRESHOLD, ROW_CELLS = 28, 32768
ALL = (1 << 32) - 1


def mixed(x):
    x = (x ^ x >> 16) * 0x45D9F3B & ALL
    x = (x ^ x >> 15) * 0x2C1B3C6D & ALL
    return x ^ x >> 16


def number(text):
    return int(ipaddress.ip_address(text))


def bits(source, destination):
    """What a packet sets in each row."""
    inner = number(destination) + mixed(number(source)) & ALL
    hashes = [mixed(inner ^ (row + 1) * 0x3C6EF372 & ALL) for row in range(3)]
    return [1 << (it & 31) if it >> 28 == 0 else 0 for it in hashes]


def cells(source):
    """Of a source that was never blocked."""
    return [row * ROW_CELLS + (mixed(number(source) ^ row * 0x7F4A7C15 & ALL) & ROW_CELLS - 1) for row in range(3)]


def frame(source, destination):
    return ethernet(MACS[1], MACS[0], ipv4(source, destination, UDP, udp(source, destination, 1000, 9, b"")))


def telling(source, first=0):
    """Destinations in a row that set new bits, until all rows have as many as block."""
    rows, found, at = [0, 0, 0], [], first
    while not all(row.bit_count() >= THRESHOLD for row in rows):
        destination = str(ipaddress.ip_address(number("10.128.0.0") + at))
        new = bits(source, destination)
        if any(bit & ~row for bit, row in zip(new, rows)):
            rows = [row | bit for bit, row in zip(new, rows)]
            found.append(destination)
        at += 1
    return found, rows, at - first


class Detector(Case):
    def __init__(self, name, about, setup=""):
        super().__init__(HERE, "DetectorIngress", name, about, setup)

    def passes(self, source, destination):
        self.packet(0, frame(source, destination))
        self.expect(1, frame(source, destination))

    def clock(self, microseconds):
        self.lines.append(f"clock {microseconds}us")


def crosses():
    case = Detector("crosses", "What is no packet of a watched source goes across; other ports are the kernel's.")
    back = ethernet(MACS[0], MACS[1], ipv4("10.128.0.1", ATTACKER, UDP, b"back"))
    case.packet(1, back)
    case.expect(0, back)
    arp = ethernet("ff:ff:ff:ff:ff:ff", MACS[0], b"\0\1 an ARP request", 0x0806)
    case.packet(0, arp)
    case.expect(1, arp)
    case.to_host(2, back)
    case.write()


def blocks():
    found, _, tried = telling(ATTACKER)
    case = Detector("blocks", f"A source sends to {tried} destinations (to those that set bits), and is blocked.")
    for destination in found:
        case.passes(ATTACKER, destination)
    case.note("In this window nobody has seen them.")
    case.passes(ATTACKER, "10.128.0.0")
    case.clock(WINDOW_US)
    case.note("In the next window: blocked, to all destinations. Others are not.")
    case.packet(0, frame(ATTACKER, "10.128.0.0"))
    case.packet(0, frame(ATTACKER, "10.129.0.0"))
    case.counter("blocked_packets", 2)
    case.passes(OTHER, "10.128.0.0")
    case.clock(WINDOW_US * (BLOCKED_FOR - 1))
    case.note("The block lasts at least so long.")
    case.packet(0, frame(ATTACKER, "10.128.0.0"))
    case.counter("blocked_packets", 3)
    case.clock(WINDOW_US * UNIT)
    case.note("It is over: the source is counted anew.")
    case.passes(ATTACKER, "10.128.0.0")
    case.clock(WINDOW_US)
    case.passes(ATTACKER, "10.128.0.0")
    case.counter("blocked_packets", 3)
    case.write()


def below():
    case = Detector("below", "One bit less than the threshold in one row: not blocked.")
    found, _, _ = telling(OTHER)
    for destination in found[:-1]:
        case.passes(OTHER, destination)
    case.clock(WINDOW_US)
    case.passes(OTHER, found[0])
    case.clock(WINDOW_US)
    case.passes(OTHER, found[0])
    case.counter("blocked_packets", 0)
    case.write()


def alone():
    case = Detector("alone", "With -DDETECTOR_LOCAL a switch counts in registers, and a controller adds up.",
                    setup="# define: DETECTOR_LOCAL")
    rows = [0, 0, 0]
    for destination in telling(ATTACKER)[0][:9]:
        case.passes(ATTACKER, destination)
        rows = [row | bit for row, bit in zip(rows, bits(ATTACKER, destination))]
    for cell, row in zip(cells(ATTACKER), rows):
        case.lines.append(f"check_register DetectorIngress.sketch({cell}) == {row}")
    case.counter("blocked_packets", 0)
    case.write()


crosses()
blocks()
below()
alone()
