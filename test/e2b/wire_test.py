"""What E2B's SDKs do not show of the protocol: the older calls, the binary form of messages, and what is refused."""

import datetime
import gzip
import json
import os
import time
import unittest
import urllib.error
import urllib.request

from connectrpc.client import ResponseMetadata
from connectrpc.codec import proto_binary_codec, proto_json_codec
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import Sandbox
from e2b.envd.filesystem import filesystem_connect, filesystem_pb
from e2b.envd.process import process_connect, process_pb
from protobuf import Oneof

import suite

SERVER, KEY = os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"]


def ask(method, path, body=None, headers=None, key=KEY):
    """Return the status, the headers and the JSON of an answer."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data=data, method=method, headers={"Content-Type": "application/json", **(headers or {})})
    if key:
        request.add_header("X-API-KEY", key)
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        text = answer.read()
        is_json = "json" in (answer.headers["Content-Type"] or "")
        return answer.status, answer.headers, json.loads(text) if is_json else text


class Control(unittest.TestCase):
    def create(self, path="/sandboxes", **body):
        status, _, made = ask("POST", path, {"templateID": "base", "timeout": 60, **body})
        self.assertEqual(status, 201, made)
        self.addCleanup(ask, "DELETE", "/sandboxes/" + made["sandboxID"])
        return made["sandboxID"], made

    def failure(self, method, path, status, body=None, **more):
        got, _, failed = ask(method, path, body, **more)
        self.assertEqual((got, failed["code"]), (status, status), (method, path, failed))
        self.assertTrue(failed["message"])
        return failed["message"]

    def test_both_versions(self):
        for path, seconds in (("/sandboxes", 15), ("/v2/sandboxes", 300)):
            status, _, made = ask("POST", path, {"templateID": "base"})
            self.assertEqual(status, 201)
            self.assertLessEqual({"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"}, set(made))
            _, _, seen = ask("GET", "/sandboxes/" + made["sandboxID"])
            life = time.mktime(time.strptime(seen["endAt"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.strptime(seen["startedAt"][:19], "%Y-%m-%dT%H:%M:%S"))
            self.assertAlmostEqual(life, seconds, delta=5)
            self.assertEqual(ask("DELETE", "/sandboxes/" + made["sandboxID"])[0], 204)
            self.failure("DELETE", "/sandboxes/" + made["sandboxID"], 404)

    def test_lists(self):
        mark = {"wire": str(time.time_ns())}
        first, second = self.create(metadata=mark)[0], self.create(metadata=mark)[0]
        self.assertEqual(ask("POST", f"/sandboxes/{second}/pause")[0], 204)
        self.failure("POST", f"/sandboxes/{second}/pause", 409)
        where = "?metadata=wire%3D" + mark["wire"]
        ids = lambda path: [s["sandboxID"] for s in ask("GET", path + where)[2]]  # noqa: E731
        self.assertEqual(ids("/sandboxes"), [first])
        self.assertEqual(set(ids("/v2/sandboxes")), {first, second})
        _, headers, page = ask("GET", "/v2/sandboxes" + where + "&limit=1")
        _, after, rest = ask("GET", "/v2/sandboxes" + where + "&limit=1&nextToken=" + headers["X-Next-Token"])
        self.assertEqual({page[0]["sandboxID"], rest[0]["sandboxID"]}, {first, second})
        self.assertIsNone(after["X-Next-Token"])

    def test_resume_and_connect(self):
        for path in ("/sandboxes", "/v2/sandboxes"):
            sandbox = self.create()[0]
            self.failure("POST", f"/sandboxes/{sandbox}/resume", 409, {"timeout": 60})
            self.assertEqual(ask("POST", f"{path}/{sandbox}/connect", {"timeout": 60})[0], 200)
            ask("POST", f"/sandboxes/{sandbox}/pause")
            self.assertEqual(ask("POST", f"{path}/{sandbox}/connect", {"timeout": 60})[0], 201)
            ask("POST", f"/sandboxes/{sandbox}/pause")
            status, _, woken = ask("POST", f"/sandboxes/{sandbox}/resume", {"timeout": 60})
            self.assertEqual((status, woken["sandboxID"]), (201, sandbox))

    def test_refreshes(self):
        sandbox, end = self.create()[0], lambda: ask("GET", "/sandboxes/" + sandbox)[2]["endAt"]
        before = end()
        self.assertEqual(ask("POST", f"/sandboxes/{sandbox}/refreshes", {"duration": 10})[0], 204)
        self.assertEqual(end(), before)
        self.assertEqual(ask("POST", f"/sandboxes/{sandbox}/refreshes", {"duration": 3600})[0], 204)
        self.assertGreater(end(), before)
        self.failure("POST", f"/sandboxes/{sandbox}/refreshes", 400, {"duration": 3601})

    def test_without_memory(self):
        sandbox = self.create()[0]
        for way in "/resume", "/connect":
            ask("POST", f"/sandboxes/{sandbox}/pause")
            self.assertEqual(ask("GET", f"/sandboxes/{sandbox}")[2]["pauseMode"], "full")
            self.assertEqual(ask("POST", f"/sandboxes/{sandbox}{way}", {"memory": False})[0], 201)
        self.assertEqual(ask("POST", f"/sandboxes/{sandbox}/pause", {"memory": False})[0], 204)
        self.assertEqual(ask("GET", f"/sandboxes/{sandbox}")[2]["pauseMode"], "filesystem")
        self.assertEqual(ask("POST", f"/sandboxes/{sandbox}/connect", {"memory": False})[0], 201)

    def test_bad_forks(self):
        sandbox = self.create()[0]
        for count in (0, 101, "2"):
            self.failure("POST", f"/sandboxes/{sandbox}/fork", 400, {"count": count})

    def test_metrics(self):
        sandbox = self.create()[0]
        status, _, all_of_it = ask("GET", f"/sandboxes/{sandbox}/metrics")
        self.assertEqual(status, 200)
        self.assertGreater(len(all_of_it), 0)
        self.assertEqual(ask("GET", f"/sandboxes/{sandbox}/metrics?start=1&end=2")[2], [])
        _, _, many = ask("GET", f"/sandboxes/metrics?sandbox_ids={sandbox},none")
        self.assertEqual(list(many["sandboxes"]), [sandbox])
        self.failure("GET", "/sandboxes/metrics", 400)
        self.failure("GET", f"/sandboxes/{sandbox}/metrics?start=x", 400)

    def test_logs(self):
        sandbox = Sandbox.connect(self.create()[0])
        sandbox.commands.run("echo one; echo two >&2")
        at = f"/sandboxes/{sandbox.sandbox_id}/logs"
        self.assertIn("one", [line["line"] for line in ask("GET", at)[2]["logs"]])
        self.assertEqual([e["message"] for e in ask("GET", "/v2" + at + "?level=error")[2]["logs"]], ["two"])
        self.assertEqual([e["message"] for e in ask("GET", "/v2" + at + "?search=one&direction=backward&limit=1")[2]["logs"]], ["one"])
        sandbox.commands.run("seq 5")
        want = [e["message"] for e in ask("GET", "/v2" + at)[2]["logs"]]
        self.assertLessEqual(set("12345"), set(want))
        seen, cursor = [], ""
        while page := ask("GET", f"/v2{at}?limit=2{cursor}")[2]["logs"]:
            seen += [e["message"] for e in page]
            seconds, _, rest = page[-1]["timestamp"].rstrip("Z").partition(".")
            cursor = f"&cursor={int(datetime.datetime.fromisoformat(seconds + '+00:00').timestamp()) * 1000 + int((rest + '000')[:3]) + 1}"
        self.assertEqual(seen, want)
        self.assertEqual(ask("GET", f"/v2{at}?direction=backward&cursor=1")[2]["logs"], [])
        self.assertEqual(ask("GET", f"{at}?start={2**50}")[2]["logs"], [])
        self.failure("GET", "/v2" + at + "?cursor=x", 400)
        self.failure("GET", "/v2" + at + "?direction=up", 400)
        self.failure("GET", "/v2" + at + "?level=loud", 400)

    def test_network_options(self):
        for network in ({"egressProxy": {"address": "p:1080"}}, {"dnsServers": ["192.0.2.1"]}, {"maskRequestHost": "h"}, {"httpsPorts": [443]},
                        {"rules": {"192.0.2.0/24": [{"transform": {"headers": {"A": "b"}}}]}}):
            self.assertIn(next(iter(network)), self.failure("POST", "/v2/sandboxes", 501, {"templateID": "base", "network": network}))
        self.failure("POST", "/v2/sandboxes", 400, {"templateID": "base", "network": {"denyOut": ["example.org"]}})
        self.failure("POST", "/v2/sandboxes", 400, {"templateID": "base", "network": {"denyOut": ["192.0.2.0/24"], "allowOut": ["no name"]}})

    def test_templates(self):
        for path in ("/templates", "/v2/templates", "/default-templates"):
            self.assertIn("base", [a for t in ask("GET", path)[2] for a in t["aliases"]])
        self.assertEqual(ask("GET", "/templates/base")[2]["builds"][0]["status"], "ready")
        self.assertTrue(ask("GET", "/templates/aliases/base")[2]["templateID"])
        self.failure("GET", "/templates/aliases/none", 404)
        self.failure("DELETE", "/templates/base", 403)
        self.failure("DELETE", "/templates/none", 404)

    def test_builds(self):
        self.failure("POST", "/v3/templates", 400)
        self.failure("POST", "/v3/templates", 400, {"name": "Not A Name"})
        self.failure("POST", "/v3/templates", 403, {"name": "base"})
        self.failure("POST", "/v3/templates", 400, {"name": "a", "tags": ["b", "not a tag"]})
        self.failure("POST", "/v3/templates", 400, {"name": "a:../b"})
        self.assertEqual(ask("POST", "/v3/templates", {"name": "of-a-test:v1", "tags": ["stable", "v1"]})[2]["tags"], ["v1", "stable"])
        self.failure("POST", "/v2/templates/t/builds/b", 404)
        self.failure("GET", "/templates/t/builds/b/status", 404)
        self.failure("POST", "/templates", 501)
        self.failure("GET", "/templates/t/files/not-a-hash", 400)
        for form in ({"name": "of-a-test"}, {"alias": "of-a-test"}):  # of the newer clients, and the older
            status, _, made = ask("POST", "/v3/templates" if "name" in form else "/v2/templates", form)
            self.assertEqual((status, made["templateID"], made["aliases"]), (202, "of-a-test", ["of-a-test"]))
            at = f"/v2/templates/of-a-test/builds/{made['buildID']}"
            for body, code in (({}, 400), ({"fromImage": "a", "fromTemplate": "b"}, 400), ({"fromTemplate": "none"}, 404),
                               ({"fromTemplate": "base", "steps": [{"type": "DANCE"}]}, 400),
                               ({"fromTemplate": "base", "steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "ab"}]}, 400),
                               ({"fromImage": "a", "fromImageRegistry": {"type": "aws"}}, 501), ({"fromImage": "a", "fromImageRegistry": 7}, 400),
                               ({"fromTemplate": "base", "fromImageRegistry": {"type": "registry", "username": "u", "password": "p"}}, 400)):
                self.failure("POST", at, code, body)
            status, _, found = ask("GET", f"/templates/of-a-test/builds/{made['buildID']}/status")
            self.assertEqual((status, found["status"], found["logEntries"]), (200, "waiting", []))

    def test_tags(self):
        self.assertEqual({t["tag"] for t in ask("GET", "/templates/python-3.12-bare/tags")[2]}, {"default"})
        self.assertEqual({t["tag"] for t in ask("GET", "/templates/base/tags")[2]}, {"default"})
        self.failure("GET", "/templates/none/tags", 404)
        self.failure("GET", "/templates/base/exists", 501)
        for call, more in (("POST", {"target": "base:default"}), ("DELETE", {"name": "base"})):
            self.failure(call, "/templates/tags", 400)
            self.failure(call, "/templates/tags", 403, {**more, "tags": ["x"]})
        self.failure("POST", "/templates/tags", 404, {"target": "none:default", "tags": ["x"]})
        self.failure("DELETE", "/templates/tags", 400, {"name": "none", "tags": []})
        self.failure("DELETE", "/templates/tags", 404, {"name": "none", "tags": ["x"]})

    def test_upload_links(self):
        status, _, link = ask("GET", "/templates/t/files/" + "ab" * 32)
        self.assertEqual((status, link["present"]), (201, False))
        put = lambda url: urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT"))
        for forged in (link["url"][:-1] + ("0" if link["url"][-1] != "0" else "1"), link["url"].rpartition("/")[0] + "/x"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                put(forged)
            self.assertEqual(caught.exception.code, 401)

    def test_absent(self):
        for path in ("/volumes", "/secrets", "/teams", "/nodes", "/api-keys", "/access-tokens", "/events/webhooks/w/deliveries"):
            self.failure("GET", path, 501)
        self.assertIn("autoPauseMemory", self.failure("POST", "/v2/sandboxes", 501, {"templateID": "base", "autoPause": True, "autoPauseMemory": False}))

    def test_calls_of_other_versions(self):
        sdk = {"Lang": "python", "Package_version": "9.0.0"}
        self.assertIn("newer than 2.63.0", self.failure("POST", "/v9/sandboxes", 501, {}, headers=sdk))
        self.assertIn("newer than", self.failure("PATCH", "/sandboxes", 501, {}, headers=sdk))
        self.assertEqual(ask("POST", "/v9/sandboxes", {})[2]["code"], "not_found")

    def test_webhooks_and_events(self):
        body = {"name": "n", "url": "https://hooks.example.org", "enabled": False, "signatureSecret": "a secret", "events": ["sandbox.lifecycle.killed"]}
        for missing in ("name", "url", "signatureSecret", "events"):
            self.failure("POST", "/events/webhooks", 400, {k: v for k, v in body.items() if k != missing})
        self.failure("POST", "/events/webhooks", 400, {**body, "events": ["sandbox.exploded"]})
        status, _, made = ask("POST", "/events/webhooks", body)
        self.assertEqual((status, made["events"], made["enabled"]), (201, body["events"], False))
        self.assertNotIn("secret", json.dumps(made))
        at = "/events/webhooks/" + made["id"]
        self.assertIn(made, ask("GET", "/events/webhooks")[2])
        self.assertEqual(ask("PATCH", at, {"name": "m"})[2]["name"], "m")
        self.assertEqual(ask("GET", at)[2]["name"], "m")
        self.assertEqual(ask("DELETE", at)[0], 200)
        self.failure("GET", at, 404)
        sandbox = self.create()[0]
        status, _, events = ask("GET", f"/events/sandboxes/{sandbox}?types=sandbox.lifecycle.created")
        self.assertEqual((status, [e["sandboxId"] for e in events]), (200, [sandbox]))
        ask("DELETE", f"/sandboxes/{sandbox}")
        for query, want in {"": ["killed", "created"], "?orderAsc=true": ["created", "killed"], "?limit=1&offset=1": ["created"], "?offset=2": []}.items():
            events = ask("GET", f"/events/sandboxes/{sandbox}{query}")[2]
            self.assertEqual([e["type"].split(".")[-1] for e in events], want, query)
        self.assertEqual([e["sandboxId"] for e in ask("GET", "/events/sandboxes?limit=1")[2]], [sandbox])
        self.failure("GET", "/events/sandboxes?limit=101", 400)

    def test_bad_input(self):
        for body in (b"", b"{", b"[]", {"templateID": 5}, {"templateID": "base", "timeout": -1}, {"templateID": "base", "timeout": "x"},
                     {"templateID": "base", "metadata": {"a": 1}}, {"templateID": "base", "metadata": {"bothy.e2b.x": "y"}}):
            self.failure("POST", "/sandboxes", 400, body)
        for option, said in ({"bothy.on_host_loss": "restart"}, "pause, resume or fail"), ({"bothy.checkpoint_seconds": "often"}, "number of seconds"), \
                ({"bothy.checkpoint_seconds": "5"}, "from 10"), ({"bothy.host_labels": "zone"}, "zone=a,disk=nvme"), ({"bothy.on_hostloss": "fail"}, "bothy.on_host_loss"):
            self.assertIn(said, self.failure("POST", "/sandboxes", 400, {"templateID": "base", "metadata": option}))
        self.assertIn("requires a cluster", self.failure("POST", "/sandboxes", 501, {"templateID": "base", "metadata": {"bothy.host_labels": "zone=a"}}))
        self.failure("POST", "/sandboxes", 404, {"templateID": "none"})
        self.failure("POST", "/sandboxes", 401, {"templateID": "base"}, key="")
        self.failure("POST", "/sandboxes", 401, {"templateID": "base"}, key="e2b_" + "0" * 40)
        self.failure("GET", "/sandboxes/none", 404)

    def test_versions(self):
        said = self.failure("POST", "/v2/sandboxes", 400, {"templateID": "base"}, headers={"lang": "python", "package_version": "1.5.0"})
        self.assertIn("1.5.0", said)
        self.assertIn("2.7.0", said)


class Agent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=300)
        cls.addClassCleanup(cls.sandbox.kill)
        cls.headers = {"E2b-Sandbox-Id": cls.sandbox.sandbox_id, "E2b-Sandbox-Port": "49983",
                       "X-Access-Token": cls.sandbox.connection_config.sandbox_headers["X-Access-Token"]}

    def start(self, command, codec, **headers):
        with process_connect.ProcessClientSync(SERVER, codec=codec) as client:
            with ResponseMetadata() as answer:
                config = process_pb.ProcessConfig(cmd="/bin/bash", args=["-l", "-c", command])
                events = [e.event.event for e in client.start(process_pb.StartRequest(process=config), headers={**self.headers, **headers})]
            return events, answer.headers

    def test_processes(self):
        for codec in (proto_binary_codec(), proto_json_codec()):
            mark = f"echo {codec.name()}-{time.time_ns()}"
            events, headers = self.start(mark, codec)
            self.assertEqual(headers["content-type"], "application/connect+" + codec.name())
            kinds = [e.field for e in events]
            self.assertEqual((kinds[0], kinds[-1]), ("start", "end"))
            self.assertEqual(events[-1].value.exit_code, 0)
            said = b"".join(e.value.output.value for e in events if e.field == "data")
            self.assertEqual(said.decode().strip(), mark.removeprefix("echo "))
            self.assertIn(mark, self.recorded(), "the command is not in the record: the request was compressed")

    def recorded(self):
        at = os.environ["BOTHY_URL"] + "/v1/audit?sandbox=" + self.sandbox.sandbox_id
        request = urllib.request.Request(at, headers={"Authorization": "Bearer " + os.environ["BOTHY_API_KEY"]})
        with urllib.request.urlopen(request) as answer:
            return [r.get("command") for r in json.load(answer)["items"]]

    def test_keep_alive(self):
        events, _ = self.start("sleep 1.5", proto_binary_codec(), **{"Keepalive-Ping-Interval": "1"})
        self.assertIn("keepalive", [e.field for e in events])
        events, _ = self.start("sleep 1.5", proto_binary_codec())
        self.assertNotIn("keepalive", [e.field for e in events])

    def test_signals(self):
        with process_connect.ProcessClientSync(SERVER, codec=proto_binary_codec()) as client:
            with self.assertRaises(ConnectError) as caught:
                selector = process_pb.ProcessSelector(selector=Oneof("pid", 999_999))
                client.send_signal(process_pb.SendSignalRequest(process=selector, signal=process_pb.Signal.SIGKILL), headers=self.headers)
            self.assertEqual(caught.exception.code, Code.NOT_FOUND)

    def test_files(self):
        for codec in (proto_binary_codec(), proto_json_codec()):
            with filesystem_connect.FilesystemClientSync(SERVER, codec=codec) as client:
                at = "/tmp/" + codec.name()
                made = client.make_dir(filesystem_pb.MakeDirRequest(path=at), headers=self.headers)
                self.assertEqual(made.entry.path, at)
                self.assertEqual(client.stat(filesystem_pb.StatRequest(path=at), headers=self.headers).entry.name, codec.name())
                client.move(filesystem_pb.MoveRequest(source=at, destination=at + "2"), headers=self.headers)
                listed = client.list_dir(filesystem_pb.ListDirRequest(path="/tmp", depth=1), headers=self.headers)
                self.assertIn(codec.name() + "2", [e.name for e in listed.entries])
                client.remove(filesystem_pb.RemoveRequest(path=at + "2"), headers=self.headers)
                with self.assertRaises(ConnectError) as caught:
                    client.stat(filesystem_pb.StatRequest(path=at), headers=self.headers)
                self.assertEqual(caught.exception.code, Code.NOT_FOUND)

    def test_compressed_files(self):
        plain = b"z" * 100_000
        headers = {**self.headers, "Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
        self.assertEqual(ask("POST", "/files?path=/tmp/zipped&username=user", gzip.compress(plain), headers, "")[0], 200)
        status, got, body = ask("GET", "/files?path=/tmp/zipped&username=user", None, {**self.headers, "Accept-Encoding": "gzip"}, "")
        self.assertEqual((status, gzip.decompress(body) if got["Content-Encoding"] == "gzip" else body), (200, plain))

    def test_compose(self):
        status, _, failed = ask("POST", "/files/compose", {"paths": []}, self.headers, "")
        self.assertEqual((status, failed["code"]), (501, 501))

    def test_gone_and_paused(self):
        """502 exactly when a sandbox is gone or paused."""
        sandbox = Sandbox.create(timeout=120)
        where = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983",
                 "X-Access-Token": sandbox.connection_config.sandbox_headers["X-Access-Token"]}
        calls = (("GET", "/files?path=/etc/hostname", None), ("POST", "/process.Process/List", b"{}"),
                 ("POST", "/filesystem.Filesystem/Stat", b'{"path": "/etc"}'), ("GET", "/envs", None))

        def statuses():
            return {ask(method, path, body, where, "")[0] for method, path, body in calls}

        self.assertEqual(statuses(), {200})
        self.assertEqual(ask("GET", "/files?path=/none", None, where, "")[0], 404)
        self.assertEqual(ask("GET", "/envs", None, {**where, "X-Access-Token": "none"}, "")[0], 401)
        sandbox.pause()
        self.assertEqual(statuses(), {502})
        sandbox.connect()
        self.assertEqual(statuses(), {200})
        sandbox.kill()
        self.assertEqual(statuses(), {502})


if __name__ == "__main__":
    suite.main()
