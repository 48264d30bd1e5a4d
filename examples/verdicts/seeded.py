#!/usr/bin/env python3
"""Runs a random training loop on simtorch whose leak is known, until standard input ends.

    seeded.py --seed N --truth FILE [--seconds 60]
    seeded.py --seed N --describe

The seed selects everything: the kind of the leak or none, the length of a step, threads, streams, pools, and what
else the program does with memory. After some steps the program prints "ready PID". At the first line of standard
input, which a recorder's runner writes once the recorder is attached, the time of the plan begins: caches fill and
late leaks begin within --seconds from then on. At its end the program writes its truth as JSON to FILE: the leaking
function, its caller, and how many bytes had leaked at which time.

Functions that allocate: kept, features (called by train and validate), buffers, cached, ring, hidden, scratch, weights.
"""
import argparse
import collections
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "simtorch"))
import simtorch as torch  # noqa: E402

# The kind of a program is the seed modulo the number of kinds. Of each 24 seeds, the second 12 do not leak.
KINDS = ("plain", "two-callers", "sizes", "tenth", "late", "cache", "replaced", "threads", "streams", "pool", "same-size", "sawtooth")
STEPS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2)
KIB, MIB = 1 << 10, 1 << 20
MINUTE_S = 60
LEAKED_BLOCKS = 60000  # at most, in a minute
TENTH = 10  # a program of kind tenth keeps one of so many buffers
CHUNK_S = 0.004  # a thread allocates in bursts that are at least this far apart


class Plan:
    """What the program of a seed does. All values but the bound follow from the seed."""

    def __init__(self, seed, seconds):
        chance = random.Random(seed)
        self.seed, self.kind, self.leaks = seed, KINDS[seed % len(KINDS)], seed // len(KINDS) % 2 == 0
        self.step_s = chance.choice(STEPS_S)
        self.busy = chance.choice((0.2, 0.5, 1))  # share of a step in which the program allocates
        self.share = round(0.011 * (0.5 / 0.011) ** chance.random(), 4)  # of the allocations, from 1.1 % to 50 %
        if self.kind == "tenth":
            self.share = min(self.share, 0.05)
        self.rate = min(int(1000 * 6 ** chance.random()), int(LEAKED_BLOCKS / self.share / MINUTE_S))  # allocations a second
        self.threads = chance.choice((2, 3, 4)) if self.has(chance, "threads") else 1
        self.streams = chance.choice((1, 2, 3)) if self.has(chance, "streams") else 0
        self.pool = chance.choice(("kept", "hidden", "both")) if self.has(chance, "pool") else None
        self.cache = chance.choice((50, 200, 800)) if self.has(chance, "cache") else 0
        self.ring = chance.choice((50, 200, 1000)) if self.has(chance, "replaced") else 0
        self.sawtooth_s = chance.choice((1, 3)) if self.has(chance, "sawtooth", 0.15) else 0
        self.rolling = chance.random() < 0.3  # activations are freed one by one, not at the end of a step
        self.begin = round(chance.uniform(0.3, 0.6), 3) if self.has(chance, "late", 0) else 0  # share of --seconds
        self.fill = round(chance.uniform(0.05, 0.3), 3)  # share of --seconds in which a cache fills
        self.hidden_sizes = sorted(chance.sample([512 << n for n in range(10)], chance.randrange(3, 8)))
        self.kept_sizes = self.sizes_of_leak(chance)
        # Blocks that a program without a leak keeps. They are full after a tenth of --seconds.
        self.bound = max(2, min(chance.choice((30, 300)), int(self.rate * self.share * seconds / 10 / self.threads)))

    def has(self, chance, kind, otherwise=0.3):
        drawn = chance.random()
        return self.kind == kind or drawn < otherwise

    def sizes_of_leak(self, chance):
        """Returns the sizes of the leaked blocks, which are after a minute at least 5 % of the other live memory."""
        live = sum(self.hidden_sizes) / len(self.hidden_sizes) * max(1, self.rate * self.step_s / 2)
        leaked = self.rate * self.share * MINUTE_S * (1 - self.begin)
        lowest = max(8 * MIB, 0.05 * live) / leaked
        sizes = [size for size in (512 << n for n in range(13)) if lowest < size < 3000 * MIB / leaked] or [int(lowest) | 511]
        if self.kind == "same-size":
            same = [size for size in self.hidden_sizes if size > lowest]
            return [chance.choice(same or self.hidden_sizes[-1:])]
        size = chance.choice(sizes)
        if self.kind != "sizes":
            return [size]
        return [max(1, int(size * 2 ** chance.uniform(-1.5, 1))) for _ in range(chance.choice((5, 20, 100)))]

    def function(self):
        """Returns the function that allocates what is kept, and the caller that keeps it if there are two."""
        return {"two-callers": ("features", "validate"), "tenth": ("buffers", None)}.get(self.kind, ("kept", None))


def kept(size, stream):
    return torch.empty(size, stream)


def features(size, stream):
    return torch.empty(size, stream)


def train(size, stream):
    features(size, stream)


def validate(size, stream):
    return features(size, stream)


def buffers(size, stream):
    return torch.empty(size, stream)


def cached(size, stream):
    return torch.empty(size, stream)


def ring(size, stream):
    return torch.empty(size, stream)


def hidden(size, stream):
    return torch.empty(size, stream)


def scratch(size, stream):
    return torch.empty(size, stream)


def weights():
    return [torch.empty(MIB, None) for _ in range(24)]


class Worker:
    """A thread of the program, with its own memory. Its counters are read by the main thread."""

    def __init__(self, program, index):
        plan = program.plan
        self.program, self.plan, self.chance = program, plan, random.Random(plan.seed * 100 + index)
        self.streams = [None] + [torch.new_stream() for _ in range(plan.streams)]
        self.pool = torch.pool_create() if plan.pool else None
        self.allocs = self.leaked = self.leaked_bytes = 0
        self.credit, self.drawn = 0.0, 0  # blocks to allocate for keep, and those allocated
        self.kept = []
        self.bounded = collections.deque(maxlen=plan.bound)  # what a program without a leak keeps
        self.rolling = collections.deque(maxlen=max(4, int(plan.rate * min(plan.step_s, 0.1) / 2)))
        self.cached, self.old = {}, collections.deque(ring(16 * KIB, None) for _ in range(plan.ring))
        self.sawtooth, self.purged = [], time.monotonic()

    def run(self):
        n = self.plan.rate * self.plan.step_s / self.plan.threads
        begin, step, done = time.monotonic(), 0, 0
        while not self.program.ended:
            self.step(begin + step * self.plan.step_s, int(n * (step + 1)) - done)
            done, step = int(n * (step + 1)), step + 1
            wait(begin + step * self.plan.step_s)
            # After a pause of the process, continue at the same rate.
            begin = max(begin, time.monotonic() - (step + 1) * self.plan.step_s)

    def step(self, begin, count):
        """Makes a step of count allocations in bursts."""
        busy = self.plan.step_s * self.plan.busy
        bursts = max(1, int(busy / CHUNK_S))
        activations = []
        for burst in range(bursts):
            for _ in range(count * (burst + 1) // bursts - count * burst // bursts):
                self.allocate(activations)
            if burst + 1 < bursts:
                wait(begin + busy * (burst + 1) / bursts)
                if self.program.ended:
                    return
        self.replace()

    def allocate(self, activations):
        """Allocates a block that is kept, or some other block."""
        self.allocs += 1
        plan, chance = self.plan, self.chance
        if self.program.keeps:
            self.credit += plan.share * (TENTH if plan.kind == "tenth" else 1)
            if self.credit >= 1:
                self.credit -= 1
                return self.keep()
        kind = chance.random()
        stream = chance.choice(self.streams)
        if kind < 0.1 and plan.kind == "two-callers":
            train(chance.choice(plan.kept_sizes), stream)
        elif kind < 0.5:
            scratch(chance.choice(plan.hidden_sizes), stream)
        else:
            size = chance.choice(plan.hidden_sizes)
            (self.rolling if plan.rolling else activations).append(self.in_pool("hidden", lambda: hidden(size, stream)))

    def keep(self):
        """Allocates a block that a program with a leak keeps for ever, and another one for a while."""
        plan = self.plan
        function = {"two-callers": validate, "tenth": buffers}.get(plan.kind, kept)
        size, stream = self.chance.choice(plan.kept_sizes), self.chance.choice(self.streams[-1:] + self.streams[:1])
        block = self.in_pool("kept", lambda: function(size, stream))
        self.drawn += 1
        if plan.kind == "tenth" and self.drawn % TENTH:
            return
        if not plan.leaks:
            return self.bounded.append(block)
        self.kept.append(block)
        self.leaked += 1
        self.leaked_bytes += size

    def in_pool(self, what, allocate):
        if self.plan.pool not in (what, "both"):
            return allocate()
        torch.pool_begin(self.pool)
        block = allocate()
        torch.pool_end(self.pool)
        return block

    def replace(self):
        """Replaces blocks of the ring and the cache, and lets the sawtooth grow."""
        plan, chance = self.plan, self.chance
        passed = self.program.passed()
        for _ in range(max(1, int(plan.step_s / 0.05))):
            if self.old:
                self.allocs += 1
                self.old.popleft()
                self.old.append(ring(16 * KIB, None))
            if self.cached:
                self.allocs += 1
                self.cached[chance.randrange(len(self.cached))] = cached(32 * KIB, None)
            if plan.sawtooth_s:
                self.allocs += 1
                self.sawtooth.append(cached(64 * KIB, None))
        while len(self.cached) < plan.cache * min(1, passed / plan.fill):
            self.allocs += 1
            self.cached[len(self.cached)] = cached(32 * KIB, None)
        if plan.sawtooth_s and time.monotonic() - self.purged > plan.sawtooth_s:
            self.sawtooth, self.purged = [], time.monotonic()


def wait(until):
    ahead = until - time.monotonic()
    if ahead > 0:
        time.sleep(ahead)


class Program:
    """The threads of a program, and its truth so far."""

    def __init__(self, plan, seconds):
        self.plan, self.seconds = plan, seconds
        self.keeps, self.ended = plan.begin == 0, False
        self.attached = None  # time at which the plan's time begins
        self.samples = []  # time in ns (CLOCK_MONOTONIC), allocations, leaked blocks, leaked bytes
        self.workers = [Worker(self, i) for i in range(plan.threads)]

    def passed(self):
        """Returns the passed share of the plan's time."""
        return 0 if self.attached is None else (time.monotonic() - self.attached) / self.seconds

    def run(self):
        parameters = weights()
        threads = [threading.Thread(target=worker.run) for worker in self.workers]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        commands = threading.Thread(target=self.follow, daemon=True)
        print("ready", os.getpid(), flush=True)
        commands.start()
        while commands.is_alive():
            self.keeps = self.keeps or self.passed() > self.plan.begin
            self.sample()
            commands.join(0.1)
        self.ended = True
        for thread in threads:
            thread.join()
        self.sample()
        del parameters

    def follow(self):
        """Starts the plan's time at the first line of standard input. Returns at its end."""
        for _ in sys.stdin:
            self.attached = self.attached or time.monotonic()

    def sample(self):
        totals = [sum(values) for values in zip(*((w.allocs, w.leaked, w.leaked_bytes) for w in self.workers))]
        self.samples.append([time.monotonic_ns(), *totals])

    def truth(self):
        function, caller = self.plan.function()
        return {"plan": vars(self.plan), "leaks": self.plan.leaks, "function": function, "caller": caller, "pid": os.getpid(),
                "unix_offset_ns": time.time_ns() - time.monotonic_ns(), "samples": self.samples}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--truth")
    parser.add_argument("--describe", action="store_true", help="only print the plan as JSON")
    options = parser.parse_args()
    plan = Plan(options.seed, options.seconds)
    if options.describe:
        print(json.dumps(vars(plan)))
        return
    torch.init()
    program = Program(plan, options.seconds)
    program.run()
    with open(options.truth, "w") as file:
        json.dump(program.truth(), file)


if __name__ == "__main__":
    main()
