"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_server import KEY, FakeServer


@pytest.fixture
def fake(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[FakeServer]:
    """A fake server that the environment names. Its parameter is the size of pages."""
    server = FakeServer(page_size=getattr(request, "param", 0))
    monkeypatch.setenv("BOTHY_URL", server.url)
    monkeypatch.setenv("BOTHY_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield server
    server.close()
