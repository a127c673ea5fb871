"""Locks, elections and counters, as the crate netchain-recipes has them.

`with` keeps the lease by a thread; `token` is the fencing token. Who holds something past its lease
holds it no more: `held` says so, and what is protected should compare tokens.
"""

import asyncio
import ctypes
import threading

from . import _native
from ._native import lib
from .client import NetChainError, Outcome, Request, name_bytes, open_native


class Held:
    """Something with a lease. Its methods may be called by any thread."""

    def __init__(self, native, kind):
        self._native, self._lock = native, threading.Lock()
        self._token, self._left, self._refresh, self._release = (
            getattr(lib, f"nc_{kind}") for kind in kind
        )
        self.token = self._token(native)
        self._stop, self._keeper = threading.Event(), None

    @property
    def left(self) -> float:
        """So many seconds it is held without a refresh."""
        with self._lock:
            return self._left(self._native) / 1e6 if self._native else 0.0

    @property
    def held(self) -> bool:
        """It is held, as far as its own clock can tell."""
        return self.left > 0

    def refresh(self) -> bool:
        """Renews the lease. False: it is lost."""
        with self._lock:
            return bool(self._native and self._refresh(self._native))

    def keep(self, lease: float):
        """Refreshes by a thread, until it is released or lost."""

        def run():
            while not self._stop.wait(lease / 3) and self.refresh():
                pass

        self._keeper = threading.Thread(target=run, daemon=True)
        self._keeper.start()

    def release(self):
        """Gives it back: others need not wait for the lease's end."""
        self._stop.set()
        if self._keeper:
            self._keeper.join()
        with self._lock:
            native, self._native = self._native, None
            if native:
                self._release(native)


SEAT = ("seat_token", "seat_left_us", "seat_refresh", "seat_release")
LEADER = ("leader_token", "leader_left_us", "leader_refresh", "leader_resign")


class Recipe:
    """What locks and elections have in common. `file`: the client's configuration."""

    _kind = SEAT

    def __init__(self, file, name, lease: float = 5.0):
        self._file, self._name, self.lease = file, name_bytes(name), lease
        self._held = []

    def _native_take(self, client, lease_ms, patience_ms, why):
        raise NotImplementedError

    def _take(self, patience):
        why = ctypes.c_uint32()
        patience_ms = -1 if patience is None else max(0, int(patience * 1000))
        client = open_native(self._file)
        try:
            native = self._native_take(client, int(self.lease * 1000), patience_ms, why)
        finally:
            lib.nc_close(client)
        if not native:
            if why.value == Outcome.OTHERS:
                return None
            raise NetChainError(why.value)
        return Held(native, self._kind)

    def take(self, patience=None):
        """Waits for it, for at most about `patience` seconds. None: others had it for so long.

        It waits in a thread, so Ctrl-C is heard; who is interrupted leaves a place that others
        judge: a lease.

        Raises:
            NetChainError: it cannot be asked for.
        """
        result = []

        def run():
            try:
                result.append(self._take(patience))
            except BaseException as error:  # (for the caller's thread)
                result.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.5)
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    async def take_async(self, patience=None):
        """`take` for asyncio: it waits in a thread of the loop's executor."""
        return await asyncio.to_thread(self._take, patience)

    def __enter__(self) -> Held:
        held = self.take()
        held.keep(self.lease)
        self._held.append(held)
        return held

    def __exit__(self, *_):
        self._held.pop().release()

    async def __aenter__(self) -> Held:
        held = await self.take_async()
        held.keep(self.lease)
        self._held.append(held)
        return held

    async def __aexit__(self, *_):
        await asyncio.to_thread(self._held.pop().release)


class Lock(Recipe):
    """An exclusive lock with a fair queue. All its users must have the same lease."""

    def _native_take(self, client, lease_ms, patience_ms, why):
        return lib.nc_lock_take(client, self._name, lease_ms, patience_ms, why)


class ReadLock(Recipe):
    """A reader's share of a reader-writer lock."""

    def _native_take(self, client, lease_ms, patience_ms, why):
        return lib.nc_rwlock_take(client, self._name, 0, lease_ms, patience_ms, why)


class WriteLock(Recipe):
    """A reader-writer lock for a writer."""

    def _native_take(self, client, lease_ms, patience_ms, why):
        return lib.nc_rwlock_take(client, self._name, 1, lease_ms, patience_ms, why)


class Semaphore(Recipe):
    """A semaphore with 1 to 15 permits."""

    def __init__(self, file, name, permits: int, lease: float = 5.0):
        super().__init__(file, name, lease)
        self._permits = permits

    def _native_take(self, client, lease_ms, patience_ms, why):
        if not 1 <= self._permits <= 15:
            raise ValueError(f"{self._permits} permits; write 1 to 15")
        return lib.nc_semaphore_take(client, self._name, self._permits, lease_ms, patience_ms, why)


class Election(Recipe):
    """Leader election. `told`: at most 112 bytes, for all to see."""

    _kind = LEADER

    def __init__(self, file, name, told: bytes = b"", lease: float = 5.0):
        super().__init__(file, name, lease)
        self._told = bytes(told)

    def _native_take(self, client, lease_ms, patience_ms, why):
        told = self._told
        return lib.nc_campaign(client, self._name, told, len(told), lease_ms, patience_ms, why)


class Counter:
    """A counter over a client: `Client`, or `AsyncClient` with the methods that end in _async."""

    def __init__(self, client, name):
        self._client, self._name = client, name_bytes(name)

    def add(self, delta: int = 1) -> int:
        """Adds once; the number that the counter has then.

        Raises:
            NetChainError: with outcome UNKNOWN it may have been added.
        """
        return self._client.ask(Request.add(self._name, delta)).or_raise().number

    def get(self) -> int:
        """The number.

        Raises:
            NetChainError: no switch answers.
        """
        return self._client.ask(Request.get(self._name)).or_raise().number

    async def add_async(self, delta: int = 1) -> int:
        """`add` for asyncio."""
        return (await self._client.ask(Request.add(self._name, delta))).or_raise().number

    async def get_async(self) -> int:
        """`get` for asyncio."""
        return (await self._client.ask(Request.get(self._name))).or_raise().number
