"""The client's library (systems/netchain/client-c), by ctypes.

(ctypes, as it is in Python: cffi would have to be installed, and a client in Python alone would
take 100 times as long for each message's tag.)
"""

import ctypes
import pathlib
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64

HAS_VALUE, HAS_OWN, MOVED = 1, 2, 4


class Request(Structure):
    """nc_request."""

    _fields_ = [
        ("operation", c_uint32),
        ("length", c_uint32),
        ("operand", c_uint64),
        ("deadline_ms", c_uint64),
        ("key", c_uint8 * 16),
        ("value", c_char_p),
    ]


class Answer(Structure):
    """nc_answer."""

    _fields_ = [
        ("ticket", c_uint64),
        ("own", c_uint64),
        ("version", c_uint64),
        ("outcome", c_uint32),
        ("flags", c_uint32),
        ("length", c_uint32),
        ("value", c_uint8 * 128),
    ]


class Client(Structure):
    """nc_client."""


class Listing(Structure):
    """nc_listing."""


class Seat(Structure):
    """nc_seat."""


class Leader(Structure):
    """nc_leader."""


CLIENT, SEAT, LEADER = POINTER(Client), POINTER(Seat), POINTER(Leader)
LISTING, KEY = POINTER(Listing), POINTER(c_uint8 * 16)
ANSWER, OUTCOME = POINTER(Answer), POINTER(c_uint32)

lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libnetchain.so")))

for name, result, arguments in [
    ("nc_open", CLIENT, [c_char_p, c_char_p, c_size_t]),
    ("nc_close", None, [CLIENT]),
    ("nc_text", c_char_p, [c_uint32]),
    ("nc_ask", c_uint32, [CLIENT, POINTER(Request), ANSWER]),
    ("nc_submit", c_uint64, [CLIENT, POINTER(Request), OUTCOME]),
    ("nc_next", c_int, [CLIENT, c_int64, ANSWER]),
    ("nc_cancel", None, [CLIENT, c_uint64]),
    ("nc_fd", c_int, [CLIENT]),
    ("nc_turn", c_uint32, [CLIENT]),
    ("nc_take_answer", c_int, [CLIENT, ANSWER]),
    ("nc_wait_us", c_int64, [CLIENT]),
    ("nc_list", LISTING, [CLIENT, c_char_p, c_size_t]),
    ("nc_list_next", c_int, [CLIENT, LISTING, KEY, OUTCOME]),
    ("nc_list_submit", c_uint64, [CLIENT, LISTING, OUTCOME]),
    ("nc_list_take", c_uint32, [LISTING, ANSWER]),
    ("nc_list_key", c_int, [LISTING, KEY]),
    ("nc_list_end", None, [LISTING]),
    ("nc_lock_take", SEAT, [CLIENT, c_char_p, c_uint64, c_int64, OUTCOME]),
    ("nc_rwlock_take", SEAT, [CLIENT, c_char_p, c_int, c_uint64, c_int64, OUTCOME]),
    ("nc_semaphore_take", SEAT, [CLIENT, c_char_p, c_uint8, c_uint64, c_int64, OUTCOME]),
    ("nc_seat_token", c_uint64, [SEAT]),
    ("nc_seat_left_us", c_uint64, [SEAT]),
    ("nc_seat_refresh", c_int, [SEAT]),
    ("nc_seat_release", None, [SEAT]),
    ("nc_campaign", LEADER, [CLIENT, c_char_p, c_char_p, c_size_t, c_uint64, c_int64, OUTCOME]),
    ("nc_leader_token", c_uint64, [LEADER]),
    ("nc_leader_left_us", c_uint64, [LEADER]),
    ("nc_leader_refresh", c_int, [LEADER]),
    ("nc_leader_resign", None, [LEADER]),
]:
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments


def text(outcome):
    """An outcome in words."""
    return lib.nc_text(outcome).decode()
