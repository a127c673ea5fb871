"""Requests, their outcomes, and the client that waits."""

import ctypes
import enum
import os
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional, Union

from . import _native
from ._native import lib

Name = Union[str, bytes]


class Outcome(enum.IntEnum):
    """What became of a request."""

    DONE = 0
    REFUSED = 1  # its condition did not hold
    UNKNOWN = 2  # it may have happened, or may still happen
    FULL = 3  # no slot for another key
    NO_CHAIN = 4  # not carried out: no switch answered
    LOST = 5  # all switches of the key's group were lost
    TOO_LONG = 6  # the value is longer than 128 bytes
    DENIED = 7  # the client's key may not do that
    TOO_MANY = 8  # the switch has no room for another client
    WRONG_RING = 9  # client and switches have different founding files
    WRONG_FORMAT = 10  # client and switches are of different versions
    BUSY = 11  # not begun: too many requests are under way
    FORKED = 12  # the client is the parent process's
    BAD_ARGUMENT = 13
    SYSTEM = 14  # the socket fails, or a file cannot be read
    NOT_OURS = 15  # the key has a value of another kind
    OTHERS = 16  # others held the lock for all of the patience


class NetChainError(Exception):
    """A request was not carried out. `outcome` says why; UNKNOWN may have happened."""

    def __init__(self, outcome: int, said: Optional[str] = None):
        super().__init__(said or _native.text(outcome))
        self.outcome = Outcome(outcome)


@dataclass(frozen=True)
class Answer:
    """What a request came to."""

    outcome: Outcome
    #: What the key has: its version (0: never written) and value (None: it has none).
    version: int = 0
    value: Optional[bytes] = None
    #: The version that the request itself made: a fencing token. None: nobody knows it.
    own: Optional[int] = None
    #: Version and value are later ones than the outcome's.
    moved: bool = False

    @property
    def done(self) -> bool:
        """It was carried out."""
        return self.outcome == Outcome.DONE

    @property
    def number(self) -> int:
        """The number in the value's first eight bytes, as `add` counts; 0 without a value."""
        return int.from_bytes((self.value or b"")[:8], "big")

    def or_raise(self) -> "Answer":
        """Itself if it was carried out.

        Raises:
            NetChainError: it was not, or nobody knows.
        """
        if not self.done:
            raise NetChainError(self.outcome)
        return self


def answer_of(raw: _native.Answer) -> Answer:
    """An answer of the library."""
    flags = raw.flags
    return Answer(
        Outcome(raw.outcome),
        raw.version,
        bytes(raw.value[: raw.length]) if flags & _native.HAS_VALUE else None,
        raw.own if flags & _native.HAS_OWN else None,
        bool(flags & _native.MOVED),
    )


def name_bytes(name: Name) -> bytes:
    """A name for the library: at most 16 bytes without a zero."""
    encoded = name.encode() if isinstance(name, str) else bytes(name)
    if not encoded or len(encoded) > 16 or 0 in encoded:
        raise ValueError(f"{name!r} has {len(encoded)} bytes; a name has 1 to 16, none of them zero")
    return encoded


class Request:
    """A request that has not begun. A key is a name, or 16 bytes."""

    def __init__(self, operation, key, value=None, operand=0, deadline=None):
        encoded = key.encode() if isinstance(key, str) else bytes(key)
        if len(encoded) > 16:
            raise ValueError(f"{key!r} has {len(encoded)} bytes; a key has 16")
        if value is not None and len(value) > 128:
            raise ValueError(f"{len(value)} bytes; a value has at most 128")
        self._value = None if value is None else bytes(value)
        self.raw = _native.Request(
            operation=operation,
            length=len(self._value or b""),
            operand=operand & (1 << 64) - 1,
            deadline_ms=0 if deadline is None else max(1, int(deadline * 1000)),
            key=(ctypes.c_uint8 * 16)(*encoded),
            value=self._value,
        )

    @classmethod
    def get(cls, key, **more) -> "Request":
        """The key's value."""
        return cls(1, key, **more)

    @classmethod
    def put(cls, key, value, **more) -> "Request":
        """Writes a value."""
        return cls(2, key, value, **more)

    @classmethod
    def insert(cls, key, value, **more) -> "Request":
        """Writes a value if the key has none."""
        return cls(3, key, value, **more)

    @classmethod
    def compare_and_set(cls, key, version, value, **more) -> "Request":
        """Writes a value if the key's version is this one (0: it was never written)."""
        return cls(4, key, value, version, **more)

    @classmethod
    def compare_owner(cls, key, owner, value, **more) -> "Request":
        """Writes a value if the first eight bytes of the key's value are these."""
        if len(owner) != 8:
            raise ValueError(f"{len(owner)} bytes; an owner has 8")
        return cls(5, key, value, int.from_bytes(owner, "big"), **more)

    @classmethod
    def add(cls, key, delta=1, **more) -> "Request":
        """Adds to the number in the value's first eight bytes, modulo 2^64."""
        return cls(6, key, None, delta, **more)

    @classmethod
    def delete(cls, key, version=0, **more) -> "Request":
        """Removes the value, if the key's version is this one; 0: in any case."""
        return cls(7, key, None, version, **more)


def begin_listing(native, prefix):
    """A listing of the library."""
    encoded = prefix.encode() if isinstance(prefix, str) else bytes(prefix)
    listing = lib.nc_list(native, encoded, len(encoded))
    if not listing:
        raise ValueError(f"{prefix!r} has {len(encoded)} bytes; a prefix has at most 16")
    return listing


def open_native(file):
    """Opens a client of the library."""
    error = ctypes.create_string_buffer(512)
    native = lib.nc_open(os.fsencode(file), error, len(error))
    if not native:
        raise NetChainError(Outcome.SYSTEM, error.value.decode(errors="replace"))
    return native


class Client:
    """A client for one thread. In a child of a fork it becomes another client.

    `file` is the configuration that `stateplane kv --help` shows.
    """

    def __init__(self, file):
        self.file = file
        self._native = open_native(file)

    def __getattr__(self, name):
        # (Of attributes that are not there.)
        raise ValueError("the client is closed") if name == "_native" else AttributeError(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        """Closes the socket."""
        native = self.__dict__.pop("_native", None)
        if native:
            lib.nc_close(native)

    def ask(self, request: Request) -> Answer:
        """Does a request, and waits.

        Raises:
            NetChainError: the switches or the kernel refuse this client.
        """
        raw = _native.Answer()
        if lib.nc_ask(self._native, request.raw, raw) == Outcome.FORKED:
            self.close()
            self._native = open_native(self.file)
            lib.nc_ask(self._native, request.raw, raw)
        if raw.outcome >= Outcome.DENIED:
            raise NetChainError(raw.outcome)
        return answer_of(raw)

    def ask_all(self, requests: Iterable[Request]) -> List[Answer]:
        """Does requests at the same time; answers in their order.

        Raises:
            NetChainError: the kernel refuses this client.
        """
        requests = list(requests)
        answers: List[Optional[Answer]] = [None] * len(requests)
        places, raw, why, begun = {}, _native.Answer(), ctypes.c_uint32(), 0
        while None in answers[begun:] or places:
            while begun < len(requests):
                ticket = lib.nc_submit(self._native, requests[begun].raw, why)
                if not ticket:
                    break
                places[ticket] = begun
                begun += 1
            if begun < len(requests) and not (why.value == Outcome.BUSY and places):
                raise NetChainError(why.value)
            result = lib.nc_next(self._native, -1, raw)
            if result != 1:
                raise NetChainError(raw.outcome)
            if raw.ticket in places:
                answers[places.pop(raw.ticket)] = answer_of(raw)
        return answers

    def list(self, prefix=b"") -> Iterator[bytes]:
        """The keys that begin with a prefix, as 16 bytes each (names end with zeros), in any order.

        It is no snapshot: a key that has a value from the begin to the end comes once; one that is
        made or deleted meanwhile comes or not.

        Raises:
            NetChainError: keys are missing; LOST and NO_CHAIN: those of one group or more.
        """
        listing, why = begin_listing(self._native, prefix), ctypes.c_uint32()
        key, found = (ctypes.c_uint8 * 16)(), 1
        try:
            while found == 1:
                found = lib.nc_list_next(self._native, listing, key, why)
                if found == 1:
                    yield bytes(key)
        finally:
            lib.nc_list_end(listing)
        if found < 0:
            raise NetChainError(why.value)

    def get(self, key, **more) -> Answer:
        """The key's value."""
        return self.ask(Request.get(key, **more))

    def put(self, key, value, **more) -> Answer:
        """Writes a value."""
        return self.ask(Request.put(key, value, **more))

    def insert(self, key, value, **more) -> Answer:
        """Writes a value if the key has none."""
        return self.ask(Request.insert(key, value, **more))

    def compare_and_set(self, key, version, value, **more) -> Answer:
        """Writes a value if the key's version is this one (0: it was never written)."""
        return self.ask(Request.compare_and_set(key, version, value, **more))

    def add(self, key, delta=1, **more) -> Answer:
        """Adds to the number in the value's first eight bytes."""
        return self.ask(Request.add(key, delta, **more))

    def delete(self, key, version=0, **more) -> Answer:
        """Removes the value, if the key's version is this one; 0: in any case."""
        return self.ask(Request.delete(key, version, **more))
