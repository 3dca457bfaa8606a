"""The examples of the API document, as this SDK sees them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "api" / "openapi.json"


@pytest.mark.skipif(not DOCUMENT.exists(), reason="wants the repository")
def test_the_examples_of_the_api_document_are_programs(tmp_path: Path) -> None:
    paths = json.loads(DOCUMENT.read_text())["paths"]
    operations = [operation for item in paths.values() for operation in item.values()]
    assert len(operations) > 50
    for operation in operations:
        sources = [s["source"] for s in operation["x-codeSamples"] if s["label"] == "Python"]
        assert len(sources) == 1, operation["operationId"]
        name = operation["operationId"].replace("-", "_")
        (tmp_path / f"sample_{name}.py").write_text(sources[0] + "\n")
    root = Path(__file__).resolve().parents[1]
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {root}\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--check-untyped-defs",
        "--config-file",
        "mypy.ini",
        ".",
    ]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
