"""Connects to each of its arguments, "host:port"."""

import sys

from attack import report
from reach import connect

connect("", sys.argv[1:])
report()
