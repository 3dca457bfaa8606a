"""Starts threads until it gets no more, or has as many as it was told, and
prints how many."""

import sys
import threading

end = threading.Event()
threading.stack_size(64 << 10)
started = 0
try:
    while started < int(sys.argv[1]):
        threading.Thread(target=end.wait, daemon=True).start()
        started += 1
except RuntimeError:
    pass
print(started)
end.set()
