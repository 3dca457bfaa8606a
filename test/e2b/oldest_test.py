"""What all versions of E2B's SDK for Python have that work here, against a server of this tree."""

import os
import time
import unittest
import urllib.request

from e2b import CommandExitException, Sandbox, TimeoutException

import suite


class Oldest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=120, metadata={"of": "oldest"}, envs={"COLOUR": "green"})
        cls.addClassCleanup(cls.sandbox.kill)

    def test_commands(self):
        result = self.sandbox.commands.run('echo out; echo err >&2; echo "$COLOUR $PWD"')
        self.assertEqual((result.stdout, result.stderr), ("out\ngreen /home/user\n", "err\n"))
        with self.assertRaises(CommandExitException):
            self.sandbox.commands.run("exit 3")
        handle = self.sandbox.commands.run("read x; echo got $x", background=True, stdin=True)
        self.sandbox.commands.send_stdin(handle.pid, "it\n")
        self.assertEqual(handle.wait().stdout, "got it\n")
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 60", timeout=1)

    def test_files(self):
        files = self.sandbox.files
        files.write("a/b", "héllo")
        self.assertEqual(files.read("a/b"), "héllo")
        self.assertEqual([e.name for e in files.list("a")], ["b"])
        files.write_files([{"path": "a/1", "data": "one"}, {"path": "a/2", "data": b"two"}])
        self.assertEqual(bytes(files.read("a/2", format="bytes")), b"two")
        files.rename("a/1", "a/3")
        self.assertTrue(files.exists("a/3"))
        files.make_dir("watched")
        watch = files.watch_dir("watched")
        files.write("watched/new", "x")
        seen, until = [], time.monotonic() + 20
        while "new" not in seen and time.monotonic() < until:
            seen += [e.name for e in watch.get_new_events()]
        self.assertIn("new", seen)
        watch.stop()
        files.remove("a")
        self.assertFalse(files.exists("a"))

    def test_signed(self):
        self.sandbox.files.write("signed", "content")
        with urllib.request.urlopen(self.sandbox.download_url("signed", use_signature_expiration=60)) as answer:
            self.assertEqual(answer.read(), b"content")

    def test_life(self):
        sandbox = Sandbox.create(timeout=60)
        self.addCleanup(sandbox.kill)
        sandbox.set_timeout(100)
        self.assertEqual(sandbox.get_info().sandbox_id, sandbox.sandbox_id)
        self.assertIn(sandbox.sandbox_id, [s.sandbox_id for s in Sandbox.list().next_items()])
        self.assertGreater(len(sandbox.get_metrics()), 0)
        sandbox.beta_pause()
        self.assertFalse(sandbox.is_running())
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertEqual(again.commands.run("echo awake").stdout, "awake\n")
        self.assertTrue(again.kill())
        self.assertFalse(again.is_running())

    def test_interpreter(self):
        try:
            from e2b_code_interpreter import Sandbox as Interpreter
        except ImportError:
            self.skipTest("it was not installed")
        sandbox = Interpreter.create(timeout=60)
        self.addCleanup(sandbox.kill)
        self.assertEqual(sandbox.run_code("x = 1; x + 1").text, "2")


if __name__ == "__main__":
    suite.main()
