"""What a session's sandbox is, and what is kept of a session."""

from __future__ import annotations

from typing import Any, Literal

from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from pydantic import Field


class BothySandboxClientOptions(BaseSandboxClientOptions):
    """The options of ``bothy.Sandbox.create``, and two of the session.

    Attributes:
        network: ``off``, ``restricted``, ``open``, or the JSON object of a policy.
        timeout_seconds: After how many seconds the sandbox's time is up.
        on_timeout: With ``pause`` a program that died leaves a sandbox that can be resumed.
        exposed_ports: The ports that ``resolve_exposed_port`` may lead to.
        pause_on_exit: Pause the sandbox at the end of the session instead of ending it:
            its processes go on when the session is resumed.
    """

    type: Literal["bothy"] = "bothy"
    template: str | None = None
    snapshot_id: str | None = None
    cpu: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    network: Literal["off", "restricted", "open"] | dict[str, Any] | None = None
    timeout_seconds: int = 3600
    on_timeout: Literal["terminate", "pause"] | None = None
    env: dict[str, str] | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    engine: str | None = None
    exposed_ports: tuple[int, ...] = ()
    pause_on_exit: bool = False

    def sandbox(self) -> dict[str, Any]:
        """Return the arguments of ``AsyncSandbox.create``."""
        dumped = self.model_dump(exclude={"exposed_ports", "pause_on_exit"}, exclude_none=True)
        return {name: value for name, value in dumped.items() if name != "type"}


class BothySandboxSessionState(SandboxSessionState):
    """What is kept of a session, to resume it."""

    type: Literal["bothy"] = "bothy"
    sandbox_id: str
    options: BothySandboxClientOptions = Field(default_factory=BothySandboxClientOptions)
