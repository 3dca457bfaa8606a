"""OpenAI's official SDK with this server's containers."""

import os
import uuid
from collections.abc import Iterator

import openai
import pytest
from bothy import Sandbox
from openai import OpenAI
from openai.types import ContainerCreateResponse

client = OpenAI(base_url=f"{os.environ['BOTHY_URL']}/v1", api_key=os.environ["BOTHY_API_KEY"])
files = client.containers.files


@pytest.fixture
def container() -> Iterator[ContainerCreateResponse]:
    made = client.containers.create(name="analysis")
    yield made
    try:
        client.containers.delete(made.id)
    except openai.NotFoundError:
        pass


def content(file_id: str, container_id: str) -> bytes:
    return files.content.retrieve(file_id, container_id=container_id).read()


def test_life() -> None:
    made = client.containers.create(
        name="a container", expires_after={"anchor": "last_active_at", "minutes": 7}
    )
    assert (made.object, made.status, made.memory_limit) == ("container", "running", "1g")
    assert made.expires_after is not None and made.expires_after.minutes == 7
    assert made.network_policy is not None and made.network_policy.type == "disabled"
    got = client.containers.retrieve(made.id)
    assert got.name == "a container" and got.last_active_at and got.created_at == made.created_at
    # The container is a sandbox, which anything else may use too.
    sandbox = Sandbox.get(made.id)
    assert (sandbox.info.idle_seconds, sandbox.info.memory_mb) == (420, 1024)
    assert sandbox.exec("touch /mnt/data/mine && id -un").stdout == "user\n"
    client.containers.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="was not found"):
        client.containers.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.containers.delete(made.id)


def test_options_of_the_server() -> None:
    options = {"on_host_loss": "fail", "checkpoint_seconds": 60}
    made = client.containers.create(name="checkpointed", extra_body=options)
    info = Sandbox.get(made.id).info
    assert (info.on_host_loss, info.checkpoint_seconds) == ("fail", 60)
    client.containers.delete(made.id)


def test_list() -> None:
    name = f"listed-{uuid.uuid4().hex[:8]}"
    made = [client.containers.create(name=name).id for _ in range(3)]
    with Sandbox.create("python-3.12", name=name):
        first = client.containers.list(name=name, limit=2)
        assert [c.id for c in first.data] == [made[2], made[1]] and first.has_more
        assert [c.id for c in client.containers.list(name=name, limit=1)] == made[::-1]
        assert [c.id for c in client.containers.list(name=name, order="asc", limit=2)] == made
    for id in made:
        client.containers.delete(id)
    assert list(client.containers.list(name=name)) == []
    with pytest.raises(openai.BadRequestError, match="not in the list"):
        client.containers.list(after=made[0])


@pytest.mark.parametrize("name", ["data.csv", "with space.txt", "größe 数.txt", 'a "quote".txt', "100%.txt"])
def test_files(container: ContainerCreateResponse, name: str) -> None:
    data = bytes(range(256)) * 4
    made = files.create(container.id, file=(name, data))
    assert (made.path, made.bytes) == (f"/mnt/data/{name}", len(data))
    assert files.retrieve(made.id, container_id=container.id).to_dict() == made.to_dict()
    assert content(made.id, container.id) == data
    assert [f.id for f in files.list(container.id)] == [made.id]
    files.delete(made.id, container_id=container.id)
    assert list(files.list(container.id)) == []
    with pytest.raises(openai.NotFoundError):
        content(made.id, container.id)


def test_files_of_commands(container: ContainerCreateResponse) -> None:
    sandbox = Sandbox.get(container.id)
    made = sandbox.exec("mkdir -p a/b && echo deep >a/b/c.txt && ln -s /etc/passwd link", cwd="/mnt/data")
    assert made.exit_code == 0, made.stderr
    (found,) = files.list(container.id)
    assert found.path == "/mnt/data/a/b/c.txt" and content(found.id, container.id) == b"deep\n"


def test_pages_of_files(container: ContainerCreateResponse) -> None:
    made = [files.create(container.id, file=(f"{n}.txt", b"x")).id for n in range(5)]
    assert [f.id for f in files.list(container.id, limit=2, order="asc")] == made
    assert [f.id for f in files.list(container.id, limit=2)] == made[::-1]


def test_large_file(container: ContainerCreateResponse) -> None:
    data = os.urandom(1 << 20) * 24
    made = files.create(container.id, file=("large.bin", data))
    assert content(made.id, container.id) == data


def test_files_are_copied(container: ContainerCreateResponse) -> None:
    made = files.create(container.id, file=("data.csv", b"1,2\n"))
    other = client.containers.create(name="other", file_ids=[made.id])
    (copy,) = files.list(other.id)
    assert content(copy.id, other.id) == b"1,2\n"
    files.delete(copy.id, container_id=other.id)
    assert files.create(other.id, file_id=made.id).path == "/mnt/data/data.csv"
    with pytest.raises(openai.NotFoundError, match="another container"):
        content(made.id, other.id)
    client.containers.delete(other.id)
    with pytest.raises(openai.BadRequestError, match="in containers only"):
        files.create(container.id, file_id="file-abc123")


def test_network() -> None:
    made = client.containers.create(
        name="connected",
        network_policy={
            "type": "allowlist",
            "allowed_domains": ["api.example.com"],
            "domain_secrets": [{"domain": "api.example.com", "name": "KEY", "value": "top-secret"}],
        },
    )
    assert made.network_policy is not None
    assert made.network_policy.allowed_domains == ["api.example.com"]
    sandbox = Sandbox.get(made.id)
    assert sandbox.info.network.mode == "restricted"
    inside = sandbox.exec("echo $KEY").stdout
    assert len(inside) > 1 and "top-secret" not in inside
    client.containers.delete(made.id)


def test_what_is_refused() -> None:
    create = client.containers.create
    for options, message in (
        ({"memory_limit": "64g"}, "at most 8192 MB"),
        ({"memory_limit": "2g"}, "Give 1g or 4g"),
        ({"skills": [{"type": "skill_reference", "skill_id": "x"}]}, "skills do not exist"),
        ({"expires_after": {"anchor": "created_at", "minutes": 5}}, "last_active_at"),
        ({"expires_after": {"anchor": "last_active_at", "minutes": 0}}, "from 1"),
        ({"network_policy": {"type": "allowlist", "allowed_domains": []}}, "allows no domain"),
        ({"extra_body": {"color": "red"}}, 'unknown field "color"'),
        ({"extra_body": {"on_host_loss": "restart"}}, "pause, resume or fail"),
        ({"extra_body": {"checkpoint_seconds": 5}}, "from 10"),
        ({"extra_body": {"host_labels": {"zone": "a"}}}, "requires a cluster"),
        ({"file_ids": ["file-1"]}, "in containers only"),
        ({"name": ""}, "name is missing"),
    ):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            create(**{"name": "refused", **options})
        assert caught.value.type == "invalid_request_error" and caught.value.code
    assert list(client.containers.list(name="refused")) == []
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").containers.list()
    assert caught.value.code == "invalid_api_key"
    with Sandbox.create("python-3.12") as sandbox, pytest.raises(openai.NotFoundError):
        client.containers.retrieve(sandbox.id)
