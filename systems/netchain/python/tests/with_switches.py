"""What the package does with real switches: python with_switches.py kv.toml.

tools/cli/tests/lab_clients.rs runs it.
"""

import asyncio
import os
import sys
import time
import unittest

from netchain import (
    AsyncClient, Client, Counter, Election, Lock, NetChainError, Outcome, ReadLock, Request,
    Semaphore, WriteLock,
)

FILE = ""


class WithSwitches(unittest.TestCase):
    def test_outcomes(self):
        with Client(FILE) as client:
            first = client.insert("py", b"one")
            self.assertEqual((first.outcome, first.value), (Outcome.DONE, b"one"))
            self.assertEqual(first.own, first.version)
            second = client.insert("py", b"two")
            self.assertEqual((second.outcome, second.version), (Outcome.REFUSED, first.version))
            third = client.compare_and_set("py", first.version, b"\x00" * 128)
            self.assertEqual(len(third.value), 128)
            gone = client.delete("py").or_raise()
            self.assertIsNone(gone.value)
            self.assertIsNone(client.get("py").value)
            with self.assertRaises(NetChainError) as raised:
                second.or_raise()
            self.assertEqual(raised.exception.outcome, Outcome.REFUSED)
            with self.assertRaises(ValueError):
                client.get("seventeen-letters")
            with self.assertRaises(ValueError):
                client.put("py", b"x" * 129)
            client.put("py-owned", b"owner--1" + b"first").or_raise()
            ask = Request.compare_owner("py-owned", b"owner--1", b"owner--2")
            self.assertTrue(client.ask(ask).done)
            again = Request.compare_owner("py-owned", b"owner--1", b"owner--3")
            self.assertEqual(client.ask(again).outcome, Outcome.REFUSED)
        with self.assertRaises(ValueError):
            client.get("py")
        with self.assertRaises(NetChainError) as raised:
            Client("none.toml")
        self.assertIn("none.toml", str(raised.exception))

    def test_many_at_a_time(self):
        with Client(FILE) as client:
            answers = client.ask_all(Request.add("py-many") for _ in range(2_000))
            self.assertTrue(all(answer.done for answer in answers))
            self.assertEqual(Counter(client, "py-many").get(), 2_000)

    def test_listings(self):
        expected = [f"pl/{at:03}".encode().ljust(16, b"\0") for at in range(100)]
        with Client(FILE) as client:
            client.ask_all(Request.put(key, b"x") for key in expected)
            self.assertEqual(sorted(client.list("pl/")), expected)
            self.assertEqual(list(client.list(expected[7])), [expected[7]])
            self.assertEqual(list(client.list("pl/none")), [])
            self.assertTrue(next(client.list()))
            with self.assertRaises(ValueError):
                next(client.list("seventeen-letters"))

        async def run():
            async with AsyncClient(FILE) as client:
                return [key async for key in client.list(b"pl/")]

        self.assertEqual(sorted(asyncio.run(run())), expected)

    def test_a_child_is_another_client(self):
        with Client(FILE) as client:
            client.put("py-fork", b"parent")
            child = os.fork()
            if child == 0:
                os._exit(0 if client.put("py-fork", b"child").done else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(client.get("py-fork").value, b"child")

    def test_asyncio(self):
        async def run():
            async with AsyncClient(FILE) as client:
                adding = (client.add("py-async") for _ in range(1_000))
                answers = await asyncio.gather(*adding)
                self.assertTrue(all(answer.done for answer in answers))
                self.assertEqual(await Counter(client, "py-async").get_async(), 1_000)
                for _ in range(600):
                    task = asyncio.ensure_future(client.put("py-gone", b"x"))
                    await asyncio.sleep(0)
                    task.cancel()
                self.assertTrue((await client.put("py-async2", b"x")).done)
            with self.assertRaises(NetChainError):
                await client.get("py-async")

        asyncio.run(run())

    def test_locks(self):
        with Lock(FILE, "py-lock", lease=0.3) as held:
            self.assertIsNone(Lock(FILE, "py-lock", lease=0.3).take(patience=0.05))
            time.sleep(0.5)
            self.assertTrue(held.held, "the thread keeps it")
        lost = Lock(FILE, "py-lock", lease=0.3).take()
        self.assertGreater(lost.token, held.token)
        again = Lock(FILE, "py-lock", lease=0.3).take()
        self.assertFalse(lost.held or lost.refresh())
        self.assertGreater(again.token, lost.token)
        again.release()
        with ReadLock(FILE, "py-rw", lease=1), ReadLock(FILE, "py-rw", lease=1):
            self.assertIsNone(WriteLock(FILE, "py-rw", lease=1).take(patience=0.05))
        with Semaphore(FILE, "py-sem", 2, lease=1), Semaphore(FILE, "py-sem", 2, lease=1):
            self.assertIsNone(Semaphore(FILE, "py-sem", 2, lease=1).take(patience=0.05))
        with self.assertRaises(NetChainError) as raised:
            Lock(FILE, "py-sem").take()
        self.assertEqual(raised.exception.outcome, Outcome.NOT_OURS)

    def test_election_and_async_lock(self):
        with Election(FILE, "py-elect", b"one", lease=1) as leader:
            self.assertTrue(leader.held)
            self.assertIsNone(Election(FILE, "py-elect", b"two", lease=1).take(patience=0.05))

        async def run():
            async with Lock(FILE, "py-alock", lease=1) as held:
                return held.token

        self.assertGreater(asyncio.run(run()), 0)


if __name__ == "__main__":
    FILE = sys.argv.pop(1)
    unittest.main()
