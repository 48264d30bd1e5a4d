"""Compares the blocks that gpurec knows of a running training with PyTorch's own snapshots.

    test_earlier_blocks.py [--gpurec build/bin/gpurec] [--attaches 20] [--work FOLDER]

Needs root, a GPU and PyTorch. For each setting of expandable_segments, it attaches to a training that runs already. The
blocks from before the recording, brought forward by the recorded events, must equal torch.cuda.memory_snapshot() at a
later time: segments, blocks, sizes, requested sizes, states, streams and pools. A reading may be refused in at most 2 of
20 attaches, and none may be wrong. The two settings are tested at the same time.
"""
import argparse
import json
import os
import pathlib
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SEGMENT = ["device", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type", "segment_pool_id", "is_expandable"]
RECORD_SECONDS = 2
MAX_REFUSED = 0.1  # of the attaches


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
    """One setting of expandable_segments, and the results of its attaches."""

    def __init__(self, expandable, options):
        self.options, self.name = options, f"expandable_segments:{expandable}"
        self.folder = pathlib.Path(options.work) / str(expandable)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.equal, self.refused, self.wrong, self.reads, self.tries, self.blocks = 0, [], [], [], [], []

    def run(self):
        env = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": self.name, "PYTORCH_ALLOC_CONF": self.name}
        program = [sys.executable, self.options.program, "--folder", str(self.folder), "--seconds", "600"]
        job = subprocess.Popen(program, env=env)
        try:
            while not (self.folder / "ready").exists():
                if job.poll() is not None:
                    raise RuntimeError("the training has ended")
                time.sleep(0.1)
            for n in range(self.options.attaches):
                self.attach(n, job.pid)
        finally:
            job.kill()
            job.wait()

    def attach(self, n, pid):
        time.sleep(random.uniform(0, 0.3))
        recording = str(self.folder / "attach.parquet")
        record = [self.options.gpurec, "record", "-p", str(pid), "-d", f"{RECORD_SECONDS}s", "--stacks=off", "--max-overhead=off", "--force", "-o", recording]
        done = subprocess.run(record, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        note = read_note(subprocess.run([self.options.gpurec, "dump", recording], capture_output=True, text=True).stdout)
        if note is None:
            self.wrong.append(f"attach {n}: no note allocator_state")
            return
        at_ns, fact = note
        if "refused" in fact:
            self.refused.append(fact["refused"])
            return
        self.reads.append(fact["read_ns"] / 1e6)
        self.tries.append(fact["tries"])
        self.blocks.append(fact["blocks"])
        lost = re.search(r"([\d,]+) lost", done.stderr)
        self.compare(n, recording, at_ns, lost[1] if lost else "?")

    def compare(self, n, recording, at_ns, lost):
        """Compares with a random snapshot between the reading and the end of the recording."""
        meta = subprocess.run([self.options.gpurec, "dump", recording], capture_output=True, text=True).stdout
        end_ns = int(re.search(r'"end_ns": (\d+)', meta)[1])
        times = [int(p.stem) for p in self.folder.glob("*.pickle") if p.stem.isdigit()]
        times = [t for t in times if at_ns < t < end_ns - 10_000_000]
        if not times:
            self.wrong.append(f"attach {n}: no snapshot in the recording")
            return
        at = random.choice(times)
        ours = str(self.folder / "ours.snapshot")
        made = subprocess.run([self.options.gpurec, "analyze", "torch-snapshot", "--at", str(at), "--force", "-o", ours, recording], capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(made.stderr)
        wrong = differences(pickle.load(open(ours, "rb")), pickle.load(open(self.folder / f"{at}.pickle", "rb")))
        if not wrong:
            self.equal += 1
            return
        self.wrong.append(f"attach {n}, {(at - at_ns) / 1e9:.3f} s after the reading, {lost} lost: {len(wrong)} segments differ; " + "; ".join(wrong[:2]))
        shutil.copy(recording, self.folder / f"wrong-{n}.parquet")
        shutil.copy(self.folder / f"{at}.pickle", self.folder / f"wrong-{n}.pickle")

    def report(self):
        total = self.equal + len(self.refused) + len(self.wrong)
        print(f"{self.name}: {total} attaches, {self.equal} equal, {len(self.refused)} refused, {len(self.wrong)} wrong")
        if self.reads:
            print(f"  blocks {min(self.blocks)} to {max(self.blocks)}; a reading took {min(self.reads):.2f} to {max(self.reads):.2f} ms; tries {sorted(self.tries)}")
        for text in self.refused + self.wrong:
            print("  " + text[:1500])
        return not self.wrong and total == self.options.attaches and len(self.refused) <= MAX_REFUSED * total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurec", default="build/bin/gpurec")
    parser.add_argument("--attaches", type=int, default=20)
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "earlier-blocks"))
    parser.add_argument("--program", default=str(pathlib.Path(__file__).parent.parent / "examples/workloads/snapshots.py"))
    options = parser.parse_args()
    settings = [Setting(expandable, options) for expandable in (False, True)]
    errors = []

    def run(setting):
        try:
            setting.run()
        except Exception as e:
            errors.append(f"{setting.name}: {e}")

    threads = [threading.Thread(target=run, args=[s]) for s in settings]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    passed = all([s.report() for s in settings])
    print(*errors, sep="\n")
    sys.exit(0 if passed and not errors else 1)


main()
