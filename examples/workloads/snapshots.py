"""A PyTorch training that writes its memory snapshots, to compare them with what a recorder knows.

    python3 snapshots.py --folder FOLDER [--seconds 300]

Every 0.2 to 0.5 s, it writes FOLDER/UNIX_NS.pickle: segments of torch.cuda.memory_snapshot(), and memory_stats().
The allocator does nothing for 5 ms before and after UNIX_NS. FOLDER/ready exists from the first one on. The training
has batches of different lengths, blocks of two streams, a private pool, and memory that grows slowly.
"""
import argparse
import os
import pickle
import random
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--seconds", type=float, default=300)
options = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda")
layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
model = torch.nn.TransformerEncoder(layer, num_layers=6).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
host = torch.randn(8, 256, 512, pin_memory=True)
side = torch.cuda.Stream()
history, cache = [], {}


def train(n):
    x = host.to(device, non_blocking=True)[:, : 64 + 32 * (n % 7)]
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    with torch.cuda.stream(side):
        x.record_stream(side)
        cache[n % 50] = torch.empty(random.randrange(1, 3 << 20), dtype=torch.uint8, device=device)
    if n % 10 == 0:
        history.append(loss.detach().clone())
    return loss.item() if n % 3 else 0


def write_snapshot():
    torch.cuda.synchronize()
    torch.empty(1, device=device)  # lets the allocator complete the frees of blocks that streams used
    time.sleep(0.005)
    at, segments, stats = time.time_ns(), torch.cuda.memory_snapshot(), torch.cuda.memory_stats()
    time.sleep(0.005)
    path = os.path.join(options.folder, f"{at}.pickle")
    with open(path + ".new", "wb") as f:
        pickle.dump({"segments": segments, "stats": stats, "device_traces": []}, f)
    os.rename(path + ".new", path)


pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    private = [torch.empty(n << 20, dtype=torch.uint8, device=device) for n in (1, 3, 40)]
del private[1]
for n in range(20):
    train(n)
end, last, wait = time.monotonic() + options.seconds, 0, 0
while time.monotonic() < end:
    n += 1
    train(n)
    if n % 500 == 0:
        torch.cuda.empty_cache()
    if time.monotonic() - last > wait:
        write_snapshot()
        last, wait = time.monotonic(), random.uniform(0.2, 0.5)
        open(os.path.join(options.folder, "ready"), "w").close()
