"""Packets for the apps' packet tests, built from scratch: every checksum is summed over the whole packet."""
import struct

TCP, UDP, ICMP = 6, 17, 1


def checksum(data):
    data = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address(text):
    return bytes(int(part) for part in text.split("."))


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


def pseudo(source, destination, protocol, length):
    return address(source) + address(destination) + struct.pack("!HH", protocol, length)


def tcp(source, destination, source_port, destination_port, payload=b"", flags=0x5018):
    segment = struct.pack("!HHIIHHHH", source_port, destination_port, 0x01020304, 0x05060708, flags, 0xFFFF, 0, 0) + payload
    value = checksum(pseudo(source, destination, TCP, len(segment)) + segment)
    return segment[:16] + struct.pack("!H", value) + segment[18:]


def udp(source, destination, source_port, destination_port, payload=b"", without_checksum=False):
    datagram = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload
    value = checksum(pseudo(source, destination, UDP, len(datagram)) + datagram) or 0xFFFF
    return datagram[:6] + struct.pack("!H", 0 if without_checksum else value) + datagram[8:]


def icmp(kind, code, rest, payload):
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


def echo(kind, identifier, sequence=1, payload=b"abcdefgh"):
    return icmp(kind, 0, struct.pack("!HH", identifier, sequence), payload)
