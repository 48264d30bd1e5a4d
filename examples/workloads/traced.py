"""Trains, and has torch.profiler trace some of the steps, with the Python stack of every operation.

    python3 traced.py WORKLOAD --trace FILE [--when FILE] [--steps 10]

Trains until it is ended. As soon as the file of --when exists it writes --trace: JSON with
the Chrome trace (launches, kernels), the Python stack of each operation, and
the times between which nothing but the traced steps happened.
"""
import argparse
import json
import os
import sys
import time

import models


def python_stacks(roots):
    """The Python stack of every operation by its id: ({id: index}, [stack]), a stack being a list
    of [file, function, line of entry, current line or None], innermost first.

    The profiler notes for every call, to Python or to C, where the calling function was:
    that is the current line of all frames but an innermost one that made no call that
    Python's profiling hook sees, such as an operator. Operations of autograd's threads stand in the tree below the
    forward operation; they get the stack of their own thread only.
    """
    index, stacks, of_operation = {}, [], {}
    walk = [(root, (), None) for root in roots]
    while walk:
        event, stack, thread = walk.pop()
        if event.start_tid != thread:
            stack = ()
        kind = event.tag.name
        if kind in ("PyCall", "PyCCall") and stack:
            (file, function, entry, _), line = stack[0], event.extra_fields.caller.line_number
            stack = ((file, function, entry, line), *stack[1:])
        if kind == "PyCall":
            at = event.extra_fields.callsite
            stack = ((at.file_name, at.function_name, at.line_number, None), *stack)
        elif kind == "TorchOp":
            if stack not in index:
                index[stack] = len(stacks)
                stacks.append(stack)
            of_operation[event.correlation_id] = index[stack]
        walk.extend((child, stack, event.start_tid) for child in event.children)
    return of_operation, stacks


def trace(step, steps, path):
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) as profiler:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        time.sleep(0.1)  # so that clocks that differ a little cut at the same launch
        begin = time.time_ns()
        time.sleep(0.1)
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        time.sleep(0.1)
        end = time.time_ns()
        time.sleep(0.1)
        step()
    profiler.export_chrome_trace(path + ".chrome.json")
    with open(path + ".chrome.json") as f:
        chrome = json.load(f)
    os.remove(path + ".chrome.json")
    try:
        of_operation, stacks = python_stacks(profiler.profiler.kineto_results.experimental_event_tree())
    except (AttributeError, RuntimeError) as problem:  # no public interface: it may go
        print(f"no event tree, so no current lines of the profiler: {problem}", file=sys.stderr)
        of_operation, stacks = {}, []
    written = {"begin_ns": begin, "end_ns": end, "steps": steps, "chrome": chrome,
               "operations": of_operation, "stacks": stacks}
    with open(path + ".tmp", "w") as f:
        json.dump(written, f)
    os.rename(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[w for w in models.STEPS if w != "fake"])
    parser.add_argument("--trace", required=True)
    parser.add_argument("--when")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    step = models.STEPS[options.workload]()
    done, ready = 0, False
    while True:
        step()
        done += 1
        if done == 20:
            print("steady", flush=True)
        # Some steps after --when, so that the recorder has seen what is new before the trace.
        if not ready and done > 20 and (not options.when or os.path.exists(options.when)):
            ready, begin = True, time.monotonic()
            while time.monotonic() - begin < 2:
                step()
            trace(step, options.steps, options.trace)
            print("traced", flush=True)


if __name__ == "__main__":
    main()
