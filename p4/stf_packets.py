"""Packets for the apps' packet tests, built from scratch.

Every checksum is summed over the whole packet.
"""
import ipaddress
import struct

TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
# A TCP header's word of length and flags, of a header without options. ACK is the flag alone.
FIN, SYN, RST, ACK = 0x5001, 0x5002, 0x5004, 0x5010


class Case:
    """One STF file: written to `directory`, with the counters of the control `ingress`."""

    def __init__(self, directory, ingress, name, about, setup):
        self.path, self.ingress = directory / f"{name}.stf", ingress
        self.lines = [f"# {line}" for line in about.strip().split("\n")] + ["# Written by generate_stf.py.", setup.strip("\n")]

    def note(self, text):
        self.lines += ["", f"# {text}"]

    def packet(self, port, frame):
        self.lines.append(f"packet {port} {frame.hex()}")

    def expect(self, port, frame):
        self.lines.append(f"expect {port} {frame.hex()}$")

    def counter(self, name, value):
        self.lines.append(f"check_counter {self.ingress}.{name}(0) packets == {value}")

    def to_host(self, port, frame):
        """The packet goes up to the kernel as it came."""
        self.packet(port, frame)
        self.expect("host", frame)

    def by_kernel(self, packet, ether_type="0800"):
        """The IP packet leaves by KERNEL_PORT: the kernel sees to the link addresses."""
        self.lines.append(f"expect 510 {'*' * 24}{ether_type}{packet.hex()}$")

    def dropped_by_gateway(self, reason, times):
        """How often gateway_check() said no so far, for this reason."""
        self.lines.append(f"check_gateway {reason} == {times}")

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")


def checksum(data):
    data = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address(text):
    """IPv4 or IPv6."""
    return ipaddress.ip_address(text).packed


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def ethernet(destination, source, payload, ether_type=0x0800):
    return mac(destination) + mac(source) + struct.pack("!H", ether_type) + payload


def ipv4(source, destination, protocol, payload, ttl=64, options=b"", flags_offset=0x4000, tos=0, identification=0x1234, version=4,
         total_length=None):
    words = 5 + len(options) // 4
    header = struct.pack("!BBHHHBBH4s4s", version << 4 | words, tos, total_length or words * 4 + len(payload), identification, flags_offset, ttl,
                         protocol, 0, address(source), address(destination)) + options
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def ipv6(source, destination, next_header, payload, hop_limit=64, traffic_class=0, flow_label=0x12345, version=6, payload_length=None):
    return struct.pack("!IHBB", version << 28 | traffic_class << 20 | flow_label, len(payload) if payload_length is None else payload_length,
                       next_header, hop_limit) + address(source) + address(destination) + payload


def pseudo(source, destination, protocol, length):
    """Of either family: with zeros between, both sum up to the same (RFC 8200, 8.1)."""
    return address(source) + address(destination) + struct.pack("!HH", protocol, length)


def tcp(source, destination, source_port, destination_port, payload=b"", flags=0x5018):
    segment = struct.pack("!HHIIHHHH", source_port, destination_port, 0x01020304, 0x05060708, flags, 0xFFFF, 0, 0) + payload
    value = checksum(pseudo(source, destination, TCP, len(segment)) + segment)
    return segment[:16] + struct.pack("!H", value) + segment[18:]


def tcp_with_mss(source, destination, source_port, destination_port, most):
    """A SYN with the maximum segment size as its only option."""
    return tcp(source, destination, source_port, destination_port, struct.pack("!BBH", 2, 4, most), 0x6002)


def udp(source, destination, source_port, destination_port, payload=b"", without_checksum=False):
    datagram = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload
    value = checksum(pseudo(source, destination, UDP, len(datagram)) + datagram) or 0xFFFF
    return datagram[:6] + struct.pack("!H", 0 if without_checksum else value) + datagram[8:]


def icmp(kind, code, rest, payload):
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


def echo(kind, identifier, sequence=1, payload=b"abcdefgh"):
    return icmp(kind, 0, struct.pack("!HH", identifier, sequence), payload)


def fragmentation_needed(router, about, mtu):
    """A router's answer to the sender of an IPv4 packet that must not be fragmented (RFC 1191)."""
    sender = str(ipaddress.ip_address(about[12:16]))
    return ipv4(router, sender, ICMP, icmp(3, 4, struct.pack("!HH", 0, mtu), about[:548]), tos=0xC0, identification=0)


def time_exceeded(router, about):
    """A router's answer to the sender of an IPv4 packet whose hop limit is reached (RFC 792)."""
    sender = str(ipaddress.ip_address(about[12:16]))
    return ipv4(router, sender, ICMP, icmp(11, 0, bytes(4), about[:548]), tos=0xC0, identification=0)


def packet_too_big(router, about, mtu):
    """The same of IPv6 (RFC 4443, 3.2)."""
    sender = str(ipaddress.ip_address(about[8:24]))
    message = icmp6(router, sender, 2, 0, struct.pack("!I", mtu), about[:1232])
    return ipv6(router, sender, ICMP6, message, traffic_class=0xC0, flow_label=0)


def with_bytes(packet, at, new):
    return packet[:at] + new + packet[at + len(new):]


def split(packet, at):
    """An IPv4 packet without options in two fragments; the second begins `at` bytes behind the header."""
    def part(payload, flags_offset):
        header = packet[:2] + struct.pack("!H", 20 + len(payload)) + packet[4:6] + struct.pack("!H", flags_offset) + packet[8:10]
        header += b"\0\0" + packet[12:20]
        return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload
    return part(packet[20:20 + at], 0x2000), part(packet[20 + at:], at // 8)


def icmp6(source, destination, kind, code, rest, payload):
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    value = checksum(pseudo(source, destination, ICMP6, len(message)) + message)
    return message[:2] + struct.pack("!H", value) + message[4:]


def echo6(source, destination, kind, identifier, sequence=1, payload=b"abcdefgh"):
    return icmp6(source, destination, kind, 0, struct.pack("!HH", identifier, sequence), payload)
