"""Threads hold the GIL for long turns, and write them: [thread, start, end]. One more thread always waits for it."""
import json
import sys
import threading
import time

sys.setswitchinterval(100)
log, stop = [], False


def turns(seconds):
    while not stop:
        start = time.monotonic_ns()
        while time.monotonic_ns() < start + seconds * 1e9:
            pass
        log.append((threading.get_native_id(), start, time.monotonic_ns()))
        time.sleep(seconds / 2)


threads = [threading.Thread(target=turns, args=(0.01 * (i + 1),)) for i in range(int(sys.argv[1]))]
print("ready", flush=True)
sys.stdin.readline()
for t in threads:
    t.start()
time.sleep(float(sys.argv[2]))
stop = True
for t in threads:
    t.join()
print(json.dumps({"turns": log}), flush=True)
sys.stdin.readline()
