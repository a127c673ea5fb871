"""Frames of the test programs tally, eventual, probe, own, last and pairs: a UDP datagram whose
payload says what to do. The switch answers with what it found."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "p4"))
from stf_packets import UDP, ethernet, ipv4, udp  # noqa: E402

MACS = ["02:00:00:00:00:05", "02:00:00:00:00:06"]
ADDRESSES = ["10.0.0.5", "10.0.0.6"]


def frame(datagram):
    return ethernet(MACS[1], MACS[0], ipv4(ADDRESSES[0], ADDRESSES[1], UDP, datagram))


def asks(payload):
    datagram = udp(ADDRESSES[0], ADDRESSES[1], 1000, 4000, payload)
    # The programs do not keep the checksum of what they change.
    return frame(datagram[:6] + b"\0\0" + datagram[8:])


def back(frame):
    """To its sender, with addresses and ports the other way round."""
    return (frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
            + frame[38:])


def other():
    """To another port: the programs do not know it."""
    return frame(udp(ADDRESSES[0], ADDRESSES[1], 1000, 4001, b"other"))
