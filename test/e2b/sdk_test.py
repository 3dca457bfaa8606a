"""Every call of E2B's SDK for Python, against a server of this tree."""

import datetime
import gzip
import io
import json
import os
import threading
import time
import unittest
import urllib.error
import urllib.request

from e2b import (
    AuthenticationException,
    CommandExitException,
    FileType,
    FilesystemEventType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

import suite

SERVER = os.environ["E2B_API_URL"]


def fetch(url, data=None, **headers):
    request = urllib.request.Request(url, data=data, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


class Shared(unittest.TestCase):
    """Tests that share one sandbox."""

    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=300, metadata={"of": cls.__name__}, envs={"COLOUR": "green"})
        cls.addClassCleanup(cls.sandbox.kill)


class Commands(Shared):
    def test_run(self):
        result = self.sandbox.commands.run('echo out; echo err >&2; echo "$COLOUR $(whoami) $PWD"')
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\ngreen user /home/user\n", "err\n", 0))

    def test_options(self):
        run = self.sandbox.commands.run
        self.assertEqual(run("id -un; pwd; echo $A", user="root", cwd="/tmp", envs={"A": "b"}).stdout, "root\n/tmp\nb\n")

    def test_failure(self):
        with self.assertRaises(CommandExitException) as caught:
            self.sandbox.commands.run("echo why >&2; exit 3")
        self.assertEqual((caught.exception.exit_code, caught.exception.stderr), (3, "why\n"))

    def test_callbacks(self):
        out, err = [], []
        self.sandbox.commands.run("echo a; sleep 0.2; echo b >&2", on_stdout=out.append, on_stderr=err.append)
        self.assertEqual(("".join(out), "".join(err)), ("a\n", "b\n"))

    def test_timeout(self):
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 60", timeout=1)

    def test_background(self):
        commands = self.sandbox.commands
        handle = commands.run("cat; echo done", background=True, stdin=True)
        self.assertIn(handle.pid, [p.pid for p in commands.list()])
        commands.send_stdin(handle.pid, "said\n")
        commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "said\ndone\n")

    def test_connect_and_kill(self):
        commands = self.sandbox.commands
        handle = commands.run("echo begun; sleep 300", background=True)
        handle.disconnect()
        again = commands.connect(handle.pid)
        self.assertTrue(commands.kill(handle.pid))
        with self.assertRaises(CommandExitException):
            again.wait()
        self.assertFalse(commands.kill(handle.pid))

    def test_pty(self):
        got, lock = [], threading.Lock()
        terminal = self.sandbox.pty.create(size=__import__("e2b").PtySize(rows=24, cols=80), cwd="/tmp")
        self.sandbox.pty.resize(terminal.pid, __import__("e2b").PtySize(rows=30, cols=100))
        self.sandbox.pty.send_stdin(terminal.pid, b"stty size; pwd; exit\n")

        def keep(data):
            with lock:
                got.append(data)

        terminal.wait(on_pty=keep)
        text = b"".join(got).decode()
        self.assertIn("30 100", text)
        self.assertIn("/tmp", text)

    def test_much_output(self):
        self.assertEqual(len(self.sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout), 3_000_000)

    def test_unknown_user(self):
        with self.assertRaises((AuthenticationException, InvalidArgumentException, NotFoundException)):
            self.sandbox.commands.run("true", user="nobody-of-that-name")


class Files(Shared):
    def test_text_and_bytes(self):
        files = self.sandbox.files
        info = files.write("notes/a.txt", "héllo")
        self.assertEqual((info.name, info.path, info.type), ("a.txt", "/home/user/notes/a.txt", FileType.FILE))
        self.assertEqual(files.read("notes/a.txt"), "héllo")
        self.assertEqual(bytes(files.read("/home/user/notes/a.txt", format="bytes")), "héllo".encode())
        self.assertEqual(b"".join(files.read("notes/a.txt", format="stream")), "héllo".encode())

    def test_many(self):
        files = self.sandbox.files
        written = files.write_files([{"path": "m/1", "data": "one"}, {"path": "/tmp/m2", "data": io.BytesIO(b"two")}])
        self.assertEqual([w.path for w in written], ["/home/user/m/1", "/tmp/m2"])
        self.assertEqual((files.read("m/1"), files.read("/tmp/m2")), ("one", "two"))

    def test_large(self):
        data = os.urandom(8 << 20)
        self.sandbox.files.write("/tmp/large", data)
        self.assertEqual(bytes(self.sandbox.files.read("/tmp/large", format="bytes")), data)

    def test_tree(self):
        files = self.sandbox.files
        self.assertTrue(files.make_dir("tree/deep"))
        self.assertFalse(files.make_dir("tree/deep"))
        files.write("tree/deep/f", "x" * 10)
        self.assertEqual([e.path for e in files.list("tree", depth=2)], ["/home/user/tree/deep", "/home/user/tree/deep/f"])
        info = files.get_info("tree/deep/f")
        self.assertEqual((info.size, info.owner, info.mode & 0o777), (10, "user", 0o644))
        self.assertIsInstance(info.modified_time, datetime.datetime)
        self.assertEqual(files.rename("tree/deep/f", "tree/g").path, "/home/user/tree/g")
        self.assertFalse(files.exists("tree/deep/f"))
        self.assertTrue(files.exists("tree/g"))
        files.remove("tree")
        self.assertFalse(files.exists("tree"))

    def test_missing(self):
        with self.assertRaises(NotFoundException):
            self.sandbox.files.read("nowhere")
        with self.assertRaises(NotFoundException):
            self.sandbox.files.list("nowhere")
        with self.assertRaises((InvalidArgumentException, SandboxException)):
            self.sandbox.files.list("/etc/hostname")

    def test_users(self):
        self.sandbox.files.write("/root/secret", "s", user="root")
        self.sandbox.commands.run("chmod 600 /root/secret", user="root")
        self.assertEqual(self.sandbox.files.read("/root/secret", user="root"), "s")
        with self.assertRaises(SandboxException):
            self.sandbox.files.read("/root/secret")

    def test_outside_home(self):
        """What the user writes is the user's, also where only root may write; what was there stays whose it was."""
        files = self.sandbox.files
        for path in ("/at-the-top", "/opt/new/folder/f", "/root/mine", "/usr/local/bin/tool"):
            self.assertEqual(files.write(path, "x").path, path)
            self.assertEqual((files.get_info(path, user="root").owner, files.read(path, user="root")), ("user", "x"))
        self.assertEqual([files.get_info(d).owner for d in ("/opt", "/opt/new", "/opt/new/folder")], ["root", "user", "user"])
        files.write("/etc/environment", "A=b")
        self.assertEqual((files.get_info("/etc/environment").owner, files.read("/etc/environment")), ("root", "A=b"))
        self.sandbox.commands.run("ln -s /etc/hostname led-away; ln -s /etc led")
        for led in ("led-away", "led/hostname", "/proc/sys/new"):
            with self.assertRaises(SandboxException):
                files.write(led, "x")

    def test_metadata(self):
        files = self.sandbox.files
        self.assertEqual(files.write("meta", "x", metadata={"kind": "test"}).metadata, {"kind": "test"})
        self.assertEqual(files.get_info("meta").metadata, {"kind": "test"})
        self.assertEqual([e.metadata for e in files.list(".") if e.name == "meta"], [{"kind": "test"}])
        files.write("meta", "y")
        self.assertIsNone(files.get_info("meta").metadata)

    def test_symbolic_links(self):
        self.sandbox.files.write("links/target", "x")
        self.sandbox.commands.run("cd links && ln -s target to && ln -s to again && ln -s none broken")
        files = self.sandbox.files
        found = {e.name: (e.type, e.symlink_target) for e in files.list("links")}
        home = "/home/user/links/"
        self.assertEqual([found[n][1] for n in ("target", "to", "again", "broken")], [None, home + "target", home + "target", home + "broken"])
        self.assertEqual(files.get_info("links/again").symlink_target, home + "target")

    def test_gzip(self):
        self.sandbox.files.write("zipped", "z" * 100_000, gzip=True)
        self.assertEqual(self.sandbox.files.read("zipped", gzip=True), "z" * 100_000)

    def test_watch(self):
        files = self.sandbox.files
        files.make_dir("watched")
        watch = files.watch_dir("watched", include_entry=True)
        for name in ("new", "end"):  # whoever sees the second has all of the first
            files.write("watched/" + name, "x")
        seen = []
        until = time.monotonic() + 20
        while not any(e.name == "end" for e in seen) and time.monotonic() < until:
            seen += watch.get_new_events()
        self.assertEqual([e.type for e in seen if e.name == "new"], [FilesystemEventType.CREATE, FilesystemEventType.WRITE])
        watch.stop()

    def test_signed(self):
        files = self.sandbox.files
        files.write("signed", "content")
        status, body = fetch(self.sandbox.download_url("signed"))
        self.assertEqual((status, body), (200, b"content"))
        for_now = self.sandbox.download_url("signed", use_signature_expiration=60)
        self.assertEqual(fetch(for_now), (200, b"content"))
        self.assertEqual(fetch(for_now.replace("signature_expiration=", "signature_expiration=1"))[0], 401)
        form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="u"\r\n\r\nup\r\n--b--\r\n'
        upload = self.sandbox.upload_url("uploaded", use_signature_expiration=60)
        self.assertEqual(fetch(upload, form, Content_Type="multipart/form-data; boundary=b")[0], 200)
        self.assertEqual(files.read("uploaded"), "up")

    def test_signature_of_the_sandbox(self):
        self.sandbox.files.write("signed", "content")
        at = self.sandbox.download_url("signed", use_signature_expiration=60)
        where = {"E2b_Sandbox_Id": self.sandbox.sandbox_id, "E2b_Sandbox_Port": "49983"}
        self.assertEqual(fetch(at, **where)[0], 200)
        self.assertEqual(fetch(at.replace("path=signed", "path=other"), **where)[0], 401)
        self.assertEqual(fetch(at.replace("signature_expiration=", "signature_expiration=1"), **where)[0], 401)
        past = self.sandbox.download_url("signed", use_signature_expiration=-10)
        for url, why in ((past, "signature is already expired"), (past.replace("path=signed", "path=other"), "invalid signature")):
            status, body = fetch(url, **where)
            self.assertEqual((status, json.loads(body)), (401, {"code": 401, "message": why}))


class Agent(Shared):
    def headers(self, **more):
        return {"E2b_Sandbox_Id": self.sandbox.sandbox_id, "E2b_Sandbox_Port": "49983", **more}

    def token(self):
        return self.sandbox.connection_config.sandbox_headers["X-Access-Token"]

    def test_needs_token(self):
        for path in ("/envs", "/metrics", "/files?path=/etc/hostname"):
            self.assertEqual(fetch(SERVER + path, **self.headers())[0], 401, path)
            self.assertEqual(fetch(SERVER + path, **self.headers(X_Access_Token=self.token()[:-1] + "x"))[0], 401, path)
            self.assertEqual(fetch(SERVER + path, **self.headers(X_Access_Token=self.token()))[0], 200, path)

    def test_envs(self):
        status, body = fetch(SERVER + "/envs", **self.headers(X_Access_Token=self.token()))
        self.assertEqual(__import__("json").loads(body)["COLOUR"], "green")

    def test_health(self):
        self.assertEqual(fetch(SERVER + "/health", **self.headers(X_Access_Token=self.token()))[0], 204)
        # Nothing tells a stranger whether a sandbox exists.
        self.assertEqual(fetch(SERVER + "/health", **self.headers())[0], 401)
        self.assertEqual(fetch(SERVER + "/health", E2b_Sandbox_Id="sbx0000000000000000", E2b_Sandbox_Port="49983")[0], 401)

    def test_nothing_else(self):
        token = {"X_Access_Token": self.token()}
        for path in ("/bothy.guest.v1.Guest/Freeze", "/bothy/files?path=/etc/hostname", "/bothy/tunnel?port=1",
                     "/process.Process/../bothy.guest.v1.Guest/Stats", "/process.Process/..%2Fbothy.guest.v1.Guest/Stats"):
            self.assertEqual(fetch(SERVER + path, b"{}", **self.headers(Content_Type="application/json", **token))[0], 404, path)

    def test_other_sandbox(self):
        with Sandbox.create(timeout=60) as other:
            where = {"E2b_Sandbox_Id": other.sandbox_id, "E2b_Sandbox_Port": "49983", "X_Access_Token": self.token()}
            self.assertEqual(fetch(SERVER + "/envs", **where)[0], 401)


class Control(unittest.TestCase):
    def create(self, **options):
        sandbox = Sandbox.create(**{"timeout": 120, **options})
        self.addCleanup(sandbox.kill)
        return sandbox

    def test_life(self):
        sandbox = self.create(metadata={"a": "b c"})
        info = sandbox.get_info()
        self.assertEqual((info.sandbox_id, info.state, info.metadata), (sandbox.sandbox_id, SandboxState.RUNNING, {"a": "b c"}))
        self.assertAlmostEqual((info.end_at - info.started_at).total_seconds(), 120, delta=5)
        sandbox.set_timeout(300)
        left = sandbox.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)
        self.assertAlmostEqual(left.total_seconds(), 300, delta=10)
        self.assertTrue(sandbox.is_running())
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        self.assertFalse(sandbox.kill())
        with self.assertRaises(NotFoundException):
            sandbox.get_info()
        with self.assertRaises(NotFoundException):
            sandbox.set_timeout(10)

    def test_options_of_the_server(self):
        options = {"bothy.on_host_loss": "fail", "bothy.checkpoint_seconds": "60"}
        sandbox = self.create(metadata=options)
        self.assertEqual(sandbox.get_info().metadata, options)
        key = "bothy_" + os.environ["E2B_API_KEY"].removeprefix("e2b_")
        request = urllib.request.Request(f"{SERVER}/v1/sandboxes/{sandbox.sandbox_id}", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            seen = json.load(answer)
        self.assertEqual((seen["on_host_loss"], seen["checkpoint_seconds"]), ("fail", 60))

    def test_gone(self):
        sandbox = self.create()
        sandbox.kill()
        with self.assertRaises(TimeoutException):
            sandbox.commands.run("true")
        with self.assertRaises(TimeoutException):
            sandbox.files.read("x")

    def test_list(self):
        mark = {"list": str(time.time())}
        made = [self.create(metadata=mark).sandbox_id for _ in range(3)]
        pages, found = Sandbox.list(query=SandboxQuery(metadata=mark), limit=2), []
        while pages.has_next:
            page = pages.next_items()
            self.assertLessEqual(len(page), 2)
            found += [s.sandbox_id for s in page]
        self.assertEqual(found, made[::-1])
        running = Sandbox.list(query=SandboxQuery(metadata=mark, state=[SandboxState.RUNNING]), order="asc").next_items()
        self.assertEqual([s.sandbox_id for s in running], made)
        self.assertEqual(Sandbox.list(query=SandboxQuery(metadata=mark, state=[SandboxState.PAUSED])).next_items(), [])

    def test_pause(self):
        sandbox = self.create()
        sandbox.files.write("kept", "yes")
        process = sandbox.commands.run("sleep 1000", background=True)
        self.assertTrue(sandbox.pause())
        self.assertFalse(sandbox.pause())
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        self.assertFalse(sandbox.is_running())
        again = Sandbox.connect(sandbox.sandbox_id, timeout=90)
        self.assertEqual(again.files.read("kept"), "yes")
        self.assertIn(process.pid, [p.pid for p in again.commands.list()])
        self.assertEqual(Sandbox.connect(sandbox.sandbox_id).sandbox_id, sandbox.sandbox_id)

    def test_pause_by_itself(self):
        sandbox = self.create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
        self.assertEqual(sandbox.get_info().lifecycle, {"on_timeout": "pause", "auto_resume": True})
        until = time.monotonic() + 30
        while sandbox.get_info().state != SandboxState.PAUSED and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(sandbox.commands.run("echo awake").stdout, "awake\n")

    def test_snapshot(self):
        sandbox = self.create()
        sandbox.files.write("kept", "one")
        snapshot = sandbox.create_snapshot()
        sandbox.files.write("kept", "two")
        copy = self.create(template=snapshot.snapshot_id)
        self.assertEqual(copy.files.read("kept"), "one")
        listed = sandbox.list_snapshots().next_items()
        self.assertEqual([s.snapshot_id for s in listed], [snapshot.snapshot_id])
        copy.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))
        self.assertFalse(Sandbox.delete_snapshot(snapshot.snapshot_id))

    def test_reboot(self):
        sandbox = self.create()
        sandbox.files.write("kept", "yes")
        sandbox.commands.run("sleep 1000", background=True)
        sandbox.pause()
        again = Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
        self.assertEqual(again.files.read("kept"), "yes")
        self.assertEqual(again.commands.run("pgrep -x sleep || echo none").stdout, "none\n")

    def test_snapshot_without_memory(self):
        sandbox = self.create()
        sandbox.files.write("kept", "one")
        process = sandbox.commands.run("sleep 1000", background=True)
        snapshot = sandbox.create_snapshot(mode="filesystem")
        self.assertIn(process.pid, [p.pid for p in sandbox.commands.list()])
        copy = self.create(template=snapshot.snapshot_id)
        self.assertEqual(copy.files.read("kept"), "one")
        self.assertEqual(copy.commands.run("pgrep -x sleep || echo none").stdout, "none\n")
        copy.kill()
        self.assertTrue(Sandbox.delete_snapshot(snapshot.snapshot_id))

    def test_fork(self):
        sandbox = self.create()
        sandbox.files.write("kept", "one")
        copies = sandbox.fork(count=2)
        for copy in copies:
            self.addCleanup(copy.kill)
        self.assertEqual([c.files.read("kept") for c in copies], ["one", "one"])
        self.assertEqual(len({sandbox.sandbox_id, *(c.sandbox_id for c in copies)}), 3)

    def test_idempotency(self):
        key = f"key-{time.time_ns()}"
        first = self.create(idempotency_key=key)
        self.assertEqual(Sandbox.create(idempotency_key=key, timeout=120).sandbox_id, first.sandbox_id)
        with self.assertRaises(SandboxException) as caught:
            Sandbox.create(idempotency_key=key, timeout=121)
        self.assertIn("409", str(caught.exception))
        first.kill()
        self.assertNotEqual(self.create(idempotency_key=key).sandbox_id, first.sandbox_id)

    def test_metrics(self):
        sandbox = self.create()
        now = sandbox.get_metrics()[-1]
        self.assertGreater(now.mem_used, 0)
        self.assertEqual(now.mem_total, 512 << 20)

    def test_history(self):
        sandbox = self.create(timeout=120)
        begun = datetime.datetime.now(datetime.timezone.utc)
        sandbox.commands.run("while :; do :; done", background=True)
        until = time.monotonic() + 90
        while len(sandbox.get_metrics()) < 4 and time.monotonic() < until:
            time.sleep(0.5)
        points = sandbox.get_metrics()
        self.assertGreaterEqual(len(points), 4)
        self.assertEqual(points, sorted(points, key=lambda p: p.timestamp))
        kept = sandbox.get_metrics(start=begun - datetime.timedelta(seconds=2), end=points[1].timestamp)
        self.assertEqual([p.timestamp for p in kept], [p.timestamp for p in points[:2]])
        self.assertGreater(kept[1].cpu_used_pct, 1)
        self.assertEqual(sandbox.get_metrics(end=begun - datetime.timedelta(hours=1)), [])

    def test_network(self):
        sandbox = self.create(allow_internet_access=False)
        self.assertIs(sandbox.get_info().allow_internet_access, False)
        sandbox.update_network({"allow_out": ["example.org", "192.0.2.0/24"], "deny_out": ["0.0.0.0/0"]})
        self.assertEqual(sandbox.get_info().network["allow_out"], ["example.org", "192.0.2.0/24"])
        sandbox.update_network({"deny_out": ["192.0.2.0/24"]})
        with self.assertRaises(SandboxException) as caught:
            sandbox.update_network({"deny_out": ["example.org"]})
        self.assertIn("denyOut", str(caught.exception))

    def test_host(self):
        sandbox = self.create()
        sandbox.commands.run("echo page >index.html; python3 -m http.server 8000", background=True)
        host = sandbox.get_host(8000)
        self.assertTrue(host.startswith(f"8000-{sandbox.sandbox_id}."), host)
        self.assertEqual(self.page(host), (200, b"page\n"))
        self.assertEqual(fetch(SERVER + "/index.html", Host=sandbox.get_host(8001))[0], 502)
        sandbox.kill()
        self.assertEqual(fetch(SERVER + "/index.html", Host=host)[0], 502)

    def test_paused_host(self):
        """A visitor wakes a sandbox only with its token, where its ports are closed."""
        sandbox = self.create(network={"allow_public_traffic": False}, lifecycle={"on_timeout": "pause", "auto_resume": True})
        sandbox.commands.run("echo page >index.html; python3 -m http.server 8000", background=True)
        host, token = sandbox.get_host(8000), sandbox.traffic_access_token
        self.assertEqual(self.page(host, E2B_Traffic_Access_Token=token), (200, b"page\n"))
        sandbox.pause()
        for more in ({}, {"E2B_Traffic_Access_Token": token[:-1] + "x"}):
            self.assertEqual(fetch(SERVER + "/index.html", Host=host, **more)[0], 403)
        self.assertEqual(sandbox.get_info().state, SandboxState.PAUSED)
        self.assertEqual(self.page(host, E2B_Traffic_Access_Token=token), (200, b"page\n"))

    def page(self, host, **headers):
        until = time.monotonic() + 20
        while True:
            status, body = fetch(SERVER + "/index.html", Host=host, **headers)
            if status != 502 or time.monotonic() > until:
                return status, body
            time.sleep(0.1)

    def test_private_host(self):
        sandbox = self.create(network={"allow_public_traffic": False})
        sandbox.commands.run("echo page >index.html; python3 -m http.server 8000", background=True)
        host = sandbox.get_host(8000)
        self.assertEqual(fetch(SERVER + "/index.html", Host=host)[0], 403)
        self.assertEqual(self.page(host, E2B_Traffic_Access_Token=sandbox.traffic_access_token), (200, b"page\n"))

    def test_refusals(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key="e2b_" + "0" * 40)
        for options, words in (
            ({"template": "no-such-template"}, "404"),
            ({"volume_mounts": {"/data": "v"}}, "501"),
            ({"timeout": -1}, "400"),
        ):
            with self.assertRaises(SandboxException) as caught:
                Sandbox.create(**options)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    suite.main()
