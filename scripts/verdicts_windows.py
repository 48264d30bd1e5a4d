"""Records random programs of simtorch whose leaks are known, and compares the verdicts of `gpurec analyze leaks`.

    verdicts_windows.py [--seeds 0-59] [--seconds 60] [--jobs 4] [--flags '--max-overhead 0.5%'] [-o FILE.json]
    verdicts_windows.py --again FOLDER    # judge the recordings in FOLDER, after a change of the analysis

examples/verdicts/seeded.py is the program. gpurec attaches to it while it runs. With a low --max-overhead, the events
of the allocator are recorded only in windows. Then a report may miss a small leak, but must not show a false one.
A program is wrong in one of these ways:

  false      a function that does not leak is growing
  missed     a leak of at least 1 % of the allocations is not growing at its function and caller
  rate       the growth rate is outside of the error that the report states, or wrong by more than 50 %

Prints Markdown, wrong programs as soon as they are known on stderr. Needs root, no GPU. Exit status 1: a program is wrong.
"""
import argparse
import concurrent.futures
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "examples", "verdicts", "seeded.py")
SMALLEST_SHARE = 0.01  # of the allocations; smaller leaks may be missed
LARGEST_ERROR = 0.5  # of the rate
TRUTH_ERROR = 0.01  # of the rate: the truth has ten samples a second
EXACT_ERROR = 0.15  # of the rate in a report that states no error: steps are late on a busy machine


class Failed(Exception):
    """A program could not be recorded; the message is the reason."""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Target:
    """A running program of a seed."""

    def __init__(self, options, seed, folder):
        self.truth_path = os.path.join(folder, "truth.json")
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(ROOT, "build", "simcuda"), SIMCUDA_TIME="off",
                   SIMCUDA_MEMORY="32G", SIMCUDA_STATE=os.path.join(folder, "state"))
        self.errors = open(os.path.join(folder, "program.log"), "w+")
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, "--seed", str(seed), "--seconds", str(options.seconds), "--truth", self.truth_path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env, text=True)
        if not self.process.stdout.readline().startswith("ready"):
            self.fail()

    def attached(self):
        """Starts the time of the program's plan."""
        self.process.stdin.write("attached\n")
        self.process.stdin.flush()

    def end(self):
        """Ends the program and returns its truth."""
        self.process.stdin.close()
        if self.process.wait(60) != 0:
            self.fail()
        with open(self.truth_path) as f:
            return json.load(f)

    def fail(self):
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        raise Failed("the program: " + (self.errors.read().strip() or "it ended")[-300:])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def record(options, target, path):
    """Records the program and returns what gpurec printed."""
    command = [options.gpurec, "record", "-p", str(target.process.pid), "-d", f"{options.seconds:g}s", "--nvml-interval", "0",
               *options.flags, "-o", path, "--force"]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as recorder:
        limit = threading.Timer(options.seconds + 120, recorder.kill)
        limit.start()
        for line in recorder.stdout:
            lines.append(line.rstrip())
            if "attached to" in line:
                target.attached()
        recorder.wait()
        limit.cancel()
    if recorder.returncode != 0:
        raise Failed(f"gpurec record: {(lines or ['no output'])[-1]}")
    return lines


def analyze(options, *arguments):
    done = subprocess.run([options.gpurec, "analyze", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"gpurec analyze {arguments[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


class Samples:
    """The truth of a program over time: allocations, leaked blocks and bytes, interpolated."""

    def __init__(self, truth):
        self.rows = [[at + truth["unix_offset_ns"], *values] for at, *values in truth["samples"]]

    def at(self, ns):
        before = self.rows[0]
        for row in self.rows:
            if row[0] >= ns:
                part = (ns - before[0]) / max(1, row[0] - before[0])
                return [a + part * (b - a) for a, b in zip(before[1:], row[1:])]
            before = row
        return before[1:]

    def leak_begins(self, begin, end):
        """Returns the first time of the window at which a block had leaked."""
        leaked = self.at(begin)[1]
        return next((max(begin, row[0]) for row in self.rows if row[0] > begin and row[2] > leaked), end)


def expected(truth, window):
    """Returns the share of leaked allocations and the leaked bytes a minute in the window of a recording.

    The rate is that since the leak began.
    """
    samples, begin, end = Samples(truth), window["from_ns"], window["to_ns"]
    (allocs, blocks, leaked), (allocs_before, blocks_before, leaked_before) = samples.at(end), samples.at(begin)
    share = (blocks - blocks_before) / max(1, allocs - allocs_before)
    minutes = (end - samples.leak_begins(begin, end)) / 60e9
    return {"share": share, "rate": (leaked - leaked_before) / minutes if minutes > 0 else 0,
            "allocs_s": (allocs - allocs_before) * 1e9 / (end - begin)}


def stated_error(rows):
    """Returns the error of the growth that the report states, as a share of the growth; None: it states none."""
    errors = [row.get("growth_plus_minus_bytes_per_min") for row in rows]
    if None in errors:
        return None
    return sum(errors) / max(1, sum(row["growth_bytes_per_min"] for row in rows))


def is_leak(row, truth):
    """Returns whether a row is that of the leaking function, called by the leaking caller."""
    function, _, caller = row["site"].partition(" from ")
    return function.split(" (")[0] == truth["function"] and truth["caller"] in (None, caller.split(" (")[0])


def judge(truth, report):
    """Compares the growing rows of a leak report with the truth."""
    want = expected(truth, report["window"])
    rows = report["leaks"]
    growing = [row for row in rows if row["verdict"] == "growing"]
    right = [row for row in growing if truth["leaks"] and is_leak(row, truth)]
    unseen = [row for row in growing if is_unseen(row)]
    wrong = [row for row in growing if row not in right and not (truth["leaks"] and row in unseen)]
    result = {**want, "false": [describe(row) for row in wrong], "found": bool(right), "unseen": bool(unseen),
              "missed": bool(truth["leaks"] and want["share"] >= SMALLEST_SHARE and not right)}
    if result["missed"]:
        result["instead"] = [describe(row) for row in rows if is_leak(row, truth) or row in unseen]
    if right:
        result.update(judge_rate(right, want["rate"]))
    return result


def judge_rate(rows, want):
    found = sum(row["growth_bytes_per_min"] for row in rows)
    error, stated = abs(found - want) / max(1, want), stated_error(rows)
    within = error <= EXACT_ERROR if stated is None else abs(found - want) <= stated * found + TRUTH_ERROR * want
    return {"rate_found": found, "error": error, "stated": stated, "within": within, "near": error <= LARGEST_ERROR}


def is_unseen(row):
    """Returns whether a row has blocks whose allocation no window saw, or whose stack was not taken."""
    return "not seen" in row["site"] or row["site"] == "(no stack)"


def describe(row):
    return f"{row['site']}: {row['verdict']}, {row['growth_bytes_per_min'] / 2**20:.2f} MiB/min; {row.get('evidence', '')}"


def switches_of(options, path):
    """Returns when recording allocator events stopped or started: times in Unix ns, and whether it started."""
    notes = [json.loads(line) for line in analyze(options, "export", "jsonl", "--kind", "note", path).splitlines()]
    switches = [(n["start_ns"], json.loads(n["message"])) for n in notes if n["name"] == "sampling"]
    return [(at, s["recorded"]) for at, s in switches if (s["class"], s["what"]) == ("allocator", "calls")]


def recorded_share(switches, window):
    missing, since = 0, None
    for at, recorded in [*switches, (window["to_ns"], True)]:
        if recorded and since is not None:
            missing, since = missing + at - since, None
        elif not recorded and since is None:
            since = max(at, window["from_ns"])
    return 1 - missing / (window["to_ns"] - window["from_ns"])


def run(options, seed):
    """Records and judges the program of a seed. Returns the result."""
    folder = tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=options.folder)
    path = os.path.join(folder, "recording.parquet")
    target, begin = None, time.monotonic()
    try:
        target = Target(options, seed, folder)
        lines = record(options, target, path)
        truth = target.end()
        result = judged(options, seed, truth, path)
        result["warnings"] = [line for line in lines if "warning:" in line]
    except Failed as problem:
        result = {"seed": seed, "failed": str(problem)}
    finally:
        if target:
            target.close()
    result["wrong"] = reasons(result)
    result["folder"], result["took_s"] = folder, time.monotonic() - begin
    return result


def judge_again(options, folder):
    """Judges a recording that an earlier run has kept. Returns the result."""
    begin = time.monotonic()
    try:
        with open(os.path.join(folder, "truth.json")) as f:
            truth = json.load(f)
        result = judged(options, truth["plan"]["seed"], truth, os.path.join(folder, "recording.parquet"))
    except (Failed, OSError) as problem:
        result = {"seed": int(os.path.basename(folder).split("-")[1]), "failed": str(problem)}
    result["wrong"] = reasons(result)
    result["folder"], result["took_s"] = folder, time.monotonic() - begin
    return result


def judged(options, seed, truth, path):
    report = json.loads(analyze(options, "leaks", "--format", "json", "--top", "0", path))
    switches = switches_of(options, path)
    return {"seed": seed, "plan": truth["plan"], "leaks": truth["leaks"], **judge(truth, report), "bytes": os.path.getsize(path),
            "windows": sum(recorded for _, recorded in switches), "recorded": recorded_share(switches, report["window"]),
            "quality": report.get("quality")}


def reasons(result):
    """Returns why a program is wrong, as short texts."""
    if "failed" in result:
        return ["failed: " + result["failed"]]
    wrong = ["false: " + text for text in result["false"]]
    if result["missed"]:
        wrong.append("missed: " + ("; ".join(result["instead"]) or "no row"))
    if result["found"] and not (result["within"] and result["near"]):
        stated = "none" if result["stated"] is None else f"{100 * result['stated']:.0f} %"
        wrong.append(f"rate: {result['rate_found'] / 2**20:.2f} instead of {result['rate'] / 2**20:.2f} MiB/min, "
                     f"wrong by {100 * result['error']:.0f} %, stated {stated}")
    return wrong


def line_of(result):
    """Returns a table row."""
    plan = result.get("plan", {})
    extras = [f"{n} {what}" for n, what in ((plan.get("threads", 1), "threads"), (plan.get("streams", 0), "streams"))
              if n > (what == "threads")]
    extras += [what for what in ("cache", "ring", "sawtooth_s", "pool", "rolling") if plan.get(what)]
    cells = [result["seed"], plan.get("kind", ""), "yes" if result.get("leaks") else "no", f"{1000 * plan.get('step_s', 0):g}",
             ", ".join(extras)]
    if "failed" in result:
        return [*cells, *[""] * 6, result["failed"]]
    error = f"{100 * result['error']:.1f}" if result["found"] else ""
    stated = f"{100 * result['stated']:.0f}" if result.get("stated") is not None else ""
    return [*cells, f"{result['allocs_s']:,.0f}", f"{100 * result['share']:.1f}", result["windows"], f"{100 * result['recorded']:.1f}",
            error, stated, "; ".join(text.split(":")[0] for text in result["wrong"]) or "right"]


def table(results):
    titles = ["seed", "kind", "leaks", "step, ms", "also", "allocations/s", "leaked, %", "windows", "recorded, %",
              "error of rate, %", "stated, %", "verdict"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in line_of(r)) + " |" for r in results])


def totals(results):
    """Returns the figures of all programs."""
    done = [r for r in results if "failed" not in r]
    leaking = [r for r in done if r["leaks"] and r["share"] >= SMALLEST_SHARE]
    found = [r for r in leaking if r["found"]]
    rated = [r for r in done if r["found"]]

    def part(n, of):
        return n / of if of else None

    return {"programs": len(results), "failed": len(results) - len(done), "without_leak": sum(not r["leaks"] for r in done),
            "false_growing": sum(len(r["false"]) for r in done), "leaking": len(leaking), "found": len(found),
            "recall": part(len(found), len(leaking)), "growth_without_site": sum(r["missed"] and r["unseen"] for r in done),
            "within_error": part(sum(r["within"] for r in rated), len(rated)),
            "near": part(sum(r["near"] for r in rated), len(rated)),
            "median_error": statistics.median(r["error"] for r in rated) if rated else None,
            "median_recorded": statistics.median(r["recorded"] for r in done) if done else None}


def seeds_of(text):
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("0-59"), help="such as 0-59 or 3,7")
    parser.add_argument("--seconds", type=float, default=60, help="length of a recording")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time")
    parser.add_argument("--flags", type=shlex.split, default=["--max-overhead", "0.5%"], help="flags of gpurec record")
    parser.add_argument("--folder", help="keep recordings and truths here; without it only those of wrong programs are kept")
    parser.add_argument("--again", metavar="FOLDER", help="record nothing: judge the recordings that an earlier run has kept here")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(ROOT, "build", "bin", "gpurec")))
    parser.add_argument("-o", "--output", help="file for all results as JSON")
    options = parser.parse_args()
    options.folder = options.again or options.folder
    options.keep = options.folder is not None
    options.folder = options.folder or tempfile.mkdtemp(prefix="verdicts-windows-")
    os.makedirs(options.folder, exist_ok=True)
    return options


def tasks_of(options):
    """Returns the function for each program and its arguments: a seed, or a folder with a recording."""
    if options.again:
        folders = [os.path.join(options.again, name) for name in sorted(os.listdir(options.again)) if name.startswith("seed-")]
        return judge_again, [f for f in folders if int(os.path.basename(f).split("-")[1]) in options.seeds]
    return run, options.seeds


def main():
    options = parse_options()
    results = []
    task, arguments = tasks_of(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(task, options, argument) for argument in arguments]):
            result = done.result()
            results.append(result)
            say(f"{len(results)} of {len(arguments)}: seed {result['seed']}, {result.get('plan', {}).get('kind', '')}: "
                + ("; ".join(result["wrong"]) or "right"))
            if not options.keep and not result["wrong"]:
                shutil.rmtree(result["folder"])
    results.sort(key=lambda r: r["seed"])
    figures = totals(results)
    print(table(results))
    print("\n" + "\n".join(f"{name}: {value if value is None or isinstance(value, int) else f'{value:.3f}'}"
                           for name, value in figures.items()))
    if any(r["wrong"] for r in results):
        print(f"\nRecordings of wrong programs: {options.folder}")
    if options.output:
        with open(options.output, "w") as f:
            json.dump({"options": vars(options), "totals": figures, "programs": results}, f, indent=1)
    return 1 if any(r["wrong"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
