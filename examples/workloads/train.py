"""A PyTorch training job with a fixed number of steps, to compare recorders.

    python3 train.py --steps 50 [--checkpoints FILE] [--hold SECONDS]

--checkpoints writes a line "UNIX_NS allocated reserved" after every step, from
torch.cuda.memory_allocated() and memory_reserved(). --hold sleeps before the first step, so that a
recorder can attach to the running process.
"""
import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--checkpoints")
parser.add_argument("--hold", type=float, default=0)
options = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda")
layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
model = torch.nn.TransformerEncoder(layer, num_layers=6).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
host = torch.randn(8, 256, 512, pin_memory=True)
out = open(options.checkpoints, "w") if options.checkpoints else None


def step(n):
    x = host.to(device, non_blocking=True)
    # Batches of different lengths make the allocator split and reuse blocks.
    x = x[:, : 64 + 32 * (n % 7)]
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def checkpoint():
    if out:
        torch.cuda.synchronize()
        stats = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        print(time.time_ns(), *stats, file=out, flush=True)


step(0)
torch.cuda.synchronize()
print("ready", flush=True)
time.sleep(options.hold)
for n in range(options.steps):
    loss = step(n)
    if n == options.steps // 2:
        torch.cuda.empty_cache()
    checkpoint()
torch.cuda.synchronize()
print("done", options.steps, loss, flush=True)
