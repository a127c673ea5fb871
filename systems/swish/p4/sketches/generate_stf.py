#!/usr/bin/env python3
"""Writes the packet tests of sketches.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/sketches/generate_stf.py
"""
import collections
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import Case, ethernet  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
WINDOW_US, ALL = 1000, (1 << 32) - 1
ROW_CELLS, MINIMA = 64, 16


def hashed(x, seed):
    y = x + seed * 0x9E3779B9 & ALL
    y = (y ^ y >> 16) * 0x45D9F3B & ALL
    y = (y ^ y >> 15) * 0x2C1B3C6D & ALL
    return y ^ y >> 16


def bucket(value):
    if value < 8:
        return value
    power = value.bit_length() - 1
    return (power - 2) * 8 + (value >> power - 3 & 7)


def ask(element, value, *read):
    return ethernet(MACS[1], MACS[0], struct.pack("!7I", element, value, *(read or [0] * 5)), 0x88B5)


class Sketches(Case):
    """What the sketches have, and what was updated in this window."""

    def __init__(self, name, about):
        super().__init__(HERE, "SketchesIngress", name, about, "")
        self.counts, self.values = collections.Counter(), collections.Counter()
        self.minima, self.bits = [0] * MINIMA, 0
        self.new = []

    def asks(self, element, value):
        cells = [row * ROW_CELLS + (hashed(element, row) & ROW_CELLS - 1) for row in range(2)]
        at, into = hashed(element, 8) & MINIMA - 1, bucket(value)
        times = min(self.counts[cell] for cell in cells)
        self.packet(0, ask(element, value))
        self.expect(0, ask(element, value, times, self.bits, self.minima[at], into, self.values[into]))
        self.new.append((element, cells, at, into))

    def window(self):
        for element, cells, at, into in self.new:
            self.counts.update(cells)
            self.values[into] += 1
            self.bits |= 1 << (hashed(element, 7) & 31)
            self.minima[at] = max(self.minima[at], hashed(element, 9) | 1)
        self.new = []
        self.lines.append(f"clock {WINDOW_US}us")


def elements():
    case = Sketches("elements", "Elements that come again count again in counts only.")
    drawn = random.Random(22)
    for _ in range(4):
        for element in drawn.choices(range(40), k=30):
            case.asks(element, element)
        case.window()
    seen = case.minima
    estimate = MINIMA * (MINIMA - 1) / sum(1 - value / 2**32 for value in seen)
    case.note(f"Of these elements, the minima say that there are {estimate:.0f}.")
    for element in range(40):
        case.asks(element, element)
    case.write()


def buckets():
    case = Sketches("buckets", "The first and the last value of each bucket, and values between.")
    drawn = random.Random(7)
    edges = [edge for power in range(32) for edge in ((1 << power) - 1, 1 << power)]
    for value in edges + [ALL] + [drawn.getrandbits(drawn.randrange(1, 33)) for _ in range(60)]:
        case.asks(1, value)
    case.window()
    for value in [0, 7, 8, 15, 16, 17, 18, 1 << 31, ALL]:
        case.asks(2, value)
    case.write()


elements()
buckets()
