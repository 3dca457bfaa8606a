"""The calls of E2B's SDK for Python that few programs make, in both forms, against a server of this tree."""

import inspect
import time
import unittest

import e2b
from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, Sandbox, SandboxException, SandboxQuery

import suite


async def did(value):
    """Return what a call gives, in either form of it."""
    return await value if inspect.isawaitable(value) else value


class Both(unittest.IsolatedAsyncioTestCase):
    """Tests that run in the sync and in the async form; only the latter has something to wait for."""

    forms = (Sandbox, AsyncSandbox)

    async def each(self, **options):
        for form in self.forms:
            with self.subTest(form.__name__):
                sandbox = await did(form.create(timeout=120, **options))
                try:
                    yield sandbox
                finally:
                    await did(sandbox.kill())


class Git(Both):
    async def test_local(self):
        async for sandbox in self.each():
            git, at = sandbox.git, "/home/user/repo"
            await did(git.init(at, initial_branch="main"))
            await did(git.configure_user("A B", "a@example.org"))
            self.assertEqual(await did(git.get_config("user.name")), "A B")
            await did(git.set_config("core.editor", "true", scope="local", path=at))
            self.assertEqual(await did(git.get_config("core.editor", scope="local", path=at)), "true")
            await did(sandbox.files.write(at + "/a.txt", "one"))
            self.assertEqual((await did(git.status(at))).untracked_count, 1)
            await did(git.add(at))
            self.assertTrue((await did(git.status(at))).has_staged)
            await did(git.commit(at, "first"))
            self.assertTrue((await did(git.status(at))).is_clean)
            await did(sandbox.files.write(at + "/a.txt", "two"))
            await did(git.restore(at, ["a.txt"]))
            self.assertEqual(await did(sandbox.files.read(at + "/a.txt")), "one")
            await did(git.commit(at, "second", allow_empty=True))
            await did(git.reset(at, mode="hard", target="HEAD~1"))
            await did(git.create_branch(at, "side"))
            await did(git.checkout_branch(at, "main"))
            self.assertEqual(sorted((await did(git.branches(at))).branches), ["main", "side"])
            await did(git.delete_branch(at, "side"))
            self.assertEqual((await did(git.branches(at))).branches, ["main"])

    async def test_remote(self):
        async for sandbox in self.each():
            git, at, far = sandbox.git, "/home/user/repo", "/home/user/far.git"
            await did(git.init(far, bare=True, initial_branch="main"))
            await did(git.init(at, initial_branch="main"))
            await did(git.remote_add(at, "origin", far))
            self.assertEqual(await did(git.remote_get(at, "origin")), far)
            await did(git.commit(at, "first", allow_empty=True, author_name="A", author_email="a@example.org",
                                 envs={"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}))
            await did(git.push(at, "origin", "main"))
            await did(git.clone(far, "/home/user/copy"))
            await did(git.pull(at, "origin", "main"))
            log = await did(sandbox.commands.run("git -C copy log --format=%s"))
            self.assertEqual(log.stdout, "first\n")
            await did(git.dangerously_authenticate("user", "password", host="git.example.org"))


class Input(Both):
    async def stream(self, streams, pid, *parts):
        """Send input as it comes, which has another shape in each form."""
        given = getattr(streams, "stream_input")
        if "data" in inspect.signature(given).parameters:
            given(pid, parts)
            return
        handle = given(pid)
        for part in parts:
            await handle.send(part)
        await handle.close()

    async def test_command(self):
        async for sandbox in self.each():
            handle = await did(sandbox.commands.run("cat; echo done", background=True, stdin=True))
            await did(handle.send_stdin("one\n"))
            await self.stream(sandbox.commands, handle.pid, "two\n", b"three\n")
            await did(handle.close_stdin())
            self.assertEqual((await did(handle.wait())).stdout, "one\ntwo\nthree\ndone\n")

    async def test_handle(self):
        async for sandbox in self.each():
            handle = await did(sandbox.commands.run("sleep 300", background=True))
            self.assertTrue(await did(handle.kill()))
            with self.assertRaises(CommandExitException):
                await did(handle.wait())
            left = await did(sandbox.commands.run("echo begun; sleep 300", background=True))
            await did(left.disconnect())
            self.assertIn(left.pid, [p.pid for p in await did(sandbox.commands.list())])

    async def test_what_came_so_far(self):
        sandbox = await AsyncSandbox.create(timeout=60)
        try:
            handle = await sandbox.commands.run("echo out; echo err >&2; exit 3", background=True)
            with self.assertRaises(CommandExitException):
                await handle.wait()
            self.assertEqual((handle.stdout, handle.stderr, handle.exit_code), ("out\n", "err\n", 3))
            self.assertIn("3", handle.error)
        finally:
            await sandbox.kill()

    async def test_terminal(self):
        async for sandbox in self.each():
            asynchronous = isinstance(sandbox, AsyncSandbox)
            got = []
            given = {"on_data": lambda data: None} if asynchronous else {}
            first = await did(sandbox.pty.create(size=PtySize(rows=24, cols=80), **given))
            await did(first.disconnect())
            again = await did(sandbox.pty.connect(first.pid, **({"on_data": got.append} if asynchronous else {})))
            await self.stream(sandbox.pty, first.pid, b"echo $((40 + 2))\n", b"exit\n")
            await did(again.wait() if asynchronous else again.wait(on_pty=got.append))
            self.assertIn(b"42", b"".join(got))
            second = await did(sandbox.pty.create(size=PtySize(rows=24, cols=80), **given))
            self.assertTrue(await did(sandbox.pty.kill(second.pid)))
            with self.assertRaises(CommandExitException):
                await did(second.wait())
            self.assertFalse(await did(sandbox.pty.kill(second.pid)))


class Life(Both):
    async def test_connect_again(self):
        async for sandbox in self.each():
            await did(sandbox.files.write("kept", "yes"))
            await did(sandbox.beta_pause())
            again = await did(sandbox.connect(timeout=120))
            self.assertEqual(await did(again.files.read("kept")), "yes")

    async def test_pages(self):
        mark = {"pages": str(time.time_ns())}
        async for sandbox in self.each(metadata=mark):
            copies = await did(sandbox.fork(count=2))
            try:
                pages = type(sandbox).list(query=SandboxQuery(metadata=mark), limit=1)
                first = await did(pages.next_items())
                self.assertTrue(pages.has_next)
                rest = type(sandbox).list(query=SandboxQuery(metadata=mark), next_token=pages.next_token)
                second = await did(rest.next_items())
                self.assertEqual(len({s.sandbox_id for s in first + second}), 3)
            finally:
                for copy in copies:
                    await did(copy.kill())

    async def test_snapshot_pages(self):
        async for sandbox in self.each():
            taken = [(await did(sandbox.create_snapshot())).snapshot_id for _ in range(2)]
            pages = sandbox.list_snapshots(limit=1)
            first = await did(pages.next_items())
            rest = sandbox.list_snapshots(next_token=pages.next_token)
            self.assertEqual({s.snapshot_id for s in first + await did(rest.next_items())}, set(taken))
            self.assertFalse(rest.has_next)
            for snapshot in taken:
                self.assertTrue(await did(type(sandbox).delete_snapshot(snapshot)))

    async def test_mcp(self):
        async for sandbox in self.each():
            self.assertTrue(sandbox.get_mcp_url().endswith("/mcp"))
            with self.assertRaises(NotFoundException):
                await did(sandbox.get_mcp_token())


class Absent(unittest.IsolatedAsyncioTestCase):
    """What is not there answers with 501, and with a word on what to do instead."""

    async def refused(self, call, *args, **options):
        with self.assertRaises(Exception) as caught:
            await did(call(*args, **options))
        self.assertIn("501", str(caught.exception), call)
        self.assertIn("on this server", str(caught.exception), call)

    async def test_secrets(self):
        for kind in (e2b.Secret, e2b.AsyncSecret):
            await self.refused(kind.create, "name", "value")
            await self.refused(kind.update, "name", "value")
            await self.refused(kind.get_info, "name")
            await self.refused(kind.exists, "name")
            await self.refused(kind.destroy, "name")
            await self.refused(kind.list().next_items)

    async def test_volumes(self):
        for kind in (e2b.Volume, e2b.AsyncVolume):
            await self.refused(kind.create, "name")
            await self.refused(kind.connect, "id")
            await self.refused(kind.get_info, "id")
            await self.refused(kind.list)
            await self.refused(kind.destroy, "id")

    async def test_options_of_a_sandbox(self):
        for options in ({"mcp": {"github": {}}}, {"volume_mounts": {"/data": "v"}}):
            with self.assertRaises(SandboxException) as caught:
                Sandbox.create(**options)
            self.assertIn("501", str(caught.exception))


class Templates(unittest.IsolatedAsyncioTestCase):
    async def test_looking_up(self):
        for kind in (e2b.Template, e2b.AsyncTemplate):
            for name, there in (("base", True), ("python-3.12", True), ("no-such-template", False)):
                self.assertIs(await did(kind.exists(name)), there, name)
                self.assertIs(await did(kind.alias_exists(name)), there, name)


if __name__ == "__main__":
    suite.main()
