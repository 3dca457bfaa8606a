"""What is tried again, and what is not."""

from __future__ import annotations

import pytest
from fake_server import Answer, FakeServer, as_json, final, problem

from bothy import (
    AsyncClient,
    AsyncSandbox,
    CapacityError,
    ConflictError,
    ConnectionFailedError,
    QuotaExceededError,
    RateLimitedError,
)
from bothy._io import aio as io


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were taken, none of them in real time."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(io, "sleep", sleep)
    return taken


def busy(**headers: str) -> Answer:
    return problem(503, "capacity", "the host is full", "Wait.", **headers)


async def test_create_waits_for_capacity(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.next_answers = [busy(), busy()]
    await AsyncSandbox.create(client=client)
    assert len(fake.sandboxes) == 1 and len(pauses) == 2 and pauses[1] > pauses[0] / 2
    keys = [seen.headers["idempotency-key"] for seen in fake.calls("POST", "/sandboxes")]
    assert len(keys) == 3 and len(set(keys)) == 1


async def test_retry_after_is_respected(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.next_answers = [
        problem(429, "rate_limited", "slow down", **{"Retry-After": "7"}),
        problem(409, "conflict", "still being worked on", **{"Retry-After": "1"}),
    ]
    await AsyncSandbox.create(client=client)
    assert pauses == [7.0, 1.0]


async def test_retry_after_too_long_is_not_waited_for(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.next_answers = [problem(429, "rate_limited", "slow down", **{"Retry-After": "3600"})]
    with pytest.raises(RateLimitedError) as caught:
        await AsyncSandbox.create(client=client)
    assert caught.value.retry_after == 3600.0 and pauses == []


async def test_retries_are_bounded(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.next_answers = [busy() for _ in range(9)]
    with pytest.raises(CapacityError):
        await AsyncSandbox.create(client=client)
    assert len(fake.seen) == 5 and len(pauses) == 4


async def test_what_will_not_change_is_not_tried_again(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.next_answers = [problem(429, "quota_exceeded", "one sandbox is allowed")]
    with pytest.raises(QuotaExceededError):
        await AsyncSandbox.create(client=client)
    fake.next_answers = [problem(409, "conflict", "for good")]
    with pytest.raises(ConflictError):
        await AsyncSandbox.create(client=client)
    assert pauses == [] and fake.sandboxes == {}


async def test_broken_connection_of_a_keyed_call(
    fake: FakeServer, client: AsyncClient, pauses: list[float]
) -> None:
    fake.drop_next = 1
    sbx = await AsyncSandbox.create(client=client)
    fake.drop_next = 1
    await sbx.refresh()
    fake.drop_next = 1
    await sbx.files.write("/f", b"x")
    fake.drop_next = 1
    await sbx.terminate()
    assert len(pauses) == 4


async def test_command_is_never_run_twice(
    fake: FakeServer, sbx: AsyncSandbox, pauses: list[float]
) -> None:
    fake.scripts["true"] = lambda _: iter([final()])
    fake.drop_next = 1
    with pytest.raises(ConnectionFailedError):
        await sbx.exec("true")
    assert len(fake.calls("POST", "/exec")) == 1 and pauses == []
    assert fake.calls("POST", "/exec")[0].headers["idempotency-key"]


async def test_refused_command_is_tried_again(
    fake: FakeServer, sbx: AsyncSandbox, pauses: list[float]
) -> None:
    fake.scripts["true"] = lambda _: iter([final()])
    fake.next_answers = [busy()]
    assert (await sbx.exec("true")).ok
    assert len(pauses) == 1
    first, again = [seen.headers["idempotency-key"] for seen in fake.calls("POST", "/exec")]
    assert first == again


async def test_bad_gateway_of_a_read(
    fake: FakeServer, sbx: AsyncSandbox, pauses: list[float]
) -> None:
    fake.next_answers = [problem(502, "guest_unreachable", "no answer from inside")]
    await sbx.refresh()
    assert len(pauses) == 1


async def test_server_that_is_not_there(pauses: list[float], fake: FakeServer) -> None:
    fake.close()
    async with AsyncClient(max_retries=2) as client:
        with pytest.raises(ConnectionFailedError, match="bothy up") as caught:
            await AsyncSandbox.create(client=client)
    assert isinstance(caught.value, ConnectionError) and len(pauses) == 2


async def test_server_that_restarts(pauses: list[float], fake: FakeServer) -> None:
    fake.close()
    async with AsyncClient() as client:
        with pytest.raises(ConnectionFailedError, match="bothy up"):
            await client.request("POST", "/v1/sandboxes", json={})
        assert 20 <= sum(pauses) <= 25
        assert max(pauses) <= 5
    pauses.clear()
    async with AsyncClient(timeout_seconds=6) as client:
        with pytest.raises(ConnectionFailedError):
            await client.request("GET", "/v1/limits")
    assert sum(pauses) <= 6


async def test_name_that_does_not_exist_is_not_waited_for(
    pauses: list[float], fake: FakeServer
) -> None:
    async with AsyncClient("http://bothy.invalid:1", "key") as client:
        with pytest.raises(ConnectionFailedError):
            await client.request("GET", "/v1/limits")
    assert len(pauses) == 4


async def test_answer_without_content(fake: FakeServer, client: AsyncClient) -> None:
    fake.next_answers = [Answer(204), as_json({"items": [], "next_cursor": ""})]
    assert await client.request("DELETE", "/v1/x") is None
    assert await client.request("GET", "/v1/x", params={"a": None, "b": True}) is not None
    assert fake.seen[-1].query == {"b": "true"}
