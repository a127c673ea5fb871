#!/usr/bin/env python3
"""Writes the packet tests of heavy_hitter.p4 (*.stf) beside itself.

Run it after changing a case: python3 systems/redplane/p4/heavy_hitter/generate_stf.py

The expectations come from a count-min sketch of its own, so rows, columns and the hash are checked
too.
"""
import collections
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "p4"))
from stf_packets import ICMP, TCP, UDP, address, echo, ethernet, ipv4, tcp, udp  # noqa: E402

A, A_MAC = "10.0.0.5", "02:00:00:00:00:05"
B, B_MAC = "10.0.1.6", "02:00:00:00:00:06"
PORT_MACS = ["02:00:00:00:00:a0", "02:00:00:00:00:a1"]
MARKED = 46  # DSCP
# tenant: (threshold, what happens over it)
TENANTS = {0: (3, "mark"), 5: (2, "drop"), 4095: (1, "mark")}

sketches = collections.defaultdict(lambda: [[0] * 64 for _ in range(3)])


def columns(flow):
    """The flow's column in each row."""
    source, destination, protocol, source_port, destination_port = flow
    crc = zlib.crc32(address(source) + address(destination) + struct.pack("!HHB", source_port, destination_port, protocol))
    return [crc & 63, crc >> 10 & 63, crc >> 20 & 63]


def estimate(tenant, flow):
    """Counts a packet; what the sketch says of its flow."""
    sums = []
    for row, column in zip(sketches[tenant], columns(flow)):
        row[column] += 1
        sums.append(row[column])
    return min(sums)


def tagged(tenant, destination, source, packet):
    frame = ethernet(destination, source, packet)
    return frame if tenant is None else frame[:12] + struct.pack("!HH", 0x8100, tenant) + frame[12:]


HEAD = f"""
# Written by generate_stf.py.
# define: HEAVY_HITTER_LOCAL
# port: 0 mac {PORT_MACS[0]} address 10.0.0.1/24
# port: 1 mac {PORT_MACS[1]} address 10.0.1.1/24
# neighbor: {A} mac {A_MAC} port 0
# neighbor: {B} mac {B_MAC} port 1
add HeavyHitterIngress.tenants meta.tenant.vlan:0 HeavyHitterIngress.mark(threshold:3, dscp:{MARKED})
add HeavyHitterIngress.tenants meta.tenant.vlan:5 HeavyHitterIngress.drop_over(threshold:2)
add HeavyHitterIngress.tenants meta.tenant.vlan:4095 HeavyHitterIngress.mark(threshold:1, dscp:{MARKED})
""".strip().split("\n")
lines = ["# Estimates of flows, tenant by tenant, and what happens to those over their threshold.", *HEAD]


def note(text):
    lines.extend(["", f"# {text}"])


def counted(tenant, protocol, payload, ports, ecn=0):
    """A packet from A to B; None: untagged."""
    value = estimate(tenant or 0, (A, B, protocol, *ports))
    threshold, action = TENANTS.get(tenant or 0, (1 << 32, "count"))
    tos = MARKED << 2 if value > threshold and action == "mark" else 0
    came = ipv4(A, B, protocol, payload, tos=ecn)
    sent = ipv4(A, B, protocol, payload, tos=tos | ecn, ttl=63)
    lines.append(f"packet 0 {tagged(tenant, PORT_MACS[0], A_MAC, came).hex()}")
    if value <= threshold or action != "drop":
        lines.append(f"expect 1 {tagged(tenant, B_MAC, PORT_MACS[1], sent).hex()}$")
    return value


def to_kernel(frame):
    lines.extend([f"packet 0 {frame.hex()}", f"expect 510 {frame.hex()}$"])


def counted_udp(tenant, source_port, destination_port, ecn=0):
    return counted(tenant, UDP, udp(A, B, source_port, destination_port), (source_port, destination_port), ecn)


note("untagged: marked from the fourth packet on; the ECN bits stay")
for number in range(5):
    counted_udp(None, 1000, 2000, ecn=number & 3)
note("another port, another protocol, none: flows of their own")
counted_udp(None, 1000, 2001)
counted(None, TCP, tcp(A, B, 1000, 2000), (1000, 2000))
counted(None, ICMP, echo(8, 7), (0, 0))
note("a tenant that drops: two packets of a flow go out; another tenant's count is its own")
for number in range(4):
    counted_udp(5, 1000, 2000)
counted_udp(6, 1000, 2000)
note("the highest VLAN ID")
for number in range(3):
    counted_udp(4095, 1000, 2000)
note("a tenant that is not in the table: counted, never touched")
for number in range(3):
    counted_udp(6, 1000, 2000)

heavy = columns((A, B, UDP, 1000, 2000))
shared = {}
for port in range(3000, 60000):
    same = sum(one == other for one, other in zip(heavy, columns((A, B, UDP, port, 2000))))
    shared.setdefault(same, port)
note("a flow that shares one row's slot with the heavy one, and one that shares two: the third row knows better")
for same in (1, 2):
    assert counted_udp(5, shared[same], 2000) <= 2
note("a fragment is a flow without ports")
fragment = ipv4(A, B, UDP, udp(A, B, 1000, 2000, b"x" * 24), flags_offset=0x2000)
value = estimate(0, (A, B, UDP, 0, 0))
sent = ipv4(A, B, UDP, udp(A, B, 1000, 2000, b"x" * 24), flags_offset=0x2000, ttl=63)
lines.append(f"packet 0 {ethernet(PORT_MACS[0], A_MAC, fragment).hex()}")
lines.append(f"expect 1 {ethernet(B_MAC, PORT_MACS[1], sent).hex()}$")
note("to the kernel, and not counted: hop limit reached, options, ARP")
for packet in (ipv4(A, B, UDP, udp(A, B, 1000, 2000), ttl=1), ipv4(A, B, UDP, udp(A, B, 1000, 2000), options=b"\1\1\1\0")):
    to_kernel(ethernet(PORT_MACS[0], A_MAC, packet))
to_kernel(ethernet(PORT_MACS[0], A_MAC, bytes(28), ether_type=0x0806))
counted_udp(5, shared[2] + 1, 2000)

(HERE / "estimate.stf").write_text("\n".join(lines) + "\n")

# In windows of ten seconds. The clock begins anywhere, so a whole window later it is certainly
# another one.
WINDOW_S = 10
sketches.clear()
lines = ["# Every window's counts begin anew, tenant by tenant.", *HEAD]
lines.insert(3, f"# define: HEAVY_HITTER_WINDOW_S={WINDOW_S}")


def next_window():
    lines.append(f"clock {WINDOW_S}s")
    sketches.clear()


note("over the threshold in the first window: dropped, marked")
for number in range(4):
    counted_udp(5, 1000, 2000)
for number in range(5):
    counted_udp(None, 1000, 2000)
note("within the same window nothing begins anew")
lines.append("clock 1ms")
counted_udp(5, 1000, 2000)
note("in the next one the same flows are within, until they are over again; a tenant whose first packet comes late begins then")
next_window()
for number in range(4):
    counted_udp(5, 1000, 2000)
lines.append("clock 1ms")
for number in range(4):
    counted_udp(None, 1000, 2000)
note("many windows without a packet are as one")
for number in range(3):
    next_window()
for number in range(3):
    counted_udp(5, 1000, 2000)
(HERE / "windows.stf").write_text("\n".join(lines) + "\n")

# Sketches that only grow.
sketches.clear()
lines = ["# Without windows nothing begins anew.", *HEAD]
lines.insert(3, "# define: HEAVY_HITTER_WINDOW_S=0")
note("dropped from the third packet on, also a day later")
for number in range(3):
    counted_udp(5, 1000, 2000)
lines.append("clock 86400s")
counted_udp(5, 1000, 2000)
(HERE / "forever.stf").write_text("\n".join(lines) + "\n")

# Each switch's own sketches: the same to one switch's packets.
sketches.clear()
lines = ["# With sketches of its own for each switch, one switch's packets fare as without.", *HEAD]
lines.insert(3, "# define: HEAVY_HITTER_PER_SWITCH")
note("two tenants, dropped and marked over their thresholds")
for number in range(4):
    counted_udp(5, 1000, 2000)
for number in range(5):
    counted_udp(None, 1000, 2000)
(HERE / "per_switch.stf").write_text("\n".join(lines) + "\n")
