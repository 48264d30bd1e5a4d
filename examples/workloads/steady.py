"""Runs training steps until a benchmark stops it, and writes its progress to a file.

    python3 steady.py WORKLOAD --progress FILE [--cpu-fake]

WORKLOAD is a workload of models.py. Through FILE (progress.py) a benchmark reads the
finish times of all steps, and turns torch.profiler on and off. --cpu-fake replaces the model by a
loop on simcuda, and the profiler by Python's profiling hook. It tests a benchmark without PyTorch
and without a GPU. fake_tensors is a loop on simtorch instead.
"""
import argparse
import sys
import time

import models
import progress as p


def torch_profiler():
    """Starts torch.profiler with Python stacks. Returns a function that stops it."""
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True)
    profiler.start()
    return profiler.stop


def fake_profiler():
    sys.setprofile(lambda frame, event, argument: None)
    return lambda: sys.setprofile(None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[w for w in models.STEPS if w != "fake"])
    parser.add_argument("--progress", required=True)
    parser.add_argument("--cpu-fake", action="store_true")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds of steps before the steady state")
    parser.add_argument("--at-most", type=float, default=900, help="maximum run time in seconds")
    options = parser.parse_args()

    progress = p.Progress(options.progress)
    fake = options.cpu_fake and not options.workload.startswith("fake")
    step = models.STEPS["fake" if fake else options.workload]()
    begin = time.monotonic()
    step()
    while time.monotonic() - begin < options.warm_up:
        step()
    if not options.cpu_fake:
        import torch

        torch.cuda.synchronize()
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    start_profiler = fake_profiler if options.cpu_fake else torch_profiler
    stop_profiler = None
    progress.words[p.STATE] = p.STEADY
    while time.monotonic() - begin < options.at_most:
        step()
        progress.finish_step()
        command = progress.words[p.COMMAND]
        if command == p.QUIT:
            break
        if command == p.PROFILE and not stop_profiler:
            stop_profiler = start_profiler()
            progress.words[p.STATE] = p.PROFILED
        elif command == p.RUN and stop_profiler:
            stop_profiler()
            stop_profiler = None
            progress.words[p.STATE] = p.STEADY


main()
