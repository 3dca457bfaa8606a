"""The life of a sandbox, and commands in it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from fake_server import Answer, FakeServer, as_json, final, out, problem, sandbox

from bothy import (
    AsyncClient,
    AsyncSandbox,
    CommandError,
    Network,
    NetworkMode,
    SandboxNotFoundError,
    SandboxPausedError,
    Secret,
    TemplateNotFoundError,
)


async def test_readme(fake: FakeServer) -> None:
    fake.scripts["python /workspace/main.py"] = lambda _: iter([out("499999500000\n"), final()])
    async with AsyncSandbox.create(template="python-3.12") as sbx:
        await sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))")
        result = await sbx.exec("python /workspace/main.py")
    assert fake.calls("PUT", "/files")[0].body == b"print(sum(range(1_000_000)))"
    assert (result.stdout, result.duration_ms, result.ok) == ("499999500000\n", 12, True)
    assert fake.sandboxes[sbx.id]["state"] == "stopped"
    assert sbx.info.state == "stopped"


async def test_block_that_raises_terminates(fake: FakeServer) -> None:
    with pytest.raises(KeyError):
        async with AsyncSandbox.create() as sbx:
            raise KeyError("mine")
    assert fake.sandboxes[sbx.id]["state"] == "stopped"


async def test_failed_termination_does_not_hide_the_blocks_error(fake: FakeServer) -> None:
    with pytest.raises(KeyError):
        async with AsyncSandbox.create() as sbx:
            gone = problem(404, "sandbox_not_found", "it is gone")
            fake.routes["DELETE", f"/v1/sandboxes/{sbx.id}"] = lambda _: gone
            raise KeyError("mine")


async def test_create_sends_what_was_given_and_nothing_else(
    fake: FakeServer, client: AsyncClient
) -> None:
    await AsyncSandbox.create(
        "node-22",
        client=client,
        name="n",
        cpu=0.5,
        network=Network("restricted", presets=("npm",), allow_domains=("*.example.org",)),
        timeout_seconds=0,
        env={"A": "b"},
        secrets=[Secret("TOKEN", "hush", hosts=("api.example.com",))],
        metadata={"run": "7"},
    )
    assert fake.seen[-1].json == {
        "template": "node-22",
        "name": "n",
        "cpu": 0.5,
        "network": {
            "mode": "restricted",
            "presets": ["npm"],
            "allow_domains": ["*.example.org"],
        },
        "timeout_seconds": 0,
        "env": {"A": "b"},
        "secrets": [{"name": "TOKEN", "value": "hush", "hosts": ["api.example.com"]}],
        "metadata": {"run": "7"},
    }


async def test_network_forms(fake: FakeServer, client: AsyncClient) -> None:
    modes: tuple[NetworkMode, ...] = ("off", "restricted", "open")
    for network in modes:
        sbx = await AsyncSandbox.create(network=network, client=client)
        assert sbx.info.network == Network(network)
    sbx = await AsyncSandbox.create(
        network={"mode": "restricted", "allow_ports": [443]}, client=client
    )
    assert sbx.info.network == Network("restricted", allow_ports=(443,))


async def test_info_has_real_types(fake: FakeServer, client: AsyncClient) -> None:
    wire = sandbox(
        state="failed",
        ended={"reason": "out_of_memory", "detail": "over 512 MiB", "at": "2026-03-04T06:00:00Z"},
        field_of_a_newer_server=True,
        expires_at=None,
    )
    fake.routes["GET", "/v1/sandboxes/sbx-1"] = lambda _: as_json(wire)
    info = (await AsyncSandbox.get("sbx-1", client=client)).info
    assert info.created_at == datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=timezone.utc)
    assert info.ended is not None and info.ended.reason == "out_of_memory"
    assert info.expires_at is None and isinstance(info.cpu, float)


async def test_get_unknown(fake: FakeServer, client: AsyncClient) -> None:
    with pytest.raises(SandboxNotFoundError) as caught:
        await AsyncSandbox.get("sbx/9", client=client)
    assert caught.value.code == "sandbox_not_found" and caught.value.status == 404


@pytest.mark.parametrize("fake", [2], indirect=True)
async def test_list_walks_the_pages(fake: FakeServer, client: AsyncClient) -> None:
    for n in range(5):
        fake.add_sandbox(name="even" if n % 2 == 0 else "odd", metadata={"n": str(n)})
    assert [s.id for s in await AsyncSandbox.list(client=client)] == [
        f"sbx-000{n}" for n in range(5, 0, -1)
    ]
    assert [s.id for s in await AsyncSandbox.list(limit=3, client=client)] == [
        "sbx-0005",
        "sbx-0004",
        "sbx-0003",
    ]
    odd = await AsyncSandbox.list(name="odd", client=client)
    assert [s.id for s in odd] == ["sbx-0004", "sbx-0002"]
    labelled = await AsyncSandbox.list(metadata={"n": "4"}, client=client)
    assert [s.id for s in labelled] == ["sbx-0005"]
    assert await AsyncSandbox.list(state=["stopped", "failed"], client=client) == []


async def test_missing_template_has_a_hint(fake: FakeServer) -> None:
    fake.next_answers = [problem(404, "template_not_found", 'there is no "missing"', "Build it.")]
    with pytest.raises(TemplateNotFoundError) as caught:
        await AsyncSandbox.create("missing")
    assert caught.value.hint == "Build it." and "Build it." in str(caught.value)
    assert caught.value.request_id == "req-1"


async def test_terminate_twice(fake: FakeServer, client: AsyncClient) -> None:
    sbx = await AsyncSandbox.create(client=client)
    await sbx.terminate()
    await sbx.terminate()
    assert (await sbx.refresh()).state == "stopped"


async def test_asking_after_the_end_leaves_no_connection(fake: FakeServer) -> None:
    async with AsyncSandbox.create() as sbx:
        pass
    assert (await sbx.refresh()).state == "stopped"
    assert sbx._client._connections is None


async def test_exec_sends_its_arguments(fake: FakeServer) -> None:
    async with AsyncSandbox.create() as sbx:
        await sbx.exec(
            ["ls", "-l"], cwd="/", env={"A": "b"}, user="root", timeout_seconds=2.5, stdin="x"
        )
    assert fake.calls("POST", "/exec")[0].json == {
        "command": ["ls", "-l"],
        "cwd": "/",
        "env": {"A": "b"},
        "user": "root",
        "timeout_seconds": 2.5,
        "stdin": "x",
    }


async def test_exit_code_is_not_an_error_until_checked(fake: FakeServer) -> None:
    fake.scripts["false"] = lambda _: iter([out("why", stream="stderr"), final(3)])
    async with AsyncSandbox.create() as sbx:
        result = await sbx.exec("false")
    assert (result.exit_code, result.ok) == (3, False)
    with pytest.raises(CommandError, match="exit code 3: why") as caught:
        result.check()
    assert caught.value.result is result


async def test_killed_command_says_so(fake: FakeServer) -> None:
    fake.scripts["hog"] = lambda _: iter([final(137, oom_killed=True, hint="Give it memory_mb.")])
    async with AsyncSandbox.create() as sbx:
        result = await sbx.exec("hog")
    assert result.oom_killed and result.hint == "Give it memory_mb."


async def test_exec_in_a_paused_sandbox(fake: FakeServer, client: AsyncClient) -> None:
    sbx = await AsyncSandbox.get(fake.add_sandbox()["id"], client=client)
    fake.api("POST", f"/v1/sandboxes/{sbx.id}/pause")
    with pytest.raises(SandboxPausedError):
        await sbx.exec("true")


async def test_one_client_for_many_and_its_end(fake: FakeServer) -> None:
    async with AsyncClient() as client:
        one = await AsyncSandbox.create(client=client)
        await one.terminate()
        two = await AsyncSandbox.create(client=client)
        assert fake.calls("POST")[0].headers["authorization"].startswith("Bearer bothy_")
        assert await client.request("GET", f"/v1/sandboxes/{two.id}") == fake.sandboxes[two.id]
    with pytest.raises(Exception, match="client is closed"):
        await two.refresh()


async def test_answer_that_is_not_json(fake: FakeServer) -> None:
    fake.next_answers = [Answer(200, b"<html>hello</html>")]
    with pytest.raises(Exception, match="not JSON"):
        await AsyncSandbox.create()


async def test_large_page_is_asked_for(fake: FakeServer) -> None:
    fake.routes["GET", "/v1/sandboxes"] = lambda _: as_json({"items": None})
    assert await AsyncSandbox.list() == []
    assert fake.seen[-1].query == {"limit": "1000"}
