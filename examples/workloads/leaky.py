"""A PyTorch program that allocates 10,000 to 60,000 times a second, and may leak. It writes its own truth.

    leaky.py --leak none|each|tenth|late|sizes --allocations 30000 --seconds 80 --truth FILE.json

Each step allocates activations in several functions and frees them at its end. A cache replaces its oldest block in each
step. With --leak, keep_* keeps blocks for ever:
  each   one block of each step
  tenth  one of ten blocks of a line whose other blocks are freed
  late   one block of each step, from the half of the time on
  sizes  one block of each step, of changing sizes
The leak is more than 1 % of the allocations, at most 8 GiB. The truth has the leaked bytes over time, the function and
the events of the allocator.
"""
import argparse
import collections
import json
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--leak", choices=["none", "each", "tenth", "late", "sizes"], default="none")
parser.add_argument("--allocations", type=int, default=30_000, help="allocations a second")
parser.add_argument("--step", type=int, default=60, help="allocations a step")
parser.add_argument("--block", type=int, default=2048, help="bytes of a leaked block")
parser.add_argument("--seconds", type=float, default=80)
parser.add_argument("--truth")
options = parser.parse_args()

device = torch.device("cuda")
weight = torch.ones(256, device=device)
kept = []
cache = collections.deque()
begin = time.monotonic()
leaked = 0


def block(size):
    return torch.empty(size, dtype=torch.uint8, device=device)


def forward(n):
    return [block(512 * (1 + i % 7)) for i in range(n)]


def backward(activations):
    grads = [block(a.numel()) for a in activations[::2]]
    weight.add_(1)
    return grads


def refill_cache():
    cache.append(block(options.block))
    if len(cache) > 200:
        cache.popleft()


def keep_each(size):
    global leaked
    kept.append(block(size))
    leaked += size


def keep_tenth(number):
    global leaked
    for i in range(10):
        b = block(options.block)
        if i == number % 10:
            kept.append(b)
            leaked += options.block


def train_step(number):
    activations = forward(options.step * 2 // 3)
    backward(activations)
    refill_cache()
    is_late = time.monotonic() - begin > options.seconds / 2
    if options.leak == "each" or options.leak == "late" and is_late:
        keep_each(options.block)
    elif options.leak == "sizes":
        keep_each(512 * (1 + number % 37))
    elif options.leak == "tenth":
        keep_tenth(number)


def main():
    history, number = [], 0
    print("ready", flush=True)
    while time.monotonic() - begin < options.seconds:
        train_step(number)
        number += 1
        while number * options.step > (time.monotonic() - begin) * options.allocations:
            pass  # no sleep: steps keep their pace
        if number % 100 == 0:
            torch.cuda.synchronize()
            history.append((time.time_ns(), leaked))
    stats = torch.cuda.memory_stats()
    truth = {"leak": options.leak, "history": history, "allocations": stats["allocation.all.allocated"],
             "steps": number, "seconds": options.seconds}
    if options.truth:
        with open(options.truth, "w") as f:
            json.dump(truth, f)


main()
