"""Code that runs in a sandbox, with persistent variables."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from .._decode import decode
from .._errors import ConnectionFailedError
from .._io import aio as io
from .._output import EventDecoder, OutputCollector
from .._types import CodeContext, CodeResult, ExecEvent, Language
from ._client import AsyncClient, Request
from ._stream import AsyncEventStream

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox


class AsyncContexts:
    """The code contexts of one sandbox: places where code runs and variables persist."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create(
        self, language: Language | None = None, *, cwd: str | None = None
    ) -> CodeContext:
        """Create a context with its own variables.

        Args:
            language: What its code is written in; ``python`` by default.
            cwd: The folder that it starts in.
        """
        request = self._sandbox._post("/contexts", {"language": language, "cwd": cwd})
        return decode(CodeContext, await self._sandbox._client._call(request))

    async def list(self) -> list[CodeContext]:
        """Return all contexts."""
        wire = await self._sandbox._client._call(Request("GET", self._path))
        return [decode(CodeContext, item) for item in wire["items"]]

    async def remove(self, context: CodeContext | str) -> None:
        """End a context, given itself or its id; its variables are lost.

        Raises:
            ContextNotFoundError: There is none with this id.
        """
        await self._call("DELETE", context, "")

    async def interrupt(self, context: CodeContext | str) -> None:
        """Stop the code that runs in a context, as Ctrl-C does; its variables stay.

        Code that still waits for its interpreter to start is stopped, too.

        Raises:
            ConflictError: No code runs there, or it has not arrived yet.
        """
        await self._call("POST", context, "/interrupt")

    async def restart(self, context: CodeContext | str) -> None:
        """Reset a context; its variables are lost."""
        await self._call("POST", context, "/restart")

    async def _call(self, method: str, context: CodeContext | str, part: str) -> None:
        path = f"{self._path}/{quote(context_id(context), safe='')}{part}"
        await self._sandbox._client._call(Request(method, path))

    @property
    def _path(self) -> str:
        return f"{self._sandbox._path}/contexts"


async def follow_code(
    client: AsyncClient,
    request: Request,
    on_stdout: io.Callback[str] | None,
    on_stderr: io.Callback[str] | None,
    on_result: io.Callback[dict[str, str]] | None,
) -> CodeResult:
    """Run a piece of code, call back as things happen, and return the whole."""
    callbacks = {"stdout": on_stdout, "stderr": on_stderr}
    output, collected = EventDecoder(), OutputCollector()
    results: list[dict[str, str]] = []
    async with AsyncEventStream(client, request, dict) as events:
        async for wire in events:
            if wire.get("is_final"):
                whole = collected.result(ExecEvent(is_final=True))
                cut = whole.truncated or bool(wire.get("truncated"))
                gathered = {"results": results, "stdout": whole.stdout, "stderr": whole.stderr}
                return decode(CodeResult, {**wire, **gathered, "truncated": cut})
            event = output.decode(wire)
            if event is not None:
                collected.add(event)
                callback = callbacks[event.stream or "stdout"]
                if callback is not None and event.data:
                    await io.call(callback, event.data)
            for result in wire.get("results") or []:
                results.append(result)
                if on_result is not None:
                    await io.call(on_result, result)
    raise ConnectionFailedError("the stream of the code's output broke off")


def context_id(context: CodeContext | str) -> str:
    """Return the id of a context given as itself or by its id."""
    return context if isinstance(context, str) else context.id
