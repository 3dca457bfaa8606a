"""The environment."""

from __future__ import annotations

import asyncio
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any, override

from bothy import (
    AsyncClient,
    AsyncSandbox,
    BothyError,
    Client,
    Network,
    SandboxNotFoundError,
    TemplateNotFoundError,
)
from bothy.adapters import check_version, notes_on, tolerant
from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.environments.definition import (
    COMPOSE_FILE_NAME,
    DOCKERFILE_NAME,
    SNAPSHOT_HASH_LEN,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.environments.tar_transfer import pack_dir_to_file
from harbor.models.task.config import NetworkMode, NetworkPolicy

SHELL = 'if command -v bash >/dev/null; then exec bash -c "$0"; fi; exec sh -c "$0"'

_building: dict[str, asyncio.Lock] = {}


@tolerant
class BothyEnvironment(BaseEnvironment):
    """One Bothy sandbox for each trial.

    Args:
        template: The template to start from, in the place of the task's image or Dockerfile.
        sandbox_timeout_seconds: After so long the sandbox ends, whatever happens to Harbor.
        engine: What gives the sandbox its kernel.
    """

    def __init__(
        self,
        *args: Any,
        template: str | None = None,
        sandbox_timeout_seconds: int = 24 * 3600,
        engine: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_version("harbor-bothy", "harbor", "0.25.0", "0.27")
        self._template = template
        self._life = sandbox_timeout_seconds
        self._engine = engine
        self._client = AsyncClient()
        self._started: AsyncSandbox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        return "bothy"

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        try:
            with Client() as client:
                client.limits()
        except BothyError as error:
            raise SystemExit(f"Bothy cannot be used: {error}") from error

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, memory_limit=True, fractional_cpus=True
        )

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        # There is no IPv6 inside a sandbox.
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @override
    def _validate_definition(self) -> None:
        if (self.environment_dir / COMPOSE_FILE_NAME).exists():
            raise ValueError(
                f"The task {self.environment_name} needs Docker Compose, which Bothy does not "
                "run. Use an environment that does, such as docker."
            )
        if self._template is None:
            image = self.task_env_config.docker_image
            require_agent_environment_definition(self.environment_dir, docker_image=image)

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox, while the environment is started."""
        if self._started is None:
            raise RuntimeError(f"The environment {self.session_id} is not started.")
        return self._started

    @override
    async def start(self, force_build: bool) -> None:
        template = self._template or await self._built(force_build)
        self._started = await AsyncSandbox.create(
            template,
            cpu=self._effective_cpus,
            memory_mb=self._effective_memory_mb,
            disk_mb=self._effective_storage_mb,
            network=policy(self.network_policy),
            timeout_seconds=self._life,
            env=self._startup_env(),
            engine=self._engine,
            metadata={
                "harbor_environment": self.environment_name[:200],
                "harbor_session": self.session_id[:200],
            },
            client=self._client,
        )
        self.logger.info(f"The environment {self.session_id} is the sandbox {self.sandbox.id}")
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def _built(self, force: bool) -> str:
        """Return the template of the task, which is built once for all trials."""
        label = re.sub(r"[^a-z0-9]+", "-", self.environment_name.lower()).strip("-") or "task"
        name = f"harbor/{label[:60]}:{self.environment_id[:SNAPSHOT_HASH_LEN]}"
        image = self.task_env_config.docker_image
        async with _building.setdefault(name, asyncio.Lock()):
            try:
                if not force:
                    await self._client.template(name)
                    return name
            except TemplateNotFoundError:
                self.logger.info(f"Building the template {name}")
            prebuilt = should_use_prebuilt_docker_image(
                self.environment_dir, docker_image=image, force_build=force
            )
            if prebuilt:
                await self._client.build_template(name, image=image, force=force)
            else:
                await self._client.build_template(
                    name,
                    context=self.environment_dir,
                    file=DOCKERFILE_NAME,
                    network="open",
                    force=force,
                    timeout_seconds=int(self.task_env_config.build_timeout_sec),
                )
            return name

    @override
    async def stop(self, delete: bool) -> None:
        if self._started is None:
            return
        try:
            if delete:
                await self._started.terminate()
            else:
                await self._started.pause()
                self.logger.info(f"The sandbox {self._started.id} is paused")
        except SandboxNotFoundError:
            pass
        finally:
            self._started = None
            await self._client.close()

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.set_network(policy(network_policy))

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command; a time-out ends it with all that it started."""
        name = self._resolve_user(user)
        told = self._output_callback()
        options: dict[str, Any] = {}
        if told is not None:
            options["on_stdout"] = lambda text: told(text, "stdout")
            options["on_stderr"] = lambda text: told(text, "stderr")
        ran = await self.sandbox.exec(
            ["/bin/sh", "-c", SHELL, command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            user="root" if name is None else str(name),
            timeout_seconds=timeout_sec,
            **options,
        )
        if ran.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        stderr = ran.stderr + notes_on(ran)
        return ExecResult(stdout=ran.stdout, stderr=stderr, return_code=ran.exit_code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.sandbox.files.upload(Path(source_path), target_path, user="root")

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "packed.tar"
            await asyncio.to_thread(pack_dir_to_file, source_dir, packed)
            with packed.open("rb") as archive:
                await self.sandbox.files.write_archive(target_dir, archive, user="root")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        content = await self.sandbox.files.read_bytes(source_path, user="root")
        await asyncio.to_thread(Path(target_path).write_bytes, content)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        with tempfile.TemporaryFile() as archive:
            await self.sandbox.files.read_archive(source_dir, archive, user="root")
            archive.seek(0)
            await asyncio.to_thread(_unpack, archive, Path(target_dir))


def _unpack(archive: Any, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=archive) as opened:
        opened.extractall(target, filter=transfer_tar_filter)


def policy(asked: NetworkPolicy) -> Network:
    """Return what a sandbox may reach under one of Harbor's policies."""
    if asked.network_mode == NetworkMode.PUBLIC:
        return Network(mode="open")
    if asked.network_mode == NetworkMode.NO_NETWORK:
        return Network(mode="off")
    numbers = [host for host in asked.allowed_hosts if re.fullmatch(r"[0-9./]+", host)]
    names = [host for host in asked.allowed_hosts if host not in numbers]
    ranges = [host if "/" in host else f"{host}/32" for host in numbers]
    return Network(mode="restricted", allow_domains=tuple(names), allow_cidrs=tuple(ranges))
