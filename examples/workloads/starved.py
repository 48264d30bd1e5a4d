"""A PyTorch training whose GPU waits for the host, with a log of what the host did.

    python3 starved.py FAULT --log FILE [--seconds 60]

FAULT is one of:

    none        nothing: the batch is on the GPU
    workers     two slow workers of a DataLoader
    tokenizer   slow Python code in the training thread
    gc          garbage collections of many objects
    gil         another Python thread that computes

FILE has a line of JSON for each interval: {"cause", "from", "to"}, in Unix ns. The causes are "loader",
"tokenizer", "gc" and "step", which is all other work of the training thread. A step ends with a wait for
the GPU, so the GPU is idle during "loader" and "tokenizer". scripts/compare_starved.py compares the log with a
recording.
"""
import argparse
import array
import gc
import json
import os
import threading
import time

import torch

FAULTS = ("none", "workers", "tokenizer", "gc", "gil")


def tokenize(text):
    return torch.tensor([sum(map(ord, text[n : n + 8])) % 1000 for n in range(0, 512, 2)])


class Texts(torch.utils.data.Dataset):
    """Samples whose tokens are computed when they are needed, some times over."""

    def __init__(self, times):
        self.times = times

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        for _ in range(self.times):
            tokens = tokenize(f"sample {i} " * 100)
        return tokens


class Node:
    """An object that refers to itself, so that only a collection frees it."""

    def __init__(self):
        self.me = self


CAUSES = ("step", "loader", "tokenizer", "gc")


class Log:
    """Intervals of the training thread. Collections interrupt the interval that they are in."""

    def __init__(self):
        self.cause, self.begin = CAUSES.index("step"), time.time_ns()
        self.before = array.array("q")
        self.numbers = array.array("q")  # no objects, because those cause collections

    def change(self, cause):
        now, before = time.time_ns(), self.cause
        self.numbers.append(before)
        self.numbers.append(self.begin)
        self.numbers.append(now)
        self.cause, self.begin = cause, now
        return before

    def begin_cause(self, name):
        self.change(CAUSES.index(name))

    def on_collection(self, phase, info):
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self.before.append(self.change(CAUSES.index("gc")))
        elif self.before:
            self.change(self.before.pop())

    def write(self, path):
        self.begin_cause("step")
        with open(path, "w") as file:
            for i in range(0, len(self.numbers), 3):
                cause, begin, end = self.numbers[i : i + 3]
                print(json.dumps({"cause": CAUSES[cause], "from": begin, "to": end}), file=file)


def hog():
    total = 0
    while True:
        for i in range(1000):
            total += i * i


def make_garbage(kept):
    # The kept objects make a collection slow. Many trainings collect after each step.
    for _ in range(100):
        Node()
    if len(kept) < 400_000:
        kept.extend([i] for i in range(20_000))
    gc.collect()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--log", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=4).to("cuda")
    embed = torch.nn.Embedding(1000, 512).to("cuda")
    optimizer = torch.optim.AdamW([*model.parameters(), *embed.parameters()], lr=1e-4)
    resident = torch.randint(0, 1000, (64, 256), device="cuda")
    workers = 2 if options.fault == "workers" else 0
    batches = iter(torch.utils.data.DataLoader(Texts(10 if workers else 1), batch_size=64, num_workers=workers))
    if options.fault == "gil":
        threading.Thread(target=hog, name="hog", daemon=True).start()
    log, kept = Log(), []
    gc.callbacks.append(log.on_collection)

    def next_batch():
        if options.fault == "workers":
            log.begin_cause("loader")
            batch = next(batches)
        elif options.fault == "tokenizer":
            log.begin_cause("tokenizer")
            batch = next(batches)
        else:
            return resident
        log.begin_cause("step")
        return batch.to("cuda")

    def step():
        tokens = next_batch()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(embed(tokens)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if options.fault == "gc":
            make_garbage(kept)
        return loss.item()

    for _ in range(20):
        step()
    print("ready", os.getpid(), flush=True)
    begin, steps = time.monotonic(), 0
    while time.monotonic() - begin < options.seconds:
        step()
        steps += 1
    log.write(options.log)
    print(f"{steps / (time.monotonic() - begin):.2f} steps/s", flush=True)
    os._exit(0)  # the hog and the workers never end


if __name__ == "__main__":
    main()
