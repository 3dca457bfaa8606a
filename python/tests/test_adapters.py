"""What adapters share."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from typing import Any

import pytest

from bothy.adapters import UntestedVersionWarning, check_version, overriding, tolerant


def test_an_untested_version_says_so_once() -> None:
    with pytest.warns(UntestedVersionWarning, match="x was tested with pytest from 0.1 to below"):
        assert not check_version("x", "pytest", "0.1", "0.2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not check_version("x", "pytest", "0.1", "0.2")
        assert check_version("x", "pytest", "1.0", "1000.0")


class Framework:
    def plain(self, a: int) -> Any: ...
    async def waits(self, a: int) -> Any: ...
    @classmethod
    def of_class(cls, a: int) -> Any: ...
    @staticmethod
    def of_none(a: int) -> Any: ...
    def open(self, **options: int) -> Any: ...


@tolerant
class Adapter(Framework):
    def plain(self, a: int) -> Any:
        return self, a

    async def waits(self, a: int) -> Any:
        return self, a

    @classmethod
    def of_class(cls, a: int) -> Any:
        return cls, a

    @staticmethod
    def of_none(a: int) -> Any:
        return a

    def open(self, **options: int) -> Any:
        return options

    def own(self, a: int) -> Any:
        return a


def test_new_arguments_of_a_framework_are_ignored_and_told_once() -> None:
    x: Any = Adapter()
    assert overriding(Adapter) == ["plain", "waits", "of_class", "of_none", "open"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert x.plain(1, new=2) == (x, 1)
            assert asyncio.run(x.waits(a=1, new=2)) == (x, 1)
            assert x.of_class(1, new=2) == (Adapter, 1) and x.of_none(1, new=2) == 1
    assert len(told) == 4
    assert all(w.filename == __file__ for w in told if "waits" not in str(w.message))
    assert x.open(new=2) == {"new": 2}
    assert inspect.iscoroutinefunction(x.waits)
    assert list(inspect.signature(x.plain).parameters) == ["a"]
    with pytest.raises(TypeError, match="new"):
        x.own(1, new=2)
    with pytest.raises(TypeError, match="missing 1 required"):
        x.plain(new=2)
