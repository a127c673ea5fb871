#!/usr/bin/env python3
"""Writes the packet tests of load_balancer.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/swish/p4/load_balancer/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "p4"), str(HERE.parents[3] / "p4/functions")]
from load_balancer_cases import write_all  # noqa: E402

# Each service's only bucket.
SERVICES = [(0xCB00710A, 80), (0xCB00710A, 53), (0xCB00710B, 80)]
write_all(HERE, "# define: LOAD_BALANCER_BUCKETS=1\n\n" + "\n".join(
    f"add BalancerIngress.backends meta.conversation.server:{address:#x} meta.conversation.server_port:{port} bucket:0"
    " BalancerIngress.use_backend(address:0x0a000005, port:8080)" for address, port in SERVICES))
