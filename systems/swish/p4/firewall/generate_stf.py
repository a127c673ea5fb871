#!/usr/bin/env python3
"""Writes the packet tests of firewall.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/firewall/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "p4"), str(HERE.parents[3] / "p4/functions")]
import firewall_cases  # noqa: E402

firewall_cases.write_all(HERE)
