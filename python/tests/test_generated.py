"""The blocking code must be what its asynchronous source gives."""

from __future__ import annotations

import generate_sync
import pytest


def test_generated_code_is_fresh() -> None:
    assert generate_sync.stale() == [], "run python scripts/generate_sync.py"


def test_stale_code_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_sync, "NOTICE", "# another {}\n")
    assert generate_sync.stale() != []


def test_no_asynchronous_word_is_left() -> None:
    for path, text in generate_sync.outputs().items():
        code = text.partition("\n")[2].replace("its asynchronous source", "")
        for word in ("await", "async", "Async", "aclose", "coroutine"):
            assert word not in code, f"{word} in {path}"
