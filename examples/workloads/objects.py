"""Creates events and CUDA graphs with PyTorch, with a known leak or without one.

    python3 objects.py --fault events|graphs|none [--seconds 60] [--hold SECONDS]

Without a fault, each step records an event that it drops, and replays one of a few graphs. A pool of
events fills up in the first fifth of the time and stays full. With the fault events, keep_event keeps
the event of each step in a list. With the fault graphs, keep_graph captures a graph for a new shape
every fifth step and keeps it.

PyTorch creates the driver's event at the first record, and destroys it with the object. The graphs
share one memory pool, so that they do not allocate from the driver all the time. --hold sleeps after
the CUDA initialization, so that a recorder can attach. At the end, the program prints the truth as a
line of JSON: gpurec analyze objects must name the kind and the function of the leak, and no other.
"""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["events", "graphs", "none"], default="none")
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--hold", type=float, default=0)
options = parser.parse_args()

STEP_SECONDS = 0.02
POOL_EVENTS = 64  # events of the pool
SHAPES = [256, 384, 512, 640]  # shapes whose graphs are captured at the start
GRAPH_EVERY = 5  # steps between two graphs of the fault

weight = torch.randn(1024, 1024, device="cuda")
torch.cuda.synchronize()
time.sleep(options.hold)

kept_events, kept_graphs, pool_events = [], [], []


def capture(rows, memory):
    """Captures a forward pass with this number of rows. Its tensors come from the pool `memory`."""
    x = torch.ones(rows, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=memory):
        y = (x @ weight).relu()
    return graph, x, y


def load_graphs(memory):
    return [capture(rows, memory) for rows in SHAPES]


def drop_event():
    event = torch.cuda.Event(enable_timing=True)
    event.record()


def fill_pool(share):
    """Records an event of the pool. The pool grows until this share of the time is 1."""
    if len(pool_events) < min(1.0, share) * POOL_EVENTS:
        pool_events.append(torch.cuda.Event())
    if pool_events:
        pool_events[len(pool_events) // 2].record()
        pool_events[-1].record()


def keep_event():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    kept_events.append(event)


def keep_graph(number, memory):
    kept_graphs.append(capture(16 + number, memory))


def run():
    (torch.ones(16, 1024, device="cuda") @ weight).relu()  # loads the kernels before the captures
    memory = torch.cuda.graph_pool_handle()
    graphs = load_graphs(memory)
    begin = time.monotonic()
    step = 0
    while time.monotonic() - begin < options.seconds:
        graphs[step % len(graphs)][0].replay()
        drop_event()
        fill_pool((time.monotonic() - begin) / (options.seconds / 5))
        if options.fault == "events":
            keep_event()
        if options.fault == "graphs" and step % GRAPH_EVERY == 0:
            keep_graph(step // GRAPH_EVERY, memory)
        step += 1
        time.sleep(max(0.0, begin + step * STEP_SECONDS - time.monotonic()))
    torch.cuda.synchronize()
    return step


steps = run()
truth = {
    "events": {"kind": "event", "function": "keep_event", "live": len(kept_events)},
    "graphs": {"kind": "graph exec", "function": "capture", "live": len(kept_graphs)},
    "none": None,
}
print(json.dumps({"fault": options.fault, "steps": steps, "leak": truth[options.fault]}), flush=True)
