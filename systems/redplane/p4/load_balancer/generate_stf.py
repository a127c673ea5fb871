#!/usr/bin/env python3
"""Writes the packet tests of load_balancer.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/load_balancer/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3] / "p4"), str(HERE.parents[3] / "p4/functions")]
from load_balancer_cases import BACKEND, BACKEND2, SYN, TCP, UDP, BalancerCase, tcp, udp, write_all  # noqa: E402


def backends(text):
    return f"# define: LOAD_BALANCER_LOCAL\n# backends: BalancerIngress.bindings {text}"


def weights():
    BalancerCase.backends = backends(f"{BACKEND2}:8080*0 {BACKEND}:8080*1")
    drained = BalancerCase("drained", "A backend of weight 0 gets nothing: of 64 conversations, all go to the other.")
    for number in range(64):
        drained.forward(TCP, tcp, b"", SYN, port=40000 + number)
    drained.counter("to_backend", 64)
    drained.write()
    BalancerCase.backends = backends(f"{BACKEND}:8080*0")
    case = BalancerCase("none", "Without a backend that takes new conversations, they are dropped.")
    case.forward(TCP, tcp, b"", SYN, passes=False)
    case.forward(UDP, udp, b"question", virtual_port=53, passes=False)
    case.counter("no_backend", 2)
    case.write()


write_all(HERE, backends(f"{BACKEND}:8080"))
weights()
