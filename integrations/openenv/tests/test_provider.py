"""The provider, with OpenEnv's own client."""

import asyncio
import warnings

import pytest
from bothy import Sandbox
from bothy.adapters import UntestedVersionWarning, overriding
from openenv.core.generic_client import GenericEnvClient
from openenv_bothy import BothyProvider

# A server that speaks as much of OpenEnv's protocol as starting and stopping need.
HEALTHY = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ.get("GREETING", "").encode()
        self.send_response(200 if self.path in ("/health", "/greeting") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


def served(base_url: str, path: str) -> str:
    from urllib.request import ProxyHandler, build_opener

    with build_opener(ProxyHandler({})).open(base_url + path) as answer:
        return str(answer.read().decode())


def ids() -> set[str]:
    return {s.id for s in Sandbox.list(state=["starting", "running", "paused"])}


def test_life() -> None:
    before = ids()
    provider = BothyProvider(cmd=f"python -c '{HEALTHY}'")
    url = provider.start_container("python-3.12-bare", env_vars={"GREETING": "grüße"})
    provider.wait_for_ready(url)
    assert served(url, "/greeting") == "grüße"
    assert provider.sandbox.info.metadata["openenv_image"] == "python-3.12-bare"
    with pytest.raises(RuntimeError, match="started already"):
        provider.start_container("python-3.12-bare")
    provider.stop_container()
    provider.stop_container()
    assert ids() == before
    with pytest.raises(OSError):
        served(url, "/greeting")


def test_from_a_snapshot_and_options() -> None:
    with Sandbox.create("python-3.12-bare") as sandbox:
        sandbox.files.write("/workspace/server.py", HEALTHY)
        snapshot = sandbox.snapshot(memory=False)
    provider = BothyProvider(memory_mb=512)
    url = provider.start_container(
        f"snapshot:{snapshot.id}", cmd="python server.py", metadata={"mine": "yes"}, cpu=0.5
    )
    provider.wait_for_ready(url)
    assert (provider.sandbox.info.cpu, provider.sandbox.info.memory_mb) == (0.5, 512)
    provider.stop_container()


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        ("python-3.12-bare", {}, "Give its command"),
        ("no such image!", {"cmd": "true"}, "cannot be started"),
        ("snapshot:snp1", {"cmd": "true"}, "cannot be started"),
        ("python-3.12-bare", {"cmd": "true", "memory_mb": 1}, "memory_mb"),
    ],
)
def test_what_cannot_start(image: str, options: dict[str, object], message: str) -> None:
    before = ids()
    with pytest.raises(RuntimeError, match=message):
        BothyProvider().start_container(image, **options)
    assert ids() == before


def test_a_server_that_dies_and_one_that_never_answers() -> None:
    provider = BothyProvider(cmd="echo no such module >&2; exit 3")
    url = provider.start_container("python-3.12-bare")
    with pytest.raises(RuntimeError, match="code 3:\nno such module"):
        provider.wait_for_ready(url)
    provider.stop_container()
    url = BothyProvider.start_container(provider, "python-3.12-bare", cmd="sleep 60")
    with pytest.raises(TimeoutError, match="did not answer"):
        provider.wait_for_ready(url, timeout_s=0.5)
    provider.stop_container()


def test_an_untested_version_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from bothy import adapters

    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.9.0")
    adapters.check_version.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BothyProvider()
        BothyProvider()
    adapters.check_version.cache_clear()
    assert [w.category for w in caught] == [UntestedVersionWarning]


ENVIRONMENT = {
    "openenv.yaml": "name: counter\napp: server.app:app\nport: 8000\n",
    "server/__init__.py": "",
    "server/app.py": """
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class Add(Action):
    number: int

class Sum(Observation):
    sum: int

class Counter(Environment):
    def __init__(self):
        super().__init__()
        self._state = State()
        self._sum = 0
    def reset(self, **_):
        self._sum = 0
        return Sum(sum=0, done=False, reward=0.0)
    def step(self, action, **_):
        self._sum += action.number
        return Sum(sum=self._sum, done=self._sum >= 42, reward=float(action.number))
    @property
    def state(self):
        return self._state

app = create_fastapi_app(Counter, Add, Sum)
""",
    "server/Dockerfile": """FROM python-3.12-bare
RUN pip install openenv-core==0.3.0
COPY . /app/env
WORKDIR /app/env
""",
}


@pytest.mark.environment
def test_an_environment_from_its_dockerfile(tmp_path) -> None:
    folder = tmp_path / "counter"
    for name, text in ENVIRONMENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = ids()
    provider = BothyProvider()
    image = provider.image_from_dockerfile(folder / "server" / "Dockerfile")

    async def play() -> list[tuple[int, bool]]:
        env = await GenericEnvClient.from_docker_image(image, provider=provider)
        async with env:
            begun = await env.reset()
            steps = [begun] + [await env.step({"number": n}) for n in (2, 40)]
            return [(step.observation["sum"], step.done) for step in steps]

    assert asyncio.run(play()) == [(0, False), (2, False), (42, True)]
    assert ids() == before


def test_arguments_of_newer_versions_are_ignored():
    """Every method through which the framework calls is given one argument more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntestedVersionWarning)
        for cls in [BothyProvider]:
            for name in overriding(cls):
                try:
                    getattr(cls.__new__(cls), name)(an_argument_of_tomorrow=1)
                except (Exception, SystemExit) as error:
                    assert "an_argument_of_tomorrow" not in str(error), name
