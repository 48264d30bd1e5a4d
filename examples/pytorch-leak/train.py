"""A PyTorch training loop with a real-life leak, or without one.

    python3 train.py --leak loss|list|hook|none [--seconds 60]

loss  sums up losses to print their mean, and with each loss keeps the graph behind it
list  keeps the outputs of every step "for later"
hook  a forward hook captures activations and nobody clears them
none  no leak, but caches that fill in the first seconds

It prints what PyTorch says it has allocated, once a second, and how fast that grows.
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
    """A cache of things computed once, as many models have: it is full after some seconds."""
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
        # Should be loss.item(): so the sum has a graph, and that all losses.
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
