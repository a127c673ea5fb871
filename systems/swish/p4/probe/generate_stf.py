#!/usr/bin/env python3
"""Writes the packet tests of probe.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/probe/generate_stf.py
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from probe_frames import asks, back, other  # noqa: E402
from stf_packets import Case  # noqa: E402


# The clock of packet tests begins at 1 s, and windows at multiples of 1 ms.
FIRST = 1000


def probe(index, amount, window=0, counter=0, bits=0, largest=0, age=0, recent=None):
    payload = struct.pack("!IIQIIII", index, amount, window and FIRST + window, counter, bits, largest, age)
    payload += b"" if recent is None else struct.pack("!I", recent)
    return asks(payload)


class Probe(Case):
    def __init__(self, name, about, setup=""):
        super().__init__(HERE, "ProbeIngress", name, about, setup)

    def reads(self, index, amount, **values):
        self.packet(0, probe(index, amount, recent=0 if "recent" in values else None))
        self.expect(0, back(probe(index, amount, **values)))

    def clock(self, microseconds):
        self.lines.append(f"clock {microseconds}us")


def windows():
    case = Probe("windows", "A switch alone sees its updates in the next window.")
    case.note("Window 1: updates, and nothing to read yet.")
    case.reads(7, 5, window=1)
    case.reads(7, 6, window=1)
    case.reads(8, 1, window=1)
    case.reads(4095, 0xFFFFFFFF, window=1)
    case.note("Out of range: nothing is read, nothing changes (but the 64 maxima, whose index is masked).")
    case.reads(4096, 3, window=1)
    case.clock(1000)
    case.note("Window 2: the sum, the union and the largest one.")
    case.reads(7, 2, window=2, counter=11, bits=7, largest=6)
    case.reads(8, 0, window=2, counter=1, bits=1, largest=1)
    case.reads(4095, 2, window=2, counter=0xFFFFFFFF, bits=0xFFFFFFFF, largest=0xFFFFFFFF)
    case.reads(4096, 0, window=2, largest=3)
    case.clock(1000)
    case.note("Window 3: on top of what was there; the sum is modulo 2^32.")
    case.reads(7, 0, window=3, counter=13, bits=7, largest=6)
    case.reads(4095, 0, window=3, counter=1, bits=0xFFFFFFFF, largest=0xFFFFFFFF)
    case.note("Windows in which nothing changed.")
    case.clock(3000)
    case.reads(7, 0, window=6, counter=13, bits=7, largest=6)
    case.reads(8, 4, window=6, counter=1, bits=1, largest=1)
    case.clock(1400)
    case.reads(8, 0, window=7, counter=5, bits=5, largest=4, age=400)
    case.write()


def period():
    case = Probe("period", "A counter begins anew with each rotation that is a multiple of its period.",
                 setup="# define: PERIOD=3")
    case.reads(7, 5, window=1, recent=0)
    case.clock(1000)
    case.note("Window 1002 sees rotations 999 to 1001, window 1003 only rotation 1002.")
    case.reads(7, 6, window=2, counter=5, bits=5, largest=5, recent=5)
    case.clock(1000)
    case.reads(7, 0, window=3, counter=11, bits=7, largest=6, recent=6)
    case.clock(1000)
    case.reads(7, 4, window=4, counter=11, bits=7, largest=6, recent=6)
    case.clock(1000)
    case.note("Window 1005: the whole period from 1002 on. More cells change than single ones can be sent of.")
    for cell in range(80):
        own = {"counter": 15, "bits": 7, "recent": 10} if cell == 7 else {"recent": 0}
        case.reads(cell, 1, window=5, largest=6 if cell & 63 == 7 else 0, **own)
    case.clock(1000)
    case.reads(7, 0, window=6, counter=16, bits=7, largest=6, recent=1)
    case.note("Nothing is updated in rotations 1008 and 1009.")
    case.clock(4000)
    case.reads(7, 2, window=10, counter=16, bits=7, largest=6, recent=0)
    case.clock(1000)
    case.reads(7, 0, window=11, counter=18, bits=7, largest=6, recent=2)
    case.write()


def many():
    case = Probe("many", "More cells of a block change than single ones can be sent of: messages of all shapes.")
    for number, cells in enumerate([1, 6, 7, 15, 30, 60, 360]):
        for cell in range(cells):
            case.packet(0, probe(360 + cell, number + 1))
            sums = [n + 1 for n, count in enumerate([1, 6, 7, 15, 30, 60, 360][:number]) if cell < count]
            bits = 0
            for by in sums:
                bits |= by
            index = (360 + cell) & 63
            at = [n + 1 for n, count in enumerate([1, 6, 7, 15, 30, 60, 360][:number])
                  for other in range(count) if (360 + other) & 63 == index]
            case.expect(0, back(probe(360 + cell, number + 1, window=number + 1, counter=sum(sums), bits=bits,
                                      largest=max(at, default=0))))
        case.clock(1000)
    case.write()


def to_host():
    case = Probe("to_host", "Other packets go to the kernel.")
    case.to_host(1, other())
    case.write()


windows()
period()
many()
to_host()
