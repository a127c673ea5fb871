#!/usr/bin/env python3
"""Writes the .stf files beside it.

They say what each program must do, worked out independently of the compiler.
"""
import os
import random
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
LINES = []


def line(text=""):
    LINES.append(text)


def packet(port, data):
    line(f"packet {port} {data.hex()}")


def expect(port, data):
    line(f"expect {port} {data.hex()}$")


def write(name, about):
    with open(os.path.join(HERE, name + ".stf"), "w") as out:
        out.write(f"# {about}\n# Written by generate_stf.py.\n" + "\n".join(LINES) + "\n")
    LINES.clear()


def pack(fields):
    """[(value, width)] to bytes."""
    number, bits = 0, 0
    for value, width in fields:
        number = number << width | value & (1 << width) - 1
        bits += width
    assert bits % 8 == 0, bits
    return number.to_bytes(bits // 8, "big")


def sums(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def csum(data):
    return ~sums(data) & 0xFFFF


def alignment():
    widths = [3, 13, 4, 20, 48, 128, 1, 7, 33, 31, 12, 64, 4, 9, 55]
    rng = random.Random(1)
    cases = [[0] * 15, [(1 << w) - 1 for w in widths]]
    cases += [[rng.getrandbits(w) for w in widths] for _ in range(6)]
    for values in cases:
        wide = rng.getrandbits(160)
        tail = rng.randbytes(5)
        packet(0, pack(list(zip(values, widths)) + [(wide, 160), (0x5555, 16)]) + tail)
        changed = [(v + 1, w) for v, w in zip(values, widths)]
        expect(1, pack(changed + [(wide, 160), (wide >> 16, 16)]) + tail)
    write("alignment", "Each field counts up by one and wraps at its width.")


def signed(value, width):
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def clamp(value, low, high):
    return max(low, min(high, value))


def arithmetic():
    rng = random.Random(2)
    cases = [(0, 0, 0, 0, 0, 0), (0xFFFF, 1, 127, 1, 2**64 - 1, 2**64 - 1), (1, 0xFFFF, -128, 127, 1, 2**63),
             (0x1234, 4, -128, 1, 5, 7), (0x8001, 16, -1, -1, 3, 2**64 - 1), (5, 31, 100, 100, 2**63, 2), (7, 127, -100, 100, 1, 1)]
    cases += [(rng.getrandbits(16), rng.getrandbits(16), rng.randint(-128, 127), rng.randint(-128, 127), rng.getrandbits(64),
               rng.getrandbits(64)) for _ in range(12)]
    for a, b, sa, sb, wa, wb in cases:
        given = pack([(a, 16), (b, 16), (sa, 8), (sb, 8), (wa, 64), (wb, 64)])
        shift, wide_shift = b & 31, b & 127
        bits = [a < b, a <= b, a > b, a >= b, sa < sb, sa >= sb, a == b, a != b]
        compare = int("".join("1" if bit else "0" for bit in bits), 2)
        result = [(a + b, 16), (a - b, 16), (a * b, 16), (a // 8, 16), (a % 8, 16), (min(a + b, 0xFFFF), 16), (max(a - b, 0), 16),
                  (a << shift, 16), (a >> shift, 16), (-a, 16), (~a, 16), (sa >> 2, 8), (clamp(sa + sb, -128, 127), 8),
                  (clamp(sa - sb, -128, 127), 8), (-sa, 8), (compare, 8), (a << 16 | b, 32), (a >> 4, 8), (b, 24), (sa, 16),
                  (wa * wb, 128), (wa << wide_shift, 128), ((wa << 64 | wb) + 1, 128), (a if a < b else b, 16),
                  (a & ~0xFF0 | (b & 0xFF) << 4, 16), ((a ^ b) | (a & b), 16), ((a & 0xFF) // 5, 8)]
        tail = b"tail"
        packet(0, given + tail)
        expect(1, pack(result) + given + tail)
    write("arithmetic", "Operators against Python's integers.")


def stacks():
    ethernet = bytes.fromhex("0200000000010200000000028847")
    label = lambda number, bottom, ttl=10, cls=0: pack([(number, 20), (cls, 3), (bottom, 1), (ttl, 8)])
    payload = b"payload behind the labels"
    go = lambda before, port, after: (packet(0, ethernet + b"".join(before) + payload), expect(port, ethernet + b"".join(after) + payload))
    line("# TTL of the first label, written in place")
    for depth in range(1, 5):
        rest = [label(100 + i, i == depth - 1) for i in range(1, depth)]
        go([label(100, depth == 1)] + rest, 1, [label(100, depth == 1, 9)] + rest)
    line("# pop")
    go([label(1, 0), label(5, 1)], 1, [label(5, 1)])
    go([label(1, 1)], 1, [])
    line("# push")
    go([label(2, 1)], 1, [label(99, 0, 64, 5), label(2, 1)])
    go([label(2, 0), label(3, 1)], 1, [label(99, 0, 64, 5), label(2, 0), label(3, 1)])
    line("# push onto a full stack loses the last one")
    go([label(2, 0), label(3, 0), label(4, 0), label(5, 1)], 1, [label(99, 0, 64, 5), label(2, 0), label(3, 0), label(4, 0)])
    line("# five labels: error.StackOutOfBounds; four were extracted and leave as they are")
    go([label(7, 0)] * 4 + [label(8, 1)], 2, [label(7, 0)] * 4 + [label(8, 1)])
    line("# cut short: error.PacketTooShort")
    packet(0, ethernet + label(7, 0) + b"\1\2")
    expect(3, ethernet + label(7, 0) + b"\1\2")
    line("# no labels")
    packet(0, ethernet[:12] + b"\x08\x00" + payload)
    expect(1, ethernet[:12] + b"\x08\x00" + payload)
    write("stacks", "An MPLS-like label stack.")


def tables():
    head = lambda k32, k16, k8: pack([(k32, 32), (k16, 16), (k8, 8)])

    def go(k32, k16, k8, exact=0, lpm=0xEE, ternary=0, mixed=0, const_exact=0xDD, const_lpm=1, const_ternary=0, keyless=7, run=3, wide=0):
        packet(0, head(k32, k16, k8) + bytes(11) + b"rest")
        result = [exact, lpm, ternary, mixed, const_exact, const_lpm, const_ternary, keyless, run]
        expect(1, head(k32, k16, k8) + bytes(result) + wide.to_bytes(2, "big") + b"rest")

    line("# nothing matches; defaults and const entries only")
    go(0, 0, 0)
    go(0x0A010203, 0, 1, const_exact=11, const_lpm=16)
    go(0x0A020203, 0, 2, const_exact=22, const_lpm=8)
    go(0x0B000000, 0x1234, 15, const_ternary=1)
    go(0x0B000000, 0x1234, 21, const_ternary=2)
    go(0x0B000000, 0x1234, 20, const_ternary=1)
    go(0x0B000000, 0x9999, 200, const_ternary=3)
    go(0x0B000000, 0x9999, 199)
    line("# exact")
    line("add I.exact_table hdr.data.k32:0x01020304 hdr.data.k8:50 I.one()")
    line("add I.exact_table hdr.data.k32:0x01020304 hdr.data.k8:51 I.two()")
    go(0x01020304, 0, 50, exact=1, run=1)
    go(0x01020304, 0, 51, exact=1, run=2)
    go(0x01020304, 0, 52)
    line("# lpm beside exact")
    line("add I.lpm_table hdr.data.k32:0xc0000000/8 hdr.data.k16:77 I.set_lpm(v:1)")
    line("add I.lpm_table hdr.data.k32:0xc0a80000/16 hdr.data.k16:77 I.set_lpm(v:2)")
    line("add I.lpm_table hdr.data.k32:0xc0a80101/32 hdr.data.k16:78 I.set_lpm(v:3)")
    line("setdefault I.lpm_table I.set_lpm(v:0x44)")
    go(0xC0010101, 77, 0, lpm=1)
    go(0xC0A80101, 77, 0, lpm=2)
    go(0xC0A80101, 78, 0, lpm=3)
    go(0xC0A80102, 78, 0, lpm=0x44)
    line("# ternary with priorities")
    line("add I.ternary_table 10 hdr.data.k32:0xd0000000&&&0xff000000 hdr.data.k16:0&&&0 I.set_ternary(v:1)")
    line("add I.ternary_table 30 hdr.data.k32:0xd0010000&&&0xffff0000 hdr.data.k16:0&&&0 I.set_ternary(v:2)")
    line("add I.ternary_table 20 hdr.data.k32:0&&&0 hdr.data.k16:0x0042&&&0x00ff I.set_ternary(v:3)")
    line("add I.ternary_table 40 hdr.data.k32:0xd0010203&&&0xffffffff hdr.data.k16:0x4242&&&0xffff I.set_ternary(v:4)")
    go(0xD0220000, 0, 0, lpm=0x44, ternary=1)
    go(0xD0010000, 0x42, 0, lpm=0x44, ternary=2)
    go(0xD0220000, 0x42, 0, lpm=0x44, ternary=3)
    go(0xD0010203, 0x4242, 0, lpm=0x44, ternary=4)
    go(0xD1010203, 0x4343, 0, lpm=0x44)
    line("# exact, ternary and lpm in one key")
    line("add I.mixed_table 10 hdr.data.k8:9 hdr.data.k16:0&&&0 hdr.data.k32:0xe0000000/4 I.set_mixed(v:1)")
    line("add I.mixed_table 20 hdr.data.k8:9 hdr.data.k16:5&&&0xf hdr.data.k32:0xe1000000/8 I.set_mixed(v:2)")
    go(0xE0000000, 5, 9, lpm=0x44, mixed=1)
    go(0xE1000000, 5, 9, lpm=0x44, mixed=2)
    go(0xE1000000, 6, 9, lpm=0x44, mixed=1)
    go(0xE1000000, 5, 8, lpm=0x44)
    line("# another default, in a map: keyless tables too")
    line("setdefault I.keyless_table I.set_keyless(v:0x70)")
    line("setdefault I.const_exact_table I.set_const_exact(v:0x71)")
    go(0, 0, 0, lpm=0x44, keyless=0x70, const_exact=0x71)
    line("# a parameter of 128 bits")
    line("add I.wide_table hdr.data.k8:61 I.set_wide(v:0x12340000000000000000000000000000, low:1)")
    go(0, 0, 61, lpm=0x44, keyless=0x70, const_exact=0x71, wide=0x1235)
    write("tables", "Entries, priorities, defaults.")


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def hash_():
    rng = random.Random(3)
    for data in [b"123456789", bytes(9), b"\xff" * 9] + [rng.randbytes(9) for _ in range(5)]:
        xor = 0
        for i in range(0, 10, 2):
            xor ^= int.from_bytes((data + b"\0")[i:i + 2], "big")
        crc32 = zlib.crc32(data)
        result = struct.pack(">IHHHQHHI", crc32, crc16(data), csum(data), xor, int.from_bytes(data[:8], "big"), 1000 + crc32 % 100, 77,
                             zlib.crc32(data[:5]))
        packet(0, data + b"payload")
        expect(1, data + result + b"payload")
    write("hash", "Check values: crc32 cbf43926, crc16 bb3d.")


def checksum():
    ethernet = bytes.fromhex("0200000000010200000000020800")
    rng = random.Random(4)

    def ipv4(options, source, ttl, protocol, length):
        words = 5 + len(options) // 4
        head = struct.pack(">BBHHHBBHII", 0x40 | words, 0, 4 * words + length, 7, 0x4000, ttl, protocol, 0, source, 0x0A000002) + options
        return head[:10] + struct.pack(">H", csum(head)) + head[12:]

    for options, size in [(b"", 0), (b"", 1), (b"", 7), (b"\1\1\1\0", 16), (rng.randbytes(40), 33), (rng.randbytes(12), 1300)]:
        payload = rng.randbytes(size)
        udp = lambda check: struct.pack(">HHHH", 1000, 2000, 8 + size, check)
        packet(0, ethernet + ipv4(options, 0xC0A80101, 64, 17, 8 + size) + udp(0xDEAD) + payload)
        pseudo = struct.pack(">IIBBH", 0x0A0B0C0D, 0x0A000002, 0, 17, 8 + size)
        check = csum(pseudo + udp(0)[:6] + b"\0\0" + payload)
        expect(1, ethernet + ipv4(options, 0x0A0B0C0D, 63, 17, 8 + size) + udp(check) + payload)
    line("# not UDP")
    packet(0, ethernet + ipv4(b"", 1, 9, 6, 3) + b"abc")
    expect(1, ethernet + ipv4(b"", 0x0A0B0C0D, 8, 6, 3) + b"abc")
    line("# a wrong checksum is noticed, and made right, as in bmv2")
    wrong = bytearray(ipv4(b"", 1, 9, 6, 3))
    wrong[4] ^= 1
    right = bytearray(wrong)
    right[10:12] = b"\0\0"
    right[10:12] = struct.pack(">H", csum(bytes(right)))
    packet(0, ethernet + wrong + b"abc")
    expect(2, ethernet + right + b"abc")
    line("# options cut short: the header is not extracted")
    packet(0, ethernet + b"\x4f" + bytes(30))
    expect(3, ethernet + b"\x4f" + bytes(30))
    write("checksum", "IPv4 with options and UDP.")


def flow_control():
    pad = bytes(10)
    data = lambda op, trace, value: struct.pack(">BBH", op, trace, value) + pad
    go = lambda op, trace, port=1, value=0: (packet(0, data(op, 0, 0x1111)), expect(port, data(op, trace, value)))
    line("# exit in an action, return, return in a nested control")
    go(1, 1 | 128)
    go(2, 128)
    go(3, 4 | 32 | 128)
    line("# drop in ingress")
    packet(0, data(4, 0, 0))
    line("no_packet")
    go(5, 8 | 16 | 128)
    go(6, 8 | 16 | 128)
    line("# a register counts up by 3")
    go(7, 8 | 32 | 128)
    go(7, 8 | 32 | 128, value=3)
    line("check_register I.seen(2) == 6")
    line("# out of range: reads 0, writes nothing")
    go(8, 8 | 32 | 128)
    line("# drop in egress")
    packet(0, data(9, 0, 0))
    line("no_packet")
    go(10, 8 | 32 | 128, value=1)
    line("check_counter I.packets(1) packets == 1")
    line("check_counter I.packets(1) bytes == 14")
    line("# verify: the error of the program, and select without a match")
    go(0xFF, 128, port=4)
    go(0x80, 128, port=5)
    line("# reject: ingress runs all the same")
    go(0xFE, 8 | 32 | 128)
    write("flow_control", "Paths through the pipeline.")


for make in (alignment, arithmetic, stacks, tables, hash_, checksum, flow_control):
    make()
