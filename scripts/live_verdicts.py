"""Judges the verdicts of `gpurec record` while it records, with programs whose faults are known.

    live_verdicts.py [--programs NAME,…] [--seconds 40] [--jobs 4] [--slow 2] [--burn 2] [-o FILE.json]
    live_verdicts.py --offline            # record without --live, and print only what `analyze rules` says at each cut
    live_verdicts.py --list

gpurec attaches to each program 2 s after its start. The script notes when each verdict arrives. It then cuts the
recording after 1, 2, 3 … seconds with `gpurec analyze rules --to`. A fault is decidable at the first cut from which on
all cuts have a hit of its kind at its function. A program is wrong in one of these ways:

  missed     no verdict about the fault, although it was decidable for longer than the limit. If the rules never find
             the fault, the table says "not decidable"
  late       the verdict came later than the limit after the decidable cut: 15 s for leaks, 5 s for other kinds
  false      a verdict of another kind or at another function, or any verdict about a program without a fault
  json       a verdict of stderr is not in the list `verdicts` of --live=json, or the other way round

Prints Markdown. Needs root and `make build simtorch`, no GPU. Exit status 1: a program is wrong.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
TIMED = os.path.join(ROOT, "examples", "verdicts", "timed.py")
SEEDED = os.path.join(ROOT, "examples", "verdicts", "seeded.py")
SIMTORCH = os.path.join(ROOT, "examples", "simtorch")
ATTACH_AFTER_S = 2
LIMITS_S = {"leak": 15}  # after the decidable cut
LIMIT_S = 5  # of other kinds
STEP_MS = 20  # of the loops in examples/simtorch
KINDS = {
    "leak": ("growing-site", "object-leak", "cache-growth"),
    "out of memory": ("out-of-memory", "oom-fragmentation", "failed-alloc-in-loop"),
    "hang": ("hang", "rank-missing", "collective-mismatch"),
    "error": ("broken-context", "invalid-free", "use-after-free", "unchecked-error", "xid"),
}
UNDECIDABLE = ("python-deadlock", "very-long-wait", "long-warm-up")  # any verdict is right
KIND_OF = {rule: kind for kind, rules in KINDS.items() for rule in rules}
VERDICT = re.compile(r"gpurec: verdict: (?P<kind>leak|out of memory|hang|error|other)(?P<so_far> so far)?: (?P<text>.*)")


class Failed(Exception):
    """A program could not be recorded; the message is the reason."""


class Case:
    """A program with its command, and its truth: the kind of its fault, and the functions that a verdict may name."""

    def __init__(self, name, command, kind=None, functions=(), env=None, flags=(), go="", attached="", channels=False,
                 ignored=()):
        self.name, self.command, self.kind, self.functions = name, command, kind, tuple(functions)
        self.env, self.flags, self.channels, self.ignored = env or {}, list(flags), channels, ignored
        self.go, self.attached = go, attached  # what the program reads to begin, and when the recorder is attached
        self.optional = False  # nothing outside of the program can know whether it is a fault

    def truth(self):
        return f"{self.kind}: {' or '.join(self.functions)}" if self.kind else "none"


def cases(options):
    """Returns all cases by name. Programs outlive their recording."""
    seconds = options.seconds + ATTACH_AFTER_S + 6
    found = timed_cases(seconds, options.at) + loop_cases(seconds) + seeded_cases(seconds) + other_cases(seconds)
    return {case.name: case for case in found}


def timed_cases(seconds, at):
    listed = subprocess.run([sys.executable, TIMED, "--list"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines():
        p = json.loads(line)
        begin = at + 8 if p["name"] == "late-leak" else at
        command = [sys.executable, TIMED, p["name"], "--seconds", f"{seconds:g}", "--at", f"{begin:g}", "--wait"]
        found.append(Case(p["name"], command, p["kind"],
                          p["functions"], {"SIMCUDA_CHECK": "arguments"}, attached="attached\n", channels=p["channels"]))
    by_name = {case.name: case for case in found}
    for name in UNDECIDABLE:
        by_name[name].optional = True
    lock, kernel = by_name["deadlock"], by_name["stuck-kernel"]
    before = [sys.executable, TIMED, kernel.name, "--seconds", f"{seconds:g}", "--at", "1"]
    return found + [
        Case("deadlock-host", lock.command, lock.kind, lock.functions, flags=["--host", "auto"], attached="attached\n"),
        Case("stuck-before", before, kernel.kind, kernel.functions, channels=True),
    ]


def loop_cases(seconds):
    """Returns the loops of examples/simtorch, which begin at a byte of stdin."""
    def loop(name, kind=None, functions=()):
        command = [sys.executable, os.path.join(SIMTORCH, name + ".py"), "--wait", "--step-ms", str(STEP_MS)]
        command += ["--steps", str(int(seconds * 1000 / STEP_MS))]
        return Case(name.replace("_", "-"), command, kind, functions, {"SIMCUDA_MEMORY": "64G"}, go="\n")

    return [loop("leak_list", "leak", ["compute_loss"]), loop("leak_graph", "leak", leak_functions("leak_graph") + ["__add__", "forward"]),
            loop("leak_hook", "leak", ["__call__"]), loop("no_leak"), loop("longer_inputs"), loop("fresh_streams"),
            loop("empty_cache")]


def leak_functions(name):
    """Returns the function of the line with the comment `the leak`."""
    function = ""
    with open(os.path.join(SIMTORCH, name + ".py")) as file:
        for line in file:
            function = (re.match(r"\s*def (\w+)", line) or [None, function])[1]
            if line.rstrip().endswith("# the leak"):
                return [function]
    raise Failed(name + " has no leak")


def seeded_cases(seconds):
    def seeded(seed, *functions):
        command = [sys.executable, SEEDED, "--seed", str(seed), "--seconds", f"{seconds:g}", "--truth", os.devnull]
        return Case(f"seed-{seed}", command, "leak" if functions else None, functions, {"SIMCUDA_TIME": "off"},
                    attached="attached\n")

    return [seeded(0, "kept"), seeded(1, "features", "validate"), seeded(3, "buffers"), seeded(7, "kept"),
            *(seeded(seed) for seed in (12, 16, 17, 18, 23))]


def other_cases(seconds):
    build = os.path.join(BUILD, "simcuda")
    storm = [os.path.join(build, "storm"), "--calls", str(int(seconds * 500)), "--rate", "500", "--wait"]
    tensors = [os.path.join(BUILD, "simtorch", "tensors"), "--events", str(int(seconds * 1000)), "--rate", "1000", "--wait"]
    simrun = [os.path.join(ROOT, "examples", "simnccl", "simrun"), "-n", "2", os.path.join(build, "ranks")]
    ranks = {"SIMCUDA_CHANNELS": "tear_ns=0,decoys=off"}
    steps = ["--steps", "100000", "--host-us", "20000"]
    return [
        Case("leak", [os.path.join(build, "leak")], "leak", ["cache_activations"]),
        Case("no-leak-c", [os.path.join(build, "leak"), "--leak-bytes", "0"]),
        Case("rank-stops", simrun + steps + ["--fault", "1 500 stop"], "hang", ["read_shard", "rank 1"], ranks),
        Case("ranks", simrun + steps, env=ranks),
        Case("storm", storm, go="\n", ignored=("error", "out of memory")),  # some of its calls fail on purpose
        Case("tensors", tensors, go="\n", ignored=("error", "out of memory", "leak")),  # it keeps the streams of its captures
    ]


class Lines:
    """Lines of a pipe with the times of their arrival (CLOCK_REALTIME in ns). A thread reads them."""

    def __init__(self, pipe):
        self.lines, self.changed = [], threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(pipe,), daemon=True)
        self.thread.start()

    def read(self, pipe):
        for line in pipe:
            with self.changed:
                self.lines.append((time.time_ns(), line.rstrip("\n")))
                self.changed.notify_all()
        with self.changed:
            self.lines.append((time.time_ns(), None))
            self.changed.notify_all()

    def wait(self, prefix, seconds):
        """Returns the first line with the prefix, or None at the end of the pipe or after some seconds."""
        def found():
            return next((line for _, line in self.lines if line is None or line.startswith(prefix)), "") != ""

        with self.changed:
            self.changed.wait_for(found, seconds)
            return next((line for _, line in self.lines if line and line.startswith(prefix)), None)

    def all(self):
        self.thread.join(5)
        return [(at, line) for at, line in self.lines if line is not None]


class Target:
    """A running program."""

    def __init__(self, case, folder):
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "simcuda"), SIMCUDA_MEMORY="16G",
                   SIMCUDA_STATE=os.path.join(folder, "state"))
        env.update(case.env)
        command = case.command
        if case.channels:
            env["SIMCUDA_CHANNELS"] = "slots=off,decoys=off"
            command = [os.path.join(BUILD, "simcuda", "devfiles"), *command]
        self.errors = open(os.path.join(folder, "program.log"), "w")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env,
                                        text=True, start_new_session=True)
        self.output = Lines(self.process.stdout)
        if os.path.basename(command[0]) != "leak" and not self.output.wait("ready", 60):
            self.close()
            raise Failed("the program did not start")
        self.write(case.go)

    def write(self, text):
        try:
            self.process.stdin.write(text)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the program has ended

    def fault_ns(self):
        return next((int(line.split()[1]) for _, line in self.output.lines
                     if line and re.fullmatch(r"fault \d+", line)), None)

    def close(self):
        """Ends the program and its children. simrun removes its folder at SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        self.process.wait()
        self.errors.close()


def record(options, case, target, path):
    """Records the program. Returns the lines of stderr and stdout with their times."""
    command = [options.gpurec, "record", "-p", str(target.process.pid), "-d", f"{options.seconds:g}s", *case.flags,
               *options.flags, "-o", path, "--force"]
    if not options.offline:
        command += ["--live=json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        limit = threading.Timer(options.seconds + 120, recorder.kill)
        limit.start()
        errors, output = Lines(recorder.stderr), Lines(recorder.stdout)
        if errors.wait("gpurec: attached to", 60):
            target.write(case.attached)
        recorder.wait()
        limit.cancel()
        lines = errors.all()
    if recorder.returncode != 0:
        raise Failed("gpurec record: " + "; ".join(line for _, line in lines[-3:]))
    return lines, output.all()


def rules_at(options, path, cut):
    """Returns the begin of the recording and the hits of the rules at a cut in seconds. None: at the end."""
    command = [options.gpurec, "analyze", "rules", "--format", "json", "--top", "0", path]
    done = subprocess.run(command + (["--to", f"{cut:g}s"] if cut else []), capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"gpurec analyze rules: {done.stderr.strip()[-300:]}")
    report = json.loads(done.stdout)
    hits = [{"kind": KIND_OF[h["rule"]], "rule": h["rule"], "severity": h["severity"], "confidence": h.get("confidence", ""),
             "what": h.get("what", ""), "where": h.get("where") or "", "cut": cut} for h in report["hits"] if is_fault(h)]
    return report["window"], hits


def is_fault(hit):
    """Returns whether a hit can be a verdict. A cache that grows is one only if it is a problem."""
    return (hit["rule"] in KIND_OF and not hit.get("folded_into")
            and (hit["rule"] != "cache-growth" or hit["severity"] == "problem"))


def is_right(case, kind, text):
    return case.kind == kind and any(re.search(rf"(^|[^\w]){re.escape(f)}([^\w]|$)", text) for f in case.functions)


def cuts_of(options, case, path):
    """Returns what the rules say at each cut."""
    window, whole = rules_at(options, path, None)
    last = int(window["dur_ns"] / 1e9) + 1
    by_cut = {cut: rules_at(options, path, cut)[1] for cut in range(1, last)}
    by_cut[last] = whole
    right = [cut for cut, hits in by_cut.items() if any(is_right(case, h["kind"], h["where"] + " " + h["what"]) for h in hits)]
    decidable = None
    for cut in range(last, 0, -1):
        if cut not in right:
            break
        decidable = cut
    return {"from_ns": window["from_ns"], "last": last, "right": right, "decidable": decidable,
            "false": false_runs(case, by_cut), "hits": next((by_cut[c] for c in sorted(right, reverse=True)), by_cut[last])}


def false_runs(case, by_cut):
    """Returns the hits that are wrong, each with the range of its cuts."""
    cuts = {}
    for cut, hits in by_cut.items():
        for h in hits:
            if h["kind"] not in case.ignored and not is_right(case, h["kind"], h["where"] + " " + h["what"]):
                key = (h["rule"], h["severity"], re.sub(r",? and \d+ more", "", h["where"]))
                cuts.setdefault(key, {"what": [], "confidence": set(), "cuts": []})
                cuts[key]["cuts"].append(cut)
                cuts[key]["what"].append(h["what"])
                cuts[key]["confidence"].add(h["confidence"])
    return [{"rule": rule, "severity": severity, "where": where, "cuts": ranges(found["cuts"]), "what": found["what"][-1],
             "confidence": "/".join(sorted(found["confidence"]))} for (rule, severity, where), found in cuts.items()]


def ranges(numbers):
    """Returns 3-5,9 for 3, 4, 5, 9."""
    parts = []
    for n in sorted(set(numbers)):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def live_verdicts(errors, output):
    """Returns the verdicts of stderr, and those of the JSON objects on stdout, with the times of their arrival."""
    printed = [{"at_ns": at, "line": line, **m.groupdict()} for at, line in errors if (m := VERDICT.match(line))]
    listed = {}
    for at, line in output:
        for v in json.loads(line).get("verdicts") or []:
            listed.setdefault((v["kind"], v["where"]), {"seen_ns": at, **v})
    return printed, list(listed.values())


def judge(options, case, cuts, errors, output):
    """Compares the live verdicts with the truth and the cuts. Returns the result and the reasons why it is wrong."""
    printed, listed = ([v for v in found if v["kind"] not in case.ignored] for found in live_verdicts(errors, output))
    right = [v for v in printed if is_right(case, v["kind"], v["line"])]
    limit = LIMITS_S.get(case.kind, LIMIT_S)
    base = cuts["decidable"]
    result = {"live": None, "delay": None, "verdicts": printed, "listed": listed}
    wrong = ["false: " + v["line"] for v in printed if v not in right and not case.optional]
    if right:
        result["live"] = (right[0]["at_ns"] - cuts["from_ns"]) / 1e9
        if base is not None:
            result["delay"] = result["live"] - base
            if result["delay"] > limit * options.slow:
                wrong.append(f"late: {result['delay']:.1f} s")
    elif base is not None and not case.optional and base + limit <= cuts["last"]:
        wrong.append("missed")
    for v in listed:
        if not any(p["kind"] == v["kind"] and v["where"] in p["line"] for p in printed):
            wrong.append(f"json: {v['kind']} at {v['where']} is not on stderr")
    for p in printed:
        if not any(p["kind"] == v["kind"] and v["where"] in p["line"] for v in listed):
            wrong.append("json: not listed: " + p["line"])
    return result, wrong


def run(options, case):
    """Records and judges a program. Returns the result."""
    folder = tempfile.mkdtemp(prefix=case.name + "-", dir=options.folder)
    path, target = os.path.join(folder, "recording.parquet"), None
    result = {"name": case.name, "truth": case.truth(), "kind": case.kind, "folder": folder, "wrong": []}
    try:
        target = Target(case, folder)
        time.sleep(ATTACH_AFTER_S)
        errors, output = record(options, case, target, path)
        fault_ns = target.fault_ns()
        target.close()
        cuts = cuts_of(options, case, path)
        result.update(cuts=cuts, fault_s=(fault_ns - cuts["from_ns"]) / 1e9 if fault_ns else None,
                      warnings=[line for _, line in errors if "warning" in line and "NVML" not in line])
        if not options.offline:
            live, result["wrong"] = judge(options, case, cuts, errors, output)
            result.update(live)
    except Failed as problem:
        result["wrong"] = [f"failed: {problem}"]
    finally:
        if target:
            target.close()
    return result


def line_of(options, result):
    """Returns the cells of a table row."""
    cells = [result["name"], result["truth"]]
    cuts = result.get("cuts")
    if not cuts:
        return [*cells, "", "", "", "", "; ".join(result["wrong"])]
    fault_s = result.get("fault_s")
    cells += [number(fault_s), ranges(cuts["right"]), cuts["decidable"] or ""]
    if options.offline:
        false = [f"{f['rule']} ({f['severity']}, {f['confidence']}) at {f['where']}: {f['cuts']} [{f['what']}]" for f in cuts["false"]]
        return [*cells, cuts["last"], "; ".join(false)]
    verdict = "not decidable" if result["kind"] and result["live"] is None else "right"
    return [*cells, number(result["live"]), number(result["delay"]), "; ".join(result["wrong"]) or verdict]


def number(value):
    return "" if value is None else f"{value:.1f}"


def table(options, results):
    titles = ["program", "truth", "fault, s", "offline cuts, s", "decidable, s"]
    titles += ["recorded, s", "false offline"] if options.offline else ["live, s", "delay, s", "verdict"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in line_of(options, r)) + " |" for r in results])


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="names, separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=40, help="length of a recording")
    parser.add_argument("--at", type=float, default=12, help="seconds after the attachment at which a program of timed.py has its fault")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time")
    parser.add_argument("--slow", type=float, default=1, help="factor of the limits, for busy processors")
    parser.add_argument("--burn", type=int, default=0, help="also start so many processes that compute")
    parser.add_argument("--flags", type=shlex.split, default=[], help="more flags of gpurec record")
    parser.add_argument("--offline", action="store_true", help="print only what the rules say at each cut")
    parser.add_argument("--list", action="store_true", help="print the programs and their truth")
    parser.add_argument("--folder", help="keep all recordings here; without it only those of wrong programs are kept")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(BUILD, "bin", "gpurec")))
    parser.add_argument("-o", "--output", help="file for all results as JSON")
    options = parser.parse_args()
    if options.list:
        return options
    options.keep = options.folder is not None
    options.folder = options.folder or tempfile.mkdtemp(prefix="live-verdicts-")
    os.makedirs(options.folder, exist_ok=True)
    return options


def run_all(options, chosen):
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, options, case) for case in chosen]):
            result = done.result()
            results.append(result)
            print(f"{len(results)} of {len(chosen)}: {result['name']}: {'; '.join(result['wrong']) or 'done'}",
                  file=sys.stderr, flush=True)
            if not options.keep and not result["wrong"]:
                shutil.rmtree(result["folder"])
    order = [case.name for case in chosen]
    return sorted(results, key=lambda r: order.index(r["name"]))


def main():
    options = parse_options()
    known = cases(options)
    chosen = [known[name] for name in options.programs.split(",")] if options.programs else list(known.values())
    if options.list:
        print("\n".join(f"{case.name}\t{case.truth()}" for case in chosen))
        return 0
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.burn)]
    try:
        results = run_all(options, chosen)
    finally:
        for process in burning:
            process.kill()
            process.wait()
    print(table(options, results))
    if any(r["wrong"] for r in results):
        print(f"\nRecordings of wrong programs: {options.folder}")
    elif not options.keep:
        os.rmdir(options.folder)
    if options.output:
        with open(options.output, "w") as file:
            json.dump({"options": vars(options), "programs": results}, file, indent=1)
    return 1 if any(r["wrong"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
