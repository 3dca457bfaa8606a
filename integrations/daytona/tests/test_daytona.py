"""Programs as they are written for Daytona's SDK, with another import line, against a real server."""

import hashlib
from pathlib import Path

import pytest
from bothy import Sandbox
from bothy_daytona import Daytona


@pytest.fixture
def sandbox():
    sandbox = Daytona().create()
    yield sandbox
    sandbox.delete()
    assert sandbox.id not in [s.id for s in Sandbox.list(live=True)]


def test_life(sandbox):
    daytona = Daytona()
    assert sandbox.process.exec("echo hello from the sandbox").result == "hello from the sandbox\n"
    assert daytona.get(sandbox.id).id == sandbox.id
    assert sandbox.id in [s.id for s in daytona.list()]
    other = daytona.create("python-3.12-bare")
    daytona.delete(other)
    assert other.id not in [s.id for s in daytona.list()]


def test_commands(sandbox):
    done = sandbox.process.exec("echo out; echo err >&2; exit 3", cwd="/tmp", env={"A": "b"}, timeout=20)
    assert (done.exit_code, sorted(done.result.split())) == (3, ["err", "out"])
    assert sandbox.process.exec('echo "$A $PWD"', cwd="/tmp", env={"A": "b"}).result == "b /tmp\n"
    assert sandbox.process.exec("sleep 60", timeout=0.2).exit_code != 0
    assert sandbox.process.code_run("print(6 * 7)").result == "42\n"


def test_files(sandbox, tmp_path: Path):
    content = b"%PDF-1.7\n" + bytes(range(256))
    sandbox.fs.create_folder("/tmp/a folder", "700")
    sandbox.fs.upload_file(content, "/tmp/a folder/ä.pdf")
    assert sandbox.process.exec("md5sum < '/tmp/a folder/ä.pdf'").result.split()[0] == hashlib.md5(content).hexdigest()
    assert sandbox.fs.download_file("/tmp/a folder/ä.pdf") == content
    sandbox.fs.download_file("/tmp/a folder/ä.pdf", tmp_path / "back.pdf")
    assert (tmp_path / "back.pdf").read_bytes() == content
    sandbox.fs.upload_file(tmp_path / "back.pdf", "/tmp/again.pdf")
    assert [f.name for f in sandbox.fs.list_files("/tmp/a folder")] == ["ä.pdf"]
    sandbox.fs.delete_file("/tmp/a folder")
    assert "again.pdf" in [f.name for f in sandbox.fs.list_files("/tmp")]


def test_the_rest_is_bothys(sandbox):
    assert sandbox.bothy.run_code("6 * 7").results[-1]["text/plain"] == "42"
