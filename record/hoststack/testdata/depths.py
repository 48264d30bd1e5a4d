"""Threads that compute or sleep at changing depths. at_3 is called by three frames of deep."""

import random
import sys
import threading
import time

waits = []
for n in range(1, 9):
    scope = {"time": time}
    body = "for i in range(3000): pass" if n % 2 else "time.sleep(0.0005)"
    exec(f"def at_{n}():\n    {body}", scope)
    waits.append(scope[f"at_{n}"])


def deep(left, depth):
    if left > 1:
        deep(left - 1, depth)
    else:
        waits[depth - 1]()


def run():
    while True:
        depth = random.randint(1, 8)
        deep(depth, depth)


for _ in range(int(sys.argv[1])):
    threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
run()
