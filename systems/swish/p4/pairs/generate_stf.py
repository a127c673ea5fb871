#!/usr/bin/env python3
"""Writes alone.stf, full.stf and operator.stf: what pairs.p4 answers on a switch that shares with nobody."""

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from probe_frames import asks, back  # noqa: E402

READ, INSERT, SET, ADD, REMOVE, READ_NUMBER, ADD_NUMBER = range(7)
ASK_MARK, MARK, UNMARK = range(9, 12)
NUMBERS = 64


def frame(op, key, value, found=0, was=0):
    return asks(struct.pack(">BBBBIIIII", op, found, found, 0, key, value, was, was, was))


class Switch:
    """One switch, as the packets of the case must find it."""

    def __init__(self):
        self.held = {}
        self.numbers = {}
        self.marks = set()
        self.lines = []

    def packet(self, op, key, value=0):
        held = self.held.get(key)
        found = was = 0
        if op in (READ, INSERT, ADD):
            found, was = int(held is not None), held or 0
        if op in (READ_NUMBER, ADD_NUMBER):
            was = self.numbers.get(key, 0)
        if op == SET or (op == INSERT and held is None):
            self.held[key] = value
        if op == ADD:
            self.held[key] = was + value
        if op == REMOVE:
            self.held.pop(key, None)
        if op >= ASK_MARK:
            found = int(key in self.marks)
        if op == MARK:
            self.marks.add(key)
        if op == UNMARK:
            self.marks.discard(key)
        if op == ADD_NUMBER and key < NUMBERS:
            self.numbers[key] = was + value
        self.lines.append("packet 0 " + frame(op, key, value).hex())
        self.lines.append("expect 0 " + back(frame(op, key, value, found, was)).hex() + "$")

    def says(self, text):
        self.lines.append("# " + text)


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
for packet in [(READ_NUMBER, 3), (ADD_NUMBER, 3, 17), (ADD_NUMBER, 3, 2), (READ_NUMBER, 3)]:
    switch.packet(*packet)
for packet in [(ADD_NUMBER, 64, 1), (READ_NUMBER, 64), (READ_NUMBER, 4)]:
    switch.packet(*packet)
switch.says("A set: added twice, removed twice.")
for packet in [(ASK_MARK, 7), (MARK, 7), (MARK, 7), (ASK_MARK, 7), (ASK_MARK, 8)]:
    switch.packet(*packet)
for packet in [(UNMARK, 7), (UNMARK, 7), (ASK_MARK, 7)]:
    switch.packet(*packet)
Path(__file__).with_name("alone.stf").write_text("\n".join(switch.lines) + "\n")

switch = Switch()
switch.says("Each of several tables has as many keys as its program says.")
switch.says("Written by generate_stf.py.")
switch.says("define: KEYS=2")
for key in [1, 2]:
    switch.packet(SET, key, key)
for packet in [(SET, 2, 7), (READ, 1), (READ, 2), (READ, 3), (REMOVE, 1), (SET, 3, 3), (READ, 3)]:
    switch.packet(*packet)
Path(__file__).with_name("full.stf").write_text("\n".join(switch.lines) + "\n")

switch = Switch()
switch.says("What an operator wrote, through the chain, is what packets read, change and remove.")
switch.says("Written by generate_stf.py.")
for key, value in [(7, 21), (8, 9)]:
    for table in ["one", "other"]:
        switch.lines.append(f"# shared_entry: ProbeIngress.{table} {key} {value} {value}")
    switch.held[key] = value
switch.lines.append("# shared_entry: ProbeIngress.marks 7")
switch.marks.add(7)
for packet in [(READ, 7), (ADD, 7, 4), (READ, 7), (INSERT, 8, 1), (READ, 8), (READ, 9)]:
    switch.packet(*packet)
for packet in [(REMOVE, 7), (READ, 7), (ASK_MARK, 7), (ASK_MARK, 8), (UNMARK, 7), (ASK_MARK, 7)]:
    switch.packet(*packet)
Path(__file__).with_name("operator.stf").write_text("\n".join(switch.lines) + "\n")
