#!/usr/bin/env python3
"""A training loop that sums losses as tensors: `total = total + loss` keeps every step's graph."""
import simtorch as torch

LAYERS, ACTIVATION, SCALAR = 4, 64 << 10, 512


class Node:
    """A result and its inputs, which a backward pass would need."""

    def __init__(self, value, *inputs):
        self.value, self.inputs = value, inputs

    def __add__(self, other):
        return Node(torch.empty(SCALAR, None), self, other)


def linear(x):
    return Node(torch.empty(ACTIVATION, None), x)  # the leak


def forward():
    x = None  # the batch needs no gradient, so the graph does not keep it
    for _ in range(LAYERS):
        x = linear(x)
    return Node(torch.empty(SCALAR, None), x)


def main():
    loop = torch.Loop(__doc__)
    total = Node(torch.empty(SCALAR, None))
    for step in loop:
        batch = torch.empty(256 << 10, None)
        loss = forward()
        total = total + loss
        loop.leaked += LAYERS * ACTIVATION
        del batch
    loop.finish(__file__, leaks=True)


if __name__ == "__main__":
    main()
