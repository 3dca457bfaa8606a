"""What each file of tests ends with."""

import os
import sys
import unittest


def main():
    """Run the tests of the calling file, and leave without the interpreter's own end.

    The HTTP library of E2B's SDK has threads that may want the interpreter while it
    ends. Before Python 3.14 that aborts the process, after all tests have passed.
    """
    result = unittest.main(exit=False).result
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if result.wasSuccessful() and result.testsRun else 1)
