#!/usr/bin/env python3
"""Writes alone.stf and random.stf: what last.p4 answers on a switch that shares with nobody."""

import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from probe_frames import asks, back  # noqa: E402

READ, INSERT, SET, ADD, REMOVE, READ_NUMBER, WRITE_NUMBER = range(7)
NUMBERS = 64
WORD = 1 << 32


def frame(op, key, value, found=0, was=0):
    # Of the copy, the 32 bits in its middle.
    middle = (was << 16 | was >> 16) % WORD
    return asks(struct.pack(">BBBBIIIII", op, found, found, 0, key, value, was, middle, was))


class Switch:
    """One switch, as the packets of the case must find it."""

    def __init__(self):
        self.held = {}
        self.numbers = {}
        self.lines = []

    def packet(self, op, key, value=0):
        held = self.held.get(key)
        found, was = int(held is not None), held or 0
        if op in (READ_NUMBER, WRITE_NUMBER):
            found, was = 0, self.numbers.get(key, 0)
        if op == SET or (op == INSERT and held is None):
            self.held[key] = value
        if op == ADD:
            self.held[key] = (was + value) % WORD
        if op == REMOVE:
            self.held.pop(key, None)
        if op == WRITE_NUMBER and key < NUMBERS:
            self.numbers[key] = value
        self.lines.append("packet 0 " + frame(op, key, value).hex())
        self.lines.append("expect 0 " + back(frame(op, key, value, found, was)).hex() + "$")

    def says(self, text):
        self.lines.append("# " + text)

    def write(self, name):
        Path(__file__).with_name(name + ".stf").write_text("\n".join(self.lines) + "\n")


def alone():
    switch = Switch()
    switch.says("A switch alone: what packets write is there for the packets behind them.")
    switch.says("Written by generate_stf.py.")
    switch.says("Absent, inserted once, and the first value stays.")
    for packet in [(READ, 7), (INSERT, 7, 5), (READ, 7), (INSERT, 7, 9), (READ, 7)]:
        switch.packet(*packet)
    switch.says("Set, whether it is there or not; added to.")
    for packet in [(SET, 7, 11), (READ, 7), (SET, 8, 12), (ADD, 8, 30), (READ, 8), (ADD, 9, 4)]:
        switch.packet(*packet)
    switch.says("Removed, removed again, and inserted anew.")
    for packet in [(REMOVE, 7), (READ, 7), (REMOVE, 7), (INSERT, 7, 21), (READ, 7)]:
        switch.packet(*packet)
    switch.says("A register. An index out of range reads zero, and writes nothing.")
    for packet in [(READ_NUMBER, 3), (WRITE_NUMBER, 3, 17), (WRITE_NUMBER, 3, WORD - 2)]:
        switch.packet(*packet)
    for packet in [(READ_NUMBER, 3), (WRITE_NUMBER, 64, 1), (READ_NUMBER, 64), (READ_NUMBER, 4)]:
        switch.packet(*packet)
    switch.write("alone")


def many():
    seed = 22
    numbers = random.Random(seed)
    switch = Switch()
    switch.says(f"Random packets (seed {seed}) to a few keys. Written by generate_stf.py.")
    for _ in range(200):
        switch.packet(numbers.randrange(7), numbers.randrange(6), numbers.randrange(WORD))
    switch.write("random")


alone()
many()
