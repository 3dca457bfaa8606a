"""Every public call of E2B's SDK for Python is made by a test, or is named here with the reason why not.

Runs after the other files of tests, which note what they called.
"""

import enum
import glob
import inspect
import os
import typing
import unittest

import e2b
import e2b_code_interpreter

import suite

# Classes that call nothing of a server: settings, values, and the tools of other classes.
NO_CALLS = {"ApiClient", "ConnectionConfig", "VolumeConnectionConfig", "EntryInfo", "WriteInfo", "GitStatus", "Context", "Execution",
            "ExecutionError", "Logs", "Result", "ReadyCmd", "AuthenticatedClient", "Client"}

# What puts a template together, and calls no server.
RECIPES = {"TemplateBase", "TemplateBuilder", "Template", "AsyncTemplate"}

ABSENT = {
    "Volume": "volumes do not exist here, so that there is none whose methods could be called",
    "AsyncVolume": "volumes do not exist here, so that there is none whose methods could be called",
    "Secret.fill": "calls no server", "AsyncSecret.fill": "calls no server",
    "Secret.iam_token": "calls no server", "AsyncSecret.iam_token": "calls no server",
    **dict.fromkeys(RECIPES, "what puts a recipe together calls no server"),
}


def public(cls):
    """Return the functions that are public names of a class, each with the files that may define it."""
    found = {}
    for base in reversed(cls.__mro__):
        file = suite.relative(inspect.getsourcefile(base) or "") if base.__module__.startswith("e2b") else ""
        for name, member in vars(base).items():
            if file and not name.startswith("_") and (callable(member) or hasattr(member, "__get__")):
                found.setdefault(name, set()).add(file)
    return found


def is_service(cls):
    plain = (BaseException, enum.Enum, dict, str, bytes, tuple)
    return inspect.isclass(cls) and cls.__module__.startswith("e2b") and not issubclass(cls, plain)


def reached(cls):
    """Return the classes that the public functions of one give."""
    for name in public(cls):
        member = inspect.getattr_static(cls, name)
        f = getattr(member, "fget", None) or getattr(member, "__func__", None) or getattr(member, "method", None) or member
        try:
            given = typing.get_type_hints(f).get("return")
        except (TypeError, NameError, AttributeError):
            continue
        for one in (given, *typing.get_args(given)):
            if is_service(one):
                yield one


def services():
    todo = [getattr(p, n) for p in (e2b, e2b_code_interpreter) for n in dir(p) if is_service(getattr(p, n))]
    done = set()
    while todo:
        cls = todo.pop()
        if cls not in done and public(cls):
            done.add(cls)
            todo += reached(cls)
    return {c for c in done if c.__name__ not in NO_CALLS and ".api.client.models" not in c.__module__}


class Surface(unittest.TestCase):
    maxDiff = None

    def test_all_is_called(self):
        called = set()
        for path in glob.glob(os.path.join(suite.CALLED, "*.calls")):
            with open(path) as f:
                called |= {tuple(line.split()) for line in f}
        self.assertTrue(called)
        missing, useless = [], set(ABSENT)
        for cls in services():
            for name, files in public(cls).items():
                full = f"{cls.__name__}.{name}"
                why = full if full in ABSENT else cls.__name__ if cls.__name__ in ABSENT else ""
                made = any((file, name) in called for file in files)
                useless -= {why} if not made else set()
                if not made and not why:
                    missing.append(f"{cls.__module__}.{full}")
        self.assertEqual(sorted(set(missing)), [], "no test calls these")
        self.assertEqual(useless, set(), "these are said not to be called")

    def test_finds_what_is_reached(self):
        names = {c.__name__ for c in services()}
        for name in ("Sandbox", "Filesystem", "Commands", "Pty", "Git", "CommandHandle", "WatchHandle", "TemplateBuilder", "AsyncCommandHandle"):
            self.assertIn(name, names)


if __name__ == "__main__":
    suite.main()
