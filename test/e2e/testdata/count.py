"""Counts for as long as it is told, in seconds of the clock, and prints how far
it got."""

import sys
import time

n = 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(1000):
        n += 1
print(n)
