"""Whom E2B's door lets in, and what is recorded of it, against a server of this tree."""

import json
import os
import threading
import time
import unittest
import urllib.error
import urllib.request

from e2b import AuthenticationException, NotFoundException, Sandbox, SandboxException
from e2b_code_interpreter import Sandbox as Interpreter

import suite

URL, ADMIN = os.environ["BOTHY_URL"], os.environ["BOTHY_API_KEY"]


def call(method, path, body=None, key=ADMIN):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def raw(path, data=None, **headers):
    request = urllib.request.Request(URL + path, data=data, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read() or b"null")


class Rights(unittest.TestCase):
    def key(self, **options):
        token = call("POST", "/v1/tokens", {"e2b": True, **options})
        self.assertRegex(token["key"], "^e2b_[0-9a-f]{40}$")
        return token

    def create(self, key, **options):
        sandbox = Sandbox.create(api_key=key, timeout=120, **options)
        self.addCleanup(lambda: call("DELETE", f"/v1/sandboxes/{sandbox.sandbox_id}", key=key))
        return sandbox

    def test_scopes(self):
        sandbox = self.create(ADMIN)
        reader = self.key(scopes=["sandboxes:read"])["key"]
        self.assertIsNone(sandbox.get_info(api_key=reader).allow_internet_access)
        status, body = raw(f"/sandboxes/{sandbox.sandbox_id}", X_API_KEY=reader)
        self.assertEqual((status, body["state"], "envdAccessToken" in body), (200, "running", False))
        for act in (lambda: Sandbox.create(api_key=reader), lambda: sandbox.pause(api_key=reader), lambda: sandbox.kill(api_key=reader),
                    lambda: Sandbox.connect(sandbox.sandbox_id, api_key=reader)):
            with self.assertRaises(SandboxException) as caught:
                act()
            self.assertIn("403", str(caught.exception))

    def test_projects(self):
        name = f"other-{time.time_ns()}"
        call("POST", "/v1/projects", {"id": name})
        other = self.key(project=name)["key"]
        mine, theirs = self.create(ADMIN), self.create(other)
        for see, not_see, key in ((mine, theirs, ADMIN), (theirs, mine, other)):
            ids = [s.sandbox_id for s in Sandbox.list(api_key=key).next_items()]
            self.assertIn(see.sandbox_id, ids)
            self.assertNotIn(not_see.sandbox_id, ids)
            with self.assertRaises(NotFoundException):
                Sandbox.get_info(not_see.sandbox_id, api_key=key)
            with self.assertRaises(NotFoundException):
                Sandbox.connect(not_see.sandbox_id, api_key=key)
            self.assertFalse(Sandbox.kill(not_see.sandbox_id, api_key=key))
        self.assertTrue(theirs.is_running())
        # The plan of a new project does not give all of the network.
        self.assertEqual(call("GET", f"/v1/sandboxes/{theirs.sandbox_id}", key=other)["network"], "restricted")
        with self.assertRaises(SandboxException):
            self.create(other, allow_internet_access=True)

    def test_revoked(self):
        token = self.key()
        sandbox = Sandbox.create(api_key=token["key"], timeout=60)
        url = sandbox.download_url("/etc/hostname")
        where = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2b_Sandbox_Port": "49983"}
        ended = threading.Event()

        def follow():
            try:
                sandbox.commands.run("sleep 100", timeout=0)
            except Exception:
                ended.set()

        threading.Thread(target=follow, daemon=True).start()
        while not sandbox.commands.list():
            time.sleep(0.05)
        call("DELETE", f"/v1/tokens/{token['id']}")
        self.assertTrue(ended.wait(60), "what follows a command goes on with a key that is gone")
        with self.assertRaises(AuthenticationException):
            sandbox.files.read("/etc/hostname")
        with self.assertRaises(AuthenticationException):
            sandbox.get_info()
        self.assertEqual(raw(url.removeprefix(URL), **where)[0], 401)
        call("DELETE", f"/v1/sandboxes/{sandbox.sandbox_id}")

    def test_interpreter(self):
        sandbox = Interpreter.create(timeout=60)
        self.addCleanup(sandbox.kill)
        where = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2b_Sandbox_Port": "49999", "Content_Type": "application/json"}
        self.assertEqual(raw("/execute", b'{"code": "1"}', **where)[0], 401)
        self.assertEqual(raw("/contexts", **where)[0], 401)

    def test_token_for_visitors(self):
        """The token for traffic opens ports, and neither the agent nor the interpreter."""
        sandbox = Interpreter.create(timeout=60, network={"allow_public_traffic": False})
        self.addCleanup(sandbox.kill)
        sandbox.commands.run("python3 -m http.server 8000", background=True)
        token = {"E2b_Sandbox_Id": sandbox.sandbox_id, "E2B_Traffic_Access_Token": sandbox.traffic_access_token, "Content_Type": "application/json"}
        for port, path, data in (("49983", "/process.Process/List", b"{}"), ("49983", "/files?path=/etc/shadow", None), ("49983", "/envs", None),
                                 ("49983", "/health", None), ("49999", "/execute", b'{"code": "1"}'), ("49999", "/contexts", None)):
            self.assertEqual(raw(path, data, E2b_Sandbox_Port=port, **token)[0], 401, path)
            self.assertEqual(raw(path, data, E2b_Sandbox_Port=port, X_Access_Token=sandbox.traffic_access_token, **token)[0], 401, path)
        until = time.monotonic() + 20
        while (status := self.status("/", {**token, "E2b_Sandbox_Port": "8000"})) == 502 and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(status, 200)
        self.assertEqual(sandbox.run_code("6 * 7").text, "42")

    def status(self, path, headers):
        request = urllib.request.Request(URL + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    def test_nothing_told_to_strangers(self):
        gone = Sandbox.create(timeout=60, network={"allow_public_traffic": False})
        gone.kill()
        paused = self.create(ADMIN, network={"allow_public_traffic": False})
        paused.pause()
        alive = self.create(ADMIN, network={"allow_public_traffic": False})
        for port, path in (("49983", "/health"), ("49983", "/envs"), ("49999", "/contexts"), ("8000", "/")):
            answers = {json.dumps(raw(path, E2b_Sandbox_Id=i, E2b_Sandbox_Port=port)).replace(i, "ID")
                       for i in (gone.sandbox_id, paused.sandbox_id, alive.sandbox_id, "sbx0000000000000000")}
            self.assertEqual(len(answers), 1, answers)
            self.assertIn("403" if port == "8000" else "401", answers.pop())

    def test_audit(self):
        sandbox = self.create(ADMIN)
        sandbox.commands.run("echo recorded", user="root")
        sandbox.files.write("/tmp/written", "x")
        sandbox.files.make_dir("/tmp/made")
        sandbox.files.list("/tmp")
        with Interpreter.create(timeout=60) as other:
            other.run_code("'recorded, too'")
        sandbox.kill()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            records = call("GET", f"/v1/audit?sandbox={sandbox.sandbox_id}")["items"]
            if any(r["action"] == "e2b:kill-sandbox" for r in records):
                break
        done = {r["action"]: r for r in records}
        self.assertEqual(set(done), {"e2b:create-sandbox", "e2b:Start", "e2b:files", "e2b:MakeDir", "e2b:kill-sandbox"})
        self.assertEqual(done["e2b:Start"]["command"], "echo recorded")
        self.assertIn("/tmp/written", done["e2b:files"]["object"])
        self.assertIn("/tmp/made", done["e2b:MakeDir"]["object"])
        self.assertTrue(all(r["token_id"] for r in records), records)
        code = call("GET", f"/v1/audit?sandbox={other.sandbox_id}")["items"]
        self.assertIn("'recorded, too'", [r.get("command") for r in code])

    def test_errors(self):
        """What E2B's API answers with: the status, and a body of code and message."""
        key = {"X_API_KEY": ADMIN, "Content_Type": "application/json"}
        for path, data, status in (
            ("/sandboxes/none", None, 404),
            ("/v2/sandboxes", b"{}", 400),
            ("/v2/sandboxes", b"{", 400),
            ("/v2/sandboxes", b'{"templateID": 1}', 400),
            ("/v2/sandboxes", b'{"templateID": "none"}', 404),
            ("/v2/sandboxes?state=asleep", None, 400),
            ("/v2/sandboxes?limit=x", None, 400),
            ("/sandboxes/none/timeout", b'{"timeout": 1}', 404),
            ("/sandboxes/none/timeout", b"{}", 400),
            ("/sandboxes/none/refreshes", b'{"duration": 4000}', 400),
            ("/sandboxes/none/pause", b"", 404),
            ("/v2/sandboxes/none/connect", b"{}", 404),
            ("/sandboxes/none/fork", b'{"count": 101}', 400),
            ("/sandboxes/none/metrics", None, 404),
            ("/volumes", None, 501),
            ("/secrets", None, 501),
            ("/teams", None, 501),
        ):
            got, body = raw(path, data, **key)
            self.assertEqual((got, body["code"]), (status, status), (path, data, body))
            self.assertTrue(body["message"])
        self.assertEqual(raw("/sandboxes")[0], 401)


if __name__ == "__main__":
    suite.main()
