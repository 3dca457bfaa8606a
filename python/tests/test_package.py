"""What users see of the package."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bothy

PAIRS = [
    (getattr(bothy, name), getattr(bothy, name.removeprefix("Async")))
    for name in bothy.__all__
    if name.startswith("Async")
]


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def plain(member: Any) -> Any:
    return inspect.unwrap(getattr(member, "__func__", member))


def test_no_inner_module_is_in_sight() -> None:
    for name in bothy.__all__:
        thing = getattr(bothy, name)
        if isinstance(thing, type):
            assert thing.__module__ == "bothy", name
    assert repr(bothy.Sandbox) == "<class 'bothy.Sandbox'>"


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_flavours_have_the_same_names_and_arguments(
    asynchronous: type, blocking: type
) -> None:
    ours, theirs = public(asynchronous), public(blocking)
    assert ours.keys() == theirs.keys()
    for name, member in ours.items():
        if callable(plain(member)):
            there, here = (inspect.signature(plain(m)) for m in (member, theirs[name]))
            assert list(there.parameters) == list(here.parameters), name


def test_the_names_that_are_promised() -> None:
    sandbox = (
        "create get list resume limits exec exec_stream spawn terminal run_code pause snapshot "
        "create_template "
        "snapshots fork rollback set_timeout set_network network_log forward terminate id info "
        "refresh events url metrics metrics_history logs"
    )
    files = "read read_bytes write list stat exists mkdir move remove watch upload download"
    assert set(sandbox.split()) <= public(bothy.Sandbox).keys()
    assert set(files.split()) <= public(bothy.Files).keys()
    assert set(["create", "list", "remove"]) <= public(bothy.Contexts).keys()


def test_every_public_name_says_what_it_is() -> None:
    silent = []
    for name in bothy.__all__:
        thing = getattr(bothy, name)
        if not isinstance(thing, type):
            continue
        silent += [name] * (not thing.__doc__)
        for inner, member in vars(thing).items():
            member = plain(member)
            if not inner.startswith("_") and (callable(member) or isinstance(member, property)):
                silent += [f"{name}.{inner}"] * (not inspect.getdoc(member))
    assert silent == []


def test_values_are_frozen_and_slotted() -> None:
    for name in bothy.__all__:
        thing = getattr(bothy, name)
        if dataclasses.is_dataclass(thing):
            assert getattr(thing, "__dataclass_params__").frozen, name  # noqa: B009
            assert "__slots__" in vars(thing), name


def test_secret_value_is_not_shown() -> None:
    assert "hush" not in repr(bothy.Secret("T", "hush", ("a.example.org",)))
    wire = bothy.Secret("T", "hush", ("a.example.org",), "X-Key").to_wire()
    assert wire == {"name": "T", "value": "hush", "hosts": ["a.example.org"], "header": "X-Key"}
    more = bothy.Secret("T", "v", ("a.example.org",), "X-Key", override=True, allow_echo=True)
    assert (more.to_wire()["override"], more.to_wire()["allow_echo"]) == (True, True)


def test_types_are_marked() -> None:
    assert Path(bothy.__file__).with_name("py.typed").exists()


def test_nothing_is_sent_at_import() -> None:
    code = "import sys, bothy; sys.exit(any(m in sys.modules for m in ('trio', 'rich', 'click')))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(bothy.__file__).parents[1])
