# Holds memory, and tells the largest gap in time that it has seen.
import signal, sys, time

MB = 1 << 20
size = int(sys.argv[1])
held = bytearray(size * MB)
with open("/dev/urandom", "rb") as source:
    block = source.read(MB)
for at in range(0, size * MB, MB):
    held[at:at + MB] = block

watching = False
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
signal.signal(signal.SIGUSR2, lambda *_: asked.append(False))


def watch():
    """Looks at the clock again and again until asked something else."""
    gap, last = 0.0, time.time()
    while not asked:
        now = time.time()
        if now - last > gap:
            gap = now - last
        last = now
    return gap


print("ready", flush=True)
while True:
    while not asked:
        time.sleep(0.02)
    if asked.pop(0):
        print("watching", flush=True)
        print("gap", watch() * 1000, flush=True)
