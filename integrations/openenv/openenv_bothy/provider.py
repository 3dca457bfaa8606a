"""The provider."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import yaml
from bothy import (
    BothyError,
    Client,
    FileError,
    Forward,
    InvalidArgumentError,
    Network,
    Process,
    Sandbox,
    SandboxNotFoundError,
    TemplateNotFoundError,
)
from bothy.adapters import check_version, tolerant
from openenv.core.containers.runtime import ContainerProvider

MANIFEST = "openenv.yaml"
_direct = build_opener(ProxyHandler({}))


@tolerant
class BothyProvider(ContainerProvider):
    """Runs the server of an environment in a sandbox.

    Args:
        cmd: What starts the server, where neither the call nor the image's ``openenv.yaml``
            says so.
        server_port: The port on which it listens in the sandbox.
        network: What the sandbox may reach.
        timeout_seconds: After so long the sandbox ends, whatever happens to this program.
        cpu: Its processors.
        memory_mb: Its memory.
        disk_mb: Its disk.
        engine: What gives it its kernel.
        client: The server to use; that of the environment's variables where not given.
    """

    def __init__(
        self,
        *,
        cmd: str | None = None,
        server_port: int = 8000,
        network: Network | str = "off",
        timeout_seconds: int = 3600,
        cpu: float | None = None,
        memory_mb: int | None = 1024,
        disk_mb: int | None = None,
        engine: str | None = None,
        client: Client | None = None,
    ) -> None:
        check_version("openenv-bothy", "openenv-core", "0.3.0", "0.4")
        self._cmd = cmd
        self._server_port = server_port
        self._options = {
            "network": network,
            "timeout_seconds": timeout_seconds,
            "cpu": cpu,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
            "engine": engine,
        }
        self._client = client or Client()
        self._sandbox: Sandbox | None = None
        self._forward: Forward | None = None
        self._process: Process | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, while there is one."""
        if self._sandbox is None:
            raise RuntimeError("No environment is started.")
        return self._sandbox

    def image_from_dockerfile(self, path: str | Path, context: str | Path | None = None) -> str:
        """Build a template from an environment's Dockerfile, and return its name.

        Args:
            path: The Dockerfile.
            context: The folder that COPY takes files from; where not given the environment's,
                which is the one above that of the Dockerfile.
        """
        file = Path(path).resolve()
        folder = Path(context).resolve() if context is not None else file.parent.parent
        if not file.is_relative_to(folder):
            raise ValueError(f"{file} is not in its context {folder}. Give another context.")
        name = f"openenv/{_label(folder.name)}"
        relative = str(file.relative_to(folder))
        self._client.build_template(name, context=folder, file=relative, network="open")
        return name

    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start a sandbox with an environment's server, and return the server's address.

        Args:
            image: The name of a template, ``snapshot:ID``, or an image of a registry, which
                becomes a template once.
            port: The port of this computer to listen on; any free one where not given.
            env_vars: Variables of the server.
            **kwargs: ``cmd``, and options of ``Sandbox.create``.

        Raises:
            RuntimeError: It cannot be started. Nothing is left then.
        """
        if self._sandbox is not None:
            raise RuntimeError("An environment is started already. Use a provider for each.")
        cmd = kwargs.pop("cmd", None) or self._cmd
        metadata = {"openenv_image": image[:200], **kwargs.pop("metadata", {})}
        try:
            self._sandbox = Sandbox.create(
                env=env_vars,
                client=self._client,
                metadata=metadata,
                **self._origin(image),
                **{**self._options, **kwargs},
            )
            self._process = self._sandbox.spawn(cmd or self._found_cmd())
            self._forward = self._sandbox.forward(self._server_port, local_port=port or 0)
        except BaseException as error:
            self.stop_container()
            if isinstance(error, BothyError):
                raise RuntimeError(f"The environment {image} cannot be started: {error}") from error
            raise
        return self._forward.url

    def _origin(self, image: str) -> dict[str, str]:
        """Return what the sandbox starts from."""
        kind, _, rest = image.partition(":")
        if kind == "snapshot":
            return {"snapshot_id": rest}
        try:
            self._client.template(image)
            return {"template": image}
        except (TemplateNotFoundError, InvalidArgumentError):
            name = f"openenv/{_label(image)}:{hashlib.sha256(image.encode()).hexdigest()[:12]}"
        try:
            self._client.template(name)
        except TemplateNotFoundError:
            self._client.build_template(name, image=image)
        return {"template": name}

    def _found_cmd(self) -> str:
        """Return the command that follows from the manifest of the environment."""
        found = self.sandbox.exec(
            f"for f in /app/env/{MANIFEST} $(find /app -maxdepth 4 -name {MANIFEST} 2>/dev/null); do"
            " test -f $f && echo $f && break; done",
            cwd="/",
        ).stdout.strip()
        app = None
        if found:
            try:
                manifest = yaml.safe_load(self.sandbox.files.read(found))
            except (yaml.YAMLError, FileError) as error:
                raise RuntimeError(f"{found} cannot be read: {error}") from error
            app = manifest.get("app") if isinstance(manifest, dict) else None
        if not isinstance(app, str) or not app.strip():
            raise RuntimeError(
                f"{found or 'An ' + MANIFEST + ' below /app'} does not name the server's app. "
                "Give its command: BothyProvider(cmd=…)."
            )
        folder, app = shlex.quote(found.rsplit("/", 1)[0]), shlex.quote(app.strip())
        return (
            f"cd {folder} && exec python -m uvicorn {app} --host 0.0.0.0 --port {self._server_port}"
        )

    def stop_container(self) -> None:
        """End the sandbox. When there is none, nothing happens."""
        forward, self._forward = self._forward, None
        sandbox, self._sandbox = self._sandbox, None
        self._process = None
        if forward is not None:
            forward.close()
        if sandbox is not None:
            try:
                sandbox.terminate()
            except SandboxNotFoundError:
                pass

    def wait_for_ready(self, base_url: str, timeout_s: float = 60.0) -> None:
        """Wait until the server answers.

        Raises:
            TimeoutError: It does not in time.
            RuntimeError: It has ended; its output is in the message.
        """
        deadline = time.monotonic() + timeout_s
        while not _healthy(base_url):
            process = self._process
            if process is not None and not process.info().running:
                ended = process.wait()
                raise RuntimeError(
                    f"The environment's server in {self.sandbox.id} ended with code "
                    f"{ended.exit_code}:\n{(ended.stdout + ended.stderr)[-4000:]}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"{base_url}/health did not answer within {timeout_s} seconds")
            time.sleep(0.1)


def _healthy(base_url: str) -> bool:
    try:
        with _direct.open(f"{base_url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _label(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[-60:] or "env"
