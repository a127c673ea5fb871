#!/usr/bin/env python3
"""Writes the packet tests of flow_counter.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/flow_counter/generate_stf.py
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import ICMP, TCP, UDP, echo, ethernet, ipv4, tcp, udp  # noqa: E402

A, A_MAC = "10.0.0.5", "02:00:00:00:00:05"
B, B_MAC = "10.0.1.6", "02:00:00:00:00:06"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]

lines = f"""
# Every packet of a flow carries its number in the identification field.
# Written by generate_stf.py.
# define: COUNTER_LOCAL
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 10.0.1.1/24
# neighbor: {A} mac {A_MAC} port 0
# neighbor: {B} mac {B_MAC} port 1
""".strip().split("\n")


def note(text):
    lines.extend(["", f"# {text}"])


def counted(protocol, payload, number, forward=True):
    """A packet between A and B comes out as the flow's `number`th."""
    source, destination = (A, B) if forward else (B, A)
    came = ipv4(source, destination, protocol, payload, flags_offset=0)
    sent = ipv4(source, destination, protocol, payload, flags_offset=0x4000, ttl=63, identification=number)
    if forward:
        lines.append(f"packet 0 {ethernet(PORT_MACS[0], A_MAC, came).hex()}")
        lines.append(f"expect 1 {ethernet(B_MAC, PORT_MACS[1], sent).hex()}$")
    else:
        lines.append(f"packet 1 {ethernet(PORT_MACS[1], B_MAC, came).hex()}")
        lines.append(f"expect 0 {ethernet(A_MAC, PORT_MACS[0], sent).hex()}$")


def to_kernel(frame):
    lines.append(f"packet 0 {frame.hex()}")
    lines.append(f"expect host {frame.hex()}$")


note("one flow")
for number in range(1, 6):
    counted(UDP, udp(A, B, 1000, 2000, b"x" * number), number)
note("others start at 1: another port, another protocol, the other direction, a protocol without ports")
counted(UDP, udp(A, B, 1001, 2000), 1)
counted(TCP, tcp(A, B, 1000, 2000), 1)
counted(UDP, udp(B, A, 2000, 1000), 1, False)
counted(ICMP, echo(8, 7), 1)
note("and go on where they were")
counted(UDP, udp(A, B, 1000, 2000), 6)
counted(TCP, tcp(A, B, 1000, 2000), 2)
counted(UDP, udp(B, A, 2000, 1000), 2, False)
counted(ICMP, echo(8, 8), 2)
lines.append("check_counter CounterIngress.numbered(0) packets == 13")
note("not counted, as the kernel gets them: fragments, options, TTL 1, no route, cut short, ARP")
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, B, UDP, udp(A, B, 1000, 2000), flags_offset=0x2000)))
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, B, UDP, b"later...", flags_offset=0x0001)))
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, B, UDP, udp(A, B, 1000, 2000), options=b"\1\1\1\0")))
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, B, UDP, udp(A, B, 1000, 2000), ttl=1)))
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, "192.88.99.1", UDP, udp(A, "192.88.99.1", 1000, 2000))))
to_kernel(ethernet(PORT_MACS[0], A_MAC, ipv4(A, B, UDP, b"abc")))
to_kernel(ethernet(PORT_MACS[0], A_MAC, bytes(28), 0x0806))
lines.append("check_counter CounterIngress.to_kernel(0) packets == 7")
note("nor did it change the count")
counted(UDP, udp(A, B, 1000, 2000), 7)

(HERE / "count.stf").write_text("\n".join(lines) + "\n")
