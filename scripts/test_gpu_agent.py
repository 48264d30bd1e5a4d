"""Tests gpurec agent on a GPU: incidents next to a training, and what the agent costs the training.

    test_gpu_agent.py [--gpurec build/bin/gpurec] [--pairs 12] [--window 6] [--work FOLDER]

Needs root, a GPU, nvcc and PyTorch, and about 6 minutes. A training runs all the time. In the first part an agent
records the node while a process runs out of memory, another hangs, and a third uses freed memory (error 700, Xid 31).
Each must have one capture whose findings name the cause, at most 60 s after the incident or the end of its window. In
the second part the agent runs and does not run, in turn, and the steps a second are compared.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples/workloads"), str(ROOT / "scripts")]
import progress as p  # noqa: E402

HANG_SECONDS = 10
CONFIG = """
state: {state}
ring: {{time: 5m}}
captures: {{per_hour: 20}}
record: {{allocator: "{allocator}"}}
triggers:
  oom: {{before: 1m, after: 5s}}
  xid: {{before: 1m, after: 5s}}
  sticky: {{before: 1m, after: 5s}}
  hang: {{for: {hang}s, before: 1m, after: 5s}}
  exit: {{enabled: false}}
"""
# The place that the findings of an incident must name.
EXPECTED = {"oom": "keep_tensors", "hang": "wait_forever", "use-after-free": "run_mixed"}


class Agent:
    def __init__(self, options, name, allocator="off"):
        self.gpurec, self.state = options.gpurec, options.work / name
        config = options.work / f"{name}.yaml"
        config.write_text(CONFIG.format(state=self.state, hang=HANG_SECONDS, allocator=allocator))
        self.log = open(options.work / f"{name}.log", "w")
        self.process = subprocess.Popen([self.gpurec, "agent", "--config", config], stdout=self.log, stderr=self.log)
        end = time.monotonic() + 60
        while not self.status():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the agent did not start: {pathlib.Path(self.log.name).read_text()[-500:]}")
            time.sleep(0.05)

    def status(self):
        command = [self.gpurec, "agent", "status", "--format", "json", "--socket", self.state / "agent.sock"]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def captures(self):
        return {f.name.removesuffix(".findings.jsonl"): f for f in self.state.glob("captures/*.findings.jsonl")
                if not f.name.startswith("refused")}

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Training:
    def __init__(self, options, workload):
        path = options.work / "training.progress"
        self.progress = p.Progress(path, create=True)
        self.process = subprocess.Popen([sys.executable, ROOT / "examples/workloads/steady.py", workload, "--progress", path],
                                        stdout=subprocess.DEVNULL)
        while self.progress.words[p.STATE] != p.STEADY:
            if self.process.poll() is not None:
                raise SystemExit("the training did not start")
            time.sleep(0.05)

    def rate(self, seconds):
        begin = time.monotonic_ns()
        time.sleep(seconds)
        return self.progress.rate(begin, time.monotonic_ns())


def provoke(agent, name, command):
    """Runs a command with an incident, and checks the capture. Returns whether it is right."""
    before = set(agent.captures())
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": name, "RANK": "0", "WORLD_SIZE": "1"}
    begin = time.time()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    limit = time.monotonic() + 60 + HANG_SECONDS + 15
    while not (new := set(agent.captures()) - before) and time.monotonic() < limit:
        time.sleep(0.2)
    took = time.time() - begin
    if name == "hang":
        process.kill()
    process.communicate()
    time.sleep(3)  # a second capture would follow
    new = set(agent.captures()) - before
    if len(new) != 1:
        print(f"{name}: {len(new)} captures after {took:.0f} s: {sorted(new)}")
        return False
    (found,) = new
    lines = [json.loads(line) for line in agent.captures()[found].read_text().splitlines()]
    right = any(EXPECTED[name] in json.dumps(line) for line in lines)
    print(f"{name}: capture {found} {took:.1f} s after the start of the program; {len(lines)} lines, {EXPECTED[name]} "
          f"{'found' if right else 'NOT FOUND'}")
    for line in lines[:6]:
        print("   ", json.dumps(line)[:420])
    return right


def compare(options, training):
    ratios = []
    before = training.rate(options.window)
    for pair in range(options.pairs):
        agent = Agent(options, f"cost-{pair}")
        time.sleep(3)  # the first seconds of a recording cost more
        rate = training.rate(options.window)
        lost = agent.status()
        agent.stop()
        time.sleep(1)
        after = training.rate(options.window)
        ratios.append(2 * rate / (before + after))
        print(f"pair {pair}: {before:.2f} {rate:.2f} {after:.2f} steps/s, ratio {ratios[-1]:.4f}", flush=True)
        before = after
    ratios.sort()
    # The interval of the order statistics 3 and 10 of 12 has a confidence of 96 %.
    print(f"{options.workload}: steps/s under the agent {statistics.median(ratios):.4f} of bare "
          f"(95 %: {ratios[2]:.4f} to {ratios[-3]:.4f}), {len(ratios)} pairs; last status {json.dumps(lost)[:600]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpurec", default=str(ROOT / "build/bin/gpurec"))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--window", type=float, default=6)
    parser.add_argument("--workload", default="gpt_train")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/gpu-agent"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    pointers = options.work / "pointers"
    subprocess.run(["nvcc", "-arch=sm_90", "-std=c++17", "-O1", "-g", "-o", pointers, ROOT / "examples/cuda-pointers/pointers.cu"],
                   check=True)
    training = Training(options, options.workload)
    agent = Agent(options, "incidents")
    incidents = str(ROOT / "examples/workloads/incidents.py")
    wrong = [name for name, command in {
        "use-after-free": [pointers, "300", "use-after-free"],
        "oom": [sys.executable, incidents, "oom"],
        "hang": [sys.executable, incidents, "hang"],
    }.items() if not provoke(agent, name, command)]
    print("status", json.dumps(agent.status())[:1500])
    agent.stop()
    print("incidents:", f"wrong: {wrong}" if wrong else "all right", flush=True)
    if options.pairs:
        compare(options, training)
    training.process.kill()
    sys.exit(1 if wrong else 0)


main()
