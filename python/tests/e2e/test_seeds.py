"""The programs that the project was started for, with only their import line changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LIFECYCLE = """
from bothy import Sandbox

with Sandbox.create(template="python-3.12") as sbx:
    sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))")
    result = sbx.exec("python /workspace/main.py")
    print(result.stdout)       # 499999500000
    print(result.duration_ms)  # ~120
"""

NETWORK = """
from bothy import Sandbox

# no internet at all - the safe default for code you haven't read
sbx = Sandbox.create(template="python-3.12", network="off")

# allowlist - pip and npm work, random domains don't
sbx = Sandbox.create(template="python-3.12", network="restricted")
"""

PAUSE = """
from bothy import Sandbox

sbx = Sandbox.create(template="node-22")
# ... agent does some work, then hits a checkpoint ...
snapshot_id = sbx.pause()   # frozen to disk, not billed for compute
"""

RESUME = """
from bothy import Sandbox

# an hour later, maybe from a completely different process:
sbx = Sandbox.resume(snapshot_id)
"""

OTHER_IMPORT = "from bothy.daytona import Daytona\n"

OTHER_LIFECYCLE = (
    OTHER_IMPORT
    + """
daytona = Daytona()
sandbox = daytona.create()
response = sandbox.process.exec("echo hello from the sandbox")
print(response.result)
sandbox.delete()
"""
)

OTHER_FILES = """
sandbox.fs.upload_file(open("data/apple_10_k_2025.pdf", "rb").read(), "/tmp/apple_10_k.pdf")
# ... agent runs, writes /tmp/report.md inside the sandbox ...
report = sandbox.fs.download_file("/tmp/report.md")
"""

OTHER_HOME = """
sandbox.fs.upload_file(agent_script.encode(), "/tmp/agent.py")
result = sandbox.process.exec(
"python /tmp/agent.py",
env={"ANTHROPIC_API_KEY": os.environ["ANTHROPIC_API_KEY"]},
timeout=0,
)
print(result.result)
"""


def run(program: str, cwd: Path | None = None, warnings: str = "error") -> str:
    """Run a program as a user does: in a Python of its own."""
    command = [sys.executable, "-W", warnings, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        command, cwd=cwd, env=os.environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lifecycle() -> None:
    total, empty, milliseconds = run(LIFECYCLE).splitlines()
    assert (total, empty) == ("499999500000", "")
    assert 0 < int(milliseconds) < 60_000


def test_network_modes() -> None:
    probe = """
import bothy
for made in bothy.Sandbox.list(state="running"):
    print(made.info.template, made.info.network.mode)
    made.terminate()
"""
    assert run(NETWORK + probe).splitlines() == ["python-3.12 restricted", "python-3.12 off"]


def test_pause_and_resume_from_another_process() -> None:
    work = """
import bothy
bothy.Sandbox.list(state="running")[0].files.write("/workspace/note", "work")
"""
    pause = PAUSE.replace("# ... agent", work + "# ... agent") + "\nprint(snapshot_id)"
    snapshot_id = run(pause).strip()
    there = "\nprint(sbx.files.read('/workspace/note')); sbx.terminate()"
    assert run(f"snapshot_id = {snapshot_id!r}\n" + RESUME + there).strip() == "work"


def test_another_sdks_lifecycle() -> None:
    assert run(OTHER_LIFECYCLE) == "hello from the sandbox\n\n"


def test_another_sdks_files(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/apple_10_k_2025.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)))
    start = OTHER_IMPORT + "sandbox = Daytona().create()\n"
    work = 'sandbox.process.exec("md5sum < /tmp/apple_10_k.pdf | tee /tmp/report.md")\n'
    program = start + OTHER_FILES.replace("# ... agent", work + "# ... agent")
    done = run(program + "\nprint(report.decode()); sandbox.delete()", tmp_path, "ignore")
    digest = hashlib.md5((tmp_path / "data/apple_10_k_2025.pdf").read_bytes()).hexdigest()
    assert done.split()[0] == digest


def test_another_sdks_agent_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")
    start = f"""
import os
{OTHER_IMPORT}
sandbox = Daytona().create()
agent_script = "import os, sys; print(os.environ['ANTHROPIC_API_KEY']); sys.exit(3)"
"""
    end = "\nprint(result.exit_code); sandbox.delete()"
    assert run(start + OTHER_HOME + end).split() == ["not-a-key", "3"]
