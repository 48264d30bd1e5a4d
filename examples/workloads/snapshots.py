"""A PyTorch training that writes its memory snapshots, to compare them with what a recorder knows.

    python3 snapshots.py --folder FOLDER [--model transformer|mlp|gpt2] [--seconds 300]

Every 0.2 to 0.5 s, it writes FOLDER/UNIX_NS.pickle: segments of torch.cuda.memory_snapshot(), and memory_stats().
The allocator does nothing for 5 ms before and after UNIX_NS. FOLDER/ready exists from the first one on. The training
has blocks of two streams, a private pool, and memory that grows slowly. transformer also has batches of different
lengths, and mostly waits for the GPU. mlp and gpt2 (models.py) do not wait for it between two snapshots.
"""
import argparse
import os
import pickle
import random
import time

import models
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--model", choices=["transformer", "mlp", "gpt2"], default="transformer")
parser.add_argument("--seconds", type=float, default=300)
options = parser.parse_args()
device = torch.device("cuda")


def transformer():
    """Returns a function that runs a step of a small transformer, and returns its loss."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=6).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    host = torch.randn(8, 256, 512, pin_memory=True)
    n = 0

    def step():
        nonlocal n
        n += 1
        x = host.to(device, non_blocking=True)[:, : 64 + 32 * (n % 7)]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        if n % 3:
            loss.item()
        return loss.detach()

    return step


def use_side_stream(n):
    """Allocates a block on the side stream, and frees one of the default stream that the side stream uses."""
    x = torch.empty(4 << 20, dtype=torch.uint8, device=device)
    with torch.cuda.stream(side):
        x.record_stream(side)
        cache[n % 50] = torch.empty(random.randrange(1, 3 << 20), dtype=torch.uint8, device=device)


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


step = transformer() if options.model == "transformer" else models.STEPS[options.model]()
side = torch.cuda.Stream()
history, cache = [], {}
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    private = [torch.empty(n << 20, dtype=torch.uint8, device=device) for n in (1, 3, 40)]
del private[1]
for n in range(20):
    step()
    use_side_stream(n)
end, last, wait = time.monotonic() + options.seconds, 0, 0
grown = emptied = time.monotonic()
while time.monotonic() < end:
    n += 1
    loss = step()
    use_side_stream(n)
    now = time.monotonic()
    if now - grown > 0.2:
        history.append(loss.clone())
        grown = now
    if now - emptied > 10:
        torch.cuda.empty_cache()
        emptied = now
    if now - last > wait:
        write_snapshot()
        last, wait = time.monotonic(), random.uniform(0.2, 0.5)
        open(os.path.join(options.folder, "ready"), "w").close()
