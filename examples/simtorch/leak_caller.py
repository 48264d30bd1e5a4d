#!/usr/bin/env python3
"""A training loop in which one line allocates features for two callers: train_step frees them, validate keeps them."""
import simtorch as torch

FEATURES, LOSS, VALIDATE_EVERY = 256 << 10, 4, 5


def make_features():
    return torch.empty(FEATURES, None)  # the leak


def train_step():
    make_features()
    torch.empty(LOSS, None)


def validate(kept):
    kept.append(make_features())  # the caller


def main():
    loop = torch.Loop(__doc__)
    kept = []
    for step in loop:
        train_step()
        if step % VALIDATE_EVERY == 0:
            validate(kept)
            loop.leaked += FEATURES
    loop.finish(__file__, leaks=True, caller=True)


if __name__ == "__main__":
    main()
