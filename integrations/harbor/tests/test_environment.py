"""The environment against a real server: alone, and under Harbor's own command line."""

import inspect
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import pytest_asyncio
from bothy import Client, Sandbox, adapters
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths
from harbor_bothy import BothyEnvironment
from harbor_bothy.environment import policy

BYTES = bytes(range(256)) * 4
NAME = "größe 1 [α] 'x'.bin"


def make(task, **options):
    config = options.pop("config", EnvironmentConfig(workdir="/srv", cpus=0.5, memory_mb=512))
    options.setdefault("template", "python-3.12-bare")
    return EnvironmentFactory.create_environment_from_import_path(
        "harbor_bothy:BothyEnvironment",
        environment_dir=task / "environment",
        environment_name="forty-two",
        session_id="forty-two__abc__env",
        trial_paths=TrialPaths(task.parent / "trial"),
        task_env_config=config,
        logger=logging.getLogger("test"),
        **options,
    )


@pytest_asyncio.fixture
async def environment(task):
    made = make(task)
    await made.start(force_build=False)
    yield made
    await made.stop(delete=True)


async def test_commands(environment):
    ran = await environment.exec(
        "id -un; pwd; echo $GIVEN; echo no >&2; exit 3", env={"GIVEN": "ü"}
    )
    assert (ran.stdout, ran.stderr, ran.return_code) == ("root\n/srv\nü\n", "no\n", 3)
    assert (await environment.exec("id -un; pwd", user="user", cwd="/tmp")).stdout == "user\n/tmp\n"
    assert (await environment.exec("id -u", user=0)).stdout == "0\n"
    assert (await environment.exec("no-such-program")).return_code == 127
    pieces = []

    async def keep(text, stream):
        pieces.append((text, stream))

    with environment.scoped_output_callback(keep), environment.scoped_exec_env({"X": "scoped"}):
        await environment.exec("echo $X")
    assert pieces == [("scoped\n", "stdout")]


async def test_a_time_out_ends_the_command(environment):
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        await environment.exec("(sleep 600 & sleep 600)", timeout_sec=1)
    left = await environment.exec("grep -lazE '^60.$' /proc/[0-9]*/cmdline 2>/dev/null")
    assert left.stdout == ""


async def test_output_over_the_bound_is_cut_and_says_so(environment):
    ran = await environment.exec("seq 1 6000000")
    assert len(ran.stdout) < 40_000_000 and "output was dropped" in ran.stderr


async def test_files(environment, tmp_path):
    source = tmp_path / "out" / "ordner 1"
    source.mkdir(parents=True)
    (source / NAME).write_bytes(BYTES)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    await environment.upload_dir(tmp_path / "out", "/data")
    await environment.upload_file(source / NAME, f"/deep/{NAME}")
    assert (await environment.exec("test -x '/data/ordner 1/run.sh'")).return_code == 0
    await environment.exec("mkfifo /data/pipe; ln -s /etc/passwd '/data/ordner 1/link'")
    assert await environment.is_dir("/data/ordner 1") and await environment.is_file(f"/deep/{NAME}")
    await environment.download_file(f"/deep/{NAME}", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == BYTES
    await environment.exec("rm '/data/ordner 1/link'")
    await environment.download_dir("/data", tmp_path / "in")
    assert (tmp_path / "in" / "ordner 1" / NAME).read_bytes() == BYTES
    await environment.download_dir_with_exclusions(
        source_dir="/data", target_dir=tmp_path / "some", exclude=["*.sh"]
    )
    assert [path.name for path in (tmp_path / "some" / "ordner 1").iterdir()] == [NAME]


async def test_the_network_can_be_changed(environment):
    assert environment.sandbox.info.network.mode == "open"
    await environment.set_network_policy(
        NetworkPolicy(network_mode="allowlist", allowed_hosts=["a.example", "192.0.2.1"])
    )
    network = (await environment.sandbox.refresh()).network
    assert network.mode == "restricted" and network.allow_domains == ("a.example",)
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
    assert (await environment.sandbox.refresh()).network.mode == "off"


def test_network_policies():
    hosts = ["a.example", "*.b.example", "192.0.2.1", "198.51.100.0/24"]
    made = policy(NetworkPolicy(network_mode="allowlist", allowed_hosts=hosts))
    assert made.allow_domains == ("a.example", "*.b.example")
    assert made.allow_cidrs == ("192.0.2.1/32", "198.51.100.0/24") and made.mode == "restricted"
    assert policy(NetworkPolicy(network_mode="no-network")).mode == "off"


def test_what_cannot_be_kept_is_refused(task):
    ipv6 = NetworkPolicy(network_mode="allowlist", allowed_hosts=["2001:db8::1"])
    with pytest.raises(ValueError, match="IPv6 addresses is not supported by bothy"):
        make(task, network_policy=ipv6)
    with pytest.raises(RuntimeError, match="does not support GPU"):
        make(task, config=EnvironmentConfig(gpus=1))
    with pytest.raises(ValueError, match="request"):
        make(task, memory_enforcement_policy="request")
    (task / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="Docker Compose"):
        make(task)


def test_the_preflight_says_what_is_missing(monkeypatch):
    BothyEnvironment.preflight()
    monkeypatch.setenv("BOTHY_API_KEY", "bothy_wrong")
    with pytest.raises(SystemExit, match="Bothy cannot be used"):
        BothyEnvironment.preflight()


async def test_what_is_not_deleted_is_paused(task):
    made = make(task)
    await made.start(force_build=False)
    sandbox_id = made.sandbox.id
    await made.stop(delete=False)
    await made.stop(delete=False)
    sandbox = Sandbox.get(sandbox_id)
    assert sandbox.info.state == "paused"
    sandbox.terminate()


def test_a_job(task, tmp_path, monkeypatch):
    """The oracle solves a task, and the verifier sees it; nothing is left behind."""
    attempts = 2
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")
    command = [Path(sys.executable).parent / "harbor", "run", "--path", task, "--agent", "oracle"]
    command += ["--env", "harbor_bothy:BothyEnvironment", "--jobs-dir", tmp_path / "jobs"]
    command += ["--n-attempts", str(attempts), "--yes"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    try:
        assert ran.returncode == 0, ran.stdout + ran.stderr
        trials = [
            json.loads(path.read_text()) for path in (tmp_path / "jobs").glob("*/*/result.json")
        ]
        rewards = [trial["verifier_result"]["rewards"]["reward"] for trial in trials]
        assert rewards == [1.0] * attempts, ran.stdout + str(trials)
        made = Sandbox.list(metadata={"harbor_environment": "forty-two"})
        made = [sandbox for sandbox in made if sandbox.info.template.startswith("harbor/")]
        logs = "".join(path.read_text() for path in (tmp_path / "jobs").glob("*/*/trial.log"))
        assert len(made) >= attempts and all(sandbox.id in logs for sandbox in made)
        assert {sandbox.info.state for sandbox in made} == {"stopped"}
        assert {sandbox.info.network.mode for sandbox in made} == {"off"}
    finally:
        with Client() as client:
            for template in client.templates():
                if template.name.startswith("harbor/"):
                    client.delete_template(template.name)

def test_an_untested_version_is_said_once(monkeypatch, task):
    adapters.check_version.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.9.9")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            make(task)
    adapters.check_version.cache_clear()
    (one,) = [w for w in said if w.category is adapters.UntestedVersionWarning]
    assert "9.9.9" in str(one.message)


async def test_arguments_of_newer_versions_are_ignored():
    """Every method through which the framework calls is given one argument more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adapters.UntestedVersionWarning)
        for cls in [BothyEnvironment]:
            for name in adapters.overriding(cls):
                try:
                    made = getattr(cls.__new__(cls), name)(an_argument_of_tomorrow=1)
                    if inspect.isawaitable(made):
                        await made
                except (Exception, SystemExit) as error:
                    assert "an_argument_of_tomorrow" not in str(error), name
