"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_server import KEY, FakeServer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    """A fake server that the environment names."""
    server = FakeServer()
    monkeypatch.setenv("BOTHY_URL", server.url)
    monkeypatch.setenv("BOTHY_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield server
    server.close()
