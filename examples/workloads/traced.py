"""Trains until it is killed, and traces some steps with torch.profiler and Python stacks.

    python3 traced.py WORKLOAD --trace FILE [--when FILE] [--steps 10] [--modules]

When the file of --when exists, the script traces the steps and writes --trace. This JSON file
contains the Chrome trace (launches, kernels), the Python stack of each operation, and the start and
end time of the traced steps. With --modules, hooks of PyTorch add a range around each call of a module, whose name is
"module:" and the classes of the modules that the thread is in, outermost first.
"""
import argparse
import json
import os
import sys
import threading
import time

import models


def python_stacks(roots):
    """Returns the Python stack of every operation as ({operation id: stack index}, [stack]).

    A stack is a list of [file, function, first line, current line or None], innermost frame first.
    The profiler stores the line of the caller for every call to Python or C. This is the current
    line of every frame except an innermost frame without such a call, for example in an operator.
    The event tree has operations of autograd threads below the forward operation. These
    operations get only the stack of their own thread.
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
        time.sleep(0.1)  # a gap without launches: small clock differences do not change the traced launches
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
    except (AttributeError, RuntimeError) as problem:  # not a public API: it may be missing
        print(f"no event tree: the trace has no current lines: {problem}", file=sys.stderr)
        of_operation, stacks = {}, []
    written = {"begin_ns": begin, "end_ns": end, "steps": steps, "chrome": chrome,
               "operations": of_operation, "stacks": stacks}
    with open(path + ".tmp", "w") as f:
        json.dump(written, f)
    os.rename(path + ".tmp", path)


def add_module_ranges():
    """Registers hooks that open and close the range of each call of a module."""
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.profiler import record_function

    own = threading.local()

    def enter(module, _):
        if not hasattr(own, "calls"):
            own.calls = []
        classes = [type(m).__name__ for m, _ in own.calls] + [type(module).__name__]
        opened = record_function("module:" + " > ".join(classes))
        opened.__enter__()
        own.calls.append((module, opened))

    def leave(module, *_):
        called, opened = own.calls.pop()
        assert called is module, "a module call ended without its hook"
        opened.__exit__(None, None, None)

    register_module_forward_pre_hook(enter)
    register_module_forward_hook(leave)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[w for w in models.STEPS if w != "fake"])
    parser.add_argument("--trace", required=True)
    parser.add_argument("--when")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--modules", action="store_true")
    options = parser.parse_args()

    if options.modules:
        add_module_ranges()
    step = models.STEPS[options.workload]()
    done, ready = 0, False
    while True:
        step()
        done += 1
        if done == 20:
            print("steady", flush=True)
        # Train for 2 s after --when, so that the recorder knows all stacks before the trace.
        if not ready and done > 20 and (not options.when or os.path.exists(options.when)):
            ready, begin = True, time.monotonic()
            while time.monotonic() - begin < 2:
                step()
            trace(step, options.steps, options.trace)
            print("traced", flush=True)


if __name__ == "__main__":
    main()
