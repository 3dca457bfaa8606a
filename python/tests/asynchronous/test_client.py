"""What a client does for a whole project: templates, snapshots, keys, events."""

from __future__ import annotations

import io as files
import tarfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Exchange, FakeServer, as_json, problem

from bothy import (
    AsyncClient,
    BothyError,
    BuildEvent,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    InvalidArgumentError,
    Network,
    Secret,
    Template,
    TemplateNotFoundError,
    Token,
)

SECRET = "geheimnisvoll \u00fc\u20ac"
SECRET_SENT = SECRET.encode().decode("latin-1")
TOKEN = {
    "id": "tok_1",
    "name": "ci",
    "project": "p",
    "scopes": ["sandboxes:read"],
    "created_at": "2026-01-02T03:04:05Z",
}


async def test_templates_are_found_built_and_deleted(fake: FakeServer, client: AsyncClient) -> None:
    fake.routes["GET", "/v1/templates/node-22"] = lambda _: as_json({"name": "node-22"})
    assert (await client.template("node-22")).name == "node-22"
    fake.routes["GET", "/v1/templates/a/b"] = lambda _: problem(404, "template_not_found", "no")
    with pytest.raises(TemplateNotFoundError):
        await client.template("a/b")

    steps: list[dict[str, Any]] = [
        {"step": "debian", "percent": 10.5},
        {"step": "done", "percent": 100, "template": {"name": "mine", "size_bytes": 7}},
    ]
    fake.routes["POST", "/v1/templates"] = lambda exchange: exchange.send_events(iter(steps))
    seen: list[BuildEvent] = []
    built = await client.build_template("mine", image="./image.tar", on_progress=seen.append)
    assert (built.name, built.size_bytes) == ("mine", 7)
    assert [(e.step, e.percent) for e in seen] == [("debian", 10.5), ("done", 100.0)]
    sent = fake.seen[-1]
    assert sent.json == {"name": "mine", "image": "./image.tar"}
    assert "idempotency-key" not in sent.headers

    del steps[1]
    with pytest.raises(ConnectionFailedError):
        await client.build_template("mine", force=True)

    both = [{"name": "mine", "tag": "v3"}, {"name": "mine", "tag": "stable"}]
    fake.routes["POST", "/v1/templates/mine/tags"] = lambda _: as_json({"items": both})
    assert [t.tag for t in await client.tag_template("mine", "v3", "stable")] == ["v3", "stable"]
    assert fake.seen[-1].json == {"tags": ["v3", "stable"]}

    fake.routes["GET", "/v1/sboms/mine"] = lambda _: as_json({"spdxVersion": "SPDX-2.3"})
    assert await client.template_sbom("mine") == {"spdxVersion": "SPDX-2.3"}
    assert fake.seen[-1].query == {"format": "spdx"}

    fake.routes["GET", "/v1/provenance/mine"] = lambda _: as_json({"subject": []})
    assert await client.template_provenance("mine") == {"subject": []}

    pushed = {"reference": "r.example.org/a@sha256:x", "digest": "sha256:x", "size_bytes": 7}
    fake.routes["POST", "/v1/templates/mine/push"] = lambda _: as_json(pushed)
    login = {"host": "r.example.org", "username": "u", "password": "p"}
    image = await client.push_template("mine", "r.example.org/a:1", registries=[login])
    assert (image.digest, image.size_bytes) == ("sha256:x", 7)
    assert fake.seen[-1].json == {"reference": "r.example.org/a:1", "registries": [login]}

    fake.routes["DELETE", "/v1/templates/mine"] = lambda _: problem(409, "template_in_use", "used")
    with pytest.raises(BothyError, match="used"):
        await client.delete_template("mine")


async def test_a_snapshot_moves_to_another_server(
    fake: FakeServer, client: AsyncClient, tmp_path: Path
) -> None:
    archive = bytes(range(256)) * 1000
    fake.routes["GET", "/v1/snapshots/snap_1"] = lambda _: as_json({"id": "snap_1", "name": "n"})
    assert (await client.snapshot("snap_1")).name == "n"

    def export(exchange: Exchange) -> Any:
        assert exchange.request_seen.headers.get("x-bothy-passphrase") in (SECRET_SENT, None)
        answer = as_json({})
        answer.body, answer.headers["Content-Type"] = archive, "application/octet-stream"
        return answer

    def take(exchange: Exchange) -> Any:
        seen = exchange.request_seen
        if seen.body != archive:
            return problem(400, "snapshot_invalid", "it is damaged")
        snapshot = {"id": "snap_2", "name": seen.query.get("name", "")}
        return as_json({**snapshot, "kind": "files", "detail": "the archive is not signed"}, 201)

    fake.routes["GET", "/v1/snapshots/snap_1/export"] = export
    fake.routes["POST", "/v1/snapshots/import"] = take
    path = tmp_path / "a.bothy"
    await client.export_snapshot("snap_1", path, passphrase=SECRET)
    assert path.read_bytes() == archive
    moved = await client.import_snapshot(path, name="there", passphrase=SECRET)
    assert (moved.id, moved.name) == ("snap_2", "there")
    assert (moved.kind, moved.detail) == ("files", "the archive is not signed")
    assert fake.seen[-1].headers["x-bothy-passphrase"] == SECRET_SENT

    buffer = files.BytesIO()
    await client.export_snapshot(moved.id.replace("2", "1"), buffer)
    buffer.seek(0)
    assert (await client.import_snapshot(buffer)).id == "snap_2"
    with pytest.raises(BothyError, match="damaged"):
        await client.import_snapshot(files.BytesIO(b"nonsense"))
    fake.routes["GET", "/v1/snapshots/snap_1/export"] = lambda _: problem(404, "x", "gone")
    with pytest.raises(BothyError):
        await client.export_snapshot("snap_1", tmp_path / "none")
    assert not (tmp_path / "none").exists()


async def test_keys(fake: FakeServer, client: AsyncClient) -> None:
    fake.routes["GET", "/v1/tokens"] = lambda _: as_json({"items": [TOKEN]})
    (token,) = await client.tokens()
    assert (token.scopes, token.key) == (("sandboxes:read",), "")
    assert token.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

    secret = "bothy_" + "1" * 32
    fake.routes["POST", "/v1/tokens"] = lambda _: as_json({**TOKEN, "key": secret}, 201)
    until = datetime(2030, 1, 1, tzinfo=timezone.utc)
    made = await client.create_token("ci", scopes=["sandboxes:read"], expires_at=until)
    assert made.key == secret and secret not in repr(made)
    sent = fake.seen[-1].json
    assert (sent["name"], sent["scopes"]) == ("ci", ["sandboxes:read"])
    assert sent["expires_at"].startswith("2030-01-01T00:00:00") and "project" not in sent

    gone: list[str] = []

    def delete(exchange: Exchange) -> Any:
        gone.append(exchange.request_seen.path)
        return Answer(204)

    fake.routes["DELETE", "/v1/tokens/tok_1"] = delete
    await client.delete_token(made)
    await client.delete_token(Token("tok_1").id)
    assert gone == ["/v1/tokens/tok_1"] * 2


async def test_agents(fake: FakeServer, client: AsyncClient) -> None:
    wire = {
        "id": "agt_1",
        "environment": "env_1",
        "state": "working",
        "max_sessions": 3,
        "sandbox": {"template": "node-22"},
        "tools": [{"name": "shout", "command": "tr a-z A-Z"}],
        "sessions": [{"id": "sesn_1", "sandbox_id": "sbx_1", "working": True}],
    }
    fake.routes["POST", "/v1/agents"] = lambda _: as_json(wire, 201)
    made = await client.attach_agents(
        "env_1",
        "the-key",
        tools={"shout": "tr a-z A-Z"},
        max_sessions=3,
        template="node-22",
        network=Network(allow_domains=("a.example.org",)),
        secrets=[Secret("A", "value", hosts=("a.example.org",))],
    )
    assert made.sessions[0].sandbox_id == "sbx_1" and made.tools[0]["name"] == "shout"
    sent = fake.seen[-1].json
    assert (sent["environment"], sent["key"], "url" in sent) == ("env_1", "the-key", False)
    assert sent["sandbox"]["network"]["allow_domains"] == ["a.example.org"]
    assert sent["sandbox"]["secrets"][0]["value"] == "value"
    fake.routes["GET", "/v1/agents"] = lambda _: as_json({"items": [wire]})
    assert [a.state for a in await client.agent_attachments()] == ["working"]
    fake.routes["GET", "/v1/agents/env_1"] = lambda _: as_json(wire)
    assert (await client.agent_attachment("env_1")).max_sessions == 3
    fake.routes["DELETE", "/v1/agents/agt_1"] = lambda _: Answer(204)
    await client.detach_agents(made)
    assert fake.seen[-1].method == "DELETE"


async def test_webhooks(fake: FakeServer, client: AsyncClient) -> None:
    hook = {"id": "whk_1", "url": "https://a.example.org", "enabled": True, "last_event_id": 7}
    fake.routes["POST", "/v1/webhooks"] = lambda _: as_json({**hook, "secret": "whsec_x"}, 201)
    made = await client.create_webhook("https://a.example.org", events=["sandbox.ended"])
    assert (made.id, made.secret, made.last_event_id) == ("whk_1", "whsec_x", 7)
    assert "whsec_x" not in repr(made)
    assert fake.seen[-1].json["events"] == ["sandbox.ended"]

    fake.routes["GET", "/v1/webhooks"] = lambda _: as_json({"items": [hook]})
    assert [h.id for h in await client.webhooks()] == ["whk_1"]
    failing = {**hook, "failing_since": "2026-01-02T03:04:05Z", "last_error": "503"}
    fake.routes["GET", "/v1/webhooks/whk_1"] = lambda _: as_json(failing)
    found = await client.webhook("whk_1")
    assert found.failing_since and found.failing_since.year == 2026

    fake.routes["PATCH", "/v1/webhooks/whk_1"] = lambda _: as_json(hook)
    await client.update_webhook(made, events=[], enabled=False)
    assert fake.seen[-1].json == {"events": [], "enabled": False}
    fake.routes["POST", "/v1/webhooks/whk_1/test"] = lambda _: as_json({"error": "nobody"})
    assert (await client.test_webhook("whk_1")).error == "nobody"
    fake.routes["DELETE", "/v1/webhooks/whk_1"] = lambda _: Answer(204)
    await client.delete_webhook(made)
    assert fake.seen[-1].method == "DELETE"


async def test_projects(fake: FakeServer, client: AsyncClient) -> None:
    project = {"id": "research", "plan": "pro", "created_at": "2026-01-02T03:04:05Z"}
    bounded = {**project, "budget": {"limit": 250, "used": 1.5, "currency": "EUR"}}
    fake.routes["GET", "/v1/projects"] = lambda _: as_json({"items": [project]})
    (found,) = await client.projects()
    assert (found.id, found.plan, found.budget) == ("research", "pro", None)

    fake.routes["GET", "/v1/projects/research"] = lambda _: as_json(bounded)
    budget = (await client.project("research")).budget
    assert budget and (budget.limit, budget.used, budget.currency) == (250, 1.5, "EUR")

    fake.routes["POST", "/v1/projects"] = lambda _: as_json(bounded, 201)
    await client.create_project("research", plan="pro", budget=250)
    assert fake.seen[-1].json == {"id": "research", "plan": "pro", "budget": 250}
    fake.routes["PATCH", "/v1/projects/research"] = lambda _: as_json(project)
    assert (await client.update_project("research", budget=0)).budget is None
    assert fake.seen[-1].json == {"budget": 0}


def audit_page(exchange: Exchange) -> Any:
    """Three records in pages of two."""
    first = int(exchange.request_seen.query.get("cursor", "0")) + 1
    size = int(exchange.request_seen.query["limit"])
    line = {"time": "2026-01-02T03:04:05Z", "action": "exec", "status": 200, "duration_ms": 7}
    items: list[dict[str, Any]] = [
        {**line, "id": n} for n in range(first, min(first + min(size, 2), 4))
    ]
    more = {"next_cursor": str(items[-1]["id"])} if items and items[-1]["id"] < 3 else {}
    return as_json({"items": items, **more})


async def test_audit(fake: FakeServer, client: AsyncClient) -> None:
    fake.routes["GET", "/v1/audit"] = audit_page
    records = await client.audit()
    assert [r.id for r in records] == [1, 2, 3]
    assert (records[0].action, records[0].status, records[0].duration_ms) == ("exec", 200, 7)
    assert records[0].time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert set(fake.seen[0].query) == {"limit"}

    assert [r.id for r in await client.audit(limit=1)] == [1]
    assert [r.id for r in await client.audit(after=2)] == [3]
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    await client.audit(
        start,
        start.replace(year=2027),
        action="exec",
        token=Token("tok_1"),
        sandbox="sbx1",
        project="research",
        refused=True,
        oldest=True,
        limit=2,
    )
    assert fake.seen[-1].query == {
        "since": "2026-01-01T00:00:00.000000Z",
        "until": "2027-01-01T00:00:00.000000Z",
        "action": "exec",
        "token": "tok_1",
        "sandbox": "sbx1",
        "project": "research",
        "refused": "true",
        "order": "oldest",
        "limit": "2",
    }
    fake.routes["GET", "/v1/audit"] = lambda _: problem(403, "forbidden", "not an administrator")
    with pytest.raises(ForbiddenError):
        await client.audit()


async def test_audit_is_checked(fake: FakeServer, client: AsyncClient) -> None:
    checked = {"ok": False, "records": 2, "first": 1, "last": 3, "head": "ab", "broken": 2}
    fake.routes["GET", "/v1/audit/verify"] = lambda _: as_json(checked)
    check = await client.check_audit()
    assert (check.ok, check.records, check.broken, check.head) == (False, 2, 2, "ab")
    assert fake.seen[-1].query == {}
    await client.check_audit(at=7, head="cd")
    assert fake.seen[-1].query == {"at": "7", "head": "cd"}


async def test_a_project_is_watched(fake: FakeServer, client: AsyncClient) -> None:
    happened = [
        {"id": n, "time": "2026-01-02T03:04:05Z", "type": "sandbox.created", "sandbox_id": f"s{n}"}
        for n in (4, 5)
    ]
    fake.routes["GET", "/v1/events"] = lambda exchange: exchange.send_events(iter(happened))
    assert [e.sandbox_id async for e in client.watch_events(3)] == ["s4", "s5"]
    assert fake.seen[-1].query == {"since": "3"}
    assert [e.id async for e in client.watch_events(3, sandbox="s4")] == [4, 5]
    assert fake.seen[-1].query == {"since": "3", "sandbox_id": "s4"}
    fake.routes["GET", "/v1/events"] = lambda _: as_json({"items": [], "next_cursor": "41"})
    assert await client.last_event() == 41
    assert fake.seen[-1].query == {"new": "true"}


async def test_what_all_sandboxes_use(fake: FakeServer, client: AsyncClient) -> None:
    used = [
        {"sandbox_id": "s1", "cpu_used": None, "time": "2026-01-02T03:04:05Z"},
        {"sandbox_id": "s2", "cpu_used": 0.5, "memory_bytes": 7},
    ]
    fake.routes["GET", "/v1/metrics"] = lambda _: as_json({"items": used})
    first, second = await client.metrics()
    assert (first.sandbox_id, first.cpu_used, first.time is None) == ("s1", None, False)
    assert (second.sandbox_id, second.cpu_used, second.memory_bytes) == ("s2", 0.5, 7)


async def test_a_recipe_is_built_and_followed(
    fake: FakeServer, client: AsyncClient, tmp_path: Path
) -> None:
    build = {"id": "bld_1", "name": "mine", "state": "running", "steps": 2}
    steps: list[dict[str, Any]] = [
        {"step": "[1/2] RUN", "percent": 10},
        {"step": "[2/2] RUN", "percent": 90},
        {"step": "done", "template": {"name": "mine", "size_bytes": 7}},
    ]

    def log(exchange: Exchange) -> None:
        start = int(fake.seen[-1].query.get("from", "0"))
        # The first connection breaks off in the middle.
        told = steps[start:] if start else steps[:1]
        exchange.send_events(iter([{**s, "_id": steps.index(s)} for s in told]))

    fake.routes["POST", "/v1/templates/contexts"] = lambda _: as_json({"id": "ctx_1"})
    fake.routes["POST", "/v1/templates/builds"] = lambda _: as_json(build)
    fake.routes["GET", "/v1/templates/builds/bld_1"] = lambda _: as_json(build)
    fake.routes["GET", "/v1/templates/builds/bld_1/logs"] = log
    (tmp_path / "app").mkdir()
    (tmp_path / "app/main.py").write_text("print(1)")
    (tmp_path / "other").write_text("not sent")
    recipe = Template("python-3.12").copy("app", "/app").run("true").start("serve", ready=8000)
    seen: list[str] = []
    built = await client.build_template(
        "mine",
        recipe=recipe,
        context=tmp_path,
        network=Network("open"),
        secrets={"key": "v"},
        registries=[{"host": "r.example.org", "username": "u", "password": "p"}],
        memory_mb=1024,
        force=True,
        shell_on_failure=True,
        on_progress=lambda event: seen.append(event.step),
    )
    assert (built.name, seen) == ("mine", [s["step"] for s in steps])
    sent = {(s.method, s.path): s for s in fake.seen}
    with tarfile.open(fileobj=files.BytesIO(sent["POST", "/v1/templates/contexts"].body)) as tar:
        assert tar.getnames() == ["app", "app/main.py"]
    assert sent["POST", "/v1/templates/builds"].json == {
        "name": "mine",
        "dockerfile": recipe.dockerfile,
        "context_id": "ctx_1",
        "start": {"command": "serve", "ready": {"port": 8000}},
        "network": {"mode": "open"},
        "secrets": [{"id": "key", "value": "v"}],
        "registries": [{"host": "r.example.org", "username": "u", "password": "p"}],
        "memory_mb": 1024,
        "no_cache": True,
        "shell_on_failure": True,
    }


async def test_builds_that_fail_and_that_are_cancelled(
    fake: FakeServer, client: AsyncClient
) -> None:
    failed = {
        "id": "bld_1",
        "name": "mine",
        "state": "failed",
        "code": "template_invalid",
        "error": "line 2: exit 3",
    }
    fake.routes["POST", "/v1/templates/builds"] = lambda _: as_json(failed)
    fake.routes["GET", "/v1/templates/builds"] = lambda _: as_json({"items": [failed]})
    fake.routes["GET", "/v1/templates/builds/bld_1"] = lambda _: as_json(failed)
    fake.routes["GET", "/v1/templates/builds/bld_1/logs"] = lambda exchange: exchange.send_events(
        iter([{"step": "RUN", "error": "line 2: exit 3", "_id": 0}])
    )
    with pytest.raises(InvalidArgumentError, match="line 2"):
        await client.build_template("mine", dockerfile="FROM scratch\n")
    assert [b.state for b in await client.builds()] == ["failed"]
    build = await client.build("bld_1")
    assert (build.code, build.error) == ("template_invalid", "line 2: exit 3")

    cancelled = {"id": "bld_1", "name": "mine", "state": "cancelled"}
    fake.routes["DELETE", "/v1/templates/builds/bld_1"] = lambda _: as_json(cancelled)
    fake.routes["GET", "/v1/templates/builds/bld_1"] = lambda _: as_json(cancelled)
    assert (await client.cancel_build(build)).state == "cancelled"
    with pytest.raises(ConflictError, match="was cancelled"):
        await client.wait_for_build("bld_1")
    with pytest.raises(InvalidArgumentError):
        await client.build_template("mine", image="x", recipe=Template("y").run("true"))
    with pytest.raises(InvalidArgumentError):
        await client.start_build("mine", dockerfile="FROM y", recipe=Template("y").run("true"))
