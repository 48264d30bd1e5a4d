"""Measures how gpurec reads PyTorch's blocks: on a GPU, in trainings and in processes with many blocks.

    test_torch_blocks.py [--part attach|history|size|speed] … [--gpurec build/bin/gpurec] [--work FOLDER]
    test_torch_blocks.py --self-test

Needs root, a GPU, PyTorch and transformers.

attach   runs test_earlier_blocks.py with two models. Not part of the default.
history  records readings every 100 ms of trainings that keep the history of their allocator, and compares each reading
         with it (compare_torch_blocks.py). Two models, two settings of expandable_segments.
size     reads processes with 1,000, 10,000 and 100,000 blocks again and again (gpurec memory --every 100ms).
speed    compares the steps a second of a training with and without gpurec memory --every 1s, in pairs of windows.

It prints some lines for each part. FOLDER/results.json has all numbers, and FOLDER all logs. Exit status 1: a reading is
wrong, more than 10 % are refused, or a part could not run.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time

import child_processes
import compare_torch_blocks
import test_earlier_blocks
from child_processes import Child, Failed

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "examples/workloads"
sys.path.insert(0, str(WORKLOADS))
import progress as p  # noqa: E402

MODELS = ["mlp", "gpt2"]
START_SECONDS = 180  # limit for the start of a training, also if no file of PyTorch was ever read
COMPARE_SECONDS = 240
MAX_REFUSED = 0.1  # of the readings
COUNTERS = ["read_ns", "calls", "read_bytes", "tries"]  # of a reading in the JSON of gpurec memory
LONE_READINGS = 10


def python(program, *arguments):
    return [sys.executable, WORKLOADS / program, *arguments]


def attempt(part, name, results, function, *arguments):
    """Stores the result of a function, or why it failed. Returns whether there is a result."""
    try:
        results[name] = function(*arguments)
        return True
    except Exception as e:
        results[name] = {"error": f"{type(e).__name__}: {e}"}
        print(f"{part}, {name}: FAILED: {results[name]['error']}", flush=True)
        return False


# Part history


class HistoryRun:
    """A training with the history of its allocator, the recording of its blocks, and their comparison."""

    running = threading.Semaphore(2)

    def __init__(self, options, model, expandable):
        self.options, self.model, self.conf = options, model, f"expandable_segments:{expandable}"
        self.name = f"{model} {self.conf}"
        self.folder = options.work / f"history-{model}-{expandable}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def run(self):
        """Returns the result of compare_torch_blocks.py."""
        with self.running:
            self.record()
        recording, trace, numbers = (self.folder / name for name in ("blocks.parquet", "trace.jsonl", "comparison.json"))
        command = [sys.executable, ROOT / "scripts/compare_torch_blocks.py", recording, trace, "--gpurec", self.options.gpurec]
        log = self.folder / "comparison.log"
        status = child_processes.run([*command, "--json", numbers], log, COMPARE_SECONDS, expected=(0, 1))
        if not numbers.exists():
            raise Failed(log.read_text(errors="replace")[-400:])
        if status == 0:
            trace.unlink()  # hundreds of MB
        return json.loads(numbers.read_text())

    def record(self):
        seconds = self.options.seconds
        env = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": self.conf, "PYTORCH_ALLOC_CONF": self.conf}
        program = python("history.py", self.model, "--folder", self.folder, "--seconds", seconds + 60)
        with Child(program, self.folder / "training.log", env=env) as job:
            job.wait_for("ready", (self.folder / "ready").exists, START_SECONDS)
            record = [self.options.gpurec, "record", "-p", job.pid, "-d", f"{seconds:g}s", *self.options.record_flags.split()]
            child_processes.run([*record, "-o", self.folder / "blocks.parquet"], self.folder / "record.log", seconds + 90)
            job.check()
            (self.folder / "stop").touch()
            job.finish(180)


def test_history(options):
    runs = [HistoryRun(options, model, expandable) for model in options.model for expandable in (False, True)]
    results, passed = {}, True
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        futures = {pool.submit(run.run): run.name for run in runs}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            if not attempt("history", name, results, future.result):
                passed = False
                continue
            passed &= compare_torch_blocks.has_passed(results[name])
            print_history(name, results[name])
    return passed, results


def print_history(name, r):
    """Prints the result of a run in some lines."""
    print(f"history, {name}: {r['readings']} readings, {r['equal']} equal, {r['refused']} refused, {r['wrong']} wrong")
    print("  {} to {} blocks in {} to {} segments; ".format(*r["blocks"], *r["segments"])
          + "a reading took {} ms (median {}, at most {}) for {:.2f} MB; ".format(*r["read_ms"], r["median_read_bytes"] / 1e6)
          + f"{r['readings_with_awaiting_blocks']} readings had blocks that await a stream; {r['events']:,} events")
    print(f"  equal states were at most {r['farthest_ms']:.3f} ms from the reading; {r['equal_only_inside_a_call']} existed only inside of a call; "
          f"{r['contradictions']} contradictions in the history")
    for text, count in r["refusals"]:
        print(f"  refused {count} times: {text}")
    for text in r["examples"][:2]:
        print(f"  wrong: {text[:600]}")
    sys.stdout.flush()


# Part size


def find_counters(reading):
    """Returns the counters of a reading in the JSON of gpurec memory, or None if it has none."""
    counters = {**reading, **reading.get("proof", {})}
    return {key: counters[key] for key in COUNTERS} if all(key in counters for key in COUNTERS) else None


def sum_up(readings):
    """Returns the median, the minimum and the maximum of each counter, and the reasons of refusals."""
    counters = [c for r in readings if not r.get("refused") and (c := find_counters(r))]
    refused = collections.Counter(r["refused"] for r in readings if r.get("refused"))
    values = {key: sorted(c[key] for c in counters) for key in COUNTERS} if counters else {}
    return {
        "readings": len(readings), "measured": len(counters), "refused": sum(refused.values()), "refusals": refused.most_common(3),
        **{key: [statistics.median(v), v[0], v[-1]] for key, v in values.items()},
    }


class SizeRun:
    """A process with a number of blocks that does nothing."""

    def __init__(self, options, blocks):
        self.options, self.blocks, self.name = options, blocks, f"{blocks:,} blocks"
        self.log = options.work / f"size-{blocks}.log"
        self.job = Child(python("blocks.py", blocks), self.log)

    def wait(self):
        self.job.wait_for("ready", lambda: f"ready {self.job.pid}\n" in self.log.read_text(errors="replace"), START_SECONDS)

    def read(self, *flags):
        """Runs gpurec memory. Returns its output, and the seconds until it ended."""
        output = self.options.work / f"size-{self.blocks}.json"
        begin = time.monotonic()
        command = [self.options.gpurec, "memory", "-p", self.job.pid, "--json", *flags]
        child_processes.run(command, self.options.work / f"size-{self.blocks}.memory.log", 120, output, expected=(0, 1))
        return output.read_text(), time.monotonic() - begin

    def run(self):
        text, seconds = self.read()
        alone = json.loads(text)["devices"][0]
        text, _ = self.read("--every", "100ms", "--count", self.options.count)
        lines = [line for line in map(json.loads, text.splitlines()) if line.get("device", 0) == 0]
        repeated, source = lines[1:], "repeated readings of a process"
        if not any(map(find_counters, repeated)):
            repeated, source = [json.loads(self.read()[0])["devices"][0] for _ in range(LONE_READINGS)], "first readings (no counters with --every)"
        found = [line["blocks"] for line in lines if "blocks" in line]
        return {
            "first": find_counters(alone), "first_refused": alone.get("refused"), "first_command_ms": seconds * 1e3, "source": source,
            "lines": len(lines), "lines_refused": sum(bool(line.get("refused")) for line in lines),
            "blocks": [min(found, default=0), max(found, default=0)], **sum_up(repeated), "raw": list(map(find_counters, repeated)),
        }


def test_size(options):
    runs, results, passed = [], {}, True
    try:
        runs = [SizeRun(options, blocks) for blocks in options.blocks]
        for run in runs:
            run.wait()
        for run in runs:
            if not attempt("size", run.name, results, run.run):
                passed = False
                continue
            r = results[run.name]
            print_size(run.name, r)
            passed &= r["blocks"][0] >= run.blocks and r["lines"] >= options.count
            passed &= r["lines_refused"] <= MAX_REFUSED * r["lines"]
    finally:
        for run in runs:
            run.job.kill()
    return passed, results


def describe_counters(c):
    """Describes counters: numbers, or lists of the median, the minimum and the maximum."""
    def span(key, scale, unit, digits):
        middle, *ends = c[key] if isinstance(c[key], list) else [c[key]]
        text = f"{middle / scale:,.{digits}f}"
        return (f"{text} ({ends[0] / scale:,.{digits}f} to {ends[1] / scale:,.{digits}f})" if ends else text) + unit

    return ", ".join([span("read_ns", 1e6, " ms", 3), span("calls", 1, " calls", 0), span("read_bytes", 1e6, " MB", 3), span("tries", 1, " tries", 0)])


def print_size(name, r):
    first = describe_counters(r["first"]) if r["first"] else f"no numbers, {r['first_refused']}"
    print(f"size, {name} ({r['blocks'][0]:,} to {r['blocks'][1]:,} read): {r['lines']} readings, {r['lines_refused']} refused")
    print(f"  first reading: {first}; the command took {r['first_command_ms']:.0f} ms")
    if r["measured"]:
        print(f"  median (range) of {r['measured']} {r['source']}: {describe_counters(r)}")
    for text, count in r["refusals"]:
        print(f"  refused {count} times: {text}")
    sys.stdout.flush()


# Part speed


class Training:
    """A training whose steps are counted (steady.py)."""

    def __init__(self, options, model):
        self.options, self.model = options, model
        path = options.work / f"speed-{model}.progress"
        self.progress = p.Progress(path, create=True)
        flags = ["--progress", path, "--warm-up", 3, "--at-most", 900]
        if options.cpu_fake:
            flags.append("--cpu-fake")
        self.job = Child(python("steady.py", model, *flags), options.work / f"speed-{model}.log")

    def wait(self):
        self.job.wait_for("steady", lambda: self.progress.words[p.STATE] == p.STEADY, START_SECONDS)
        self.job.wait_for("past 20 steps", lambda: self.progress.words[p.STEPS] >= 20, 60)

    def rate(self):
        """Measures a window, and returns the steps a second."""
        time.sleep(0.3)
        begin = time.monotonic_ns()
        time.sleep(self.options.window)
        rate = self.progress.rate(begin, time.monotonic_ns())
        self.job.check()
        if rate is None:
            raise Failed(f"{self.model} finished no step in {self.options.window:g} s")
        return rate

    def rate_with_readings(self, refused):
        """Measures a window while gpurec memory reads. It counts the refused readings by reason."""
        output, log = (self.options.work / f"speed-{self.model}.memory.{end}" for end in ("json", "log"))
        command = [self.options.gpurec, "memory", "-p", self.job.pid, "--every", "1s", "--json"]
        with Child(command, log, output) as reader:
            reader.wait_for("reading", lambda: output.stat().st_size > 0, 30)
            rate = self.rate()
            reader.check()
            reader.interrupt()
        lines = list(map(json.loads, output.read_text().splitlines()))
        if len(lines) < self.options.window / 2:
            raise Failed(f"gpurec memory made only {len(lines)} readings in {self.options.window:g} s")
        refused.update(line["refused"] for line in lines if line.get("refused"))
        return rate, len(lines)

    def run_pair(self, order, refused):
        """Measures two windows. Returns the rates without and with gpurec, and the number of readings."""
        rates = {}
        for with_readings in order:
            rates[with_readings] = self.rate_with_readings(refused) if with_readings else self.rate()
        return rates[False], *rates[True]


def median_interval(values):
    """Returns the order statistics that hold the median with a confidence of at least 95 %, if possible, and the confidence."""
    values, n = sorted(values), len(values)

    def confidence(k):  # of the k-th value from both ends
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    k = 1
    while 2 * (k + 1) <= n and confidence(k + 1) >= 0.95:
        k += 1
    return values[k - 1], values[n - k], confidence(k)


def bootstrap_interval(values, samples=10_000):
    """Returns the 95 % interval of the median of resampled values."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(samples))
    return medians[round(samples * 0.025)], medians[round(samples * 0.975) - 1]


def test_speed(options):
    results = {}
    return all([attempt("speed", model, results, measure_speed, options, model) for model in options.model]), results


def measure_speed(options, model):
    training, refused, pairs = Training(options, model), collections.Counter(), []
    try:
        training.wait()
        for _ in range(options.pairs):
            pairs.append(training.run_pair(random.sample([False, True], 2), refused))
    finally:
        training.job.kill()
    ratios = [after / before for before, after, _ in pairs]
    low, high, confidence = median_interval(ratios)
    r = {
        "ratio": statistics.median(ratios), "interval": [low, high], "confidence": confidence, "bootstrap": bootstrap_interval(ratios),
        "pairs": pairs, "readings": sum(n for *_, n in pairs), "refused": sum(refused.values()), "refusals": refused.most_common(3),
    }
    bare = [before for before, *_ in pairs]
    print(f"speed, {model}: {r['ratio']:.4f} of the steps/s without gpurec: median of {len(pairs)} pairs; interval {low:.4f} to {high:.4f} "
          f"(order statistics, confidence {confidence:.1%}); bootstrap 95 %: {r['bootstrap'][0]:.4f} to {r['bootstrap'][1]:.4f}")
    print(f"  {min(bare):.1f} to {max(bare):.1f} steps/s without; {r['readings']} readings, {r['refused']} refused {r['refusals'] or ''}", flush=True)
    return r


# All parts


def test_attach(options):
    options = argparse.Namespace(gpurec=options.gpurec, attaches=options.attaches, model=options.model, work=options.work / "attach",
                                 program=test_earlier_blocks.PROGRAM)
    return test_earlier_blocks.test(options)


PARTS = {"attach": test_attach, "history": test_history, "size": test_size, "speed": test_speed}


def run_part(options, name):
    """Runs a part, and adds its results to results.json. Returns whether it passed."""
    begin = time.monotonic()
    try:
        passed, results = PARTS[name](options)
    except Exception as e:
        passed, results = False, {"error": f"{type(e).__name__}: {e}"}
        print(f"{name}: FAILED: {results['error']}")
    seconds = time.monotonic() - begin
    print(f"{name}: {'passed' if passed else 'NOT PASSED'} in {seconds:.0f} s", flush=True)
    path = options.work / "results.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**everything, name: {"passed": passed, "seconds": seconds, **results}}))
    return passed


def self_test():
    compare_torch_blocks.self_test()
    flat = {"device": 0, "blocks": 9, "read_ns": 2_000_000, "calls": 3, "read_bytes": 500_000, "tries": 1}
    nested = {"proof": {"read_ns": 4_000_000, "calls": 5, "read_bytes": 700_000, "tries": 2, "totals": 27}}
    assert find_counters({"refused": "busy"}) is None
    r = sum_up([flat, nested, {"refused": "busy"}])
    assert (r["readings"], r["measured"], r["refused"], r["read_ns"]) == (3, 2, 1, [3_000_000, 2_000_000, 4_000_000]), r
    assert describe_counters(r) == "3.000 (2.000 to 4.000) ms, 4 (3 to 5) calls, 0.600 (0.500 to 0.700) MB, 2 (1 to 2) tries"
    assert describe_counters(flat) == "2.000 ms, 3 calls, 0.500 MB, 1 tries"
    assert sum_up([])["measured"] == 0
    low, high, confidence = median_interval([8, 1, 7, 2, 6, 3, 5, 4])
    assert (low, high) == (1, 8) and abs(confidence - 0.992) < 0.001
    assert median_interval(range(1, 13))[:2] == (3, 10) and median_interval([5])[:2] == (5, 5)
    assert bootstrap_interval([1, 1, 1, 1], 40) == (1, 1)
    print("self-test passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: history, size and speed")
    parser.add_argument("--model", choices=MODELS, action="append", help="default: both")
    parser.add_argument("--gpurec", default=str(ROOT / "build/bin/gpurec"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "torch-blocks")
    parser.add_argument("--attaches", type=int, default=10, help="attach: for each model and setting")
    parser.add_argument("--seconds", type=float, default=15, help="history: length of a recording")
    parser.add_argument("--record-flags", default="--allocator=off --blocks-every=100ms", help="history")
    parser.add_argument("--blocks", type=int, action="append", help="size: number of blocks, default 1000, 10000 and 100000")
    parser.add_argument("--count", type=int, default=50, help="size: readings")
    parser.add_argument("--pairs", type=int, default=8, help="speed: pairs of windows for each model")
    parser.add_argument("--window", type=float, default=6, help="speed: seconds of a window")
    parser.add_argument("--cpu-fake", action="store_true", help="speed: a simulated training, see steady.py")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    options.model, options.blocks = options.model or MODELS, options.blocks or [1000, 10_000, 100_000]
    options.gpurec = os.path.abspath(options.gpurec)
    options.work.mkdir(parents=True, exist_ok=True)
    child_processes.exit_at_signals()
    try:
        passed = [run_part(options, name) for name in options.part or ["history", "size", "speed"]]
    finally:
        child_processes.kill_all()
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
