"""Collects garbage again and again, and writes all collections with their times: [generation, start, end]."""
import gc
import json
import sys
import time

gc.disable()
keep = [[i] for i in range(int(sys.argv[1]))]
log, begun = [], 0


def on_collection(phase, info):
    global begun
    if phase == "start":
        begun = time.monotonic_ns()
    else:
        log.append((info["generation"], begun, time.monotonic_ns()))


print("ready", flush=True)
sys.stdin.readline()
before = [s["collections"] for s in gc.get_stats()]
gc.callbacks.append(on_collection)
end = time.monotonic() + float(sys.argv[2])
n = 0
while time.monotonic() < end:
    n += 1
    gc.collect(2 if n % 3 == 0 else n % 2)
    busy_until = time.monotonic() + 0.02
    while time.monotonic() < busy_until:
        pass
    young = [[i] for i in range(2000)]
    if n % 10 == 0:  # collections that begin by themselves
        gc.enable()
        garbage = [[i] for i in range(3000)]
        gc.disable()
        del garbage
gc.callbacks.remove(on_collection)
after = [s["collections"] for s in gc.get_stats()]
print(json.dumps({"pauses": log, "counts": [b - a for a, b in zip(before, after)]}), flush=True)
sys.stdin.readline()
