"""The client: makes, resumes and ends sessions."""

from __future__ import annotations

import uuid
from typing import Any

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from bothy import AsyncSandbox, NotFoundError
from bothy.adapters import check_version, tolerant

from .options import BothySandboxClientOptions, BothySandboxSessionState
from .session import BothySandboxSession


@tolerant
class BothySandboxClient(BaseSandboxClient[BothySandboxClientOptions]):
    """Gives each session of the Agents SDK a Bothy sandbox.

    Args:
        url: The server's address; by default the environment's.
        api_key: The key; by default the environment's.
        instrumentation: Where the sessions' events go.
        dependencies: What the sessions' parts may need.
    """

    backend_id = "bothy"
    supports_default_options = True

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        check_version("bothy-openai-agents", "openai-agents", "0.24.0", "0.25")
        self._access: dict[str, Any] = {"url": url, "api_key": api_key}
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: BothySandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Start a sandbox for a new session."""
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        options = options or BothySandboxClientOptions()
        session_id = uuid.uuid4()
        kept = resolve_snapshot(snapshot, str(session_id))
        sandbox = await self._start(options, session_id)
        state = BothySandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=kept,
            exposed_ports=options.exposed_ports,
            sandbox_id=sandbox.id,
            options=options,
        )
        return self._session(state, sandbox)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Go on with a session, in its own sandbox if that is still there.

        A paused sandbox is woken. In the place of one that has ended there is a new one, into
        which the session's last snapshot is unpacked when the session starts.
        """
        if not isinstance(state, BothySandboxSessionState):
            raise TypeError("BothySandboxClient.resume expects a BothySandboxSessionState")
        state.assert_path_grants_rebound()
        sandbox = await self._find(state.sandbox_id)
        preserved = sandbox is not None
        if sandbox is None:
            sandbox = await self._start(state.options, state.session_id)
            state.sandbox_id = sandbox.id
            state.workspace_root_ready = False
        session = self._session(state, sandbox)
        session._inner._set_start_state_preserved(preserved)
        return session

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End a session's sandbox, or pause it where its options say so."""
        if not isinstance(session._inner, BothySandboxSession):
            raise TypeError("BothySandboxClient.delete expects a session of this client")
        await session._inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Read a session's state out of JSON."""
        return self._deserialize_session_state_payload(payload, BothySandboxSessionState)

    async def _start(
        self, options: BothySandboxClientOptions, session_id: uuid.UUID
    ) -> AsyncSandbox:
        given = options.sandbox()
        metadata = {**given.pop("metadata"), "openai_agents_session": str(session_id)}
        return await AsyncSandbox.create(**given, metadata=metadata, **self._access)

    async def _find(self, sandbox_id: str) -> AsyncSandbox | None:
        try:
            sandbox = await AsyncSandbox.get(sandbox_id, **self._access)
        except NotFoundError:
            return None
        state = sandbox.info.state
        if state == "running":
            return sandbox
        await sandbox.close()
        if state in ("stopped", "failed"):
            return None
        return await AsyncSandbox.resume(sandbox_id, **self._access)

    def _session(self, state: BothySandboxSessionState, sandbox: AsyncSandbox) -> SandboxSession:
        inner = BothySandboxSession(state=state, sandbox=sandbox)
        return self._wrap_session(inner, instrumentation=self._instrumentation)
