"""Compares the blocks that gpurec knows of a running training with PyTorch's own snapshots.

    test_earlier_blocks.py [--gpurec build/bin/gpurec] [--attaches 20] [--model transformer] … [--work FOLDER]

Needs root, a GPU and PyTorch; --model gpt2 also needs transformers. For each model and each setting of
expandable_segments, it attaches to a training that runs already (examples/workloads/snapshots.py). The blocks from
before the recording, brought forward by the recorded events, must equal torch.cuda.memory_snapshot() at a later time:
segments, blocks, sizes, requested sizes, states, streams and pools. A reading may be refused in at most 2 of 20
attaches, and none may be wrong. Up to four trainings run at the same time, and two of them are recorded.
FOLDER/results.json has the results of all attaches.
"""
import argparse
import collections
import json
import os
import pathlib
import pickle
import random
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time

import child_processes
from child_processes import Child, Failed

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "examples/workloads/snapshots.py"
MODELS = ["transformer", "mlp", "gpt2"]
SEGMENT = ["device", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type", "segment_pool_id", "is_expandable"]
RECORD_SECONDS = 2
MAX_REFUSED = 0.1  # of the attaches
EXAMPLES = 2  # refusals and wrong attaches that are printed
START_SECONDS, COMMAND_SECONDS, TRAIN_SECONDS = 180, 90, 900  # limits
trainings, recordings = threading.Semaphore(4), threading.Semaphore(2)


def describe(snapshot):
    """Returns the segments of a snapshot by address, with the parts that must be equal."""
    found = {}
    for s in snapshot["segments"]:
        blocks = []
        for b in s["blocks"]:
            used = b["state"] != "inactive"
            blocks.append((b["address"], b["size"], b["state"], b["requested_size"] if used else None))
        values = [tuple(s[key]) if key == "segment_pool_id" else s[key] for key in SEGMENT]
        found[s["address"]] = (values, blocks)
    return found


def differences(ours, theirs):
    """Returns the segments that differ, as text."""
    a, b = describe(ours), describe(theirs)
    return [f"{at:#x}: gpurec {a.get(at)}, PyTorch {b.get(at)}" for at in sorted(a.keys() | b.keys()) if a.get(at) != b.get(at)]


def read_note(dump):
    """Returns the time and the message of the note about the state of device 0, or None."""
    for line in dump.splitlines():
        if line.startswith("note ") and "name=allocator_state" in line and " device=" not in line:
            message = re.search(r"message=(.*)", line)[1]
            text = message[message.index("{"): message.rindex("}") + 1].replace('\\"', '"')
            return int(re.search(r"start_ns=(\d+)", line)[1]), json.loads(text)
    return None


class Setting:
    """A model with a setting of expandable_segments, and the results of its attaches."""

    def __init__(self, model, expandable, options):
        self.options, self.model, self.conf = options, model, f"expandable_segments:{expandable}"
        self.name = f"{model} {self.conf}"
        self.folder = pathlib.Path(options.work) / f"{model}-{expandable}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.equal, self.refused, self.wrong, self.reads, self.tries, self.blocks = 0, [], [], [], [], []

    def run(self):
        env = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": self.conf, "PYTORCH_ALLOC_CONF": self.conf}
        program = [sys.executable, self.options.program, "--model", self.model, "--folder", self.folder, "--seconds", TRAIN_SECONDS]
        with trainings, Child(program, self.folder / "training.log", env=env) as job:
            job.wait_for("ready", (self.folder / "ready").exists, START_SECONDS)
            for n in range(self.options.attaches):
                job.check()
                try:
                    self.attach(n, job.pid)
                except Failed as e:
                    self.wrong.append(f"attach {n}: {e}")

    def attach(self, n, pid):
        with recordings:
            at_ns = self.record(n, pid)
        if at_ns is not None:
            self.compare(n, at_ns)

    def execute(self, *arguments):
        """Runs gpurec, and returns its output."""
        log, output = self.folder / "gpurec.log", self.folder / "gpurec.out"
        child_processes.run([self.options.gpurec, *arguments], log, COMMAND_SECONDS, output)
        return output.read_text(errors="replace")

    def record(self, n, pid):
        """Attaches once. Returns the time of the reading in Unix ns, or None if there is none."""
        time.sleep(random.uniform(0, 0.3))
        recording = self.folder / "attach.parquet"
        self.execute("record", "-p", pid, "-d", f"{RECORD_SECONDS}s", "--stacks=off", "--max-overhead=off", "--force", "-o", recording)
        lost = re.search(r"([\d,]+) lost", (self.folder / "gpurec.log").read_text(errors="replace"))
        self.lost = lost[1] if lost else "?"
        self.dump = self.execute("dump", recording)
        note = read_note(self.dump)
        if note is None:
            self.wrong.append(f"attach {n}: no note allocator_state")
            return None
        at_ns, fact = note
        if "refused" in fact:
            self.refused.append(fact["refused"])
            return None
        self.reads.append(fact["read_ns"] / 1e6)
        self.tries.append(fact["tries"])
        self.blocks.append(fact["blocks"])
        return at_ns

    def compare(self, n, at_ns):
        """Compares with a random snapshot between the reading and the end of the recording."""
        end_ns = int(re.search(r'"end_ns": (\d+)', self.dump)[1])
        times = [int(p.stem) for p in self.folder.glob("*.pickle") if p.stem.isdigit()]
        times = [t for t in times if at_ns < t < end_ns - 10_000_000]
        if not times:
            self.wrong.append(f"attach {n}: no snapshot in the recording")
            return
        at, recording, ours = random.choice(times), self.folder / "attach.parquet", self.folder / "ours.snapshot"
        self.execute("analyze", "torch-snapshot", "--at", at, "--force", "-o", ours, recording)
        theirs = self.folder / f"{at}.pickle"
        wrong = differences(pickle.loads(ours.read_bytes()), pickle.loads(theirs.read_bytes()))
        if not wrong:
            self.equal += 1
            return
        self.wrong.append(f"attach {n}, {(at - at_ns) / 1e9:.3f} s after the reading, {self.lost} lost: {len(wrong)} segments differ; "
                          + "; ".join(wrong[:2])[:4000])
        shutil.copy(recording, self.folder / f"wrong-{n}.parquet")
        shutil.copy(theirs, self.folder / f"wrong-{n}.pickle")

    def report(self):
        total = self.equal + len(self.refused) + len(self.wrong)
        print(f"{self.name}: {total} attaches, {self.equal} equal, {len(self.refused)} refused, {len(self.wrong)} wrong")
        if self.reads:
            print(f"  blocks {min(self.blocks)} to {max(self.blocks)}; a reading took {min(self.reads):.2f} to {max(self.reads):.2f} ms, "
                  f"median {statistics.median(self.reads):.2f}; tries {sorted(self.tries)}")
        for text, count in collections.Counter(self.refused).most_common(EXAMPLES):
            print(f"  refused {count} times: {text}")
        for text in self.wrong[:EXAMPLES]:
            print("  wrong: " + text[:900])
        return not self.wrong and total == self.options.attaches and len(self.refused) <= MAX_REFUSED * total

    def result(self):
        return {"equal": self.equal, "refused": self.refused, "wrong": self.wrong, "read_ms": self.reads, "tries": self.tries, "blocks": self.blocks}


def test(options):
    """Runs all models and settings. Returns whether they passed, and the results by name."""
    settings = [Setting(model, expandable, options) for model in options.model for expandable in (False, True)]
    errors = {}

    def run(setting):
        try:
            setting.run()
        except Exception as e:
            errors[setting.name] = f"{type(e).__name__}: {e}"

    threads = [threading.Thread(target=run, args=[s], daemon=True) for s in settings]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    passed = all([s.report() for s in settings])
    for name, text in errors.items():
        print(f"{name}: {text}", flush=True)
    return passed and not errors, {s.name: {**s.result(), "error": errors.get(s.name)} for s in settings}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpurec", default="build/bin/gpurec")
    parser.add_argument("--attaches", type=int, default=20)
    parser.add_argument("--model", choices=MODELS, action="append", help="default: transformer")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "earlier-blocks"))
    parser.add_argument("--program", default=str(PROGRAM))
    options = parser.parse_args()
    options.model = options.model or MODELS[:1]
    options.gpurec = os.path.abspath(options.gpurec)
    child_processes.exit_at_signals()
    try:
        passed, results = test(options)
    finally:
        child_processes.kill_all()
    (pathlib.Path(options.work) / "results.json").write_text(json.dumps(results))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
