"""Pausing, copying, going back, code and what is logged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from fake_server import Answer, Exchange, FakeServer, as_json, final, out, problem, sandbox

from bothy import (
    AsyncClient,
    AsyncSandbox,
    BothyError,
    BudgetExceededError,
    CloneFailedError,
    CodeFailedError,
    ConflictError,
    ContextNotFoundError,
    InvalidArgumentError,
    Network,
    NotFoundError,
    QuotaExceededError,
    RequestTimeoutError,
    SandboxPausedError,
    UnsupportedError,
)


async def test_pause_and_resume(fake: FakeServer, client: AsyncClient) -> None:
    sbx = await AsyncSandbox.create("node-22", client=client)
    snapshot_id = await sbx.pause(name="n")
    assert sbx.info.state == "paused" and fake.seen[-1].json == {"name": "n"}
    with pytest.raises(SandboxPausedError):
        await sbx.exec("true")
    again = await AsyncSandbox.resume(snapshot_id, client=client)
    assert again.id == sbx.id and again.info.state == "running"
    await sbx.pause(memory=False)
    assert fake.seen[-1].json == {"memory": False}
    assert (await AsyncSandbox.resume(sbx.id, client=client)).id == sbx.id
    assert not fake.seen[-1].body
    assert (await AsyncSandbox.resume(sbx.id, memory=False, client=client)).id == sbx.id
    assert fake.seen[-1].json == {"memory": False}
    with pytest.raises(NotFoundError):
        await AsyncSandbox.resume("snap-9", client=client)


async def test_the_engine_is_chosen_and_tells_of_itself(
    fake: FakeServer, client: AsyncClient
) -> None:
    vm = {"engine": "microvm", "acceleration": "emulated", "kernel": "6.1.0-vm"}
    fake.routes["POST", "/v1/sandboxes"] = lambda _: as_json(sandbox(**vm), 201)
    sbx = await AsyncSandbox.create(
        engine="auto", require_acceleration=False, host_labels={"disk_Kind": "fast"}, client=client
    )
    assert fake.seen[-1].json == {
        "engine": "auto",
        "require_acceleration": False,
        "host_labels": {"disk_Kind": "fast"},
    }
    told = sbx.info
    assert (told.engine, told.acceleration, told.kernel) == ("microvm", "emulated", "6.1.0-vm")

    refusal = "the engine microvm has KVM on no host"
    fake.routes["POST", "/v1/sandboxes"] = lambda _: problem(
        422, "acceleration_unavailable", refusal
    )
    with pytest.raises(UnsupportedError, match="KVM"):
        await AsyncSandbox.create(engine="microvm", require_acceleration=True, client=client)


async def test_snapshots_fork_and_rollback(fake: FakeServer, sbx: AsyncSandbox) -> None:
    snapshot = await sbx.snapshot("before")
    assert (snapshot.name, snapshot.kind, snapshot.size_bytes) == ("before", "memory", 1 << 40)
    assert await sbx.snapshots() == [snapshot]
    assert fake.calls("GET", "/snapshots")[0].query["sandbox_id"] == sbx.id
    copies = await sbx.fork(3, metadata={"k": "v"}, network="off")
    assert [c.id for c in copies] == ["sbx-0003", "sbx-0004", "sbx-0005"]
    assert copies[0].info.parent_sandbox_id == sbx.id
    assert copies[0].info.forked_at == sbx.info.created_at
    forked = fake.calls("POST", "/fork")[0]
    assert forked.headers["idempotency-key"]
    assert forked.json == {"count": 3, "metadata": {"k": "v"}, "network": "off"}
    await sbx.fork(secrets=True)
    assert fake.calls("POST", "/fork")[1].json == {"count": 1, "secrets": True}
    info = await sbx.rollback(snapshot)
    assert info.parent_snapshot_id == snapshot.id == sbx.info.parent_snapshot_id


async def test_a_template_is_made_of_a_sandbox(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def make(exchange: Exchange) -> Answer:
        asked = exchange.request_seen.json
        made = {"name": asked["name"], "digest": "sha256:02", "project": "red"}
        if asked.get("memory"):
            made["memory"] = {"snapshot_id": "snap-1", "memory_mb": 512}
        return as_json(made, 201)

    fake.routes["POST", f"/v1/sandboxes/{sbx.id}/template"] = make
    made = await sbx.create_template("team/app:v3", description="the app")
    assert (made.name, made.project, made.memory) == ("team/app:v3", "red", None)
    made = await sbx.create_template("app", memory=True)
    assert made.memory is not None
    assert (made.memory.snapshot_id, made.memory.memory_mb) == ("snap-1", 512)
    assert [c.json for c in fake.calls("POST", "/template")] == [
        {"name": "team/app:v3", "description": "the app"},
        {"name": "app", "memory": True},
    ]


async def test_changes(fake: FakeServer, sbx: AsyncSandbox) -> None:
    assert (await sbx.set_timeout(60)).timeout_seconds == 60
    info = await sbx.set_network({"mode": "restricted", "allow_domains": ["*.example.org"]})
    assert info.network == Network("restricted", allow_domains=("*.example.org",))
    await sbx.update(name="n", metadata={"a": "b"}, on_timeout="pause", idle_seconds=5)
    assert (sbx.info.name, sbx.info.metadata, sbx.info.idle_seconds) == ("n", {"a": "b"}, 5)
    assert fake.seen[-1].method == "PATCH" and "network" not in fake.seen[-1].json
    assert (await sbx.update(budget=2.5)).budget == 2.5
    await sbx.update(budget=0)
    assert fake.seen[-1].json == {"budget": 0}
    info = await sbx.update(checkpoint_seconds=30, on_host_loss="resume")
    assert (info.checkpoint_seconds, info.on_host_loss) == (30, "resume")
    assert fake.seen[-1].json == {"checkpoint_seconds": 30, "on_host_loss": "resume"}


async def test_timeout_of_a_paused_sandbox(sbx: AsyncSandbox) -> None:
    await sbx.pause()
    with pytest.raises(SandboxPausedError, match="has not begun"):
        await sbx.set_timeout(60)
    assert (await sbx.update(timeout_seconds=90)).timeout_seconds == 90


async def test_a_repository_is_asked_for(fake: FakeServer, client: AsyncClient) -> None:
    said = "the repository was not cloned: fatal: no"
    fake.routes["POST", "/v1/sandboxes"] = lambda _: problem(422, "clone_failed", said)
    repo = "https://git.example.org/a#main"
    with pytest.raises(CloneFailedError, match="fatal: no"):
        await AsyncSandbox.create(repo=repo, repo_token="t", client=client)
    assert fake.seen[-1].json == {"repo": repo, "repo_token": "t"}


async def test_a_fleet_is_made_once_and_ended(fake: FakeServer, client: AsyncClient) -> None:
    async def make(count: int, **more: Any) -> list[AsyncSandbox | BothyError]:
        return await AsyncSandbox.create_many(
            count, tag="run 1", template="node-22", metadata={"run": "1"}, client=client, **more
        )

    def ids(fleet: list[AsyncSandbox | BothyError]) -> list[str]:
        assert all(isinstance(one, AsyncSandbox) for one in fleet)
        return [one.id for one in fleet if isinstance(one, AsyncSandbox)]

    first = await make(3)
    again = await make(5, concurrency=1)
    assert len(set(ids(first))) == 3
    assert ids(again)[:3] == ids(first)
    assert len(set(ids(again))) == 5
    keys = {seen.headers["idempotency-key"] for seen in fake.calls("POST", "/v1/sandboxes")}
    assert keys == {f"tag-run%201%2F{index}" for index in range(5)}

    refused = await AsyncSandbox.create_many(2, memory_mb=1, client=client)
    assert [type(one).__name__ for one in refused] == ["InvalidArgumentError"] * 2

    one = await AsyncSandbox.create("node-22", tag="a", client=client)
    assert (await AsyncSandbox.create("node-22", tag="a", client=client)).id == one.id
    copies = await one.fork(2, tag="b")
    assert [copy.id for copy in await one.fork(2, tag="b")] == [copy.id for copy in copies]

    ended = await AsyncSandbox.terminate_many(metadata={"run": "1"}, client=client)
    assert ended == dict.fromkeys(sorted(ids(again), reverse=True))
    some = await AsyncSandbox.terminate_many([one, "sbx-lost"], client=client)
    assert some[one.id] is None and isinstance(some["sbx-lost"], NotFoundError)
    with pytest.raises(InvalidArgumentError):
        await AsyncSandbox.terminate_many(client=client)


async def test_waits(fake: FakeServer, sbx: AsyncSandbox) -> None:
    await sbx.wait_for_port(8000, timeout_seconds=5)
    assert fake.seen[-1].json == {"port": 8000, "timeout_seconds": 5}
    assert "idempotency-key" not in fake.seen[-1].headers
    assert await sbx.wait_for_url("http://localhost/", status=200, process=7) == 200
    assert fake.seen[-1].json == {
        "url": "http://localhost/",
        "status": 200,
        "pid": 7,
        "timeout_seconds": 60,
    }
    assert await sbx.wait_for_log("line", path="a.log", user="root") == "the line"
    assert fake.seen[-1].json == {
        "log": "line",
        "path": "a.log",
        "user": "root",
        "timeout_seconds": 60,
    }
    with pytest.raises(RequestTimeoutError, match=r"0\.5 seconds"):
        await sbx.wait_for_port(9, timeout_seconds=0.5)
    process = await sbx.spawn("cat")
    await process.write("one\nready\n")
    assert await sbx.wait_for_log("ready", process=process) == "ready"
    await process.close_stdin()
    assert await sbx.wait_for_exit(process) == 0
    with pytest.raises(ConflictError):
        await sbx.wait_for_log("never", process=process)


async def test_restart(fake: FakeServer, client: AsyncClient, sbx: AsyncSandbox) -> None:
    with pytest.raises(ConflictError):
        await AsyncSandbox.restart(sbx.id, client=client)
    loss = {"host": "one", "at": "2026-01-02T03:04:05Z", "snapshot_id": "snap-1", "age_seconds": 41}
    fake.routes["POST", f"/v1/sandboxes/{sbx.id}/restart"] = lambda _: as_json(
        sandbox(id=sbx.id, host_loss=loss)
    )
    again = await AsyncSandbox.restart(sbx.id, client=client)
    assert again.id == sbx.id and again.info.host_loss is not None
    assert (again.info.host_loss.snapshot_id, again.info.host_loss.age_seconds) == ("snap-1", 41)


async def test_code(fake: FakeServer, sbx: AsyncSandbox) -> None:
    answer = {
        "results": [{"text/plain": "1"}, {"text/plain": "2", "image/png": "iVBO"}],
        "stdout": "hi\n",
        "stderr": "",
        "error": None,
        "execution_count": 4,
        "duration_ms": 8,
    }
    fake.scripts["x"] = lambda _: iter([answer])
    result = await sbx.run_code("x", context="ctx-1", env={"A": "b"}, timeout_seconds=5)
    assert (result.text, result.stdout, result.execution_count) == ("2", "hi\n", 4)
    assert result.check() is result
    assert fake.seen[-1].json == {
        "code": "x",
        "context_id": "ctx-1",
        "env": {"A": "b"},
        "timeout_seconds": 5,
    }


async def test_code_that_raises(fake: FakeServer, sbx: AsyncSandbox) -> None:
    error = {"name": "ZeroDivisionError", "value": "division by zero", "traceback": "…"}
    fake.scripts["1/0"] = lambda _: iter([{"error": error}])
    result = await sbx.run_code("1/0", "python")
    assert not result.ok and result.error is not None and result.text is None
    with pytest.raises(CodeFailedError, match="ZeroDivisionError: division by zero"):
        result.check()


async def test_code_with_callbacks(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(_: Exchange) -> Iterator[dict[str, Any]]:
        yield out("a")
        yield {"results": [{"text/plain": "42"}]}
        yield out("b", 1)
        yield final(execution_count=7, error={"name": "E"}, context_id="c", timed_out=True)

    fake.scripts["x"] = script
    shown: list[object] = []
    result = await sbx.run_code("x", on_stdout=shown.append, on_result=shown.append)
    assert shown == ["a", {"text/plain": "42"}, "b"]
    assert (result.stdout, result.text, result.execution_count) == ("ab", "42", 7)
    assert result.error is not None and result.error.name == "E"
    assert (result.context_id, result.timed_out, result.truncated) == ("c", True, False)


async def test_contexts(fake: FakeServer, sbx: AsyncSandbox) -> None:
    context = await sbx.contexts.create("javascript", cwd="/tmp")
    assert (context.id, context.language, context.cwd) == ("ctx-0002", "javascript", "/tmp")
    assert await sbx.contexts.list() == [context]
    await sbx.contexts.interrupt(context)
    await sbx.contexts.restart("ctx-0002")
    assert [s.path.rpartition("contexts/")[2] for s in fake.calls("POST")[-2:]] == [
        "ctx-0002/interrupt",
        "ctx-0002/restart",
    ]
    await sbx.contexts.remove(context)
    with pytest.raises(ContextNotFoundError):
        await sbx.contexts.remove("ctx-0002")


async def test_network_log(fake: FakeServer, sbx: AsyncSandbox) -> None:
    line = {"time": "2026-03-04T05:06:07Z", "protocol": "tls", "name": "a.example.org"}
    path = f"/v1/sandboxes/{sbx.id}/network/log"
    fake.routes["GET", path] = lambda _: as_json({"items": [{**line, "allowed": True}]})
    since = datetime(2026, 3, 4, tzinfo=timezone.utc)
    (decision,) = await sbx.network_log(since)
    assert decision.allowed and decision.name == "a.example.org"
    assert fake.seen[-1].query == {"since": "2026-03-04T00:00:00.000000Z"}
    fake.routes["GET", path] = lambda exchange: exchange.send_events(iter([line]))
    async with sbx.watch_network() as decisions:
        assert [d.allowed async for d in decisions] == [False]


async def test_metrics_logs_and_url(fake: FakeServer, sbx: AsyncSandbox) -> None:
    base = f"/v1/sandboxes/{sbx.id}"
    fake.routes["GET", base + "/metrics"] = lambda _: as_json({"cpu_seconds": 1, "processes": 3})
    metrics = await sbx.metrics()
    assert (metrics.cpu_seconds, metrics.processes, metrics.memory_bytes) == (1.0, 3, 0)
    kept = {"items": [{"cpu_seconds": 1}, {"cpu_seconds": 2}]}
    fake.routes["GET", base + "/metrics/history"] = lambda _: as_json(kept)
    history = await sbx.metrics_history(datetime(2026, 1, 2, tzinfo=timezone.utc))
    assert [m.cpu_seconds for m in history] == [1.0, 2.0]
    assert fake.seen[-1].query == {"from": "2026-01-02T00:00:00+00:00"}
    items = [
        {"pid": 9, "stream": "stderr", "data": "x", "offset": 0},
        {"pid": 9, "stream": "stdout", "data": "4oI=", "encoding": "base64", "offset": 1},
        {"pid": 9, "stream": "stdout", "data": "rA==", "encoding": "base64", "offset": 3},
    ]
    fake.routes["GET", base + "/logs"] = lambda _: as_json({"items": items, "truncated": True})
    logs = await sbx.logs(9)
    assert fake.seen[-1].query == {"pid": "9"}
    assert (logs.text, logs.truncated, logs.items[1].raw) == ("x€", True, b"\xe2\x82")
    link = {"url": "http://8000-sbx-1.localhost/?bothy_link=x"}
    fake.routes["POST", base + "/links"] = lambda _: as_json(link, 201)
    assert await sbx.url(8000, expires_seconds=60) == link["url"]
    assert fake.seen[-1].json == {"port": 8000, "expires_seconds": 60}


async def test_links(fake: FakeServer, sbx: AsyncSandbox) -> None:
    base = f"/v1/sandboxes/{sbx.id}/links"
    wire = {
        "id": "lnk_1",
        "sandbox_id": sbx.id,
        "port": 8000,
        "kind": "webhook",
        "token_id": "tok_1",
        "created_at": "2026-03-04T05:06:07Z",
        "expires_at": "2026-03-04T06:06:07Z",
    }
    fake.routes["POST", base] = lambda _: as_json({**wire, "url": "http://x/_bothy/t/"}, 201)
    link = await sbx.create_link(8000, kind="webhook")
    assert fake.seen[-1].json == {"port": 8000, "kind": "webhook"}
    assert (link.id, link.kind, link.url) == ("lnk_1", "webhook", "http://x/_bothy/t/")
    assert link.expires_at is not None and link.expires_at.hour == 6
    fake.routes["GET", base] = lambda _: as_json({"items": [wire]})
    (listed,) = await sbx.links()
    assert (listed.port, listed.url, listed.token_id) == (8000, "", "tok_1")
    fake.routes["DELETE", base + "/lnk_1"] = lambda _: as_json(None, 204)
    await sbx.delete_link("lnk_1")
    assert fake.seen[-1].method == "DELETE"


async def test_an_endpoint(fake: FakeServer, sbx: AsyncSandbox) -> None:
    end = sbx.endpoint(8000)
    assert end.url == f"{fake.url}/v1/sandboxes/{sbx.id}/ports/8000/"
    assert end.websocket_url == end.url.replace("http:", "ws:")
    assert list(end.headers) == ["Authorization"]
    assert end.headers["Authorization"].removeprefix("Bearer ") not in repr(end)
    for port in (0, 65536):
        with pytest.raises(InvalidArgumentError, match="is not a port"):
            sbx.endpoint(port)


async def test_events_of_this_sandbox_only(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def event(number: int, sandbox: str) -> dict[str, Any]:
        return {
            "id": number,
            "time": "2026-03-04T05:06:07Z",
            "type": "sandbox.created",
            "sandbox_id": sandbox,
        }

    def page(exchange: Exchange) -> Any:
        first = exchange.request_seen.query["since"] == "0"
        if first:
            return as_json({"items": [event(1, "other"), event(2, sbx.id)], "next_cursor": "2"})
        return as_json({"items": [event(3, sbx.id)]})

    fake.routes["GET", "/v1/events"] = page
    assert [e.id for e in await sbx.events()] == [2, 3]
    assert fake.seen[-1].query["since"] == "2"
    both = [event(4, "other"), event(5, sbx.id)]
    fake.routes["GET", "/v1/events"] = lambda exchange: exchange.send_events(iter(both))
    assert [e.id async for e in sbx.watch_events(3)] == [5]


async def test_usage_and_budgets(fake: FakeServer, client: AsyncClient) -> None:
    meters = {"vcpu_seconds": 1.5, "egress_bytes": 7, "cost": 0.25}
    pages: list[dict[str, Any]] = [
        {"items": [{"day": "2026-01-01", "labels": {"team": "red"}, **meters}], "next_cursor": "1"},
        {"items": [{"day": "2026-01-02", "labels": {"team": ""}, **meters}]},
    ]
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z"}
    rest = {"as_of": "2026-01-02T12:00:00.5Z", "currency": "EUR", "total": {"cost": 0.5}}
    asked = []

    def answer(exchange: Exchange) -> Any:
        asked.append(exchange.request_seen.query)
        return as_json({**span, **rest, **pages[len(asked) - 1]})

    fake.routes["GET", "/v1/usage"] = answer
    start = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    used = await AsyncSandbox.usage(start, group_by=["day", "label:team"], client=client)
    assert [item.labels["team"] for item in used.items] == ["red", ""]
    assert (used.total.cost, used.currency, used.items[0].vcpu_seconds) == (0.5, "EUR", 1.5)
    assert (used.start.day, used.end.day, used.as_of.hour) == (1, 3, 12)
    assert asked[0]["from"] == "2026-01-01T12:00:00.000000Z"
    assert asked[0]["group_by"] == "day,label:team"
    assert (asked[1]["from"], asked[1]["cursor"]) == (span["from"], "1")

    fake.routes["POST", "/v1/sandboxes"] = lambda _: problem(402, "budget_exceeded", "it is spent")
    with pytest.raises(BudgetExceededError, match="it is spent") as refused:
        await AsyncSandbox.create(budget=2.5, client=client)
    assert isinstance(refused.value, QuotaExceededError)


async def test_templates_limits_and_snapshots(fake: FakeServer, client: AsyncClient) -> None:
    fake.routes["GET", "/v1/templates"] = lambda _: as_json(
        {"items": [{"name": "node-22", "packages": {"node": "22.1"}, "languages": ["bash"]}]}
    )
    (template,) = await client.templates()
    assert (template.packages, template.languages) == ({"node": "22.1"}, ("bash",))
    plan = {
        "plan": "small",
        "sandboxes": {"limit": 5, "used": 2},
        "snapshots": {"limit_mb": None, "used_mb": 7},
        "templates": {"limit_mb": 4096, "used_mb": 8},
        "sandbox": {"cpu": 4, "memory_mb": 8192, "timeout_seconds": 0, "networks": ["off"]},
    }
    fake.routes["GET", "/v1/limits"] = lambda _: as_json(plan)
    limits = await AsyncSandbox.limits(client=client)
    assert (limits.plan, limits.sandboxes.limit, limits.sandboxes.used) == ("small", 5, 2)
    assert (limits.snapshots.limit_mb, limits.snapshots.used_mb) == (None, 7)
    assert (limits.templates.limit_mb, limits.templates.used_mb) == (4096, 8)
    assert (limits.sandbox.cpu, limits.sandbox.networks) == (4.0, ("off",))
    fake.routes["GET", "/v1/snapshots/snap-2/changes"] = lambda _: as_json(
        {"items": [{"path": "/a", "change": "removed", "type": "directory", "size": 0}]}
    )
    changes = await client.snapshot_changes("snap-2", since="snap-1", limit=5)
    assert [(c.path, c.change, c.type) for c in changes.items] == [("/a", "removed", "directory")]
    assert not changes.truncated
    assert fake.seen[-1].query == {"since": "snap-1", "limit": "5"}
    fake.routes["DELETE", "/v1/snapshots/snap-1"] = lambda _: problem(
        409, "snapshot_in_use", "a sandbox sleeps in it"
    )
    with pytest.raises(Exception, match="sleeps in it"):
        await client.delete_snapshot("snap-1")
