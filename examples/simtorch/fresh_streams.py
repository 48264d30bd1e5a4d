#!/usr/bin/env python3
"""Transfers that take the next of PyTorch's 32 streams each time. Only that stream can use the block again."""
import simtorch as torch

WEIGHTS, TRANSFER_EVERY, STREAMS = 40 << 20, 25, 32


def pack_weights(stream):
    return torch.empty(WEIGHTS, stream)  # the cause


def main():
    loop = torch.Loop(__doc__)
    weights = [torch.empty(4 << 20, None) for _ in range(6)]
    streams = [torch.new_stream() for _ in range(STREAMS)]
    for step in loop:
        if step % TRANSFER_EVERY == 0:
            pack_weights(streams[step // TRANSFER_EVERY % STREAMS])
    loop.finish(__file__, leaks=False)
    del weights


if __name__ == "__main__":
    main()
