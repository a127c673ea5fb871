#!/usr/bin/env python3
"""Writes the packet tests of own.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/own/generate_stf.py
"""
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from probe_frames import asks, back, other  # noqa: E402
from stf_packets import Case  # noqa: E402

CELLS = 400
MOST = (1 << 32) - 1


def probe(index, amount, total=0, joined=0, smallest=0, soon=0):
    payload = struct.pack("!6I", index, amount, total, joined, smallest, soon)
    return asks(payload)


def saturated(a, b):
    return min(a + b, MOST)


def smaller(a, b):
    return min(a, b) if a and b else a or b


def halves(a, b):
    return max(a >> 16, b >> 16) << 16 | (a | b) & 0xFFFF


class Probe(Case):
    """A switch alone: SDW shows updates in the next window, EWO with the next packet."""

    def __init__(self, name, about):
        super().__init__(HERE, "OwnIngress", name, about, "")
        self.values = [{}, {}, {}, {}]
        self.updates = [{}, {}]

    def sends(self, index, amount):
        self.packet(0, probe(index, amount))
        self.expect(0, back(probe(index, amount, *(it.get(index, 0) for it in self.values))))
        if index >= CELLS or not amount:
            return
        self.join([self.updates[0], self.updates[1], self.values[2], self.values[3]], index, [amount] * 4)

    def join(self, cells, index, by):
        for it, merge, value in zip(cells, [saturated, halves, smaller, halves], by):
            it[index] = merge(it.get(index, 0), value)

    def window(self):
        self.lines.append("clock 1000us")
        for it, of, merge in zip(self.values, self.updates, [saturated, halves]):
            for index, value in of.items():
                it[index] = merge(it.get(index, 0), value)
            of.clear()


def alone():
    case = Probe("alone", "Cells merge as the program's functions say.")
    case.sends(7, 5)
    case.sends(7, 9)
    case.sends(7, 0x30010)
    case.sends(7, 0x20020)
    case.window()
    case.sends(7, 0)
    case.note("The sum stays at its largest value, in a window and from one to the next.")
    case.sends(8, MOST)
    case.sends(8, 2)
    case.window()
    case.sends(8, 3)
    case.window()
    case.sends(8, 0)
    case.note("Out of range: nothing is read, nothing changes.")
    case.sends(CELLS, 3)
    case.window()
    case.sends(CELLS, 0)
    case.sends(CELLS - 1, 0x10001)
    case.window()
    case.sends(CELLS - 1, 0)
    case.write()


def many():
    seed = 22
    case = Probe("many", f"Random updates (seed {seed}); single cells and whole blocks are sent.")
    numbers = random.Random(seed)
    for cells in [1, 4, 12, 100, 3, 200]:
        for _ in range(cells):
            index = numbers.choice([numbers.randrange(CELLS), numbers.randrange(CELLS), numbers.randrange(8)])
            case.sends(index, numbers.choice([0, 1, numbers.randrange(1 << 32), 1 << numbers.randrange(32)]))
        case.window()
    for index in range(0, CELLS, 3):
        case.sends(index, 0)
    case.write()


def to_host():
    case = Probe("to_host", "Other packets go to the kernel.")
    case.to_host(1, other())
    case.write()


alone()
many()
to_host()
