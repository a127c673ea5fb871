"""The client for asyncio: many requests at a time, in the loop's own thread."""

import asyncio
import ctypes
import os
from typing import AsyncIterator

from . import _native
from ._native import lib
from .client import (
    Answer, NetChainError, Outcome, Request, answer_of, begin_listing, open_native,
)


class AsyncClient:
    """A client for the loop that runs when it is made. A request whose task is cancelled may have
    happened, or may still happen. In a child of a fork all calls fail.
    """

    def __init__(self, file):
        self._loop = asyncio.get_running_loop()
        self._native, self._closing = open_native(file), None
        self._process = os.getpid()
        self._waiting = {}
        self._room = asyncio.Event()
        self._timer = self._soon = None
        self._loop.add_reader(lib.nc_fd(self._native), self._turn)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        """No more requests begin; waits for those under way, and closes the socket."""
        native, self._native = self._native, None
        if not native:
            return
        if os.getpid() == self._process:
            self._closing = native
            await asyncio.gather(*self._waiting.values(), return_exceptions=True)
            self._loop.remove_reader(lib.nc_fd(native))
            for handle in (self._timer, self._soon):
                if handle:
                    handle.cancel()
            self._closing = None
        lib.nc_close(native)

    def _turn(self):
        """Sends what waits, takes what came."""
        self._soon = None
        native = self._native or self._closing
        if not native:
            return
        outcome = lib.nc_turn(native)
        raw = _native.Answer()
        while lib.nc_take_answer(native, raw):
            future = self._waiting.pop(raw.ticket, None)
            if future and not future.done():
                future.set_result(_native.Answer.from_buffer_copy(raw))
        self._room.set()
        if outcome != Outcome.DONE:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(NetChainError(outcome))
            self._waiting.clear()
        if self._timer:
            self._timer.cancel()
        wait_us = lib.nc_wait_us(native)
        self._timer = None
        if wait_us >= 0:
            self._timer = self._loop.call_later(wait_us / 1e6, self._turn)

    async def ask(self, request: Request) -> Answer:
        """Does a request.

        Raises:
            NetChainError: the switches or the kernel refuse this client, or it is closed.
        """
        raw = await self._answer(lambda why: lib.nc_submit(self._native, request.raw, why))
        answer = answer_of(raw)
        if answer.outcome >= Outcome.DENIED:
            raise NetChainError(answer.outcome)
        return answer

    async def _answer(self, submit):
        """The library's answer to what `submit` begins; None: it has nothing to begin."""
        why = ctypes.c_uint32()
        while True:
            if not self._native:
                raise NetChainError(Outcome.SYSTEM, "the client is closed")
            ticket = submit(why)
            if ticket:
                break
            if why.value == Outcome.DONE:
                return None
            if why.value != Outcome.BUSY:
                raise NetChainError(why.value)
            self._room.clear()
            await self._room.wait()
        future = self._waiting[ticket] = self._loop.create_future()
        # All requests of this round of the loop go out together.
        if not self._soon:
            self._soon = self._loop.call_soon(self._turn)
        try:
            return await future
        except asyncio.CancelledError:
            native = self._native or self._closing
            if self._waiting.pop(ticket, None) and native:
                lib.nc_cancel(native, ticket)
            raise

    async def list(self, prefix=b"") -> AsyncIterator[bytes]:
        """The keys that begin with a prefix, as 16 bytes each: see `Client.list`.

        Raises:
            NetChainError: keys are missing, or the client is closed.
        """
        if not self._native:
            raise NetChainError(Outcome.SYSTEM, "the client is closed")
        listing, key = begin_listing(self._native, prefix), (ctypes.c_uint8 * 16)()
        try:
            while True:
                raw = await self._answer(
                    lambda why: lib.nc_list_submit(self._native, listing, why)
                )
                if raw is None:
                    return
                outcome = lib.nc_list_take(listing, raw)
                if outcome != Outcome.DONE:
                    raise NetChainError(outcome)
                while lib.nc_list_key(listing, key):
                    yield bytes(key)
        finally:
            lib.nc_list_end(listing)

    async def get(self, key, **more) -> Answer:
        """The key's value."""
        return await self.ask(Request.get(key, **more))

    async def put(self, key, value, **more) -> Answer:
        """Writes a value."""
        return await self.ask(Request.put(key, value, **more))

    async def insert(self, key, value, **more) -> Answer:
        """Writes a value if the key has none."""
        return await self.ask(Request.insert(key, value, **more))

    async def compare_and_set(self, key, version, value, **more) -> Answer:
        """Writes a value if the key's version is this one (0: it was never written)."""
        return await self.ask(Request.compare_and_set(key, version, value, **more))

    async def add(self, key, delta=1, **more) -> Answer:
        """Adds to the number in the value's first eight bytes."""
        return await self.ask(Request.add(key, delta, **more))

    async def delete(self, key, version=0, **more) -> Answer:
        """Removes the value, if the key's version is this one; 0: in any case."""
        return await self.ask(Request.delete(key, version, **more))
