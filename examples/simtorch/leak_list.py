#!/usr/bin/env python3
"""A training loop that appends the loss tensor of every step to a list, which it never reads."""
import simtorch as torch

LAYERS, ACTIVATION, LOSS = 6, 384 << 10, 128 << 10


def forward(batch):
    activations = [torch.empty(ACTIVATION + batch % 7 * 4096, None) for _ in range(LAYERS)]
    return activations[-1]


def compute_loss(output):
    return torch.empty(LOSS, None)  # the leak


def main():
    loop = torch.Loop(__doc__)
    weights = [torch.empty(4 << 20, None) for _ in range(LAYERS)]
    losses = []
    for step in loop:
        output = forward(step)
        loss = compute_loss(output)
        losses.append(loss)
        loop.leaked += loss.bytes
    loop.finish(__file__, leaks=True)
    del weights


if __name__ == "__main__":
    main()
