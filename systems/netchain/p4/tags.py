"""Tags of NetChain's messages (systems/netchain/docs/design.md, "Tags"): SipHash-2-4 (Aumasson and Bernstein, 2012)."""
import struct

MASK = (1 << 64) - 1
KEY_ID_AT, TAG_AT = 6, 8


def rotate(word, bits):
    return (word << bits | word >> 64 - bits) & MASK


def siphash(key, data):
    low, high = struct.unpack("<QQ", key)
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (rotate(v[0], 32) + v[3]) & MASK
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    last = data[whole:].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data[:whole] + last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# The paper's example, appendix A.
assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


def client_tag(key, message):
    return siphash(key, message[:TAG_AT] + bytes(8) + message[TAG_AT + 8:])


def member_tag(secret, message, source, destination):
    """`source` and `destination`: the packet's addresses, four bytes each."""
    return siphash(secret, source + destination + message[:TAG_AT] + bytes(8) + message[TAG_AT + 8:])


def tagged(message, tag):
    return message[:TAG_AT] + struct.pack("!Q", tag) + message[TAG_AT + 8:]
