"""Data-parallel training in which one rank hangs after some seconds: its data loader delivers no batch.

    torchrun --nproc-per-node 2 train.py [--stuck-rank 1] [--after 10] [--seconds 60]

The other ranks then wait in their next all-reduce until NCCL's timeout. --stuck-rank -1: no rank hangs.
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
parser.add_argument("--after", type=float, default=10, help="seconds until the rank hangs")
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
    """Returns a batch. On the stuck rank it waits for an empty queue, as if the loader had died."""
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
