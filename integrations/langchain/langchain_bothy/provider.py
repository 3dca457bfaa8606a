"""The plug-in for the deepagents command line."""

from __future__ import annotations

from typing import Any

from bothy import Sandbox
from bothy import SandboxNotFoundError as NoSandboxError
from deepagents.backends.protocol import SandboxBackendProtocol
from deepagents_code.integrations.sandbox_provider import (
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from .backend import connect

LIFE_SECONDS = 3600
"""After so long a sandbox of the command line is paused; the next command wakes it."""


class BothyProvider(SandboxProvider):
    """Makes, finds and ends sandboxes for ``--sandbox bothy``."""

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """What the command line shows and assumes."""
        return SandboxProviderMetadata(
            name="bothy",
            working_dir="/workspace",
            install=SandboxInstallHint(kind="package", name="langchain-bothy"),
            backend_module="langchain_bothy",
        )

    def get_or_create(
        self, *, sandbox_id: str | None = None, **kwargs: Any
    ) -> SandboxBackendProtocol:
        """Find a sandbox, and wake it if it is paused, or make one."""
        if sandbox_id is None:
            return connect(
                timeout_seconds=LIFE_SECONDS,
                on_timeout="pause",
                auto_resume=True,
                metadata={"client": "deepagents-code"},
            )
        try:
            backend = connect(sandbox_id)
        except NoSandboxError as error:
            raise SandboxNotFoundError(str(error)) from error
        if backend.sandbox.info.state == "paused":
            Sandbox.resume(sandbox_id)
        return backend

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """End a sandbox. One that is gone already is no error."""
        try:
            Sandbox.get(sandbox_id).terminate()
        except NoSandboxError:
            return
