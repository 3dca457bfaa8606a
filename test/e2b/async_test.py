"""Every call of E2B's SDK for Python in its async form, against a server of this tree."""

import asyncio
import time
import unittest

from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, SandboxQuery, SandboxState, TimeoutException

import suite


class Async(unittest.IsolatedAsyncioTestCase):
    async def create(self, **options):
        sandbox = await AsyncSandbox.create(**{"timeout": 120, **options})
        self.end_after(sandbox)
        return sandbox

    def end_after(self, sandbox):
        # The SDK's kill is no coroutine function for inspect: unittest would not await it.
        async def end():
            await sandbox.kill()

        self.addAsyncCleanup(end)

    async def test_commands(self):
        commands = (await self.create(envs={"COLOUR": "green"})).commands
        result = await commands.run('echo out; echo err >&2; echo "$COLOUR"')
        self.assertEqual((result.stdout, result.stderr), ("out\ngreen\n", "err\n"))
        with self.assertRaises(CommandExitException):
            await commands.run("exit 3")
        with self.assertRaises(TimeoutException):
            await commands.run("sleep 60", timeout=1)
        handle = await commands.run("cat; echo done", background=True, stdin=True)
        self.assertIn(handle.pid, [p.pid for p in await commands.list()])
        await commands.send_stdin(handle.pid, "said\n")
        await commands.close_stdin(handle.pid)
        self.assertEqual((await handle.wait()).stdout, "said\ndone\n")
        sleeper = await commands.run("sleep 300", background=True)
        again = await commands.connect(sleeper.pid)
        self.assertTrue(await commands.kill(sleeper.pid))
        with self.assertRaises(CommandExitException):
            await again.wait()
        all_at_once = await asyncio.gather(*(commands.run(f"sleep 0.1; echo {i}") for i in range(10)))
        self.assertEqual([r.stdout for r in all_at_once], [f"{i}\n" for i in range(10)])

    async def test_pty(self):
        sandbox = await self.create()
        got = []
        terminal = await sandbox.pty.create(size=PtySize(rows=24, cols=80), on_data=got.append)
        await sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
        await sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
        await terminal.wait()
        self.assertIn(b"30 100", b"".join(got))

    async def test_files(self):
        files = (await self.create()).files
        self.assertEqual((await files.write("a/b", "héllo")).path, "/home/user/a/b")
        self.assertEqual(await files.read("a/b"), "héllo")
        self.assertEqual(bytes(await files.read("a/b", format="bytes")), "héllo".encode())
        self.assertEqual(b"".join([part async for part in await files.read("a/b", format="stream")]), "héllo".encode())
        await files.write_files([{"path": "m/1", "data": "one"}, {"path": "m/2", "data": b"two"}])
        self.assertEqual([e.name for e in await files.list("m")], ["1", "2"])
        self.assertTrue(await files.make_dir("d"))
        self.assertEqual((await files.rename("m/1", "d/1")).path, "/home/user/d/1")
        self.assertEqual((await files.get_info("d/1")).size, 3)
        self.assertTrue(await files.exists("d/1"))
        await files.remove("d")
        with self.assertRaises(NotFoundException):
            await files.read("d/1")

    async def test_watch(self):
        files = (await self.create()).files
        await files.make_dir("watched")
        seen = asyncio.Event()
        watch = await files.watch_dir("watched", on_event=lambda e: seen.set() if e.name == "new" else None)
        await files.write("watched/new", "x")
        await asyncio.wait_for(seen.wait(), 20)
        await watch.stop()

    async def test_life(self):
        mark = {"async": str(time.time())}
        sandbox = await self.create(metadata=mark)
        await sandbox.set_timeout(300)
        self.assertEqual((await sandbox.get_info()).metadata, mark)
        self.assertTrue(await sandbox.is_running())
        listed = await AsyncSandbox.list(query=SandboxQuery(metadata=mark)).next_items()
        self.assertEqual([s.sandbox_id for s in listed], [sandbox.sandbox_id])
        self.assertGreater(len(await sandbox.get_metrics()), 0)
        await sandbox.files.write("kept", "yes")
        self.assertTrue(await sandbox.pause())
        self.assertFalse(await sandbox.is_running())
        self.assertEqual((await sandbox.get_info()).state, SandboxState.PAUSED)
        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        self.assertEqual(await again.files.read("kept"), "yes")
        snapshot = await again.create_snapshot()
        self.assertEqual([s.snapshot_id for s in await again.list_snapshots().next_items()], [snapshot.snapshot_id])
        copy = await self.create(template=snapshot.snapshot_id)
        self.assertEqual(await copy.files.read("kept"), "yes")
        await copy.kill()
        self.assertTrue(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id))
        (fork,) = await again.fork()
        self.end_after(fork)
        self.assertEqual(await fork.files.read("kept"), "yes")
        await again.update_network({"deny_out": ["0.0.0.0/0"]})
        self.assertTrue(await again.kill())
        self.assertFalse(await again.kill())
        with self.assertRaises(TimeoutException):
            await again.commands.run("true")


if __name__ == "__main__":
    suite.main()
