"""A task of Harbor."""

import stat

import pytest

TOML = """schema_version = "1.4"

[environment]
build_timeout_sec = 600.0
cpus = 0.5
memory_mb = 512
network_mode = "no-network"
workdir = "/srv/größe 1"
env = { COLOUR = "grün" }
"""

FILES = {
    "task.toml": TOML,
    "instruction.md": "Write forty-two into answer.txt.",
    "environment/Dockerfile": 'FROM python-3.12-bare\nRUN mkdir -p "/srv/größe 1"\n',
    "solution/solve.sh": "#!/bin/bash\necho 42 >answer.txt\n",
    "tests/test.sh": '#!/bin/bash\ngrep -qx 42 "/srv/größe 1/answer.txt"\n'
    "echo $((1 - $?)) >/logs/verifier/reward.txt\n",
}


@pytest.fixture
def task(tmp_path):
    """Return the folder of a task whose solution writes a file."""
    folder = tmp_path / "tasks" / "forty-two"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix == ".sh":
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder
