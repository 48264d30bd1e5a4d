"""Measures what --gpu-time costs a training, in steps a second.

    bench_gpu_time.py [-o FOLDER] [--rate auto] [--workloads gpt_train,mlp_small] [--pairs 12]

One process trains all the time. Recordings without and with --gpu-time alternate; both record every
call. A window of each recording begins one second after the probes are attached. The ratio of a
recording with GPU times is its rate divided by the mean rate of the recordings before and after it.

Prints the median ratio with its 95 % interval from the order statistics, the time of the poller in
percent of a core, and the mean time in BPF of a probe hit without and with GPU times. With -o also
writes results.json and the logs. Needs root, PyTorch and a GPU.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

import bench_start
import bench_torch as b


class Pairs:
    """The recordings of one workload."""

    def __init__(self, bench, workload):
        self.bench, self.options, self.workload = bench, bench.options, workload
        self.worker = b.Worker(bench, workload, "gpu-time")
        self.results = []

    def recorded(self, flags, name):
        """Returns the rate in the window of one recording, and what the recording says of its cost."""
        path = os.path.join(self.bench.work, f"{self.workload}-{name}.parquet")
        log = os.path.join(self.bench.logs, f"{self.workload}-{name}-{len(self.results)}.gpurec.log")
        b.GPUREC_FLAGS[name] = flags
        seconds = self.options.settle + self.options.window + 0.2
        recording = b.Recording(self.bench, name, self.worker.process.pid, seconds, path, log)
        try:
            recording.wait_attached(60)
            time.sleep(self.options.settle)
            begin = time.monotonic_ns()
            time.sleep(self.options.window)
            rate = self.worker.progress.rate(begin, time.monotonic_ns())
            if rate is None or recording.ended.is_set():
                raise b.Failed("no step was finished in the window, or the recording ended before it")
            recording.finish(60)
        finally:
            recording.close()
        with open(log) as file:
            facts = b.facts_of(file.read())
        return rate, {**facts, **self.cost(path, seconds)}

    def cost(self, path, seconds):
        """Returns the time of the poller in a recording, in percent of a core."""
        with subprocess.Popen([self.options.gpurec, "dump", path], stdout=subprocess.PIPE, text=True, env=self.bench.env) as dump:
            dump.stdout.readline()
            lines = itertools.takewhile(lambda line: line.startswith("# "), dump.stdout)
            meta, _ = json.JSONDecoder().raw_decode("".join(line[2:] for line in lines))
            dump.kill()
        cpu_ns = meta["cost"].get("gpu_time_cpu_ns", 0)
        return {"poller_percent": 100 * cpu_ns / seconds / 1e9}

    def run(self):
        flags = ["--max-overhead=off"]
        before, facts = self.recorded(flags, "without")
        for pair in range(self.options.pairs):
            rate, with_facts = self.recorded([*flags, f"--gpu-time={self.options.rate}"], "with")
            after, after_facts = self.recorded(flags, "without")
            ratio = 2 * rate / (before + after)
            self.results.append({"workload": self.workload, "ratio": ratio, "before": before, "rate": rate,
                                 "after": after, "with": with_facts, "without": facts})
            b.say(f"{self.workload}: {before:.2f} {rate:.2f} {after:.2f} it/s, ratio {ratio:.4f}")
            before, facts = after, after_facts


def row(results, workload):
    """Returns the Markdown row of a workload."""
    own = [r for r in results if r["workload"] == workload]
    if not own:
        return f"| {workload} | 0 | | | | |"
    ratios = [r["ratio"] for r in own]
    low, high = bench_start.interval(ratios)

    def median(which, key):
        values = [r[which][key] for r in own if key in r[which]]
        return f"{statistics.median(values):.4g}" if values else ""

    return (f"| {workload} | {len(own)} | {statistics.median(ratios):.4f} ({low:.4f}–{high:.4f}) | "
            f"{median('with', 'poller_percent')} | {median('without', 'bpf_ns')} | {median('with', 'bpf_ns')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    parser.add_argument("--rate", default="auto", help="value of --gpu-time")
    parser.add_argument("--workloads", default="gpt_train,mlp_small", type=lambda s: s.split(","))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--window", type=float, default=2.5, help="seconds")
    parser.add_argument("--settle", type=float, default=1, help="seconds between attaching and the window")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(b.ROOT, "build", "bin", "gpurec")))
    parser.add_argument("--cpu-fake", action="store_true")
    parser.add_argument("--warm-up", type=float, default=3)
    parser.add_argument("--start-timeout", type=float, default=180)
    options = parser.parse_args()
    b.BEGIN = time.monotonic()
    bench = b.Bench(options)
    results = []
    try:
        for workload in options.workloads:
            pairs = None
            try:
                pairs = Pairs(bench, workload)
                pairs.run()
            except b.Failed as problem:
                bench.fail(workload, "gpu-time", problem)
            finally:
                if pairs:
                    pairs.worker.end()
                    results += pairs.results
    finally:
        bench.close()
    if options.output:
        with open(os.path.join(options.output, "results.json"), "w") as f:
            json.dump(results, f, indent=1)
    print("| workload | pairs | ratio (95 %) | poller, % of a core | BPF ns a hit without | with |\n|---|---|---|---|---|---|")
    for workload in options.workloads:
        print(row(results, workload))
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
