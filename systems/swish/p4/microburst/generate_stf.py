#!/usr/bin/env python3
"""Writes the packet tests of microburst.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/microburst/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import TCP, UDP, Case, ethernet, ipv4, split, tcp, udp, with_bytes  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
SENDER, OTHER, RECEIVER = "10.66.0.1", "10.66.0.2", "10.128.0.9"
WINDOW_US = 1000
# ECN: the sender does not know of it, knows of it, there is congestion.
NOT_ECT, ECT, CE = 0, 2, 3
# Three frames of a flow are a burst.
SETUP = "# define: THRESHOLD=3000"
FRAME = 1000


def datagram(source, port, size=FRAME, ecn=ECT):
    payload = bytes(size - 14 - 20 - 8)
    return ipv4(source, RECEIVER, UDP, udp(source, RECEIVER, port, 9, payload), tos=0xB8 | ecn)


def segment(source, port, size=FRAME, ecn=ECT):
    payload = bytes(size - 14 - 20 - 20)
    return ipv4(source, RECEIVER, TCP, tcp(source, RECEIVER, port, 9, payload), tos=ecn)


class Microburst(Case):
    def __init__(self, name, about):
        super().__init__(HERE, "MicroburstIngress", name, about, SETUP)
        self.ends = 0

    def passes(self, packet, marked=None, port=0):
        self.packet(port, ethernet(MACS[1], MACS[0], packet))
        self.expect(port ^ 1, ethernet(MACS[1], MACS[0], marked or packet))

    def window(self):
        self.lines.append(f"clock {WINDOW_US}us")


def bursts():
    case = Microburst("bursts", "In the window after a burst, the flow's packets say that there is congestion.")
    for _ in range(3):
        case.passes(datagram(SENDER, 7))
    case.passes(segment(SENDER, 7))
    case.counter("bursts", 0)
    case.window()
    case.note("Its packets are marked, if their sender understands that. They still pass.")
    case.passes(datagram(SENDER, 7), datagram(SENDER, 7, ecn=CE))
    case.passes(datagram(SENDER, 7, ecn=1), datagram(SENDER, 7, ecn=CE))
    case.passes(datagram(SENDER, 7, ecn=NOT_ECT))
    case.passes(datagram(SENDER, 7, ecn=CE))
    case.counter("bursts", 4)
    case.note("Other flows are not: other ports, another source, another protocol.")
    case.passes(datagram(SENDER, 8))
    case.passes(datagram(OTHER, 7))
    case.passes(segment(SENDER, 7))
    case.counter("bursts", 4)
    case.window()
    case.note("In the next window the four packets of the last one count, then nothing does.")
    case.passes(datagram(SENDER, 7), datagram(SENDER, 7, ecn=CE))
    case.window()
    case.passes(datagram(SENDER, 7))
    case.counter("bursts", 5)
    case.write()


def below():
    case = Microburst("below", "As many bytes in two windows are no burst; nor is a byte less in one.")
    case.passes(datagram(SENDER, 7))
    case.passes(datagram(SENDER, 7))
    case.window()
    case.passes(datagram(SENDER, 7))
    case.passes(datagram(SENDER, 7))
    case.window()
    case.passes(datagram(SENDER, 7))
    case.passes(datagram(SENDER, 7))
    case.passes(datagram(SENDER, 7, FRAME - 1))
    case.window()
    case.passes(datagram(SENDER, 7))
    case.counter("bursts", 0)
    case.note("A burst, and windows of silence after it.")
    for _ in range(4):
        case.passes(segment(SENDER, 7))
    case.window()
    case.window()
    case.passes(segment(SENDER, 7))
    case.counter("bursts", 0)
    case.write()


def crosses():
    case = Microburst("crosses", "What is not looked at goes across as it came; other ports are the kernel's.")
    for _ in range(4):
        case.passes(datagram(SENDER, 7), port=1)
    damaged = with_bytes(datagram(SENDER, 7), 10, b"\xba\xad")
    options = ipv4(SENDER, RECEIVER, UDP, udp(SENDER, RECEIVER, 7, 9, bytes(954)), options=b"\1\1\1\0", tos=ECT)
    for packet in [damaged, options] * 4:
        case.passes(packet)
    arp = ethernet("ff:ff:ff:ff:ff:ff", MACS[0], b"\0\1 an ARP request", 0x0806)
    case.packet(0, arp)
    case.expect(1, arp)
    case.to_host(2, ethernet(MACS[1], MACS[0], datagram(SENDER, 7)))
    case.window()
    for packet in [damaged, options]:
        case.passes(packet)
    case.passes(datagram(SENDER, 7), port=1)
    case.passes(datagram(SENDER, 7))
    case.counter("bursts", 0)
    case.write()


def fragments():
    case = Microburst("fragments", "Fragments of all datagrams between two hosts are one flow.")
    parts = [part for port in (7, 8) for part in split(datagram(SENDER, port, 1600), 800)]
    for part in parts:
        case.passes(part)
    case.window()
    case.passes(datagram(SENDER, 7))
    whole = datagram(SENDER, 9, 1600)
    for part, marked in zip(split(whole, 800), split(datagram(SENDER, 9, 1600, ecn=CE), 800)):
        case.passes(part, marked)
    case.counter("bursts", 2)
    case.write()


bursts()
below()
crosses()
fragments()
