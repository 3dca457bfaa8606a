"""Puts pip into a virtual environment, from the wheel in the same folder.

The interpreter of this template comes without the ensurepip of the standard
library. This one answers the same calls: ``python -m venv`` needs it.
"""

import argparse
import glob
import os
import subprocess
import sys

__all__ = ["bootstrap", "version"]

_WHEEL = glob.glob(os.path.join(os.path.dirname(__file__), "_bundled", "pip-*.whl"))[0]


def version():
    """Return the version of the pip that bootstrap installs."""
    return os.path.basename(_WHEEL).split("-")[1]


def bootstrap(*, root=None, upgrade=False, user=False, altinstall=False, default_pip=False, verbosity=0):
    """Install pip into the running environment."""
    args = ["install", "--no-cache-dir", "--no-index", "--no-deps", "--find-links", os.path.dirname(_WHEEL)]
    args += ["--root", root] if root else []
    args += ["--upgrade"] if upgrade else []
    args += ["--user"] if user else []
    args += ["-" + "v" * verbosity] if verbosity else []
    code = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('pip', run_name='__main__', alter_sys=True)"
    return subprocess.run([sys.executable, "-I", "-c", code, _WHEEL, *args, "pip"], check=True).returncode


def _main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m ensurepip")
    parser.add_argument("--version", action="version", version="pip " + version())
    parser.add_argument("-v", "--verbose", action="count", default=0, dest="verbosity")
    parser.add_argument("-U", "--upgrade", action="store_true")
    parser.add_argument("--user", action="store_true")
    parser.add_argument("--root")
    parser.add_argument("--altinstall", action="store_true")
    parser.add_argument("--default-pip", action="store_true")
    return bootstrap(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(_main())
