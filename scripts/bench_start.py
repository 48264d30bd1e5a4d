"""Measures the overhead of gpurec in the first seconds of a recording, in steps a second.

    bench_start.py [-o FOLDER] [--modes default,cuda,empty] [--workloads gpt_train,mlp_small]

One process trains all the time. A recorded stretch has some windows of 2.5 s. The first window
begins with the gpurec process. Bare stretches lie before and after it. Modes alternate, and each
round has another order. The ratio of a window is its rate divided by the mean rate of the two bare
stretches. The mode "empty" has all probes, but their programs return at once: the least that
probes can cost.

Prints a Markdown table: the median over the rounds and its 95 % interval from the order statistics.
With -o also writes results.json and the logs.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from math import comb

import bench_torch as b

MODES = {
    "default": [],
    "cuda": ["--allocator=off"],
    "off": ["--max-overhead=off"],
    "empty": ["--empty-probes", "--max-overhead=off"],
    "memory": ["--record=memory"],
}


def interval(values):
    """Returns the 95 % interval of the median from the order statistics (binomial distribution)."""
    n, ordered = len(values), sorted(values)
    k = 0
    while k < n // 2 and sum(comb(n, i) for i in range(k + 1)) / 2**n <= 0.025:
        k += 1
    return ordered[max(0, k - 1)], ordered[n - max(1, k)]


class Stretches:
    """The bare and recorded stretches of one workload."""

    def __init__(self, bench, workload):
        self.bench, self.options, self.workload = bench, bench.options, workload
        self.worker = b.Worker(bench, workload, "start")
        self.results = []

    def bare(self):
        """Returns the rate of a bare stretch."""
        time.sleep(b.SETTLE)
        begin = time.monotonic_ns()
        time.sleep(self.options.bare)
        rate = self.worker.progress.rate(begin, time.monotonic_ns())
        self.worker.check()
        if rate is None:
            raise b.Failed("no step was finished in a bare stretch")
        return rate

    def recorded(self, mode, turn):
        """Returns the rates of the windows of one recording, and what it recorded."""
        path = os.path.join(self.bench.work, f"{self.workload}-{mode}.parquet")
        log = os.path.join(self.bench.logs, f"{self.workload}-{mode}-{turn}.gpurec.log")
        command = [self.options.gpurec, "record", "-p", str(self.worker.process.pid), "-o", path, "--force", *MODES[mode]]
        with open(log, "w") as out:
            begin = time.monotonic_ns()
            recorder = b.start(command, stdout=out, stderr=subprocess.STDOUT, env=self.bench.env)
        ends = [begin + int((i + 1) * self.options.window * 1e9) for i in range(self.options.windows)]
        for end in ends:
            time.sleep(max(0, (end - time.monotonic_ns()) / 1e9))
        recorder.send_signal(signal.SIGINT)
        rates = [self.worker.progress.rate(end - int(self.options.window * 1e9), end) for end in ends]
        try:
            recorder.wait(120)
        except subprocess.TimeoutExpired:
            recorder.kill()
            raise b.Failed("gpurec did not end within 120 s") from None
        self.worker.check()
        if recorder.returncode != 0 or None in rates:
            raise b.Failed(b.last_words(log))
        with open(log) as f:
            return rates, {**b.facts_of(f.read()), **self.coverage(path)}

    def coverage(self, path):
        """Returns what the recording has of the launches."""
        done = subprocess.run([self.options.gpurec, "analyze", "kernels", "--format", "json", path],
                              capture_output=True, text=True, env=self.bench.env)
        try:
            return {"quality": {k: v for k, v in json.loads(done.stdout)["quality"].items() if v not in (0, None, False)}}
        except (ValueError, KeyError):
            return {"quality": {}}

    def run(self, deadline):
        modes = self.options.modes
        before = self.bare()
        for turn in range(self.options.rounds):
            begin = time.monotonic()
            for mode in modes[turn % len(modes):] + modes[:turn % len(modes)]:
                rates, facts = self.recorded(mode, turn)
                after = self.bare()
                bare = (before + after) / 2
                before = after
                self.results.append({"workload": self.workload, "mode": mode, "turn": turn, "bare": bare,
                                     "ratios": [r / bare for r in rates], **facts})
                text = " ".join(f"{r / bare:.3f}" for r in rates)
                b.say(f"{self.workload} {mode}: bare {bare:.2f} it/s, {text}")
            if time.monotonic() + 1.05 * (time.monotonic() - begin) > deadline:
                b.say(f"{self.workload}: {turn + 1} rounds, no time for more")
                break


def table(results, workload, mode):
    """Returns the Markdown row of one mode."""
    stretches = [r for r in results if (r["workload"], r["mode"]) == (workload, mode)]
    means = [statistics.mean(r["ratios"]) for r in stretches]
    if not means:
        return f"| {workload} | {mode} | 0 | | | | |"
    low, high = interval(means)
    windows = " ".join(f"{statistics.median(r['ratios'][i] for r in stretches):.3f}" for i in range(len(stretches[0]["ratios"])))
    return (f"| {workload} | {mode} | {len(means)} | {statistics.median(means):.3f} ({low:.3f}–{high:.3f}) | {windows} | "
            f"{share(stretches, recorded_share)} | {share(stretches, stack_share)} |")


def recorded_share(quality):
    """Returns the share of time in which launches were recorded, from 0 to 1."""
    whole = quality.get("launch_stacks_recorded_ns")
    return quality.get("launches_recorded_ns", 0) / whole if whole else 1.0


def stack_share(quality):
    """Returns the share of recorded calls with a stack, from 0 to 1."""
    return 1 - (quality.get("stacks_rationed_pct", 0) + quality.get("stacks_none_pct", 0)) / 100


def share(stretches, of):
    return f"{100 * statistics.median(of(r['quality']) for r in stretches):.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--modes", default="default,cuda,empty", type=lambda s: s.split(","))
    parser.add_argument("--workloads", default="gpt_train,mlp_small,gpt2_large,gpt_decode", type=lambda s: s.split(","))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--window", type=float, default=2.5, help="seconds")
    parser.add_argument("--bare", type=float, default=2.5, help="seconds of a bare stretch")
    parser.add_argument("--seconds", type=float, default=3600, help="time for all workloads")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(b.ROOT, "build", "bin", "gpurec")))
    parser.add_argument("--cpu-fake", action="store_true")
    parser.add_argument("--warm-up", type=float, default=3)
    parser.add_argument("--start-timeout", type=float, default=180)
    options = parser.parse_args()
    b.BEGIN = time.monotonic()
    bench = b.Bench(options)
    results = []
    try:
        for i, workload in enumerate(options.workloads):
            left = options.seconds - (time.monotonic() - b.BEGIN)
            stretches = None
            try:
                stretches = Stretches(bench, workload)
                stretches.run(time.monotonic() + left / (len(options.workloads) - i))
            except b.Failed as problem:
                bench.fail(workload, "start", problem)
            finally:
                if stretches:
                    stretches.worker.end()
                    results += stretches.results
    finally:
        bench.close()
    if options.output:
        with open(os.path.join(options.output, "results.json"), "w") as f:
            json.dump(results, f, indent=1)
    print("| workload | mode | rounds | first windows, mean | windows | launches recorded | calls with a stack |\n|---|---|---|---|---|---|---|")
    for workload in options.workloads:
        for mode in options.modes:
            print(table(results, workload, mode))


if __name__ == "__main__":
    main()
