"""What adapters share."""

from __future__ import annotations

import warnings

import pytest

from bothy.adapters import UntestedVersionWarning, check_version


def test_an_untested_version_says_so_once() -> None:
    with pytest.warns(UntestedVersionWarning, match="x was tested with pytest from 0.1 to below"):
        assert not check_version("x", "pytest", "0.1", "0.2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not check_version("x", "pytest", "0.1", "0.2")
        assert check_version("x", "pytest", "1.0", "1000.0")
