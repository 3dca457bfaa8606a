"""Templates described in code, and the folders that they are built from."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bothy import InvalidArgumentError, Template, TemplateRecipe
from bothy._context import Ignored, pack_context

VECTORS = Path(__file__).resolve().parents[2] / "test/vectors/testdata/dockerignore.json"


def test_each_step_becomes_a_line() -> None:
    recipe = (
        Template("python-3.12", tag="v3")
        .apt("ffmpeg", "git=1:2.*")
        .pip("pandas==2.*")
        .npm("typescript@5")
        .copy("app", "/app")
        .copy(["a b", "*.txt"], "/data/", user="user", mode=0o640)
        .env({"GREETING": 'say "hi" for $5 \\o/'}, EMPTY="")
        .workdir("/app")
        .user("user")
        .run("echo 'one'\necho two")
        .pip("numpy")
    )
    assert recipe.dockerfile.splitlines() == [
        "FROM python-3.12:v3",
        'RUN ["/bin/sh", "-c", "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install '
        "-y --no-install-recommends ffmpeg 'git=1:2.*' && rm -rf /var/lib/apt/lists/*\"]",
        'RUN --mount=type=cache,target=/root/.cache/pip ["pip", "install", "pandas==2.*"]',
        'RUN --mount=type=cache,target=/root/.npm ["npm", "install", "--global", "typescript@5"]',
        'COPY ["app", "/app"]',
        'COPY --chown=user --chmod=640 ["a b", "*.txt", "/data/"]',
        'ENV GREETING="say \\"hi\\" for \\$5 \\\\o/"',
        'ENV EMPTY=""',
        "WORKDIR /app",
        "USER user",
        'RUN ["/bin/sh", "-c", "echo \'one\'\\necho two"]',
        "USER root",
        'RUN --mount=type=cache,target=/root/.cache/pip ["pip", "install", "numpy"]',
        "USER user",
    ]
    assert recipe.sources == ("app", "a b", "*.txt")


def test_a_recipe_can_be_the_beginning_of_several() -> None:
    common = TemplateRecipe("node-22").env(A="1")
    assert common.run("one").lines != common.run("two").lines
    assert common.lines == ('ENV A="1"',)


@pytest.mark.parametrize(
    ("ready", "wire"),
    [
        (8000, {"port": 8000}),
        ("http://localhost:8000/health", {"url": "http://localhost:8000/health"}),
        ("/tmp/ready", {"file": "/tmp/ready"}),
        ("test -e /tmp/ready", {"command": "test -e /tmp/ready"}),
        ({"command": "/usr/bin/check"}, {"command": "/usr/bin/check"}),
    ],
)
def test_a_program_that_runs_already(ready: Any, wire: dict[str, Any]) -> None:
    recipe = Template("base").start(
        "serve", ready=ready, cwd="/app", timeout_seconds=5, memory_mb=256
    )
    assert recipe.started == {
        "command": "serve",
        "ready": wire,
        "cwd": "/app",
        "timeout_seconds": 5,
        "memory_mb": 256,
    }


@pytest.mark.parametrize(
    "step",
    [
        lambda t: t.apt(),
        lambda t: t.pip(""),
        lambda t: t.run(""),
        lambda t: t.copy([], "/x"),
        lambda t: t.user("two words"),
        lambda t: t.workdir("two\nlines"),
        lambda t: t.env({"A B": "x"}),
        lambda t: t.env(A="two\nlines"),
        lambda t: t.start(""),
    ],
)
def test_steps_that_cannot_be(step: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        step(TemplateRecipe("base"))


def test_what_is_ignored() -> None:
    for case in json.loads(VECTORS.read_text("utf-8")):
        ignored = Ignored(case["ignore"])
        assert [p for p in case["paths"] if ignored(p)] == case["ignored"], case["ignore"]
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Ignored("[z-a]\n")


def packed(folder: Path, *args: Any) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pack_context(folder, *args)))) as archive:
        return archive.getnames()


def test_what_is_sent(tmp_path: Path) -> None:
    for name in (
        "app/main.py",
        "app/x.log",
        "data/one.txt",
        "data/deep/two.txt",
        "out/kept/f",
        "out/f",
        "a.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    os.symlink("main.py", tmp_path / "app/link")
    (tmp_path / ".dockerignore").write_text("**/*.log\nout\n!out/kept\n")
    everything = packed(tmp_path)
    assert everything == [
        ".dockerignore", "a.txt", "app", "app/link", "app/main.py", "data", "data/deep",
        "data/deep/two.txt", "data/one.txt", "out/kept", "out/kept/f",
    ]  # fmt: skip
    assert packed(tmp_path, "", ["app"]) == [".dockerignore", "app", "app/link", "app/main.py"]
    assert packed(tmp_path, "", ["/data/*/two.txt", "./a.*"]) == everything
    assert packed(tmp_path, "", ["data/deep"]) == [
        ".dockerignore", "data", "data/deep", "data/deep/two.txt",
    ]  # fmt: skip
    (tmp_path / "D.dockerignore").write_text("*\n!a.txt\n")
    assert packed(tmp_path, "D") == [".dockerignore", "D.dockerignore", "a.txt"]
    with pytest.raises(InvalidArgumentError, match="not a folder"):
        packed(tmp_path / "a.txt")
