"""Measures the overhead of recorders for PyTorch training, in steps a second.

    bench_torch.py [-o FOLDER] [--modes default,auto,memory,light,cuda,nsys,torchprof] [--workloads mlp_small,gpt_train]

The speed of a machine varies, so each window is compared with the bare windows before and after it.
A bare window has no recorder. One process trains all the time, with windows in the order bare,
mode A, bare, mode B, …. Each round has another order of the modes. The ratio of a window is its
rate divided by the mean rate of its two bare neighbours. The window of a gpurec mode lies between
the message "attached" and the end of the recording.

nsys must start the process, and torch.profiler leaves CUPTI enabled. These two modes therefore use
separate processes in turn: one with a bare window and a window under torch.profiler, and one under
nsys.

Prints a Markdown table; with -o also writes results.json, windows.csv and the logs. Needs root,
PyTorch and a GPU. With --cpu-fake it needs neither PyTorch nor a GPU.
"""
import argparse
import csv
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WORKLOADS = os.path.join(ROOT, "examples", "workloads")
sys.path.insert(0, WORKLOADS)
import progress as p

SETTLE = 0.3  # seconds between turning a recorder on or off and the next window; --settle
EVERYTHING = "--max-overhead=off"  # record every call, at any cost
# The modes of gpurec and their flags. "default" has the default limit of the overhead, "limit" and
# "limitcuda" have 3 %. "memory" records only memory calls. All other modes record everything:
# "light" allocator block sizes and totals, "cuda" no events of PyTorch's allocator, "auto", "full",
# "fp" and "off" stacks by these values of --stacks.
GPUREC_FLAGS = {"default": [], "auto": ["--stacks=auto", EVERYTHING], "memory": ["--record=memory"],
                "light": ["--allocator=light", EVERYTHING], "cuda": ["--allocator=off", EVERYTHING],
                "limit": ["--max-overhead=3%"], "limitcuda": ["--max-overhead=3%", "--allocator=off"],
                "full": ["--stacks=full", EVERYTHING], "fp": ["--stacks=fp", EVERYTHING], "off": ["--stacks=off", EVERYTHING]}
GPUREC_MODES = tuple(GPUREC_FLAGS)
OTHER_MODES = ("nsys", "torchprof")
TITLES = {"bare": "bare", "nsys": "nsys `-t cuda`", "torchprof": "torch.profiler `with_stack=True`",
          **{m: f"gpurec `{' '.join(flags)}`" for m, flags in GPUREC_FLAGS.items()}, "default": "gpurec, default flags"}


class Failed(Exception):
    """A window could not be measured; the message is the reason."""


def say(text):
    print(f"{time.monotonic() - BEGIN:5.0f}s {text}", file=sys.stderr, flush=True)


def last_words(path):
    """Returns the last error in a log, else its last non-empty line."""
    with open(path, errors="replace") as f:
        lines = [re.sub(r"^ *[\d.]+ (?=gpurec: )", "", line.strip()) for line in f if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it printed nothing"])[-1][:300]


def start(command, **how):
    """Starts a command in a new process group, so that its children can be killed with it."""
    try:
        return subprocess.Popen(command, start_new_session=True, **how)
    except OSError as problem:
        raise Failed(f"start {command[0]}: {problem.strerror}") from None


class Worker:
    """A training process. prefix is a command that starts it, such as nsys profile."""

    def __init__(self, bench, workload, label, prefix=()):
        self.log = os.path.join(bench.logs, f"{workload}-{label}.log")
        path = os.path.join(bench.work, f"{workload}-{label}.progress")
        self.progress = p.Progress(path, create=True)
        command = [*prefix, sys.executable, os.path.join(WORKLOADS, "steady.py"), workload,
                   "--progress", path, "--warm-up", str(bench.options.warm_up)]
        if bench.options.cpu_fake:
            command.append("--cpu-fake")
        begin = time.monotonic()
        with open(self.log, "w") as log:
            self.process = start(command, stdout=log, stderr=subprocess.STDOUT, env=bench.env)
        try:
            self.wait_for(p.STEADY, bench.options.start_timeout)
        except Failed:
            self.end()
            raise
        self.start_s = time.monotonic() - begin

    def wait_for(self, state, timeout):
        end = time.monotonic() + timeout
        while self.progress.words[p.STATE] != state:
            self.check()
            if time.monotonic() > end:
                raise Failed(f"the workload was not ready after {timeout:.0f} s: {last_words(self.log)}")
            time.sleep(0.01)

    def check(self):
        if self.process.poll() is not None:
            raise Failed(f"the workload ended with {self.process.returncode}: {last_words(self.log)}")

    def command(self, command, state, timeout=60):
        self.progress.words[p.COMMAND] = command
        self.wait_for(state, timeout)

    def window(self, seconds):
        """Waits SETTLE seconds, measures a window, and returns the steps a second."""
        time.sleep(SETTLE)
        begin = time.monotonic_ns()
        time.sleep(seconds)
        rate = self.progress.rate(begin, time.monotonic_ns())
        self.check()
        if rate is None:
            raise Failed(f"no step was finished in {seconds:.1f} s")
        return rate

    def quit(self, timeout):
        """Asks the process to exit and waits, so that nsys can write its report."""
        self.progress.words[p.COMMAND] = p.QUIT
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"the process did not exit within {timeout:.0f} s: {last_words(self.log)}") from None
        finally:
            self.end()
        if self.process.returncode != 0:
            raise Failed(f"the process exited with status {self.process.returncode}: {last_words(self.log)}")

    def end(self):
        """Kills the process and its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


# Patterns of the values that gpurec record prints at its end. Values that a version does not print
# are omitted.
FACTS = {
    "attach_inner_s": r"own cost: attach ([\d.]+(?:µs|ms|s|m[\d.]+s))",
    "detach_s": r"detach ([\d.]+(?:µs|ms|s|m[\d.]+s))",
    "cpu_percent": r"([\d.]+) % of a core",
    "rss": r"([\d.,]+ [KMGT]?i?B) memory",
    "bytes_a_call": r"([\d.]+) bytes a call",
    "bpf_ns": r"([\d.]+) ns in BPF a probe hit",
    "calls": r"([\d,]+) calls in [\d.]+ s",
    "lost": r"([\d,]+) lost ->",
}


def seconds_of(text):
    """Returns the seconds of a duration in Go's format, such as 1m2.5s."""
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60}
    return sum(float(n) * units[u] for n, u in re.findall(r"([\d.]+)(µs|ms|s|m)", text))


def mebibytes_of(text):
    n, unit = text.replace(",", "").split()
    return float(n) * {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}[unit]


def facts_of(log):
    facts = {}
    for key, pattern in FACTS.items():
        found = re.findall(pattern, log)
        if not found:
            continue
        text = found[-1]
        if key.endswith("_s"):
            facts[key] = seconds_of(text)
        elif key == "rss":
            facts["rss_mib"] = mebibytes_of(text)
        else:
            facts[key] = float(text.replace(",", ""))
    return facts


class Recording:
    """A gpurec process that records a training process for some seconds."""

    def __init__(self, bench, mode, pid, seconds, recording, log):
        self.attached = threading.Event()
        self.ended = threading.Event()
        self.lines, self.log = [], log
        self.seconds = seconds
        self.begin = time.monotonic()
        self.attached_at = None
        self.process = start(
            [bench.options.gpurec, "record", "-p", str(pid), "-d", f"{seconds:.2f}s", *GPUREC_FLAGS[mode],
             "-o", recording, "--force"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=bench.env, text=True, errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            at = time.monotonic()
            self.lines.append(f"{at - self.begin:8.3f} {line}")
            if self.attached_at is None and re.search(r"attached to .* probes", line):
                self.attached_at = at
                self.attached.set()
        self.ended.set()
        self.attached.set()

    def wait_attached(self, timeout):
        self.attached.wait(timeout)
        if self.attached_at is None:
            raise Failed(self.words() if self.ended.is_set() else f"not attached after {timeout:.0f} s")

    def words(self):
        with open(self.log, "w") as f:
            f.writelines(self.lines)
        return last_words(self.log)

    def finish(self, timeout):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"gpurec did not end within {timeout:.0f} s") from None
        self.reader.join(5)
        if self.process.returncode != 0:
            raise Failed(self.words())

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.words()


class Bench:
    def __init__(self, options):
        self.options = options
        self.work = tempfile.mkdtemp(prefix="bench-torch-")
        self.logs = os.path.join(options.output, "logs") if options.output else os.path.join(self.work, "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.env = dict(os.environ, PYTHONUNBUFFERED="1")
        if options.cpu_fake:
            self.env["LD_LIBRARY_PATH"] = os.path.join(ROOT, "build", "simcuda")
        self.windows = []  # every window: workload, mode, round, rate, ratio, facts
        self.failures = {}  # (workload, mode) → reasons
        self.warnings = {}  # warning of gpurec → modes with it, whose results may be wrong
        self.recordings = {}  # (workload, mode) → the last recording

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def fail(self, workload, mode, problem):
        self.failures.setdefault((workload, mode), []).append(str(problem))
        say(f"{workload} {mode}: failed: {problem}")

    def note(self, workload, mode, turn, rate, before=None, after=None, facts=None):
        """Stores the rate of a window; before and after are the rates of its bare neighbours."""
        bare = [b for b in (before, after) if b]
        ratio = rate / statistics.mean(bare) if bare else None
        self.windows.append({"workload": workload, "mode": mode, "round": turn, "rate": rate,
                             "ratio": ratio, **(facts or {})})
        about = f", {100 * ratio:.1f} % of bare" if ratio else ""
        say(f"{workload} {mode}: {rate:.2f} it/s{about}")

    def run(self, workload, deadline):
        waiting = None
        try:
            waiting = self.processes(workload, deadline)
        except Failed as problem:
            self.fail(workload, "bare", problem)
        try:
            self.attaching(workload, deadline, waiting)
        except Failed as problem:
            self.fail(workload, "bare", problem)

    def processes(self, workload, deadline):
        """Measures nsys and torch.profiler in separate processes, in turn with bare windows.
        Returns the last nsys window if its second bare neighbour is still missing."""
        modes, seconds = self.options.modes, self.options.window
        waiting = None
        if not {"nsys", "torchprof"} & set(modes):
            return None
        share = time.monotonic() + 0.5 * (deadline - time.monotonic())
        for turn in range(self.options.process_rounds):
            begin = time.monotonic()
            bare = self.bare_process(workload, turn)
            if waiting:
                self.note(workload, "nsys", *waiting, after=bare)
                waiting = None
            if "nsys" in modes:
                try:
                    waiting = turn, self.under_nsys(workload, turn), bare
                except Failed as problem:
                    self.fail(workload, "nsys", problem)
            if time.monotonic() + (time.monotonic() - begin) > share:
                break
        if waiting and not set(modes) & set(GPUREC_MODES):
            self.note(workload, "nsys", *waiting)
            waiting = None
        return waiting

    def bare_process(self, workload, turn):
        """Measures a bare window, then a window under torch.profiler. Returns the bare rate."""
        worker = Worker(self, workload, f"process-{turn}")
        try:
            bare = worker.window(self.options.window)
            self.note(workload, "bare", turn, bare, facts={"process": "own"})
            if "torchprof" in self.options.modes:
                try:
                    worker.command(p.PROFILE, p.PROFILED)
                    rate = worker.window(self.options.window)
                    # Compare only with the bare window before: CUPTI stays enabled after the
                    # profiler.
                    self.note(workload, "torchprof", turn, rate, bare)
                except Failed as problem:
                    self.fail(workload, "torchprof", problem)
            return bare
        finally:
            worker.end()  # kill the process: the profiler would spend seconds on writing an unused trace

    def under_nsys(self, workload, turn):
        nsys = self.options.nsys
        if nsys is None:
            raise Failed("nsys is not on the PATH; set it with --nsys PATH")
        report = os.path.join(self.work, f"{workload}-{turn}")
        prefix = [nsys, "profile", "-t", "cuda", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", report]
        worker = Worker(self, workload, f"nsys-{turn}", prefix)
        try:
            rate = worker.window(self.options.window)
            worker.quit(90)
            return rate
        finally:
            worker.end()

    def attaching(self, workload, deadline, waiting):
        """Measures the gpurec modes in one process, in turn with bare windows."""
        modes = [m for m in self.options.modes if m in GPUREC_MODES]
        if not modes:
            return
        worker = Worker(self, workload, "attached")
        try:
            bare = worker.window(self.options.window)
            self.note(workload, "bare", 0, bare, facts={"process": "attached"})
            if waiting:
                self.note(workload, "nsys", *waiting, after=bare)
            for turn in range(self.options.rounds):
                begin = time.monotonic()
                order = modes[turn % len(modes):] + modes[:turn % len(modes)]
                for mode in order:
                    bare = self.attached_window(worker, workload, mode, turn, bare)
                modes = [m for m in modes if len(self.failures.get((workload, m), [])) < 2]
                if not modes:
                    break
                if turn + 1 < self.options.rounds and time.monotonic() + 1.05 * (time.monotonic() - begin) > deadline:
                    say(f"{workload}: {turn + 1} of {self.options.rounds} rounds, no time for more")
                    break
        finally:
            worker.end()

    def attached_window(self, worker, workload, mode, turn, before):
        """Measures a recorded window and the bare window after it. Returns the bare rate."""
        seconds = self.options.window
        recording = os.path.join(self.work, f"{workload}-{mode}-{turn}.parquet")
        log = os.path.join(self.logs, f"{workload}-{mode}-{turn}.gpurec.log")
        r, rate = None, None
        try:
            r = Recording(self, mode, worker.process.pid, SETTLE + seconds + 0.3, recording, log)
            r.wait_attached(60)
            rate = worker.window(seconds)
            if r.ended.is_set() or time.monotonic() > r.attached_at + r.seconds:
                raise Failed("the recording ended before the window")
            r.finish(60)
        except Failed as problem:
            self.fail(workload, mode, problem)
            rate = None
        finally:
            if r:
                r.close()
        after = worker.window(seconds)
        if rate is not None:
            with open(log) as f:
                text = f.read()
            facts = facts_of(text)
            for warning in re.findall(r"gpurec: warning: (.*)", text):
                self.warnings.setdefault(warning, set()).add(f"{workload} {mode}")
            facts["attach_s"] = r.attached_at - r.begin
            self.note(workload, mode, turn, rate, before, after, facts)
            self.recordings[workload, mode] = recording
        self.note(workload, "bare", turn + 1, after, facts={"process": "attached"})
        return after

    def summaries(self):
        """Returns the output of gpurec analyze summary for the last recording of every mode."""
        results = {}
        for (workload, mode), recording in self.recordings.items():
            done = subprocess.run([self.options.gpurec, "analyze", "summary", "--format", "json", recording],
                                  capture_output=True, text=True, env=self.env)
            try:
                results[f"{workload} {mode}"] = json.loads(done.stdout)
            except ValueError:
                results[f"{workload} {mode}"] = {"error": done.stderr.strip()[-300:]}
        return results

    def rows(self, workload, summaries):
        """Yields one table row per mode, "bare" first."""
        for mode in ["bare", *self.options.modes]:
            windows = [w for w in self.windows if (w["workload"], w["mode"]) == (workload, mode)]
            row = {"workload": workload, "mode": mode, "windows": len(windows),
                   "failed": self.failures.get((workload, mode), [])}
            if mode == "bare":
                ratios = bare_ratios(windows)
            else:
                ratios = [w["ratio"] for w in windows if w["ratio"] is not None]
            if windows:
                row["rate"] = statistics.median(w["rate"] for w in windows)
            if ratios:
                row["ratio"], row["ratio_min"], row["ratio_max"] = statistics.median(ratios), min(ratios), max(ratios)
            for key in ("attach_s", "attach_inner_s", "detach_s", "cpu_percent", "rss_mib", "bpf_ns", "bytes_a_call"):
                values = [w[key] for w in windows if key in w]
                if values:
                    row[key] = statistics.median(values)
            for key in ("calls", "lost"):
                values = [w[key] for w in windows if key in w]
                if values:
                    row[key] = sum(values)
            shares = summaries.get(f"{workload} {mode}", {}).get("quality", {}).get("stacks_pct") or {}
            row["stacks"] = ", ".join(f"{status} {share:.1f}" for status, share in shares.items())
            yield row


def bare_ratios(windows):
    """Returns the ratio of each bare window to its bare neighbours: the variation of the machine."""
    rates = [w["rate"] for w in windows if w["process"] == "attached"]
    return [rates[i] / statistics.mean([rates[i - 1], rates[i + 1]]) for i in range(1, len(rates) - 1)]


def table(rows):
    """Returns the rows as a Markdown table."""
    titles = ["workload", "mode", "it/s", "of bare, median", "min … max", "windows", "attach s", "calls", "lost",
              "CPU % of a core", "RSS MiB", "BPF ns a hit", "stacks, %"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]

    def number(row, key, form):
        return form.format(row[key]) if key in row else ""

    for row in rows:
        spread = f"{100 * row['ratio_min']:.1f} … {100 * row['ratio_max']:.1f} %" if "ratio" in row else ""
        windows = str(row["windows"])
        if row["failed"]:
            windows += f", {len(row['failed'])} failed: {row['failed'][-1]}".replace("|", "/")
        ratio = f"{100 * row['ratio']:.1f} %" if "ratio" in row else ""
        cells = [row["workload"], TITLES[row["mode"]], number(row, "rate", "{:.2f}"), ratio, spread, windows,
                 number(row, "attach_s", "{:.2f}"), number(row, "calls", "{:,.0f}"), number(row, "lost", "{:,.0f}"),
                 number(row, "cpu_percent", "{:.1f}"), number(row, "rss_mib", "{:.0f}"), number(row, "bpf_ns", "{:.0f}"),
                 row["stacks"]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine():
    """Returns facts about the machine and its software."""
    facts = {"time": time.strftime("%Y-%m-%d %H:%M:%S %z"), "kernel": platform.release(), "cores": os.cpu_count(),
             "python": platform.python_version()}
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True)
        facts["gpu"] = done.stdout.strip()
    return facts


def find_nsys(text):
    if text == "none":
        return None
    if text != "auto":
        return text
    found = shutil.which("nsys")
    for top in ("/opt", "/usr"):
        if found:
            break
        done = subprocess.run(["find", top, "-name", "nsys", "-type", "f", "-perm", "-u+x"], capture_output=True, text=True)
        found = next(iter(done.stdout.split("\n")), None) or None
    return found


def estimate(options):
    """Returns the estimated seconds of the whole run, with start and attach times of an H200."""
    start = 1 if options.cpu_fake else 14
    start += options.warm_up
    window = SETTLE + options.window
    attaching = len([m for m in options.modes if m in GPUREC_MODES])
    one = 0
    if attaching:
        one += start + window + options.rounds * attaching * (2 * window + 0.3 + 4)
    if {"nsys", "torchprof"} & set(options.modes):
        one += options.process_rounds * (start + window)
    if "torchprof" in options.modes:
        one += options.process_rounds * (window + 2)
    if "nsys" in options.modes:
        one += options.process_rounds * (1.3 * start + window + 8)
    return one * len(options.workloads)


def main():
    global BEGIN, SETTLE
    BEGIN = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: [x for x in text.split(",") if x]
    parser.add_argument("-o", "--output", help="folder for results.json, windows.csv and logs")
    parser.add_argument("--modes", type=listed, default=[*GPUREC_MODES, *OTHER_MODES])
    parser.add_argument("--workloads", type=listed, default=["mlp_small", "gpt_train"])
    parser.add_argument("--rounds", type=int, default=5, help="maximum number of rounds over the gpurec modes")
    parser.add_argument("--process-rounds", type=int, default=2, help="maximum number of rounds of nsys and torch.profiler")
    parser.add_argument("--window", type=float, default=2.5, help="length of a window in seconds")
    parser.add_argument("--settle", type=float, default=SETTLE, help="seconds between turning a recorder on or off and the next window")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds of steps before the first window of a process")
    parser.add_argument("--budget", type=float, default=530, help="maximum seconds of the whole run; later rounds are skipped")
    parser.add_argument("--start-timeout", type=float, default=120)
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(ROOT, "build", "bin", "gpurec")))
    parser.add_argument("--nsys", default="auto", help="path of nsys, auto or none")
    parser.add_argument("--cpu-fake", action="store_true", help="run a loop on simcuda instead of PyTorch")
    options = parser.parse_args()
    SETTLE = options.settle
    unknown = [m for m in options.modes if m not in TITLES or m == "bare"]
    if unknown:
        parser.error(f"--modes: {', '.join(unknown)}: unknown; the modes are {', '.join([*GPUREC_MODES, *OTHER_MODES])}")
    if options.nsys == "none":
        options.modes = [m for m in options.modes if m != "nsys"]
    options.nsys = find_nsys(options.nsys) if "nsys" in options.modes else None
    if options.output:
        os.makedirs(options.output, exist_ok=True)
    say(f"up to {estimate(options):.0f} s if attaching takes 3 s; rounds beyond {options.budget:.0f} s are skipped")

    # On SIGTERM (a time limit) the script still prints the results so far.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    bench = Bench(options)
    summaries = {}
    try:
        try:
            for i, workload in enumerate(options.workloads):
                left = BEGIN + options.budget - time.monotonic()
                bench.run(workload, time.monotonic() + left / (len(options.workloads) - i))
            summaries = bench.summaries()
        except KeyboardInterrupt:
            say("ended early")
        rows = [row for workload in options.workloads for row in bench.rows(workload, summaries)]
        print(table(rows))
        print(f"\nMedians; window {options.window:g} s; calls and lost are sums. The row \"bare\" compares bare windows "
              "with their bare neighbours.")
        for warning, modes in bench.warnings.items():
            print(f"\ngpurec warned in {', '.join(sorted(modes))}: {warning}")
        if options.output:
            write(options, rows, bench, summaries)
    finally:
        bench.close()
    return 0 if rows and all(row["windows"] for row in rows if row["mode"] == "bare") else 1


def write(options, rows, bench, summaries):
    with open(os.path.join(options.output, "results.json"), "w") as f:
        json.dump({"machine": machine(), "options": vars(options), "rows": rows, "windows": bench.windows,
                   "warnings": {w: sorted(m) for w, m in bench.warnings.items()}, "summaries": summaries}, f, indent=1)
    keys = list(dict.fromkeys(k for w in bench.windows for k in w))
    with open(os.path.join(options.output, "windows.csv"), "w", newline="") as f:
        out = csv.DictWriter(f, keys)
        out.writeheader()
        out.writerows(bench.windows)


if __name__ == "__main__":
    sys.exit(main())
