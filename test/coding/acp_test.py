"""bothy acp, with an editor of the official library and an agent that follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess

import acp
import pytest
from conftest import BOTHY, SCRIPTED, run, sandboxes


@run
async def test_a_turn(edit, project):
    async with edit() as editor:
        assert await editor.prompt("say hello", "say  world") == "hello world"
        assert editor.ended.stop_reason == "end_turn"
        assert "Linux" in await editor.prompt("sh uname -s; cat main.py; pwd")
        assert "print('one')" in editor.said and str(project) in editor.said
        assert len(sandboxes()) == 1
    assert sandboxes() == []


@run
async def test_files_go_in_and_out(edit, project):
    image = bytes(range(256)) * 1000
    (project / "ein Bild ünd.png").write_bytes(image)
    (project / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    (project / "tool.sh").chmod(0o755)
    (project / "gone").write_text("x")
    async with edit() as editor:
        await editor.prompt("write sub dir? no", "write src/néw/ünï.txt text", "sh ./tool.sh; rm gone; cp 'ein Bild ünd.png' copy.png")
        assert "ran" in editor.said
        assert (project / "src/néw/ünï.txt").read_text() == "text"
        assert (project / "copy.png").read_bytes() == image
        assert not (project / "gone").exists()
        # The path is the same on both sides, so an editor can follow what the agent does.
        call = next(u for u in editor.updates if getattr(u, "title", "") == "write")
        assert call.locations[0].path.startswith(str(project))

        (project / "main.py").write_text("print('two')\n")
        (project / "later.txt").write_text("later")
        assert "print('two')\nlater" in await editor.prompt("sh cat main.py later.txt")

        (project / "both.txt").write_text("here")
        await editor.prompt("say x")
        editor.heard.clear()
        running = asyncio.create_task(editor.prompt("write both.txt there", "wait"))
        await editor.heard.wait()
        (project / "both.txt").write_text("here again")
        await editor.agent.cancel(session_id=editor.session)
        await running
        assert editor.ended.stop_reason == "cancelled"
        assert (project / "both.txt").read_text() == "here again"
        assert (project / "both.txt.from-sandbox").read_text() == "there"
        assert "both.txt was changed here and in the sandbox" in editor.errors()
        assert "here again" in await editor.prompt("sh cat both.txt")


@run
async def test_what_is_ignored_stays(edit, project):
    (project / ".gitignore").write_text(".env\nnode_modules/\n")
    (project / ".env").write_text("PASSWORD=secret")
    async with edit() as editor:
        said = await editor.prompt("sh cat .env || echo none; mkdir node_modules; touch node_modules/x; echo '#' >.gitignore")
        assert "none" in said and "secret" not in said
        assert not (project / "node_modules").exists()
        assert "secret" not in await editor.prompt("sh cat .env")
        said = await editor.prompt("read .env")
        assert "is ignored" in said and "secret" not in said
    async with edit("--with-ignored", "--exclude", "*.py") as editor:
        assert "secret" in await editor.prompt("sh cat .env; ls")
        assert "main.py" not in editor.said


@run
async def test_a_permission_is_asked_for(edit):
    async with edit() as editor:
        assert json.loads(await editor.prompt("ask may I?"))["outcome"]["optionId"] == "yes"
        editor.answer = "no"
        assert json.loads(await editor.prompt("ask may I?"))["outcome"]["optionId"] == "no"


@run
async def test_the_editor_reads_and_writes_for_the_agent_in_the_folder_alone(edit, project, tmp_path):
    (tmp_path / "secret").write_text("of this host")
    (project / "link").symlink_to(tmp_path / "secret")
    (project / "dir").symlink_to(tmp_path)
    async with edit() as editor:
        assert "one" in await editor.prompt("read main.py")
        # What the editor writes for the agent is there for its other tools, too.
        assert "buffer" in await editor.prompt("save main.py buffer", "sh cat main.py")
        assert (project / "main.py").read_text() == "buffer"
        for path in ("../secret", str(tmp_path / "secret"), "/etc/passwd", "link", "dir/secret", "dir/new", "sub/../../secret"):
            for word in ("read", "save"):
                said = await editor.prompt(f"{word} {path} overwritten")
                assert "is not in the project" in said and "of this host" not in said, (word, path)
        (project / ".git").mkdir()
        assert "git could run" in await editor.prompt("save .git/hooks/post-checkout evil")
        assert not (project / ".git/hooks").exists()
        assert (tmp_path / "secret").read_text() == "of this host" and not (tmp_path / "new").exists()


@run
async def test_programs_of_this_host_are_not_for_the_agent(edit):
    async with edit() as editor:
        assert "-32601" in await editor.prompt("terminal")
        server = acp.schema.McpServerStdio(name="local", command="/usr/bin/true", args=[], env=[])
        remote = acp.schema.HttpMcpServer(name="remote", url="https://mcp.example.com", headers=[], type="http")
        await editor.open(mcp_servers=[server, remote])
        told = json.loads(await editor.prompt("tell"))
        assert [s["name"] for s in told["session"]["mcpServers"]] == ["remote"]
        assert told["capabilities"]["fs"]["readTextFile"] is True and not told["capabilities"].get("terminal")
        assert '"local"' in editor.errors()


@run
async def test_large_messages(edit):
    async with edit() as editor:
        assert len(await editor.prompt("flood 6000000")) == 6_000_000
        text = "y" * 3_000_000
        assert await editor.prompt(f"say {text}") == text


@run
async def test_another_path_in_the_sandbox(edit, project):
    async with edit("--at", "/workspace/here") as editor:
        assert "/workspace/here\n" in await editor.prompt("sh pwd", "write new.txt text")
        call = next(u for u in editor.updates if getattr(u, "title", "") == "write")
        assert call.locations[0].path == str(project / "new.txt")
        assert (project / "new.txt").read_text() == "text"
        assert "one" in await editor.prompt("read main.py")


@run
async def test_folders_that_are_not_carried(edit, project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "home").mkdir(exist_ok=True)
    async with edit() as editor:
        await editor.open(other)
        for folder, why in ((tmp_path / "home", "all of a person's files"), ("/", "all of a person's files"), ("/etc", "sandbox's own system"), (tmp_path / "nothing", "no such folder"), ("relative", "absolute")):
            with pytest.raises(acp.RequestError, match=why):
                await editor.open(folder)
    async with edit("--folder", str(project)) as editor:
        with pytest.raises(acp.RequestError, match="not in"):
            await editor.open(other)


@run
async def test_an_agent_that_dies(edit, project):
    async with edit() as editor:
        with pytest.raises(acp.RequestError, match="exit code 3: the model is ill"):
            await editor.prompt("write last.txt kept", "die the model is ill")
        assert await editor.process.wait() == 1
        assert (project / "last.txt").read_text() == "kept"
    assert sandboxes() == []


@run
async def test_what_cannot_be_started(edit, project):
    cases = {
        "no server": (("--url", "http://127.0.0.1:9"), {"BOTHY_API_KEY": "bothy_x"}, "127.0.0.1:9"),
        "no template": (("-t", "no-such-thing", "--", "true"), {}, "no-such-thing"),
        "no program": (("-t", "python-3.12-bare", "--", "no-such-program"), {}, "no-such-program"),
        "no credential": (("--agent", "claude-code", "--"), {"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY"),
    }
    for flags, env, why in cases.values():
        async with edit(*flags, env=env, opened=False) as editor:
            with pytest.raises(acp.RequestError, match=why):
                await editor.agent.initialize(protocol_version=1)
            assert await editor.process.wait() != 0
            assert why in editor.errors()
    assert sandboxes() == []


@run
async def test_a_sandbox_that_ends(edit):
    async with edit() as editor:
        subprocess.run([BOTHY, "rm", sandboxes()[0]["id"]], check=True, capture_output=True)
        with pytest.raises(acp.RequestError):
            await editor.prompt("say x")
        assert await editor.process.wait() == 1


@run
async def test_a_server_that_is_started_again(edit, project, server):
    async with edit(env=server.env) as editor:
        waiting = asyncio.create_task(editor.prompt("say before", "wait"))
        while not editor.said.endswith("waiting"):
            await asyncio.wait_for(editor.heard.wait(), 60)
            editor.heard.clear()
        server.stop()
        (project / "meanwhile.txt").write_text("here")
        server.start()
        await editor.agent.cancel(session_id=editor.session)
        await waiting
        assert editor.ended.stop_reason == "cancelled" and "before" in editor.said
        assert await editor.prompt("sh cat meanwhile.txt; echo x >after.txt") == "here"
        assert (project / "after.txt").exists()


@run
async def test_a_sandbox_rests_while_nobody_speaks(edit, project):
    async with edit("--rest", "1s") as editor:
        await editor.prompt("sh echo $$ >/tmp/mark", "write a.txt a")
        while sandboxes()[0]["state"] != "paused":
            await asyncio.sleep(0.1)
        (project / "a.txt").write_text("changed meanwhile")
        assert "changed meanwhile" in await editor.prompt("sh cat a.txt; test -s /tmp/mark && echo same")
        assert "same" in editor.said
        while sandboxes()[0]["state"] != "paused":
            await asyncio.sleep(0.1)
    assert sandboxes() == []


@run
async def test_a_sandbox_is_kept_for_the_next_time(edit, project):
    async with edit("--keep") as editor:
        await editor.prompt("sh echo remembered >/tmp/memory", "write a.txt a")
    (kept,) = sandboxes()
    assert kept["state"] == "paused"
    (project / "a.txt").write_text("changed here meanwhile")
    async with edit("--keep") as editor:
        assert "remembered\nchanged here meanwhile" in await editor.prompt("sh cat /tmp/memory a.txt; rm main.py")
        assert [s["id"] for s in sandboxes()] == [kept["id"]]
    assert not (project / "main.py").exists() and not list(project.glob("*.from-sandbox"))
    subprocess.run([BOTHY, "rm", kept["id"]], check=True, capture_output=True)


@run
async def test_two_editors_at_once(edit):
    async with edit() as one, edit() as two:
        assert await asyncio.gather(one.prompt("say 1"), two.prompt("say 2")) == ["1", "2"]
        assert len(sandboxes()) == 2
    assert sandboxes() == []


@run
async def test_modes_of_files_are_kept(edit, project):
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o700)
    async with edit() as editor:
        await editor.prompt("sh echo 'echo hi' >>run; printf '#!/bin/sh\\n' >new; chmod 777 new")
    assert stat.S_IMODE((project / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((project / "new").stat().st_mode) == 0o755
    assert os.access(project / "new", os.X_OK) and SCRIPTED
