#!/usr/bin/env python3
"""Writes the packet tests of nat.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/nat/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "p4"), str(HERE.parents[3] / "p4/functions")]
import nat_cases  # noqa: E402

nat_cases.write_all(HERE, lambda first, last: f"""
add NatIngress.pools hdr.ipv4.source:0/0 NatIngress.use_pool(address:0xcb007101, first_port:{first}, ports:{last - first + 1})
""")
