"""Fixtures for the tests of both flavours."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fake_server import FakeServer

from bothy import AsyncClient, AsyncSandbox


@pytest.fixture
async def client(fake: FakeServer) -> AsyncIterator[AsyncClient]:
    """A client of the fake server."""
    async with AsyncClient() as client:
        yield client


@pytest.fixture
async def sbx(client: AsyncClient) -> AsyncIterator[AsyncSandbox]:
    """A sandbox of the fake server."""
    async with AsyncSandbox.create(client=client) as sbx:
        yield sbx
