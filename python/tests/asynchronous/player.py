"""Plays one step of a shared scenario; see test/vectors of the repository."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

from bothy import AsyncClient, AsyncSandbox, ExecEvent

Step = dict[str, Any]
Answer = dict[str, Any]


class AsyncPlayer:
    """Does what a step says, with one client."""

    def __init__(self, client: AsyncClient, heard: Callable[[str], None]) -> None:
        self._client = client
        self._heard = heard
        self._sandboxes: dict[str, AsyncSandbox] = {}

    async def play(self, step: Step) -> Answer:
        """Return what comes of a step; errors are raised."""
        sandbox = await self._sandbox(step["sandbox"])
        return await getattr(self, "_" + step["do"])(sandbox, step)  # type: ignore[no-any-return]

    async def _sandbox(self, sandbox_id: str) -> AsyncSandbox:
        if sandbox_id not in self._sandboxes:
            got = await AsyncSandbox.get(sandbox_id, client=self._client)
            self._sandboxes[sandbox_id] = got
        return self._sandboxes[sandbox_id]

    async def _exec(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.exec(**arguments(step, *EXEC)))

    async def _stream(self, sbx: AsyncSandbox, step: Step) -> Answer:
        output = {"stdout": b"", "stderr": b""}
        final = ExecEvent()
        async with sbx.exec_stream(**arguments(step, *EXEC)) as events:
            async for event in events:
                final = event
                if event.stream is not None:
                    output[event.stream] += event.raw
                    self._heard(event.data)
        answer = {**plain(final)}
        for name, raw in output.items():
            answer[name] = raw.decode("utf-8", "replace")
            answer[name + "_base64"] = base64.b64encode(raw).decode()
            answer[name + "_bytes"] = len(raw)
        return answer

    async def _spawn(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"pid": (await sbx.spawn(**arguments(step, *EXEC))).pid}

    async def _processes(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"items": [plain(info) for info in await sbx.processes()]}

    async def _follow(self, sbx: AsyncSandbox, step: Step) -> Answer:
        start, raw, code = int(step.get("from", 0)), b"", None
        async with sbx.process(int(step["pid"])).stream(start) as events:
            async for event in events:
                if event.is_final:
                    code = event.exit_code
                    break
                start = start if raw else event.offset
                raw += event.raw
                if start + len(raw) >= step.get("stop_after", 1 << 60):
                    break
        text = raw.decode()
        line = text.split("\n", 1)[0]
        end = start + len(raw)
        return {"from": start, "next": end, "text": text, "line": line, "exit_code": code}

    async def _stdin(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.process(int(step["pid"])).write(step["data"], eof=step.get("eof", False))
        return {}

    async def _signal(self, sbx: AsyncSandbox, step: Step) -> Answer:
        signal = step["signal"]
        await sbx.process(int(step["pid"])).signal(
            signal if isinstance(signal, str) else int(signal)
        )
        return {}

    async def _kill(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.process(int(step["pid"])).kill()
        return {}

    async def _logs(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"text": (await sbx.logs(int(step["pid"]))).text}

    async def _events(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"types": [event.type for event in await sbx.events()]}

    async def _metrics(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.metrics())

    async def _pause(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"snapshot_id": await sbx.pause()}

    async def _resume(self, sbx: AsyncSandbox, step: Step) -> Answer:
        self._sandboxes[sbx.id] = await AsyncSandbox.resume(sbx.id, client=self._client)
        return plain(self._sandboxes[sbx.id].info)

    async def _terminate(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.terminate()
        return {}

    async def _code(self, sbx: AsyncSandbox, step: Step) -> Answer:
        given = arguments(step, "code", "language", "context", "timeout_seconds", "env")
        return plain(await sbx.run_code(**given))

    async def _contexts(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"items": [plain(context) for context in await sbx.contexts.list()]}

    async def _context_create(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.contexts.create(**arguments(step, "language", "cwd")))

    async def _context_restart(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.contexts.restart(step["context"])
        return {}

    async def _context_remove(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.contexts.remove(step["context"])
        return {}

    async def _write(self, sbx: AsyncSandbox, step: Step) -> Answer:
        content = step.get("content")
        if content is None:
            content = base64.b64decode(step["content_base64"])
        mode = None if "mode" not in step else int(step["mode"], 8)
        given = arguments(step, "user")
        return plain(await sbx.files.write(step["path"], content, mode=mode, **given))

    async def _read(self, sbx: AsyncSandbox, step: Step) -> Answer:
        raw = await sbx.files.read_bytes(step["path"], **arguments(step, "user"))
        return {"text": raw.decode("utf-8", "replace"), "base64": base64.b64encode(raw).decode()}

    async def _list(self, sbx: AsyncSandbox, step: Step) -> Answer:
        given = arguments(step, "depth", "user")
        return {"items": [plain(info) for info in await sbx.files.list(step["path"], **given)]}

    async def _stat(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.files.stat(step["path"], **arguments(step, "user")))

    async def _exists(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return {"exists": await sbx.files.exists(step["path"], **arguments(step, "user"))}

    async def _mkdir(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.files.mkdir(step["path"], **arguments(step, "user")))

    async def _move(self, sbx: AsyncSandbox, step: Step) -> Answer:
        return plain(await sbx.files.move(step["from"], step["to"], **arguments(step, "user")))

    async def _remove(self, sbx: AsyncSandbox, step: Step) -> Answer:
        await sbx.files.remove(step["path"], **arguments(step, "user"))
        return {}


EXEC = ("command", "cwd", "env", "user", "timeout_seconds", "stdin")


def arguments(step: Step, *names: str) -> Step:
    """Return those arguments of a step that a method takes."""
    return {
        name: int(step[name]) if name == "depth" else step[name] for name in names if name in step
    }


def plain(value: Any) -> Answer:
    """Return a value's fields as JSON has them."""
    return dataclasses.asdict(value)
