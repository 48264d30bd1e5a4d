#!/usr/bin/env python3
"""Random tensors from known lines of Python, in several threads. Like the
program tensors, for stacks with Python frames.

    python3 tensors.py --events N [--threads T] [--seed K] [--wait]

make_small, make_medium and make_large allocate tensors. Any thread frees them.
"""
import argparse
import os
import random
import sys
import threading

import simtorch as torch

LIVE = 200


def make_small(chance, stream):
    return torch.empty(1 << chance.randrange(9, 20), stream)


def make_medium(chance, stream):
    return torch.empty(chance.randrange(1 << 20, 10 << 20), stream)


def make_large(chance, stream):
    return torch.empty(chance.randrange(10 << 20, 32 << 20), stream)


def work(seed, events, streams, live, lock):
    chance = random.Random(seed)
    while torch.events() < events:
        make = chance.choices((make_small, make_medium, make_large), (80, 18, 2))[0]
        try:
            tensor = make(chance, chance.choice(streams))
        except torch.OutOfMemoryError:
            with lock:
                live.clear()
            continue
        if chance.random() < 0.05:
            torch.record_stream(tensor, streams[-1])
        if chance.random() < 0.001:
            torch.empty_cache()
        with lock:
            live.append(tensor)
            # The tensor is freed here, outside of the list's lock.
            tensor = live.pop(chance.randrange(len(live))) if len(live) > LIVE else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    torch.init()
    streams, live, lock = [None, torch.new_stream(), torch.new_stream()], [], threading.Lock()
    if options.wait:
        print("ready", os.getpid(), flush=True)
        sys.stdin.read(1)
    each = options.events // options.threads
    threads = [threading.Thread(target=work, args=(options.seed * 1000 + i, each, streams, live, lock))
               for i in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.checkpoint()
    torch.verify()
    print("done", each * options.threads, flush=True)
    if options.wait:
        sys.stdin.read(1)


if __name__ == "__main__":
    main()
