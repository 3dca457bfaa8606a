"""The life of real sandboxes: creating, finding, changing, freezing, copying."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from bothy import (
    AsyncSandbox,
    Client,
    InvalidArgumentError,
    Network,
    Sandbox,
    SandboxNotFoundError,
    SandboxPausedError,
    TemplateNotFoundError,
)


def test_create_get_list(template: str) -> None:
    with Sandbox.create(
        template, name="n", cpu=0.5, memory_mb=256, env={"A": "b"}, metadata={"m": "e2e"}
    ) as sbx:
        info = Sandbox.get(sbx.id).info
        assert (info.name, info.cpu, info.memory_mb, info.state) == ("n", 0.5, 256, "running")
        assert info.network == Network("off") and info.expires_at is not None
        assert sbx.exec("echo $A").stdout == "b\n"
        assert [s.id for s in Sandbox.list(metadata={"m": "e2e"}, state="running")] == [sbx.id]
        assert Sandbox.list(metadata={"m": "other"}) == []
    assert Sandbox.get(sbx.id).info.state == "stopped"


def test_what_cannot_be(template: str) -> None:
    with pytest.raises(TemplateNotFoundError, match=template):
        Sandbox.create("no-such-template")
    with pytest.raises(SandboxNotFoundError):
        Sandbox.get("sbx_missing")
    with pytest.raises(InvalidArgumentError):
        Sandbox.create(template, memory_mb=1)


async def test_asynchronously(template: str) -> None:
    async with AsyncSandbox.create(template) as sbx:
        await sbx.files.write("f", "1")
        assert await sbx.files.read("f") == "1"
        lines = [event.data async for event in sbx.exec_stream("echo hi") if not event.is_final]
        assert lines == ["hi\n"]
    assert (await sbx.refresh()).state == "stopped"


def test_changes(sbx: Sandbox) -> None:
    before = sbx.info.expires_at
    after = sbx.set_timeout(3600).expires_at
    assert before is not None and after is not None and (after - before).total_seconds() > 2000
    assert sbx.set_network("restricted").network.mode == "restricted"
    assert sbx.update(metadata={"k": "v"}, name="other").metadata == {"k": "v"}


def test_network_off_and_its_log(sbx: Sandbox) -> None:
    probe = (
        "import socket\n"
        "try:\n    socket.create_connection(('192.0.2.1', 443), 20)\n"
        "except OSError as e:\n    print(type(e).__name__)"
    )
    result = sbx.exec(["python3", "-c", probe])
    assert result.check().stdout.strip().endswith("Error")
    refused = [d for d in sbx.network_log() if d.address == "192.0.2.1"]
    assert refused and not refused[0].allowed and refused[0].port == 443 and refused[0].reason


def test_pause_and_resume_with_memory(sbx: Sandbox) -> None:
    counter = sbx.spawn("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done")
    with counter.stream() as stream:
        first = int(next(stream).data.split()[0])
    snapshot_id = sbx.pause()
    with pytest.raises(SandboxPausedError):
        sbx.exec("true")
    again = Sandbox.resume(snapshot_id)
    assert again.id == sbx.id and again.info.state == "running"
    info = again.process(counter.pid).info()
    assert info.running
    with again.process(counter.pid).stream(info.output_end) as stream:
        assert int(next(stream).data.split()[0]) > first
    assert Sandbox.get(sbx.id).info.state == "running"


def test_stream_goes_on_after_a_pause(sbx: Sandbox) -> None:
    counter = sbx.spawn("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done")
    text = ""
    paused_at = 0
    for event in counter.stream():
        text += event.data
        count = text.count("\n")
        if not paused_at and count >= 5:
            paused_at = count
            sbx.pause()
            threading.Timer(1.5, Sandbox.resume, [sbx.id]).start()
        if paused_at and count > paused_at + 20:
            break
    lines = text.splitlines()[: paused_at + 20]
    assert lines == [str(n + 1) for n in range(len(lines))]


def test_snapshot_and_rollback(sbx: Sandbox) -> None:
    sbx.files.write("f", "before")
    snapshot = sbx.snapshot("good")
    sbx.files.write("f", "after")
    sbx.rollback(snapshot)
    assert sbx.files.read("f") == "before"
    assert {s.name for s in sbx.snapshots()} >= {"good"} and len(sbx.snapshots()) == 2
    with pytest.raises(SandboxNotFoundError, match="a snapshot's id") as caught:
        Sandbox.get(snapshot.id)
    assert f'client.snapshot("{snapshot.id}")' in str(caught.value)


def test_fork(sbx: Sandbox) -> None:
    sbx.files.write("f", "shared")
    copies = sbx.fork(2)
    try:
        for number, copy in enumerate(copies):
            assert copy.files.read("f") == "shared"
            copy.files.write("f", str(number))
        assert [copy.files.read("f") for copy in copies] == ["0", "1"]
        assert sbx.files.read("f") == "shared"
        names = {s.exec("hostname").stdout for s in (sbx, *copies)}
        assert len(names) == 3
    finally:
        for copy in copies:
            copy.terminate()


def test_forward(sbx: Sandbox) -> None:
    sbx.files.write("index.html", "from inside")
    sbx.spawn("python3 -m http.server 8000")
    sbx.exec("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.02; done").check()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with sbx.forward(8000) as forward:
        for _ in range(3):
            with opener.open(forward.url, timeout=30) as response:
                assert response.read() == b"from inside"


def test_endpoint(sbx: Sandbox) -> None:
    sbx.files.write("index.html", "from inside")
    sbx.spawn("python3 -m http.server 8000")
    sbx.exec("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.02; done").check()
    end = sbx.endpoint(8000)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(end.url, headers=end.headers), timeout=30) as response:
        assert response.read() == b"from inside"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        opener.open(end.url, timeout=30)


def test_link(sbx: Sandbox) -> None:
    sbx.files.write("index.html", "from inside")
    sbx.spawn("python3 -m http.server 8000")
    sbx.exec("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.02; done").check()
    link = urlsplit(sbx.url(8000, expires_seconds=60))
    # The link's name leads to this machine; whoever resolves names need not know that.
    jar = urllib.request.HTTPCookieProcessor()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)
    address = f"http://127.0.0.1:{link.port}{link.path}?{link.query}"
    request = urllib.request.Request(address, headers={"Host": link.netloc})
    with opener.open(request, timeout=30) as response:
        assert response.read() == b"from inside"


def test_events_metrics_and_limits(sbx: Sandbox) -> None:
    assert sbx.events()[0].type == "sandbox.created"
    with Client() as client:
        assert client.templates()
    metrics = sbx.metrics()
    assert metrics.memory_limit_bytes == sbx.info.memory_mb << 20 and metrics.memory_bytes > 0
    limits = Sandbox.limits()
    assert limits.plan and limits.sandboxes.used >= 1 and "off" in limits.sandbox.networks


def test_logs(sbx: Sandbox) -> None:
    sbx.exec("echo one; echo two >&2")
    process = sbx.spawn("echo three")
    process.wait()
    logs = sbx.logs()
    assert "three\n" in logs.text and not logs.truncated
    assert [entry.data for entry in sbx.logs(process.pid).items] == ["three\n"]
