#!/usr/bin/env python3
"""Writes the packet tests of ips.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/ips/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import TCP, UDP, Case, ethernet, ipv4, udp  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
ATTACKER, OTHER, VICTIM = "10.66.0.1", "10.66.0.2", "10.128.0.9"
PORT = 5353
# By weight: only dropped; three of them block.
DROPPED, BLOCKING = 0xDEADBEEF00000001, 0x4142434445464748
ENTRIES = f"""
# shared_entry: IpsIngress.signatures {PORT} {DROPPED} 7 0
# shared_entry: IpsIngress.signatures {PORT} {BLOCKING} 8 100
"""


def frame(source, first, port=PORT, rest=b"rest", protocol=UDP):
    payload = first.to_bytes(8, "big") + rest
    return ethernet(MACS[1], MACS[0], ipv4(source, VICTIM, protocol, udp(source, VICTIM, 1000, port, payload)))


class Ips(Case):
    def __init__(self, name, about, setup=ENTRIES):
        super().__init__(HERE, "IpsIngress", name, about, setup)

    def passes(self, packet, port=0):
        self.packet(port, packet)
        self.expect(port ^ 1, packet)

    def counts(self, matched, blocked):
        self.counter("matched", matched)
        self.counter("blocked", blocked)


def signatures():
    case = Ips("signatures", "Packets with a signature are dropped; others pass.")
    case.passes(frame(ATTACKER, DROPPED + 1))
    case.packet(0, frame(ATTACKER, DROPPED))
    case.note("The port is a part of the signature.")
    case.passes(frame(ATTACKER, DROPPED, port=PORT + 1))
    case.note("So is the protocol; and what comes back is not looked at.")
    case.passes(frame(ATTACKER, DROPPED, protocol=TCP))
    case.passes(frame(ATTACKER, DROPPED), port=1)
    case.note("Less than eight bytes are no signature.")
    short = ethernet(MACS[1], MACS[0], ipv4(ATTACKER, VICTIM, UDP, udp(ATTACKER, VICTIM, 1000, PORT, b"1234567")))
    case.passes(short)
    case.note("A signature without weight blocks nobody, however often it comes.")
    for _ in range(5):
        case.packet(0, frame(ATTACKER, DROPPED))
    case.passes(frame(ATTACKER, 1))
    case.counts(6, 0)
    case.write()


def blocks():
    case = Ips("blocks", "Three matches of weight 100 block their source, and nobody else.")
    for _ in range(2):
        case.packet(0, frame(ATTACKER, BLOCKING))
        case.passes(frame(ATTACKER, 1))
    case.packet(0, frame(ATTACKER, BLOCKING))
    case.counts(3, 0)
    case.packet(0, frame(ATTACKER, 1))
    case.packet(0, frame(ATTACKER, BLOCKING))
    case.counts(3, 2)
    case.passes(frame(OTHER, 1))
    case.note("What goes to the source is not looked at.")
    case.passes(frame(ATTACKER, 1), port=1)
    case.write()


def nothing():
    case = Ips("nothing", "Without signatures all passes; other ports go to the kernel.", "")
    case.passes(frame(ATTACKER, DROPPED))
    case.to_host(2, frame(ATTACKER, DROPPED))
    arp = ethernet(MACS[1], MACS[0], bytes(46), 0x0806)
    case.passes(arp)
    case.counts(0, 0)
    case.write()


signatures()
blocks()
nothing()
