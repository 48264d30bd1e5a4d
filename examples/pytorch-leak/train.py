"""A PyTorch training loop with a common memory leak, or without a leak.

    python3 train.py --leak loss|list|hook|none [--seconds 60]

loss  sums losses to print their mean; each loss keeps its autograd graph
list  keeps the output of every step in a list
hook  a forward hook keeps activations and never clears them
none  no leak, but a cache that fills in the first seconds

Once a second the script prints torch.cuda.memory_allocated() and its growth per minute.
"""
import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--leak", choices=["loss", "list", "hook", "none"], default="loss")
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--steps-per-second", type=float, default=50)
options = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
criterion = nn.CrossEntropyLoss()

running_loss = 0
outputs = []
activations = []
cache = {}


def capture(module, inputs, output):
    activations.append(output.detach().clone())  # LEAK hook


if options.leak == "hook":
    model[2].register_forward_hook(capture)


def batch(n):
    return torch.randn(128, 256, device="cuda"), torch.randint(10, (128,), device="cuda")


def positions(n):
    """Returns a cached tensor. The cache is bounded and is full after some seconds: not a leak."""
    key = n % 200
    if key not in cache:
        cache[key] = torch.arange(50_000, device="cuda") * 0.5
    return cache[key]


def step(n):
    global running_loss
    x, y = batch(n)
    if options.leak == "none":
        positions(n)
    prediction = model(x)
    loss = criterion(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if options.leak == "loss":
        # The bug: without loss.item() the sum keeps the autograd graph of every loss.
        running_loss = running_loss + criterion(model(x), y)  # LEAK loss
    if options.leak == "list":
        outputs.append(prediction.detach() + 0)  # LEAK list


begin, n, before = time.time(), 0, None
while (now := time.time()) - begin < options.seconds:
    step(n)
    n += 1
    time.sleep(max(0, begin + n / options.steps_per_second - time.time()))
    if n % options.steps_per_second == 0:
        torch.cuda.synchronize()
        allocated = torch.cuda.memory_allocated()
        if before is not None:
            grown = (allocated - before[1]) / (now - before[0]) * 60
            print(f"{time.time_ns()} step {n} allocated {allocated} growing {grown:.0f} bytes per minute", flush=True)
        if before is None or now - begin < 8:
            before = (now, allocated)
