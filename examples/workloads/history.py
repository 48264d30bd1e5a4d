"""A PyTorch training that writes the history of its caching allocator, to compare it with what a recorder knows.

    python3 history.py MODEL --folder FOLDER [--seconds 120]

MODEL is mlp or gpt2 (models.py). A second stream uses some blocks after they were freed. FOLDER/ready exists after 20
steps. When FOLDER/stop exists, or after --seconds, the training ends and writes FOLDER/trace.jsonl: all events of device
0 since the first allocation, a line [action, address, bytes, time_us, stream] for each. time_us is Unix time.
The exit status is 3 if there were more than --max-entries events.
"""
import argparse
import gc
import os
import random
import sys
import time

import models
import torch

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["mlp", "gpt2"])
parser.add_argument("--folder", required=True)
parser.add_argument("--seconds", type=float, default=120)
parser.add_argument("--max-entries", type=int, default=12_000_000)
options = parser.parse_args()

SLEEP_CYCLES = 10_000_000  # of the side stream: about 5 ms
torch.cuda.memory._record_memory_history("all", context=None, max_entries=options.max_entries)
step = models.STEPS[options.model]()
side = torch.cuda.Stream()
asleep = torch.cuda.Event()


def use_side_stream():
    """Frees a block that the side stream uses for some more milliseconds, unless it is still busy."""
    if not asleep.query():
        return
    x = torch.empty(random.randrange(1, 3 << 20), dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP_CYCLES)
        asleep.record()
        x.record_stream(side)


def write_trace():
    """Writes the events of device 0. Returns their number."""
    gc.disable()  # there are millions of new dictionaries
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    path = os.path.join(options.folder, "trace.jsonl")
    with open(path + ".new", "w") as f:
        for e in events:
            f.write(f'["{e["action"]}",{e.get("addr", 0)},{e["size"]},{e["time_us"]},{e["stream"]}]\n')
    os.rename(path + ".new", path)
    return len(events)


end, steps, stop = time.monotonic() + options.seconds, 0, os.path.join(options.folder, "stop")
while time.monotonic() < end and not os.path.exists(stop):
    step()
    use_side_stream()
    steps += 1
    if steps == 20:
        open(os.path.join(options.folder, "ready"), "w").close()
torch.cuda.synchronize()
events = write_trace()
print(f"{steps} steps, {events} events", flush=True)
os._exit(3 if events >= options.max_entries else 0)  # without freeing the events one by one
