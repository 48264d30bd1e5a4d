#!/usr/bin/env python3
"""A training loop that empties the cache after each step, and so frees and allocates its segments again."""
import simtorch as torch

LAYERS, ACTIVATION = 8, 24 << 20


def forward():
    return [torch.empty(ACTIVATION, None) for _ in range(LAYERS)]


def release_cache():
    torch.empty_cache()  # the cause


def main():
    loop = torch.Loop(__doc__)
    weights = [torch.empty(4 << 20, None) for _ in range(6)]
    for step in loop:
        forward()
        release_cache()
    loop.finish(__file__, leaks=False)
    del weights


if __name__ == "__main__":
    main()
