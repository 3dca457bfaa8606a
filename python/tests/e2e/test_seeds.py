"""The programs that the project was started for, with only their import line changed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

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
