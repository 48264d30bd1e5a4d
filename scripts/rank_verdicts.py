"""Records random jobs of several ranks whose fault is known, and compares what gpurec says with the fault.

    rank_verdicts.py [--seeds 0-99] [--ranks 8] [--jobs 2] [--flags '--gpu-time auto --host auto'] [-o FILE.json]
    rank_verdicts.py --again FOLDER    # judge the recordings in FOLDER, after a change of the analysis

examples/simnccl/ranks is the job. gpurec attaches while it runs, and one recorder records all ranks. Half of the jobs
have no fault. The others have one rank that is late by 5 to 200 ms a step (by its host, its copies or its GPU), is
missing, calls something else, or dies. The first line of `gpurec analyze summary` must name the rank and the reason.
Of jobs without a fault, no report may accuse a rank.

Prints Markdown, wrong jobs as soon as they are known on stderr. Needs root, no GPU. Exit status 1: a job is wrong.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
PROGRAM = os.path.join(BUILD, "simcuda", "ranks")
LATE = ("host", "kernels", "copies")
FAULTS = ("host", "kernels", "copies", "stop", "mismatch", "death")
COUNTED = ("skip", "extra")  # mismatches that NCCL's counters show, also if gpurec comes later
MISMATCHES = (*COUNTED, "count", "type", "op")
ACCUSERS = ("straggler", "rank-missing", "collective-mismatch", "hang")
COPY_BYTES_PER_MS = 20e6  # copies of simcuda
BATCH_BYTES = 1 << 20
FORWARD_KERNELS = 4


class Failed(Exception):
    """A job could not be recorded; the message is the reason."""


@dataclasses.dataclass
class Job:
    """A random job. delay_ms is the lateness of its rank in a step, 0: it is not late."""
    seed: int
    fault: str  # as in the flag --fault, without a value; "": none
    kind: str
    rank: int
    delay_ms: float
    value: float
    host_us: int
    kernel_us: int
    buckets: int
    jitter: float
    loss: int
    split: bool
    sharded: bool
    early: bool  # the fault begins before gpurec attaches

    def text(self):
        if not self.fault:
            return "none"
        late = f" {self.delay_ms:.0f} ms" if self.kind in LATE else ""
        return f"rank {self.rank} {self.fault}{late}"

    def seconds(self):
        """Returns the length of the recording: a late rank needs some hundred steps."""
        if self.kind not in LATE:
            return 8
        step_ms = self.delay_ms + (self.host_us + self.kernel_us * self.step_kernels()) / 1e3
        return min(max(20, 6 + 120 * step_ms / 1e3), 40)

    def step_kernels(self):
        return 3 * self.buckets + 1 if self.sharded else FORWARD_KERNELS + 2 * self.buckets + 1

    def hung_before(self):
        """Reports whether the job hung before gpurec came. Then only counters of NCCL and stacks show the operation."""
        return self.early and bool(self.kind) and self.kind not in LATE

    def says(self):
        """Returns rules, one of them must be first, and patterns of the first line of the summary."""
        if self.hung_before():
            return {
                "stop": (("rank-missing", "hang"), (rf"rank {self.rank}\b", "read_shard")),
                "death": (("rank-missing", "hang"), (rf"rank {self.rank}\b", "died|no process")),
                "mismatch": (("rank-missing", "collective-mismatch", "hang"), (rf"rank {self.rank}\b",)),
            }[self.kind]
        return {
            "": ((), ()),
            "host": (("straggler",), (rf"rank {self.rank} is late", "its host")),
            "kernels": (("straggler",), (rf"rank {self.rank} is late", "its GPU")),
            "copies": (("straggler",), (rf"rank {self.rank} is late", "copies")),
            "stop": (("rank-missing",), (rf"rank {self.rank}\b", "read_shard")),
            "death": (("rank-missing",), (rf"rank {self.rank}\b", "died")),
            "mismatch": (("collective-mismatch",), (rf"rank {self.rank} calls something else",)),
        }[self.kind]


def draw(seed, ranks):
    """Returns the job of a seed. Odd seeds have a fault."""
    rng = random.Random(seed)
    job = Job(seed=seed, fault="", kind="", rank=rng.randrange(ranks), delay_ms=0, value=0,
              host_us=rng.randrange(2000, 12000), kernel_us=rng.randrange(100, 800), buckets=rng.randrange(2, 6),
              jitter=rng.choice([0.02, 0.1, 0.3]), loss=rng.choice([0, 1, 10]), split=rng.random() < 0.4,
              sharded=False, early=rng.random() < 0.5)
    job.sharded = not job.split and rng.random() < 0.4
    if seed % 2 == 0:
        return job
    job.kind = FAULTS[seed // 2 % len(FAULTS)]
    mismatches = COUNTED if job.early else MISMATCHES
    job.fault = {"mismatch": rng.choice(mismatches), "death": rng.choice(["kill", "exit"])}.get(job.kind, job.kind)
    if job.fault in ("skip", "extra"):
        job.buckets = max(job.buckets, 3)  # of two alternating operations, none is known to be the skipped one
    if job.kind not in LATE:
        return job
    job.delay_ms = 5 * 40 ** rng.random()
    job.value = {
        "host": job.delay_ms,
        "kernels": 1 + job.delay_ms * 1e3 / (job.kernel_us * job.step_kernels()),
        "copies": 1 + job.delay_ms * COPY_BYTES_PER_MS / BATCH_BYTES,
    }[job.kind]
    return job


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Target:
    """The running ranks of a job. The fault's steps count from the time on at which the file count exists."""

    def __init__(self, options, job, folder):
        self.count_path = os.path.join(folder, "count")
        self.output_path = os.path.join(folder, "job.txt")
        env = dict(os.environ, SIMNCCL_DIR=folder, SIMNCCL_LEDGER=os.path.join(folder, "nccl.tsv"), SIMCUDA_TIME="on",
                   SIMCUDA_STATE=os.path.join(folder, "state"), SIMCUDA_CHANNELS="tear_ns=0,decoys=off")
        command = [os.path.join(ROOT, "examples", "simnccl", "simrun"), "-n", str(options.ranks), PROGRAM,
                   "--steps", "1000000", "--seed", str(job.seed), "--host-us", str(job.host_us),
                   "--kernel-us", str(job.kernel_us), "--buckets", str(job.buckets), "--jitter", str(job.jitter),
                   "--loss", str(job.loss), "--count", self.count_path]
        command += ["--split"] if job.split else []
        command += ["--sharded"] if job.sharded else []
        command += ["--fault", f"{job.rank} 5 {job.fault} {job.value}"] if job.fault else []
        with open(self.output_path, "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        self.ranks = options.ranks
        self.wait_for("steps", self.ranks)
        self.pids = [int(line[2]) for line in sorted(self.lines("ready"), key=lambda line: int(line[1]))]

    def lines(self, first):
        with open(self.output_path) as output:
            return [line.split() for line in output if line.startswith(first + " ")]

    def wait_for(self, first, number, timeout_s=60):
        end = time.monotonic() + timeout_s
        while len(self.lines(first)) < number:
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failed(f"the job printed {len(self.lines(first))} of {number} lines {first!r}")
            time.sleep(0.05)

    def begin_fault(self):
        with open(self.count_path, "w"):
            pass

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def record(options, job, target, path):
    """Records the job. A late fault begins some seconds after the recorder has attached."""
    if job.early:
        target.begin_fault()
        time.sleep(1)
    pids = [str(pid) for pid in target.pids if is_alive(pid)]
    command = [options.gpurec, "record", "-p", ",".join(pids), "-d", f"{job.seconds():.0f}s", "-o", path,
               "--force", *options.flags]
    with open(path + ".txt", "w") as errors:
        recorder = subprocess.Popen(command, stdout=errors, stderr=errors)
    if not job.early:
        end = time.monotonic() + 60
        while recorder.poll() is None and time.monotonic() < end and "attached to" not in open(path + ".txt").read():
            time.sleep(0.1)
        time.sleep(2)
        target.begin_fault()
    if recorder.wait() != 0:
        raise Failed(f"the recorder ended with status {recorder.returncode}: {path}.txt")


def analyze(options, report, path):
    done = subprocess.run([options.gpurec, "analyze", *report.split(), path], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"analyze {report} ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def judge(options, job, path):
    """Returns what the first line of the summary says, and why it is wrong, or "" if it is right."""
    hits = json.loads(analyze(options, "rules --format json", path))["hits"]
    accused = [h for h in hits if h["rule"] in ACCUSERS and not h["folded_into"]]
    first = first_hit(analyze(options, "summary", path))
    rules, patterns = job.says()
    if not rules:
        ranks, hang = analyze(options, "ranks", path), analyze(options, "hang", path)
        if accused:
            return first, "false: " + accused[0]["what"]
        if found := re.search(r"^VERDICT +((?:rank|network).*)", ranks, re.M):
            return first, "false: " + found[1]
        if found := re.search(r"^(?:HANGS\s+(?!\s|no hang)|fault\s+)(.*)", hang, re.M):
            return first, "false: " + found[1]
        return first, ""
    if not any(f" {rule} " in first for rule in rules):
        return first, "missed: " + first
    for pattern in patterns:
        if not re.search(pattern, first):
            return first, f"no {pattern!r}: {first}"
    others = [h for h in accused if h["rule"] not in (*rules, "hang")]
    return first, "also: " + others[0]["what"] if others else ""


def first_hit(summary):
    lines = summary.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("SEVERITY"):
            return re.sub(r" +", " ", lines[i + 1])
    return lines[0] if lines else ""


def run(options, seed):
    job = draw(seed, options.ranks)
    folder = os.path.join(options.folder, str(seed))
    path = os.path.join(folder, "job.parquet")
    result = {"seed": seed, "fault": job.text(), "kind": job.kind, "early": job.early, "wrong": "", "says": ""}
    target = None
    try:
        if not options.again:
            os.makedirs(folder, exist_ok=True)
            target = Target(options, job, folder)
            record(options, job, target, path)
            if job.fault and not target.lines("fault"):
                raise Failed("the fault did not come")
            target.close()
        result["says"], result["wrong"] = judge(options, job, path)
    except Failed as problem:
        result["wrong"] = f"failed: {problem}"
    finally:
        if target:
            target.close()
    return result


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-99", help="a range, or numbers separated by commas")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1, help="jobs at a time")
    parser.add_argument("--flags", type=shlex.split, default=["--gpu-time", "auto", "--host", "auto"], help="flags of gpurec record")
    parser.add_argument("--again", help="judge the recordings of this folder")
    parser.add_argument("--folder", help="keep all recordings here; without it only those of wrong jobs are kept")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(BUILD, "bin", "gpurec")))
    parser.add_argument("-o", "--output", help="file for all results as JSON")
    options = parser.parse_args()
    options.keep = options.folder is not None or options.again is not None
    options.folder = options.again or options.folder or tempfile.mkdtemp(prefix="rank-verdicts-")
    if "-" in options.seeds:
        low, high = map(int, options.seeds.split("-"))
        options.seeds = list(range(low, high + 1))
    else:
        options.seeds = [int(seed) for seed in options.seeds.split(",")]
    return options


def run_all(options):
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, options, seed) for seed in options.seeds]):
            result = done.result()
            results.append(result)
            print(f"{len(results)} of {len(options.seeds)}: seed {result['seed']}, {result['fault']}"
                  f"{', early' if result['early'] else ''}: {result['wrong'] or 'right'}", file=sys.stderr, flush=True)
            if not options.keep and not result["wrong"]:
                shutil.rmtree(os.path.join(options.folder, str(result["seed"])))
    return sorted(results, key=lambda r: r["seed"])


def table(results):
    kinds = collections.defaultdict(lambda: [0, 0])
    for result in results:
        kinds[result["kind"]][0] += 1
        kinds[result["kind"]][1] += not result["wrong"]
    lines = ["| fault | jobs | right |", "|---|---|---|"]
    lines += [f"| {kind or 'none'} | {n} | {right} |" for kind, (n, right) in sorted(kinds.items())]
    return "\n".join(lines)


def main():
    options = parse_options()
    results = run_all(options)
    print(table(results))
    for result in results:
        if result["wrong"]:
            print(f"\nseed {result['seed']} ({result['fault']}): {result['wrong']}")
    if options.output:
        with open(options.output, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
