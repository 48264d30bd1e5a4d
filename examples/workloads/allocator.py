"""Uses all features of PyTorch's caching allocator and writes checkpoints, to compare with a recording.

    python3 allocator.py --seconds 20 [--hold SECONDS] [--checkpoints FILE] [--snapshot FILE]

Four threads allocate and free tensors of random sizes. Each thread has its own stream, and a second
stream uses some of the tensors. Once a second the threads pause, and the main thread writes a
checkpoint from torch.cuda.memory_stats(). Between checkpoints the main thread captures and replays
CUDA graphs (private pools), empties the cache, and requests more memory than the GPU has.

--checkpoints writes a line "UNIX_NS key=value …" for each checkpoint. --snapshot writes
torch.cuda.memory._dump_snapshot() at the last checkpoint. --hold sleeps after the CUDA
initialization and before the first allocation, so that a recorder can attach.
"""
import argparse
import random
import threading
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=20)
parser.add_argument("--hold", type=float, default=0)
parser.add_argument("--threads", type=int, default=4)
parser.add_argument("--checkpoints")
parser.add_argument("--snapshot")
options = parser.parse_args()

KEYS = ["allocated_bytes", "reserved_bytes", "requested_bytes", "active_bytes", "inactive_split_bytes", "segment", "allocation"]
SIZES = [4, 100, 512, 4_000, 60_000, 500_000, 1 << 20, 3 << 20, 9_999_999, 12 << 20, 40 << 20]

torch.cuda.init()
torch.cuda.synchronize()
time.sleep(options.hold)

running = threading.Event()
running.set()
ending = threading.Event()
paused = threading.Barrier(options.threads + 1)


def allocate(seed):
    """Allocates tensors in one thread. It keeps at most 60 tensors and frees random ones."""
    dice = random.Random(seed)
    stream, side = torch.cuda.Stream(), torch.cuda.Stream()
    kept = []
    while not ending.is_set():
        if not running.is_set():
            torch.cuda.synchronize()
            paused.wait()  # wait until all threads have paused
            paused.wait()  # wait for the end of the checkpoint
            continue
        with torch.cuda.stream(stream):
            tensor = torch.empty(dice.choice(SIZES) + dice.randrange(4096), dtype=torch.uint8, device="cuda")
            if dice.random() < 0.2:
                with torch.cuda.stream(side):
                    tensor.zero_()
                tensor.record_stream(side)
        kept.append(tensor)
        del tensor
        while len(kept) > 60 or kept and dice.random() < 0.45:
            kept.pop(dice.randrange(len(kept)))
        if dice.random() < 0.02:
            time.sleep(0.001)


def capture_graph():
    """Captures and replays a small CUDA graph. PyTorch allocates its tensors from a private pool."""
    x = torch.ones(1000, 1000, device="cuda")
    ((x @ x) + 1).relu()  # load kernels before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ x
        z = (y + 1).relu()
    graph.replay()
    return graph, x, y, z


def checkpoint(out):
    stats = torch.cuda.memory_stats()
    now = time.time_ns()
    if out:
        print(now, *(f"{key}={stats[f'{key}.all.current']}" for key in KEYS), file=out, flush=True)


threads = [threading.Thread(target=allocate, args=(seed,), name=f"allocate-{seed}", daemon=True) for seed in range(options.threads)]
for thread in threads:
    thread.start()
out = open(options.checkpoints, "w") if options.checkpoints else None
graphs, ooms = [], 0
begin = time.time()
second = 0
while time.time() - begin < options.seconds:
    time.sleep(1)
    second += 1
    running.clear()
    paused.wait()
    torch.cuda.synchronize()
    checkpoint(out)
    if second % 3 == 0:
        graphs.append(capture_graph())
    if second % 4 == 0:
        torch.cuda.empty_cache()
    if second % 5 == 0:
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            ooms += 1
    if len(graphs) > 3:
        graphs.pop(0)
    checkpoint(out)
    if options.snapshot and time.time() - begin >= options.seconds:
        torch.cuda.memory._dump_snapshot(options.snapshot)
        print(f"snapshot at {time.time_ns()}", flush=True)
    running.set()
    paused.wait()
ending.set()
for thread in threads:
    thread.join()
print(f"{second} checkpoints, {ooms} caught out-of-memory errors, {torch.cuda.memory_stats()['allocation.all.allocated']} allocations")
