"""What each file of tests begins and ends with."""

import os
import sys
import threading
import unittest

CALLED = os.environ.get("E2B_CALLED")
"""A folder in which each file of tests notes the functions of the SDK that it called."""


class Calls:
    """Which functions of E2B's packages are called, by file and name."""

    def __init__(self):
        self.seen = set()

    def __call__(self, frame, event, _):
        if event == "call":
            self.seen.add(frame.f_code)

    def start(self):
        threading.setprofile(self)
        sys.setprofile(self)

    def save(self, path):
        sys.setprofile(None)
        with open(path, "w") as f:
            for file, name in sorted({(relative(c.co_filename), c.co_name) for c in self.seen}):
                if file:
                    print(file, name, file=f)


def relative(path):
    """Return a path below the folder of packages, or "" where it is not one of E2B's."""
    rest = path.rpartition("site-packages/")[2]
    return rest if rest.startswith("e2b") and rest != path else ""


calls = Calls()
if CALLED:
    calls.start()


def main():
    """Run the tests of the calling file, and leave without the interpreter's own end.

    The HTTP library of E2B's SDK has threads that may want the interpreter while it
    ends. Before Python 3.14 that aborts the process, after all tests have passed.
    """
    result = unittest.main(exit=False).result
    if CALLED:
        calls.save(os.path.join(CALLED, os.path.basename(sys.argv[0]) + ".calls"))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if result.wasSuccessful() and result.testsRun else 1)
