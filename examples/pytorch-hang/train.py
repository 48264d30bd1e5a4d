"""Data-parallel training in which one rank stops taking part, as when its data loader hangs.

    torchrun --nproc-per-node 2 train.py [--stuck-rank 1] [--after 10] [--seconds 60]

From then on the other ranks wait in their next all-reduce, for as long as NCCL lets them. -1 as the rank: none.
"""
import argparse
import os
import queue
import time

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--stuck-rank", type=int, default=1)
parser.add_argument("--after", type=float, default=10, help="seconds until it is stuck")
parser.add_argument("--seconds", type=float, default=60)
options = parser.parse_args()

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = queue.Queue()


def next_batch():
    """The loader of one rank has died, and nobody puts anything into its queue any more."""
    if rank == options.stuck_rank and time.monotonic() - begin > options.after:
        try:
            batches.get(timeout=max(0, begin + options.seconds - time.monotonic()))
        except queue.Empty:
            os._exit(0)
    return torch.randn(256, 1024, device="cuda")


def average_gradients():
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def step():
    optimizer.zero_grad()
    loss = model(next_batch()).pow(2).mean()
    loss.backward()
    average_gradients()
    optimizer.step()
    return loss.item()


begin = time.monotonic()
print(f"rank {rank} is process {os.getpid()}", flush=True)
steps = 0
while time.monotonic() - begin < options.seconds:
    step()
    steps += 1
print(f"rank {rank}: {steps} steps", flush=True)
os._exit(0)
