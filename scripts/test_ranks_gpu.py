#!/usr/bin/env python3
"""Records torchrun jobs of PyTorch whose fault is known, and checks what gpurec says. Needs root, PyTorch and two GPUs.

    test_ranks_gpu.py [--gpurec PATH] [--folder DIR] [--ranks 2] [--rounds 2] [--parts faults,census,log] [--faults late,stop]

faults  gpurec attaches to a job that runs; the fault of rank 1 begins 3 s later. The first row of `summary` must name the
        rank and the reason. In a job without a fault, no rank may be accused.
census  a job hangs, and gpurec comes later: what `stacks --tree` and a recording of 5 s say.
log     a job is recorded from its first call, with DistributedDataParallel and with FSDP: all operations equal those of
        NCCL's log (scripts/compare_nccl.py).

The faults are those of examples/workloads/ranks.py. Prints one line a check. Exit status 1: a check failed.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import time

import test_live_gpu

JOB = test_live_gpu.JOB
# What the first row of the summary must match, and more flags of record.
FAULTS = {
    "none": (None, []),
    "late": (r"straggler +rank 1 is late .*sleep_late", ["--host", "auto"]),
    "gpu": (r"straggler +rank 1 is late .*its GPU", ["--gpu-time", "auto"]),
    "copy": (r"straggler +rank 1 is late .*copies", ["--gpu-time", "auto"]),
    "stop": (r"rank-missing .*rank 1\b.*stop \(ranks.py", []),
    "mismatch": (r"collective-mismatch .*AllGather.*AllReduce|collective-mismatch .*AllReduce.*AllGather", []),
    "kill": (r"rank 1\b.*(died|SIGKILL)", []),
}
ACCUSED = r"straggler|rank-missing|collective-mismatch"


class Checks:
    """Prints and counts checks."""

    def __init__(self):
        self.wrong = 0

    def check(self, is_right, what, says):
        self.wrong += not is_right
        print(f"{'ok' if is_right else 'WRONG'}: {what}: {says}", flush=True)


def analyze(options, report, path):
    done = subprocess.run([options.gpurec, "analyze", *report.split(), path], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else done.stderr


def first_row(summary):
    """Returns the first finding of a summary."""
    lines = summary.splitlines()
    rows = [i for i, line in enumerate(lines) if line.startswith("SEVERITY")]
    return re.sub(r"  +", "  ", lines[rows[0] + 1]) if rows else (lines or [""])[0]


def record(options, job, path, seconds, flags, trigger):
    """Records the ranks of a job. The fault begins 3 s after gpurec has attached, if trigger is set."""
    pids = ",".join(str(pid) for _, pid in sorted(job.pids.items()))
    with open(path + ".txt", "w") as log:
        recorder = subprocess.Popen([options.gpurec, "record", "-p", pids, "-d", f"{seconds}s", "-o", path, "--force", *flags],
                                    stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while trigger and test_live_gpu.ATTACHED not in open(path + ".txt").read() and time.monotonic() < deadline:
        time.sleep(0.1)
    if trigger:
        time.sleep(3)
        job.begin_fault()
    recorder.wait()
    return open(path + ".txt").read()


def check_faults(options, checks):
    for round_number in range(options.rounds):
        for fault in options.faults:
            name = f"{fault}{round_number}"
            path = os.path.join(options.folder, name + ".parquet")
            pattern, flags = FAULTS[fault]
            job = test_live_gpu.Job(options, fault, name)
            try:
                record(options, job, path, options.seconds, flags + options.flags, True)
            finally:
                job.end()
            row = first_row(analyze(options, "summary", path))
            rows = analyze(options, "rules", path)
            if pattern:
                checks.check(bool(re.search(pattern, row)), f"{name}, first row of the summary", row)
            else:
                accused = re.search(rf"^\w+ +({ACCUSED}) .*", rows, re.M)
                checks.check(not accused, f"{name}, no rank is accused", accused[0] if accused else "none")


def check_census(options, checks):
    for fault, pattern in (("stop", r"rank 1\b"), ("mismatch", r"AllGather")):
        name = "census-" + fault
        job = test_live_gpu.Job(options, fault, name)
        try:
            job.begin_fault()
            time.sleep(5)
            tree = subprocess.run([options.gpurec, "stacks", "-p", str(job.process.pid), "--tree"], capture_output=True, text=True)
            with open(os.path.join(options.folder, name + ".stacks.txt"), "w") as out:
                out.write(tree.stdout + tree.stderr)
            says = [line for line in tree.stdout.splitlines() if re.match(r"0x[0-9a-f]+: ", line)]
            checks.check(any(re.search(pattern, line) for line in says), f"{name}, stacks --tree", " | ".join(says))
            path = os.path.join(options.folder, name + ".parquet")
            record(options, job, path, 5, [], False)
            row = first_row(analyze(options, "summary", path))
            checks.check(bool(re.search(pattern, row)), f"{name}, first row of the summary after 5 s", row)
        finally:
            job.end()


def check_log(options, checks):
    """Records a job from its first call, with NCCL's log."""
    for more in ([], ["--fsdp"]):
        name = "log" + "".join(more)
        path, logs = os.path.join(options.folder, name + ".parquet"), os.path.join(options.folder, name + ".nccl.%p")
        env = dict(test_live_gpu.ENV, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL", NCCL_DEBUG_FILE=logs)
        with open(path + ".txt", "w") as log:
            subprocess.run([options.gpurec, "record", "-o", path, "--force", *options.flags, "--", sys.executable, "-m",
                            "torch.distributed.run", "--nproc-per-node", str(options.ranks), "--rdzv-backend", "c10d",
                            "--rdzv-endpoint", "127.0.0.1:0", JOB, "none", "--steps", "150", *more],
                           stdout=log, stderr=log, env=env, check=False)
        dump = subprocess.Popen([options.gpurec, "dump", path], stdout=subprocess.PIPE)
        compare = os.path.join(test_live_gpu.HERE, "compare_nccl.py")
        done = subprocess.run([sys.executable, compare, *glob.glob(logs.replace("%p", "*"))], stdin=dump.stdout, capture_output=True, text=True)
        lines = done.stdout.splitlines() or [done.stderr]
        checks.check(done.returncode == 0, f"{name}, operations and elements", lines[-1])
        lost = re.search(r"(\d[\d,]*) lost", open(path + ".txt").read())
        checks.check(bool(lost) and lost[1] == "0", f"{name}, lost calls", lost[1] if lost else "unknown")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpurec", default=os.path.join(test_live_gpu.HERE, "..", "build", "bin", "gpurec"))
    parser.add_argument("--folder", default="/tmp/test-ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=14, help="length of a recording")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["faults", "census", "log"])
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--flags", type=str.split, default=[], help="more flags of gpurec record")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    return options


def main():
    options, checks = parse_options(), Checks()
    for part in options.parts:
        {"faults": check_faults, "census": check_census, "log": check_log}[part](options, checks)
    print(f"{checks.wrong} wrong; recordings are in {options.folder}")
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
