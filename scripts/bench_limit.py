"""Measures whether --max-overhead holds, from the first moment of an attach.

    bench_limit.py [-o FILE.json] [--workloads gpt2,decode] [--modes default,allocator-off] [--repeat 10]
    bench_limit.py --timeline [--workloads gpt2] [--modes default]

A pair is a bare window, a recorded window and a bare window. The recorded window is the first 10 s
from the start of `gpurec record -p PID -d 10s`, so attaching is in it. Steps at the edges of a
window count in part. The ratio of a pair is the step rate of the recorded window divided by the mean
rate of both bare windows. The table has the median of the ratios and its interval from order
statistics.

--timeline prints the step rate of one recording in bins of 100 ms, or of one step if it is longer,
with the messages of gpurec and the changes of what it records.

Prints Markdown; -o also writes all single results. Needs root, PyTorch and a GPU. With --cpu-fake it
needs neither PyTorch nor a GPU; then the workload simtorch has events of an allocator.
"""
import argparse
import bisect
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import bench_torch
from bench_torch import Failed, Worker, facts_of, machine, say, start

# Workloads of the benchmark, and their names in models.py.
WORKLOADS = {"gpt2": "gpt2", "decode": "gpt_decode", "resnet50": "resnet50", "empty_cache": "empty_cache",
             "adam_per_tensor": "adam_per_tensor", "gpu_bound": "gpt2_large", "simtorch": "fake_tensors"}
# Flags of gpurec record for each mode; --flags adds modes.
MODES = {"default": [], "allocator-off": ["--allocator=off"], "allocator-light": ["--allocator=light"],
         "allocator-full": ["--allocator=full"], "limit-off": ["--max-overhead=off"], "limit-3": ["--max-overhead=3%"],
         "limit-10": ["--max-overhead=10%"], "memory": ["--record=memory"], "stacks-off": ["--stacks=off"]}
SETTLE_S = 0.5  # between the end of gpurec and the next bare window
ATTACHED = "attached to"  # in the message of gpurec after attaching


class Steps:
    """The finish times of a workload's steps. Interpolates the number of steps at a time."""

    def __init__(self, times):
        self.times = times

    def at(self, ns):
        """Returns the number of steps finished at a time; a step under way counts in part."""
        i = bisect.bisect_right(self.times, ns)
        if not 0 < i < len(self.times):
            raise Failed("no step was finished before or after the window")
        begin, end = self.times[i - 1], self.times[i]
        return i - 1 + (ns - begin) / (end - begin)

    def rate(self, begin_ns, end_ns):
        """Returns steps a second between two times."""
        return (self.at(end_ns) - self.at(begin_ns)) * 1e9 / (end_ns - begin_ns)

    def longest(self, begin_ns, end_ns):
        """Returns the length in ns of the longest step that ends between two times."""
        lengths = [b - a for a, b in zip(self.times, self.times[1:]) if begin_ns < b <= end_ns]
        return max(lengths, default=0)


def steps_until(worker, begin_ns, end_ns):
    """Waits for the first step that finishes after end_ns. Returns the steps since begin_ns."""
    limit = time.monotonic() + 60
    while True:
        worker.check()
        times = worker.progress.finish_times(begin_ns)
        if times and times[-1] > end_ns:
            return Steps(times)
        if time.monotonic() > limit:
            raise Failed("no step was finished in 60 s")
        time.sleep(0.01)


class Recorder:
    """A gpurec process. lines has its messages with their times (CLOCK_MONOTONIC, ns)."""

    def __init__(self, bench, mode, pid, path):
        command = [bench.options.gpurec, "record", "-p", str(pid), "-d", f"{bench.options.record:g}s", *bench.modes[mode],
                   "-o", path, "--force"]
        self.lines = []
        self.begin_ns = time.monotonic_ns()
        self.process = start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=bench.env, text=True,
                             errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic_ns(), line.rstrip()))

    def finish(self, timeout):
        """Waits for the end of gpurec. Returns its time."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"gpurec did not end within {timeout:.0f} s") from None
        end_ns = time.monotonic_ns()
        self.reader.join(5)
        if self.process.returncode != 0:
            raise Failed(f"gpurec ended with {self.process.returncode}: {(self.lines or [(0, 'no output')])[-1][1]}")
        return end_ns

    def facts(self):
        """Returns what gpurec printed about its own cost, and its warnings."""
        facts = facts_of("\n".join(text for _, text in self.lines))
        attached = [at for at, text in self.lines if ATTACHED in text]
        if attached:
            facts["attached_s"] = (attached[0] - self.begin_ns) / 1e9
        facts["warnings"] = [text.partition("warning: ")[2] for _, text in self.lines if "warning: " in text]
        return facts

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def read_recording(bench, path):
    """Returns what a recording says about its sampling.

    recorded_share: share of the recording in which each sampled part was recorded.
    switches: times (CLOCK_MONOTONIC, ns) at which a part was switched on or off.
    account: what the probes cost by the recording's own account, in percent for each second, and its mean and worst.
    notes: the texts of notes overhead.
    """
    summary = json.loads(gpurec(bench, "analyze", "summary", "--format", "json", path))
    begin, end = summary["window"]["from_ns"], summary["window"]["to_ns"]
    offset = time.time_ns() - time.monotonic_ns()
    rows = [json.loads(line) for line in gpurec(bench, "analyze", "export", "jsonl", "--kind", "note", path).splitlines()]
    found = {"length_s": (end - begin) / 1e9, "switches": [], "account": probe_cost(bench, path), "notes": []}
    for row in rows:
        at_ns = row["start_ns"] - offset
        if row["name"] == "sampling":
            change = json.loads(row["message"])
            found["switches"].append({"at_ns": at_ns, "part": f"{change['class']} {change['what']}",
                                      "recorded": change["recorded"]})
        elif row["name"] == "overhead":
            found["notes"].append({"at_ns": at_ns, "percent": row.get("value", 0), "text": row.get("message", "")})
    found["recorded_share"] = recorded_shares(found["switches"], begin - offset, end - offset)
    counters = summary.get("allocators") or []
    found["allocator_events"] = sum(c["allocs"] + c["frees"] for c in counters)
    return found


def probe_cost(bench, path):
    """Returns the account of the probes in the metadata of a recording, None if it has none."""
    dump = subprocess.Popen([bench.options.gpurec, "dump", path], stdout=subprocess.PIPE, text=True, env=bench.env)
    lines = []
    for line in dump.stdout:
        if not line.startswith("#"):
            break
        lines.append(line[2:])
    dump.kill()
    dump.wait()
    meta, _ = json.JSONDecoder().raw_decode("".join(lines[1:]))
    return meta["cost"].get("probes")


def recorded_shares(switches, begin_ns, end_ns):
    """Returns the share of the time in which each part was recorded. A part without switches is missing."""
    shares = {}
    for part in sorted({s["part"] for s in switches}):
        missing, since = 0, None
        for switch in (s for s in switches if s["part"] == part):
            at_ns = min(max(switch["at_ns"], begin_ns), end_ns)
            if switch["recorded"] and since is not None:
                missing, since = missing + at_ns - since, None
            elif not switch["recorded"] and since is None:
                since = at_ns
        if since is not None:
            missing += end_ns - since
        shares[part] = 1 - missing / (end_ns - begin_ns)
    return shares


def gpurec(bench, *arguments):
    done = subprocess.run([bench.options.gpurec, *arguments], capture_output=True, text=True, env=bench.env)
    if done.returncode:
        raise Failed(f"gpurec {arguments[1]}: {done.stderr.strip()[-300:]}")
    return done.stdout


class Bench:
    def __init__(self, options):
        self.options = options
        self.work = tempfile.mkdtemp(prefix="bench-limit-")
        self.logs = self.work
        self.env = dict(os.environ, PYTHONUNBUFFERED="1")
        if options.cpu_fake:
            self.env["LD_LIBRARY_PATH"] = os.path.join(bench_torch.ROOT, "build", "simcuda")
        self.modes = dict(MODES, **options.flags)
        self.pairs, self.timelines, self.failures = [], [], []

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def fail(self, workload, mode, problem):
        self.failures.append({"workload": workload, "mode": mode, "reason": str(problem)})
        say(f"{workload} {mode}: failed: {problem}")

    def run(self, workload, deadline):
        """Measures all modes of a workload until the deadline."""
        try:
            worker = Worker(self, WORKLOADS[workload], workload)
        except Failed as problem:
            return self.fail(workload, "bare", problem)
        try:
            if self.options.timeline:
                self.record_timelines(worker, workload, deadline)
            else:
                self.measure_pairs(worker, workload, deadline)
        except Failed as problem:
            self.fail(workload, "bare", problem)
        finally:
            worker.end()

    def measure_pairs(self, worker, workload, deadline):
        modes = list(self.options.modes)
        before, longest = self.bare(worker), 0
        for turn in range(self.options.repeat):
            for mode in modes[turn % len(modes):] + modes[:turn % len(modes)]:
                begin = time.monotonic()
                if begin + longest > deadline:
                    return say(f"{workload}: stopped in turn {turn + 1} of {self.options.repeat}: no time for more")
                pair = self.recorded(worker, workload, mode)
                after = self.bare(worker)
                if pair:
                    self.note(pair, turn, before, after)
                before = after
                longest = max(longest, time.monotonic() - begin)

    def bare(self, worker):
        """Measures a bare window. Returns its step rate and its longest step."""
        time.sleep(SETTLE_S)
        begin = time.monotonic_ns()
        end = begin + int(self.options.bare * 1e9)
        time.sleep(self.options.bare)
        steps = steps_until(worker, begin, end)
        return {"rate": steps.rate(begin, end), "longest_ms": steps.longest(begin, end) / 1e6}

    def recorded(self, worker, workload, mode):
        """Measures the first seconds of a recording. Returns None on a failure."""
        path = os.path.join(self.work, "pair.parquet")
        recorder = Recorder(self, mode, worker.process.pid, path)
        try:
            begin, end = recorder.begin_ns, recorder.begin_ns + int(self.options.window * 1e9)
            recorder.finish(self.options.record + 60)
            steps = steps_until(worker, begin, end)
            return {"workload": workload, "mode": mode, "rate": steps.rate(begin, end),
                    "longest_ms": steps.longest(begin, end) / 1e6, **recorder.facts(), **read_recording(self, path)}
        except Failed as problem:
            self.fail(workload, mode, problem)
            return None
        finally:
            recorder.close()

    def note(self, pair, turn, before, after):
        pair.update(turn=turn, before=before, after=after,
                    ratio=pair["rate"] / statistics.mean([before["rate"], after["rate"]]))
        self.pairs.append(pair)
        shares = ", ".join(f"{part} {100 * share:.1f} %" for part, share in pair["recorded_share"].items())
        say(f"{pair['workload']} {pair['mode']} {turn + 1}: {pair['rate']:.2f} steps/s, {pair['ratio']:.3f} of bare; "
            f"recorded {shares or 'all'}")

    def record_timelines(self, worker, workload, deadline):
        for mode in self.options.modes:
            if time.monotonic() + self.options.record + 10 > deadline:
                return say(f"{workload}: no time for a timeline of {mode}")
            try:
                self.timelines.append(self.timeline(worker, workload, mode))
            except Failed as problem:
                self.fail(workload, mode, problem)

    def timeline(self, worker, workload, mode):
        """Records once. Returns the step rates in bins, and what happened at which time."""
        bare_begin = time.monotonic_ns()
        time.sleep(max(2, self.options.bare))
        path = os.path.join(self.work, "timeline.parquet")
        recorder = Recorder(self, mode, worker.process.pid, path)
        try:
            end_ns = recorder.finish(self.options.record + 60) + int(1e9)
        finally:
            recorder.close()
        time.sleep(1)
        steps = steps_until(worker, bare_begin, end_ns)
        bare = steps.rate(steps.times[0], recorder.begin_ns)
        found = read_recording(self, path)
        width = max(int(1e8), int(1e9 / bare))
        bins = [{"at_s": (at - recorder.begin_ns) / 1e9, "ratio": steps.rate(at, at + width) / bare}
                for at in range(recorder.begin_ns - math.ceil(1e9 / width) * width, end_ns - width, width)]
        say(f"{workload} {mode}: timeline of {len(bins)} bins")
        return {"workload": workload, "mode": mode, "bare_rate": bare, "bin_s": width / 1e9, "bins": bins,
                "events": events_of(recorder, found), **recorder.facts(), **found}


def events_of(recorder, found):
    """Returns the messages of gpurec and the notes of its recording, with times in s since its start."""
    events = [(at, text) for at, text in recorder.lines]
    events += [(s["at_ns"], f"{s['part']}: {'recorded' if s['recorded'] else 'left out'}") for s in found["switches"]]
    events += [(n["at_ns"], f"{n['percent']:.1f} %: {n['text']}") for n in found["notes"]]
    events.append((recorder.begin_ns, "gpurec starts"))
    return sorted(((at - recorder.begin_ns) / 1e9, text) for at, text in events)


def interval(ratios):
    """Returns the order statistics that enclose the median with at least 95 %, and that probability.

    Returns the lowest and highest ratio if there are fewer than 6.
    """
    ratios, n = sorted(ratios), len(ratios)

    def coverage(k):
        return 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n

    k = max((k for k in range((n + 1) // 2) if coverage(k) >= 0.95), default=0)
    return ratios[k], ratios[n - 1 - k], max(0, coverage(k))


def median_of(pairs, key):
    values = [pair[key] for pair in pairs if pair.get(key) is not None]
    return statistics.median(values) if values else None


def rows_of(bench):
    """Returns one row for each workload and mode with a pair."""
    rows = []
    for workload in bench.options.workloads:
        for mode in bench.options.modes:
            pairs = [p for p in bench.pairs if (p["workload"], p["mode"]) == (workload, mode)]
            if not pairs:
                continue
            low, high, probability = interval([p["ratio"] for p in pairs])
            parts = sorted({part for p in pairs for part in p["recorded_share"]})
            row = {"workload": workload, "mode": mode, "pairs": len(pairs), "low": low, "high": high,
                   "probability": probability, "ratios": [round(p["ratio"], 4) for p in pairs],
                   "shares": {part: statistics.median(p["recorded_share"].get(part, 1) for p in pairs) for part in parts},
                   "bare_rate": statistics.median(p[side]["rate"] for p in pairs for side in ("before", "after")),
                   "bare_longest_ms": statistics.median(p[s]["longest_ms"] for p in pairs for s in ("before", "after")),
                   "lost": sum(p.get("lost", 0) for p in pairs)}
            keys = ("ratio", "longest_ms", "attached_s", "calls", "cpu_percent", "rss_mib", "bpf_ns", "allocator_events")
            row.update({key: median_of(pairs, key) for key in keys})
            rows.append(row)
    return rows


def table(rows):
    """Returns the rows as a Markdown table, and a list of all ratios."""
    titles = ["workload", "mode", "bare steps/s", "ratio, median", "interval (probability)", "pairs", "recorded, % of the time",
              "longest step, bare → recorded, ms", "attached after s", "calls", "lost", "CPU % of a core", "RSS MiB", "BPF ns a hit"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]

    def number(value, form):
        return "" if value is None else form.format(value)

    for row in rows:
        shares = ", ".join(f"{part} {100 * share:.1f}" for part, share in row["shares"].items()) or "all"
        cells = [row["workload"], row["mode"], f"{row['bare_rate']:.2f}", f"**{row['ratio']:.3f}**",
                 f"{row['low']:.3f} to {row['high']:.3f} ({100 * row['probability']:.0f} %)", str(row["pairs"]), shares,
                 f"{row['bare_longest_ms']:.0f} → {row['longest_ms']:.0f}", number(row["attached_s"], "{:.2f}"),
                 number(row["calls"], "{:,.0f}"), f"{row['lost']:,.0f}", number(row["cpu_percent"], "{:.1f}"),
                 number(row["rss_mib"], "{:.0f}"), number(row["bpf_ns"], "{:.0f}")]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    lines += [f"{row['workload']} {row['mode']}: " + " ".join(f"{r:.3f}" for r in row["ratios"]) for row in rows]
    return "\n".join(lines)


def print_accounts(bench):
    """Prints the worst second, the mean and the seconds above the limit of each workload and mode."""
    print("\n| workload | mode | recordings | mean of the account | worst second | seconds above the limit |")
    print("|---|---|---|---|---|---|")
    for key in dict.fromkeys((p["workload"], p["mode"]) for p in bench.pairs):
        costs = [p["account"] for p in bench.pairs if (p["workload"], p["mode"]) == key and p["account"]]
        if costs:
            print(f"| {key[0]} | {key[1]} | {len(costs)} | {statistics.mean(c['mean_pct'] for c in costs):.2f} % "
                  f"| {max(c['worst_pct'] for c in costs):.2f} % | {sum(c['over_limit'] for c in costs)} of "
                  f"{sum(c['seconds'] for c in costs)} |")


def print_timeline(line):
    """Prints the bins of a timeline as bars, with its events between them."""
    print(f"\n### {line['workload']}, {line['mode']}: bare {line['bare_rate']:.2f} steps/s, bins of {line['bin_s']:.3f} s\n")
    if line["account"]:
        print("Probes, % in each second: " + " ".join(f"{pct:.1f}" for pct in line["account"].get("seconds_pct", [])) + "\n")
    print("```")
    events = list(line["events"])
    for b in line["bins"]:
        while events and events[0][0] <= b["at_s"] + line["bin_s"]:
            at, text = events.pop(0)
            print(f"{at:8.3f}s      | {text[:400]}")
        print(f"{b['at_s']:8.3f}s {b['ratio']:5.2f} {'#' * round(40 * min(b['ratio'], 1.5))}")
    for at, text in events:
        print(f"{at:8.3f}s      | {text[:400]}")
    print("```")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: [x for x in text.split(",") if x]
    parser.add_argument("-o", "--output", help="file for all results as JSON")
    parser.add_argument("--workloads", type=listed, default=[w for w in WORKLOADS if w != "simtorch"], help=", ".join(WORKLOADS))
    parser.add_argument("--modes", type=listed, default=["default"], help=", ".join(MODES))
    parser.add_argument("--flags", action="append", default=[], metavar="NAME=FLAGS", help="add a mode with these flags")
    parser.add_argument("--repeat", type=int, default=10, help="pairs of each workload and mode")
    parser.add_argument("--timeline", action="store_true", help="print what a recording costs at which time")
    parser.add_argument("--window", type=float, default=10, help="seconds of a recorded window, from the start of gpurec")
    parser.add_argument("--record", type=float, default=10, help="duration of a recording (gpurec record -d)")
    parser.add_argument("--bare", type=float, default=5, help="seconds of a bare window")
    parser.add_argument("--budget", type=float, default=570, help="maximum seconds of the whole run")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds of steps before the first window")
    parser.add_argument("--start-timeout", type=float, default=120)
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(bench_torch.ROOT, "build", "bin", "gpurec")))
    parser.add_argument("--cpu-fake", action="store_true", help="run a loop on simcuda instead of PyTorch")
    options = parser.parse_args()
    options.flags = {name: flags.split() for name, _, flags in (text.partition("=") for text in options.flags)}
    for name, given, known in (("workloads", options.workloads, WORKLOADS), ("modes", options.modes, {**MODES, **options.flags})):
        if unknown := [x for x in given if x not in known]:
            parser.error(f"--{name}: {', '.join(unknown)}: unknown; known are {', '.join(known)}")
    return options


def main():
    bench_torch.BEGIN = time.monotonic()
    options = parse_options()
    # On SIGTERM (a time limit) the script still prints the results so far.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    bench = Bench(options)
    try:
        try:
            for i, workload in enumerate(options.workloads):
                left = bench_torch.BEGIN + options.budget - time.monotonic()
                if left > 0:
                    bench.run(workload, time.monotonic() + left / (len(options.workloads) - i))
        except KeyboardInterrupt:
            say("ended early")
        report(bench)
    finally:
        bench.close()
    return 0 if bench.pairs or bench.timelines else 1


def report(bench):
    rows = rows_of(bench)
    if rows:
        print(table(rows))
    print_accounts(bench)
    for line in bench.timelines:
        print_timeline(line)
    for failure in bench.failures:
        print(f"\nfailed: {failure['workload']} {failure['mode']}: {failure['reason']}")
    if bench.options.output:
        with open(bench.options.output, "w") as f:
            json.dump({"machine": machine(), "options": vars(bench.options), "rows": rows, "pairs": bench.pairs,
                       "timelines": bench.timelines, "failures": bench.failures}, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
