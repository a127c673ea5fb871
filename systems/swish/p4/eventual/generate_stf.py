#!/usr/bin/env python3
"""Writes the packet tests of eventual.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/eventual/generate_stf.py
"""
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from probe_frames import asks, back, other  # noqa: E402
from stf_packets import Case  # noqa: E402

CELLS = 4096
WORD = 1 << 32


def probe(index, amount, counter=0, balance=0, sketch=0, bits=0, largest=0):
    payload = struct.pack("!8I", index, amount, counter, balance, sketch, bits, largest, 0)
    return asks(payload)


class Probe(Case):
    """A switch alone, and what its variables are."""

    def __init__(self, name, about):
        super().__init__(HERE, "EventualIngress", name, about, "")
        self.counters, self.balances, self.sets, self.sketch, self.largest = {}, {}, {}, {}, {}

    def sends(self, index, amount):
        at = index & 63
        self.packet(0, probe(index, amount))
        self.expect(0, back(probe(
            index, amount, self.counters.get(index, 0), self.balances.get(index, 0) % WORD,
            self.sketch.get(at, 0), self.sets.get(index, 0), self.largest.get(at, 0))))
        if index < CELLS:
            self.counters[index] = (self.counters.get(index, 0) + amount) % WORD
            self.balances[index] = self.balances.get(index, 0) + (amount >> 1)
            self.sets[index] = self.sets.get(index, 0) | amount
        following = (index + 1) % WORD
        if following < CELLS:
            self.balances[following] = self.balances.get(following, 0) - amount
        self.sketch[at] = (self.sketch.get(at, 0) + amount) % WORD
        self.largest[at] = max(self.largest.get(at, 0), amount)


def alone():
    case = Probe("alone", "A switch alone sees its updates with the next packet.")
    case.sends(7, 5)
    case.sends(7, 6)
    case.note("Below zero, and up again: modulo 2^32.")
    case.sends(8, 0)
    case.sends(8, 64)
    case.sends(8, 0)
    case.note("Over the end of 32 bits.")
    case.sends(4095, WORD - 1)
    case.sends(4095, 2)
    case.sends(4095, 0)
    case.note("Out of range: nothing is read, nothing changes (but the 64 cells whose index is masked).")
    case.sends(4096, 3)
    case.sends(4096, 0)
    case.sends(WORD - 1, 9)
    case.sends(0, 0)
    case.note("The largest one stays, and so do bits.")
    case.sends(7, 1)
    case.sends(7, 0)
    case.write()


def many():
    seed = 22
    case = Probe("many", f"Random updates (seed {seed}).")
    numbers = random.Random(seed)
    for _ in range(200):
        index = numbers.choice([numbers.randrange(CELLS), numbers.randrange(8)])
        case.sends(index, numbers.choice([0, 1, numbers.randrange(WORD), 1 << numbers.randrange(32)]))
    case.write()


def to_host():
    case = Probe("to_host", "Other packets go to the kernel.")
    case.to_host(1, other())
    case.write()


alone()
many()
to_host()
