"""A PyTorch process with many live blocks of its caching allocator, which does nothing.

    python3 blocks.py BLOCKS [--seconds 600]

It prints `ready PID` when the blocks exist: BLOCKS blocks of 1 byte to 12 MiB, with free pieces between them.
"""
import argparse
import os
import random
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("blocks", type=int)
parser.add_argument("--seconds", type=float, default=600)
options = parser.parse_args()

chance = random.Random(7)
blocks = []
for i in range(options.blocks + options.blocks // 4):
    size = chance.choice([1, 100, 512, 513, 1000, 3000, 8000])
    if i % 500 == 250:
        size = chance.randrange(1 << 20, 12 << 20)
    blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
chance.shuffle(blocks)
del blocks[options.blocks:]
torch.cuda.synchronize()
print("ready", os.getpid(), flush=True)
time.sleep(options.seconds)
