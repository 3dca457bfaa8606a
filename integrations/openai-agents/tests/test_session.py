"""Sessions of the Agents SDK in real sandboxes."""

import inspect
import asyncio
import io
import tarfile
import urllib.request
import warnings
from pathlib import Path

import bothy.adapters
import pytest
import pytest_asyncio
from agents.sandbox import LocalSnapshotSpec, Manifest
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.types import Group, User
from bothy import Sandbox
from bothy_openai_agents import BothySandboxClient, BothySandboxClientOptions
from bothy_openai_agents.pty import BothyProcesses
from bothy_openai_agents.session import BothySandboxSession

BYTES = bytes(range(256)) * 4
NAME = "größe 1 [α] 'x'.bin"


@pytest.fixture
def client():
    return BothySandboxClient()


@pytest_asyncio.fixture
async def session(client):
    options = BothySandboxClientOptions(exposed_ports=(8123,), env={"GIVEN": "before"})
    manifest = Manifest(environment=Environment(value={"COLOUR": "grün"}))
    made = await client.create(manifest=manifest, options=options)
    async with made:
        yield made
    await client.delete(made)


def sandbox_of(session):
    return Sandbox.get(session._inner.state.sandbox_id)


async def content(session, path):
    return (await session.read(Path(path))).read()


async def test_commands(session):
    ran = await session.exec("echo $COLOUR $GIVEN; pwd; echo no >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code) == (
        "grün before\n/workspace\n".encode(),
        b"no\n",
        3,
    )
    ran = await session.exec("printf", "%s|", "a b", "ü'", shell=False)
    assert ran.stdout == "a b|ü'|".encode()
    assert (
        await session.exec("head -c 1024 /dev/zero | tr '\\0' '\\377'")
    ).stdout == b"\xff" * 1024
    assert (await session.exec("id -un", user="root")).stdout == b"root\n"
    missing = await session.exec("no-such-program", shell=False)
    assert missing.exit_code == 127 and b"no-such-program" in missing.stderr


async def test_a_time_out_ends_the_command(session):
    with pytest.raises(ExecTimeoutError):
        await session.exec("(sleep 600 & sleep 600)", timeout=0.5)
    assert await sleepers(session) == []


async def sleepers(session):
    """Return the numbers of the processes that sleep for about 600 seconds."""
    ran = await session.exec("grep -lazE '^60.$' /proc/[0-9]*/cmdline 2>/dev/null || true")
    return ran.stdout.split()


async def test_output_over_the_bound_is_cut_and_says_so(session):
    ran = await session.exec("seq 1 6000000")
    assert len(ran.stdout) < 40_000_000 and b"output was dropped" in ran.stderr


async def test_a_dead_sandbox_is_reported(session):
    sandbox_of(session).terminate()
    with pytest.raises(ExecTransportError, match="sandbox"):
        await session.exec("true")
    assert not await session.running()


async def test_files(session):
    await session.write(Path("deep") / NAME, io.BytesIO(BYTES))
    assert await content(session, f"deep/{NAME}") == BYTES
    assert await session.read_bounded(Path("deep") / NAME, max_bytes=5) == BYTES[:5]
    assert [entry.path for entry in await session.ls("deep")] == [f"/workspace/deep/{NAME}"]
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("missing"))
    with pytest.raises(WorkspaceArchiveReadError):
        await session.read(Path("deep"))
    with pytest.raises(WorkspaceWriteTypeError):
        await session.write(Path("x"), Numbers())
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.write(Path("deep"), io.BytesIO(b"a folder is in the way"))
    await session.mkdir("a/b", parents=True)
    await session.mv(f"deep/{NAME}", "a/b/c")
    assert await content(session, "a/b/c") == BYTES
    await session.rm("a", recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("a/b/c"))


class Numbers(io.IOBase):
    def read(self, size=-1):
        return [1, 2]


async def test_paths_do_not_lead_out_of_the_workspace(session):
    await session.exec("ln -s /etc/passwd trap; ln -s /tmp out")
    for path in ("../etc/passwd", "/etc/passwd", "trap", "out/x"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path(path))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path(path), io.BytesIO(b"x"))


async def test_patches_and_archives(session):
    await session.write(Path("n.txt"), io.BytesIO(b"eins\nzwei\n"))
    patch = {"type": "update_file", "path": "n.txt", "diff": "@@\n eins\n-zwei\n+drei\n"}
    assert await session.apply_patch(patch) == "Done!"
    assert await content(session, "n.txt") == b"eins\ndrei\n"
    await session.extract("bundle.tar", tar({f"unpacked/{NAME}": BYTES}))
    assert await content(session, f"unpacked/{NAME}") == BYTES


def tar(files, link=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    out.seek(0)
    return out


async def test_a_manifest_with_accounts(client):
    manifest = Manifest(
        root="/srv/größe 1",
        entries={"tree": Dir(children={NAME: File(content=BYTES)})},
        users=[User(name="ada")],
        groups=[Group(name="crew", users=[User(name="ada")])],
    )
    session = await client.create(manifest=manifest)
    async with session:
        assert await content(session, f"tree/{NAME}") == BYTES
        ran = await session.exec("id -un; pwd; id -Gn", user=User(name="ada"))
        name, folder, groups = ran.stdout.decode().splitlines()
        assert (name, folder) == ("ada", "/srv/größe 1") and "crew" in groups.split()
    await client.delete(session)


async def until(session, number, wanted):
    seen = b""
    for _ in range(30):
        update = await session.pty_write_stdin(session_id=number, chars="", yield_time_s=5)
        seen += update.output
        if wanted(seen, update):
            return update, seen
    raise AssertionError(seen)


async def test_a_terminal(session):
    started = await session.pty_exec_start("bash", "--norc", shell=False, tty=True, yield_time_s=1)
    number = started.process_id
    assert number is not None and started.exit_code is None
    update = await session.pty_write_stdin(
        session_id=number, chars="x=ü; tty; echo got:$x\n", yield_time_s=2
    )
    assert b"/dev/pts/" in update.output and "got:ü".encode() in update.output
    await session.pty_write_stdin(session_id=number, chars="sleep 600\n")
    update = await session.pty_write_stdin(session_id=number, chars="\x03exit 5\n")
    if update.process_id is not None:
        update, _ = await until(session, number, lambda seen, update: update.process_id is None)
    assert update.exit_code == 5
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=number, chars="x")


async def test_pipes_that_are_left_running(session):
    started = await session.pty_exec_start("echo one; sleep 1; echo two; exit 4", yield_time_s=0.25)
    assert started.exit_code is None
    with pytest.raises(RuntimeError, match="stdin is not available for this process"):
        await session.pty_write_stdin(session_id=started.process_id, chars="x")
    update, seen = await until(
        session, started.process_id, lambda _, update: update.process_id is None
    )
    assert started.output + seen == b"one\ntwo\n" and update.exit_code == 4
    quick = await session.pty_exec_start("cat; echo end", yield_time_s=30)
    assert (quick.output, quick.exit_code, quick.process_id) == (b"end\n", 0, None)
    cut = await session.pty_exec_start("seq 1 20000", yield_time_s=30, max_output_tokens=50)
    assert b"truncated" in cut.output and len(cut.output) < 2000 and cut.original_token_count > 1000


@pytest.mark.parametrize("tty", [True, False])
async def test_what_is_left_running_ends(session, tty):
    late = await session.pty_exec_start("sleep 601", tty=tty, timeout=3, yield_time_s=0.25)
    assert await sleepers(session) != []
    await until(session, late.process_id, lambda _, update: update.process_id is None)
    await session.pty_exec_start(
        "trap '' HUP TERM; sleep 602 & wait; sleep 603", tty=tty, yield_time_s=0.25
    )
    await session.pty_terminate_all()
    for _ in range(100):
        if await sleepers(session) == []:
            return
        await asyncio.sleep(0.3)
    raise AssertionError("it runs on")


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


async def test_ports(session):
    server = "python3 -m http.server 8123 --bind 127.0.0.1"
    await session.write(Path("page"), io.BytesIO(b"hello"))
    await session.pty_exec_start(server, yield_time_s=0.25)
    endpoint = await session.resolve_exposed_port(8123)
    assert endpoint == await session.resolve_exposed_port(8123)
    for _ in range(100):
        try:
            page = await asyncio.to_thread(fetch, endpoint.url_for("http") + "page")
            break
        except OSError:
            await asyncio.sleep(0.3)
    assert page == b"hello"
    with pytest.raises(ExposedPortUnavailableError):
        await session.resolve_exposed_port(8124)


async def test_a_workspace_as_a_tar(session, client):
    await session.write(Path(NAME), io.BytesIO(BYTES))
    await session.write(Path("left *out[1]"), io.BytesIO(b"x"))
    await session.write(Path("left out1"), io.BytesIO(b"kept"))
    await session.exec("ln -s /usr/bin/env outside")
    await session.exec("install -m 600 /dev/null root-only", user="root")
    session.register_persist_workspace_skip_path("left *out[1]")
    packed = (await session.persist_workspace()).read()
    other = await client.create()
    async with other:
        await other.hydrate_workspace(io.BytesIO(packed))
        assert await content(other, NAME) == BYTES
        assert await content(other, "left out1") == b"kept"
        assert (await other.exec("readlink outside")).stdout.startswith(b"/usr/bin/env\n")
        assert (await other.exec("echo x >root-only")).ok()
        with pytest.raises(WorkspaceReadNotFoundError):
            await other.read(Path("left *out[1]"))
        for bad in (tar({"../escaped": b"x"}), io.BytesIO(b"no tar at all")):
            with pytest.raises(WorkspaceArchiveWriteError):
                await other.hydrate_workspace(bad)
    await client.delete(other)


async def restarted(session):
    """Return a new client and what a program that died has left: a state, and a sandbox."""
    client = BothySandboxClient()
    return client, client.deserialize_session_state(
        BothySandboxClient().serialize_session_state(session.state)
    )


async def test_resume_after_an_unclean_end(client, tmp_path):
    manifest = Manifest(entries={"given.txt": File(content=b"given")})
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    first = await client.create(manifest=manifest, snapshot=snapshot)
    await first.start()
    await first.write(Path("note"), io.BytesIO(b"one"))
    await first.stop()
    await first.write(Path("note"), io.BytesIO(b"two"))

    client, state = await restarted(first)
    second = await client.resume(state)
    assert second.state.sandbox_id == first.state.sandbox_id
    await second.start()
    # The framework's rule: what differs from the last snapshot is put back to it.
    assert (
        await content(second, "note") == b"one" and await content(second, "given.txt") == b"given"
    )
    sandbox_of(second).terminate()

    client, state = await restarted(second)
    third = await client.resume(state)
    assert third.state.sandbox_id != first.state.sandbox_id
    await third.start()
    assert await content(third, "note") == b"one" and await content(third, "given.txt") == b"given"
    await client.delete(third)
    await client.delete(third)
    assert sandbox_of(third).info.state == "stopped"


async def test_a_paused_session_goes_on_where_it_was(client):
    first = await client.create(options=BothySandboxClientOptions(pause_on_exit=True))
    await first.start()
    await first.exec("nohup sleep 604 >/dev/null 2>&1 & echo $! >pid")
    await first.aclose()
    assert sandbox_of(first).info.state == "paused"
    client, state = await restarted(first)
    second = await client.resume(state)
    await second.start()
    assert (await second.exec("kill -0 $(cat pid)")).ok()
    sandbox_of(second).terminate()


def test_an_untested_version_is_said_once(monkeypatch):
    bothy.adapters.check_version.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.25.1")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        BothySandboxClient()
        BothySandboxClient()
    bothy.adapters.check_version.cache_clear()
    (one,) = said
    assert one.category is bothy.adapters.UntestedVersionWarning and "0.25.1" in str(one.message)


async def test_arguments_of_newer_versions_are_ignored():
    """Every method through which the framework calls is given one argument more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bothy.adapters.UntestedVersionWarning)
        for cls in [BothySandboxClient, BothyProcesses, BothySandboxSession]:
            for name in bothy.adapters.overriding(cls):
                try:
                    made = getattr(cls.__new__(cls), name)(an_argument_of_tomorrow=1)
                    if inspect.isawaitable(made):
                        await made
                except (Exception, SystemExit) as error:
                    assert "an_argument_of_tomorrow" not in str(error), name
