#!/usr/bin/env python3
"""An encoder whose inputs become longer: each longer request needs a new segment, and the old ones stay in the cache."""
import simtorch as torch

TOKEN, LONGER_BY = 64 << 10, 24


def encode_batch(tokens):
    return torch.empty(tokens * TOKEN, None)  # the cause


def main():
    loop = torch.Loop(__doc__)
    weights = [torch.empty(4 << 20, None) for _ in range(6)]
    tokens = 200
    for step in loop:
        if step % 10 == 0:
            tokens += LONGER_BY
        encode_batch(tokens)
    loop.finish(__file__, leaks=False)
    del weights


if __name__ == "__main__":
    main()
