"""NetChain's client: keys that switches serve, and locks, elections and counters on them."""

from .aio import AsyncClient
from .client import Answer, Client, NetChainError, Outcome, Request
from .recipes import Counter, Election, Held, Lock, ReadLock, Semaphore, WriteLock

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "Counter",
    "Election",
    "Held",
    "Lock",
    "NetChainError",
    "Outcome",
    "ReadLock",
    "Request",
    "Semaphore",
    "WriteLock",
]
