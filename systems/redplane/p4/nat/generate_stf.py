#!/usr/bin/env python3
"""Writes the packet tests of nat.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/nat/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "p4"), str(HERE.parents[3] / "p4/functions")]
import nat_cases  # noqa: E402

nat_cases.write_all(HERE, lambda first, last: f"""# define: NAT_LOCAL
# nat_pool: NatIngress.bindings {nat_cases.EXTERNAL} ports {first}-{last}
""")
