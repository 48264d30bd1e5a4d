#!/usr/bin/env python3
"""Runs a training loop with a known leak, or without a leak: verdicts.py NAME

Each scenario is a function; scenarios.txt describes them. The functions that allocate are leak, keep and forward.
"""
import collections
import functools
import gc
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "simtorch"))
import simtorch as torch  # noqa: E402

STEPS, STEP_S = 500, 0.008
KIB, MIB = 1 << 10, 1 << 20


def steps():
    start = time.monotonic()
    for step in range(STEPS):
        yield step
        time.sleep(max(0, start + (step + 1) * STEP_S - time.monotonic()))


def forward(step):
    """Returns activations, which live until the end of the step."""
    return [torch.empty((64 + step * 37 % 64) * KIB, None) for _ in range(4)]


def leak(size):
    return torch.empty(size, None)


def keep(size):
    return torch.empty(size, None)


def kept_list():
    losses = []
    for step in steps():
        activations = forward(step)
        losses.append(leak(32 * KIB))
        del activations


def bounded_history():
    losses = collections.deque(maxlen=100)
    for step in steps():
        forward(step)
        losses.append(keep(64 * KIB))


class Node:
    """A node of an autograd graph: a value and the nodes it was computed from."""

    def __init__(self, value, *inputs):
        self.value, self.inputs = value, inputs


def kept_graph():
    total = Node(keep(512))
    for step in steps():
        loss = Node(leak(64 * KIB), Node(leak(64 * KIB)))
        total = Node(keep(512), total, loss)
    while total.inputs:  # free the long chain node by node: a recursive free overflows the interpreter's stack
        total = total.inputs[0]


def kept_by_hook():
    captured = {}
    hooks = [lambda step, y: captured.setdefault(step, y)]
    for step in steps():
        for y in forward(step)[:1] + [leak(48 * KIB)]:
            if y.bytes == 48 * KIB:
                hooks[0](step, y)


def cache_by_shape():
    """A cache with one mask per sequence length. It stops growing because there are few lengths."""
    masks = {}
    for step in steps():
        length = 1 + step * 37 % 60 if step > 100 else 1 + step % 40
        if length not in masks:
            masks[length] = keep(length * 16 * KIB)
        forward(step)


def cache_by_object():
    """A cache that never hits because each key is a new object: a leak."""
    @functools.lru_cache(maxsize=None)
    def embed(key):
        return leak(64 * KIB)

    for step in steps():
        forward(step)
        embed((step, object()))


def cache_with_a_bound():
    @functools.lru_cache(maxsize=64)
    def embed(key):
        return keep(64 * KIB)

    for step in steps():
        forward(step)
        embed(step)


def cycles():
    """Tensors in reference cycles stay until Python's garbage collector runs."""
    gc.disable()
    for step in steps():
        node = [forward(step)]
        node.append(node)
        if step % 110 == 109:
            node = None
            gc.collect()


def optimizer_state():
    parameters = [keep(2 * MIB) for _ in range(16)]
    state = {}
    for step in steps():
        gradients = forward(step)
        if step % 4 == 0 and step // 4 < len(parameters):
            state[step // 4] = keep(4 * MIB)
        del gradients


def evaluation_after_training():
    """After half of the run the program allocates a second model, and keeps it."""
    model = [keep(4 * MIB) for _ in range(8)]
    for step in steps():
        forward(step)
        if step == STEPS // 2:
            model += [keep(4 * MIB) for _ in range(8)]


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    kept_list, bounded_history, kept_graph, kept_by_hook, cache_by_shape, cache_by_object, cache_with_a_bound, cycles, optimizer_state,
    evaluation_after_training)}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SCENARIOS:
        sys.exit("usage: verdicts.py " + " | ".join(SCENARIOS))
    torch.init()
    SCENARIOS[sys.argv[1]]()
