#!/usr/bin/env python3
"""Tests `gpurec top` and live verdicts with two ranks of torchrun on GPUs.

    test_live_gpu.py [--gpurec PATH] [--folder DIR] [--ranks 2] [--pairs 6] [--skip top,faults,pairs]

top     a minute of `gpurec top --format jsonl` while rank 1 begins to leak after 15 s: the lines of both ranks, the GPUs,
        and the verdict with its delay.
faults  `gpurec record --live=json` of jobs with one fault of rank 1, and of one without: the verdicts and their delays.
pairs   steps a second in alternating windows of 8 s without and with `gpurec top --interval 1s`, with the median of the
        ratios, and what record says about the price of its probes.

Prints Markdown. Needs root, PyTorch and two GPUs. All output of gpurec is kept in DIR.
"""
import argparse
import glob
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "..", "examples", "workloads", "ranks.py")
ENV = dict(os.environ, NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")

READY_S = 120  # the longest time in which a job becomes ready
ATTACHED = "attached to"  # in the message of gpurec after attaching


class Job:
    """A running torchrun job. Its fault begins with begin_fault."""

    def __init__(self, options, fault, name):
        self.trigger, self.times = os.path.join(options.folder, name + ".go"), os.path.join(options.folder, name)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(options.ranks),
             "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", name, JOB, fault,
             "--trigger", self.trigger, "--times", self.times],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV, start_new_session=True)
        self.pids, text = {}, ""
        deadline = time.monotonic() + READY_S
        while len(self.pids) < options.ranks:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                self.end()
                raise RuntimeError(f"{name}: the job was not ready within {READY_S} s; it has printed {text!r}")
            read = os.read(self.process.stdout.fileno(), 4096).decode()
            if not read:
                raise RuntimeError(f"{name}: the job has ended")
            text += read  # lines of two ranks may be mixed
            self.pids = {int(rank): int(pid) for rank, pid in re.findall(r"ready (\d+) (\d+)", text)}
        threading.Thread(target=lambda: self.process.stdout.read(), daemon=True).start()

    def begin_fault(self):
        open(self.trigger, "w").close()

    def fault_ns(self, rank=1):
        """When the fault began, CLOCK_MONOTONIC ns; None: it has not."""
        with open(f"{self.times}.{rank}") as file:
            for line in file:
                if line.startswith("fault"):
                    return int(line.split()[1])
        return None

    def rate(self, begin, end):
        """Steps a second between two times, CLOCK_MONOTONIC ns."""
        with open(self.times + ".0") as file:
            steps = [int(line) for line in file if line[0].isdigit() and line.endswith("\n")]
        steps = [t for t in steps if begin <= t <= end]
        return 10e9 * (len(steps) - 1) / (steps[-1] - steps[0])

    def end(self):
        for pid in [self.process.pid, *self.pids.values()]:  # workers have process groups of their own
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        time.sleep(2)
        for path in glob.glob("/dev/shm/nccl-*"):  # what a killed job leaves fills the small folder
            os.remove(path)


class Recorder:
    """A running gpurec. Lines of its output come with their time, CLOCK_MONOTONIC ns."""

    def __init__(self, options, name, *args):
        self.out, self.messages, self.lines = [], [], []
        self.process = subprocess.Popen([options.gpurec, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.logs = [open(os.path.join(options.folder, f"{name}.{kind}"), "w") for kind in ("out", "err")]
        self.threads = [threading.Thread(target=self.read, args=each) for each in
                        ((self.process.stdout, self.out, self.logs[0]), (self.process.stderr, self.messages, self.logs[1]))]
        for t in self.threads:
            t.start()

    def read(self, pipe, to, log):
        for line in pipe:
            to.append((time.monotonic_ns(), line))
            log.write(line)

    def await_message(self, text, seconds):
        """Waits until a message has a text; returns its time, None after some seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, line in list(self.messages):
                if text in line:
                    return at
            if self.process.poll() is not None:
                return None
            time.sleep(0.05)
        return None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        for t in self.threads:
            t.join()
        for log in self.logs:
            log.close()
        return self

    def verdicts(self):
        return [(at, line.strip().removeprefix("gpurec: ")) for at, line in self.messages if "verdict: " in line]


def seconds_since(at, begin):
    return "-" if at is None or begin is None else f"{(at - begin) / 1e9:.1f}"


def test_top(options):
    job = Job(options, "leak", "top")
    try:
        top = Recorder(options, "top", "top", "--job", "top", "--format", "jsonl", "--interval", "1s", "-d", "60s")
        top.await_message(ATTACHED, 60)
        time.sleep(15)
        job.begin_fault()
        top.process.wait(timeout=120)
        top.end()
    finally:
        job.end()
    lines = [json.loads(line) for _, line in top.out]
    print(f"## top: {len(lines)} lines in a minute\n")
    print("| rank | pid | lines | launches/s, median | wait %, median | last line |\n|---|---|---|---|---|---|")
    for rank, pid in sorted(job.pids.items()):
        mine = [l for l in lines if l.get("pid") == pid]
        median = lambda key: f"{statistics.median(l.get(key, 0) for l in mine):.1f}" if mine else "-"
        last = {k: v for k, v in (mine[-1] if mine else {}).items() if k not in ("lines", "memory", "verdicts")}
        print(f"| {rank} | {pid} | {len(mine)} | {median('launches_per_second')} | {median('wait_percent')} | {json.dumps(last)} |")
    fault = job.fault_ns()
    print(f"\nverdicts, seconds after the leak began:")
    for at, text in top.verdicts():
        print(f"- {seconds_since(at, fault)}: {text}")
    listed = [l for l in lines if l.get("verdicts")]
    print(f"- lines with verdicts: {len(listed)}; the first: {json.dumps(listed[0]['verdicts']) if listed else '-'}\n")


def test_faults(options):
    print("## Verdicts while recording, faults of rank 1\n")
    print("| fault | verdict after, s | verdicts | offline |\n|---|---|---|---|")
    for fault in options.faults.split(","):
        job = Job(options, fault, fault)
        path = os.path.join(options.folder, fault + ".parquet")
        try:
            record = Recorder(options, fault, "record", "-p", ",".join(str(p) for p in job.pids.values()), "--live=json",
                              "-o", path)
            record.await_message(ATTACHED, 60)
            time.sleep(8)
            job.begin_fault()
            record.await_message("verdict: ", 40 if fault != "none" else 30)
            time.sleep(4)
            record.end()
        finally:
            job.end()
        verdicts = record.verdicts()
        first = verdicts[0][0] if verdicts else None
        offline = subprocess.run([options.gpurec, "review", path], capture_output=True, text=True).stdout
        found = [f"{f['kind']} at {f.get('where', '-')}" for f in json.loads(offline or '{"findings":[]}')["findings"] or []]
        begun = job.fault_ns() if fault not in ("none",) else None
        print(f"| {fault} | {seconds_since(first, begun)} | {'; '.join(t for _, t in verdicts) or 'none'} | "
              f"{'; '.join(found) or 'none'} |", flush=True)
    print()


def test_pairs(options):
    job = Job(options, "none", "pairs")
    ratios, bare = [], []
    try:
        for i in range(options.pairs):
            begin = time.monotonic_ns()
            time.sleep(options.window)
            before = job.rate(begin, time.monotonic_ns())
            top = Recorder(options, f"pair{i}", "top", "--job", "pairs", "--format", "jsonl", "--interval", "1s")
            top.await_message(ATTACHED, 60)
            time.sleep(2)
            begin = time.monotonic_ns()
            time.sleep(options.window)
            with_top = job.rate(begin, time.monotonic_ns())
            top.end()
            time.sleep(1)
            begin = time.monotonic_ns()
            time.sleep(options.window)
            after = job.rate(begin, time.monotonic_ns())
            ratios.append(2 * with_top / (before + after))
            bare += [before, after]
        record = Recorder(options, "price", "record", "-p", ",".join(str(p) for p in job.pids.values()), "-d", "20s", "-o",
                          os.path.join(options.folder, "price.parquet"))
        record.process.wait(timeout=90)
        record.end()
    finally:
        job.end()
    ratios.sort()
    print("## Steps a second with top\n")
    print(f"bare {statistics.median(bare):.1f} steps/s (median of {len(bare)} windows of {options.window} s); with top: median ratio "
          f"{statistics.median(ratios):.3f} of {len(ratios)} pairs ({ratios[0]:.3f} to {ratios[-1]:.3f})\n")
    for _, line in record.messages:
        if "probes took" in line or "own cost" in line:
            print("- " + line.strip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurec", default="gpurec")
    parser.add_argument("--folder", default="live-gpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--window", type=float, default=8)
    parser.add_argument("--faults", default="leak,oom,stop,mismatch,none")
    parser.add_argument("--skip", default="")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    for name, test in (("top", test_top), ("pairs", test_pairs), ("faults", test_faults)):
        if name not in options.skip.split(","):
            try:
                test(options)
            except Exception as error:  # the other tests still count
                print(f"{name} failed: {error!r}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
