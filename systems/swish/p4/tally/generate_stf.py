#!/usr/bin/env python3
"""Writes the packet tests of tally.p4 (*.stf) beside itself: what a switch answers that shares with
nobody. Run it after changing a case."""
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from probe_frames import asks, back  # noqa: E402
from stf_packets import Case  # noqa: E402

READ, INSERT, SET, ADD, REMOVE, READ_NUMBER, ADD_NUMBER = range(7)
ASK_MARK, MARK, UNMARK, DROPPED = range(9, 13)
CELLS = 64


def probe(op, key, value, found=0, was=0, counted=(0, 0, 0)):
    payload = struct.pack(">BBBBIIIIIIII", op, found, found, 0, key, value, was, was, was, *counted)
    return asks(payload)


class Tally(Case):
    """A switch alone: SRO and EWO show a packet's updates to the next one, SDW in the next window."""

    def __init__(self, name, about):
        super().__init__(HERE, "ProbeIngress", name, about, "")
        self.held, self.numbers, self.marks = {}, {}, set()
        self.in_windows, self.noted, self.at_once, self.last = {}, {}, {}, {}

    def sends(self, op, key, value=0):
        held, cell = self.held.get(key), key % CELLS
        found = was = 0
        if op in (READ, INSERT, ADD):
            found, was = int(held is not None), held or 0
        if op in (READ_NUMBER, ADD_NUMBER):
            was = self.numbers.get(key, 0)
        if op >= ASK_MARK:
            found = int(key in self.marks)
        counted = [it.get(cell, 0) for it in (self.in_windows, self.at_once, self.last)]
        if op in (SET, DROPPED) or (op == INSERT and held is None):
            self.held[key] = value
        now = value
        if op == ADD:
            now = self.held[key] = was + value
        if op == REMOVE:
            self.held.pop(key, None)
        if op == ADD_NUMBER:
            now = was + value
            if key < 64:
                self.numbers[key] = now
        if op == MARK:
            self.marks.add(key)
        if op == UNMARK:
            self.marks.discard(key)
        for it in (self.noted, self.at_once):
            it[cell] = it.get(cell, 0) + 1
        self.last[cell] = now
        self.packet(0, probe(op, key, value))
        if op != DROPPED:
            self.expect(0, back(probe(op, key, value, found, was, counted)))

    def window(self):
        self.lines.append("clock 1000us")
        for cell, by in self.noted.items():
            self.in_windows[cell] = self.in_windows.get(cell, 0) + by
        self.noted.clear()


def alone():
    case = Tally("alone", "Each packet is counted once, whether it waits or not.")
    for packet in [(READ, 7), (INSERT, 7, 5), (READ, 7), (SET, 7, 11), (ADD, 7, 30), (READ, 7), (REMOVE, 7)]:
        case.sends(*packet)
    case.note("SDW shows them in the next window, and others of the same cell with them.")
    case.window()
    for packet in [(READ, 7), (SET, 71, 2), (READ_NUMBER, 7), (ADD_NUMBER, 7, 4), (MARK, 7), (ASK_MARK, 7)]:
        case.sends(*packet)
    case.window()
    case.sends(READ, 7)
    case.note("A window in which nothing was counted.")
    case.window()
    case.window()
    case.sends(READ, 7)
    case.sends(READ, 8)
    case.write()


def dropped():
    case = Tally("dropped", "A packet that the program drops writes, and is counted, once.")
    for packet in [(DROPPED, 9, 4), (READ, 9), (DROPPED, 9, 5), (DROPPED, 9, 6), (READ, 9)]:
        case.sends(*packet)
    case.window()
    case.sends(READ, 9)
    case.write()


def many():
    seed = 31
    case = Tally("many", f"Random packets (seed {seed}).")
    numbers = random.Random(seed)
    for packets in [1, 5, 40, 20, 30]:
        for _ in range(packets):
            op = numbers.choice([READ, INSERT, SET, ADD, REMOVE, READ_NUMBER, ADD_NUMBER, MARK, UNMARK, DROPPED])
            case.sends(op, numbers.randrange(4) + 64 * numbers.randrange(2), numbers.randrange(1 << 16))
        case.window()
    for key in range(4):
        case.sends(READ, key)
    case.write()


alone()
dropped()
many()
