"""Compares the Python stacks of kernel launches in a recording with torch.profiler's.

    compare_torch_stacks.py RECORDING TRACE
    compare_torch_stacks.py --self-test

examples/workloads/traced.py writes TRACE while gpurec records it. The script pairs the launches of
both tools by thread, order and kernel, between the two times in the trace. A pair agrees if the
innermost Python frames have the same file, function and line.

The profiler knows the current line only if Python's profiling hook saw the call into C. Otherwise,
as in operators, it knows only the first line of the function. The line of gpurec must then be in
that function. Autograd threads have no Python frames: a pair without any Python frame is not
compared. A frame that only the profiler has is a difference. A frame that only gpurec has is
counted separately.

Exit status 1: less than 99 % of the compared launches agree, more than 1 % of the traced launches
are missing in the recording, or no launch could be compared.
"""
import ast
import collections
import ctypes
import difflib
import functools
import json
import os
import re
import sys

NEEDED = 0.99
Frame = collections.namedtuple("Frame", "file function entry line")  # entry, line: 0 if unknown
Launch = collections.namedtuple("Launch", "tid at kernel frames status")  # frames: innermost first


# Names


@functools.cache
def demangler():
    library, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
    demangle = getattr(library, "__cxa_demangle")
    demangle.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def call(name):
        status = ctypes.c_int()
        text = demangle(name.encode(), None, None, ctypes.byref(status))
        if not text:
            return name
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            libc.free(text)

    return call


@functools.cache
def kernel_name(name):
    """Returns the demangled kernel name without spaces. The profiler demangles most names."""
    if name.startswith("_Z"):
        name = demangler()(name)
    return re.sub(r"\s+", "", name)


def same_file(a, b):
    """Reports whether one path is a suffix of the other: either may be relative."""
    a, b = (os.path.normpath(f).split(os.sep) for f in (a, b))
    n = min(len(a), len(b))
    return a[-n:] == b[-n:]


def same_function(ours, theirs):
    """Compares functions: the profiler has plain names (forward), gpurec may have Linear.forward."""
    return ours.function.rsplit(".", 1)[-1] == theirs.function and same_file(ours.file, theirs.file)


@functools.cache
def functions_of(file):
    """Returns (name, first line, last line) of every function in a file, None without the file."""
    try:
        with open(file, encoding="utf-8") as f:
            tree = ast.parse(f.read())
    except (OSError, SyntaxError, ValueError):
        return None
    kinds = {ast.FunctionDef: None, ast.AsyncFunctionDef: None, ast.Lambda: "<lambda>", ast.ListComp: "<listcomp>",
             ast.SetComp: "<setcomp>", ast.DictComp: "<dictcomp>", ast.GeneratorExp: "<genexpr>"}
    found = [("<module>", 0, sys.maxsize)]
    for node in ast.walk(tree):
        if type(node) in kinds:
            decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
            found.append((kinds[type(node)] or node.name, min([node.lineno, *decorators]), node.end_lineno))
    return found


def within(ours, theirs):
    """Reports whether the line of gpurec is in the profiler's function; None without the source."""
    for path in (ours.file, theirs.file):
        functions = functions_of(path)
        if functions is not None:
            break
    else:
        return None
    spans = [(last - first, first, last) for name, first, last in functions
             if name == theirs.function and first <= theirs.entry <= last]
    if not spans:
        return None
    _, first, last = min(spans)
    return first <= ours.line <= last


# Reading the trace of torch.profiler


def python_frames(events):
    """Returns a function that looks up the Python frames of a thread at a time, innermost first."""
    threads = collections.defaultdict(list)
    for e in events:
        if e.get("ph") == "X" and e.get("cat") == "python_function":
            threads[e["tid"]].append(e)
    for thread in threads.values():
        thread.sort(key=lambda e: (e["ts"], -e["dur"]))

    def at(tid, ts):
        stack = []
        for e in threads.get(tid, ()):
            if e["ts"] > ts:
                break
            if e["ts"] + e["dur"] < ts:
                continue
            named = re.fullmatch(r"(.+)\((\d+)\): (.+)", e["name"])
            if named:
                stack.append(Frame(named[1], named[3], int(named[2]), 0))
        return stack[::-1]

    return at


def launches_of_trace(trace):
    """Returns the profiler's launches between the two times of the trace, and the number of kernels
    without a launch. A kernel and its launch share a correlation ID. A launch and its operation
    share an external ID."""
    events = trace["chrome"]["traceEvents"]
    base = int(trace["chrome"].get("baseTimeNanoseconds", 0))
    kernels, operations = {}, {}
    for e in events:
        if e.get("cat") == "kernel":
            kernels[e["args"]["correlation"]] = e["name"]
        elif e.get("cat") == "cpu_op":
            operations[e["args"].get("External id")] = e
    stacks = [[Frame(file, function, entry or 0, line or 0) for file, function, entry, line in s] for s in trace["stacks"]]
    enclosing = python_frames(events)
    launches, without = [], dict(kernels)
    for e in events:
        if e.get("cat") not in ("cuda_runtime", "cuda_driver") or e.get("args", {}).get("correlation") not in kernels:
            continue
        kernel = without.pop(e["args"]["correlation"], None)
        at = base + round(e["ts"] * 1000)
        if kernel is None or not trace["begin_ns"] <= at <= trace["end_ns"]:
            continue
        operation = e["args"].get("External id")
        if str(operation) in trace["operations"]:
            frames = stacks[trace["operations"][str(operation)]]
        elif operation in operations:
            frames = enclosing(operations[operation]["tid"], operations[operation]["ts"])
        else:
            frames = enclosing(e["tid"], e["ts"])
        launches.append(Launch(e["tid"], at, kernel_name(kernel), frames, ""))
    launches.sort(key=lambda l: l.at)
    return launches, len(without)


# Reading the recording of gpurec


def read_recording(path, begin, end):
    """Returns rows of the recording: calls between the two times, all stacks, all kernels."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = ["kind", "name", "pid", "tid", "start_ns", "parent_start_ns", "result", "function", "kernel", "stack_id",
               "stack_status", "frames"]
    table = pq.read_table(path, columns=columns)
    between = pc.and_(pc.greater_equal(table["start_ns"], begin), pc.less_equal(table["start_ns"], end))
    fact = pc.is_in(table["kind"], pa.array(["stack", "kernel"]))
    return table.filter(pc.or_(fact, between)).to_pylist()


def launches_of_recording(rows):
    mangled = {(r["pid"], r["function"]): r["name"] for r in rows if r["kind"] == "kernel"}
    stacks = {}
    for r in rows:
        if r["kind"] == "stack":
            stacks[r["pid"], r["stack_id"]] = [Frame(f["file"], f["func"], 0, f["line"])
                                               for f in r["frames"] if f["type"] == "python"]
    calls = {(r["tid"], r["start_ns"]): r for r in rows if r["kind"] not in ("stack", "kernel")}
    launches = []
    for r in rows:
        if r["kind"] != "launch" or r["result"] != 0 or r["name"].startswith("cuGraphLaunch"):
            continue
        kernel = mangled.get((r["pid"], r["function"])) or r["kernel"]
        outer = r
        while not outer["stack_id"] and (outer["tid"], outer["parent_start_ns"]) in calls:
            outer = calls[outer["tid"], outer["parent_start_ns"]]
        launches.append(Launch(r["tid"], r["start_ns"], kernel_name(kernel),
                               stacks.get((r["pid"], outer["stack_id"]), []), r["stack_status"]))
    launches.sort(key=lambda l: l.at)
    return launches


# Comparing


def pair(ours, theirs):
    """Yields pairs of the same launch in both lists, matched by thread, order and kernel."""
    if {l.tid for l in theirs} - {l.tid for l in ours}:
        groups = [(ours, theirs)]  # the tools use different thread IDs
    else:
        groups = [([l for l in ours if l.tid == t], [l for l in theirs if l.tid == t]) for t in {l.tid for l in ours}]
    for a, b in groups:
        matcher = difflib.SequenceMatcher(None, [l.kernel for l in a], [l.kernel for l in b], autojunk=False)
        if matcher.a == matcher.b:
            yield from zip(a, b)
            continue
        for i, j, n in matcher.get_matching_blocks():
            yield from zip(a[i:i + n], b[j:j + n])


def compare_frames(ours, theirs):
    """Compares the innermost Python frames of a launch. Returns (verdict, agrees).

    agrees is None if the frames cannot be compared.
    """
    if not ours and not theirs:
        return "no Python frame in either", None
    if not theirs:
        return "Python frame in gpurec only", None
    if not ours:
        return "Python frame in torch.profiler only", False
    a, b = ours[0], theirs[0]
    if not same_function(a, b):
        return "another function", False
    if b.line:
        return ("same line", True) if a.line == b.line else ("same function, another line", False)
    inside = within(a, b)
    if inside is None:
        return "same function, no source to check the line", True
    return ("same function, line within it", True) if inside else ("same function, line outside of it", False)


def same_stack(ours, theirs):
    """Reports whether whole Python stacks agree, with lines where the profiler has lines."""
    return len(ours) == len(theirs) and all(
        same_function(a, b) and (not b.line or a.line == b.line) for a, b in zip(ours, theirs))


def show(frames):
    if not frames:
        return "none"
    f = frames[0]
    return f"{f.function} {'/'.join(f.file.split('/')[-3:])}:{f.line or f'{f.entry}+'}"


def compare(ours, theirs, out=print):
    """Compares two lists of launches and prints the result. Returns the share of compared launches
    that agree, and the number of the profiler's launches without a partner. The share is None if
    no launch could be compared."""
    pairs = list(pair(ours, theirs))
    alone = len(theirs) - len(pairs)
    verdicts, differences, statuses = collections.Counter(), collections.Counter(), collections.Counter()
    kernels, whole, with_both = {}, 0, 0
    agreed = compared = 0
    for a, b in pairs:
        verdict, agrees = compare_frames(a.frames, b.frames)
        verdicts[verdict] += 1
        statuses[a.status or "?"] += 1
        if a.frames and b.frames:
            with_both += 1
            whole += same_stack(a.frames, b.frames)
        if agrees is None:
            continue
        compared += 1
        agreed += agrees
        kernels[a.kernel] = kernels.get(a.kernel, True) and agrees
        if not agrees:
            differences[verdict, a.kernel[:80], show(a.frames), show(b.frames), a.status] += 1
    out(f"launches: gpurec {len(ours)}, torch.profiler {len(theirs)}, paired {len(pairs)}")
    for verdict, n in verdicts.most_common():
        out(f"  {n:7} {verdict}")
    if alone:
        out(f"  {alone:7} of torch.profiler's without a partner in the recording")
    out("stack_status of the paired: " + ", ".join(f"{s} {100 * n / len(pairs):.2f} %" for s, n in statuses.most_common()))
    if with_both:
        out(f"whole Python stacks the same: {whole} of {with_both} ({100 * whole / with_both:.2f} %)")
    for (verdict, kernel, a, b, status), n in differences.most_common(20):
        out(f"  {n:5} × {verdict}: gpurec {a} ({status}), torch.profiler {b}, kernel {kernel}")
    if len(differences) > 20:
        out(f"  … and {len(differences) - 20} more kinds of differences")
    if not compared:
        out("nothing to compare: no launch has a Python frame in torch.profiler")
        return None, alone
    out(f"kernels compared: {len(kernels)}, agreeing in every launch: {sum(kernels.values())}")
    out(f"launches compared: {compared}, agreeing: {agreed} ({100 * agreed / compared:.3f} %)")
    return agreed / compared, alone


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(sys.argv[2]) as f:
        trace = json.load(f)
    theirs, lost = launches_of_trace(trace)
    ours = launches_of_recording(read_recording(sys.argv[1], trace["begin_ns"], trace["end_ns"]))
    if lost:
        print(f"{lost} kernels in the trace have no launch")
    share, alone = compare(ours, theirs)
    # Both tools recorded the same steps, so a launch without a partner is a difference.
    return 0 if share is not None and share >= NEEDED and alone <= (1 - NEEDED) * len(theirs) else 1


# Self-test


def self_test():
    """Tests the comparison with a made-up trace of four launches and made-up recordings."""
    here = os.path.abspath(__file__)
    first_line = next(first for name, first, _ in functions_of(here) if name == "compare_frames")
    x = lambda cat, name, tid, ts, dur, **args: {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur, "args": args}
    launch = lambda n, tid, ts, operation: [
        x("cuda_runtime", "cudaLaunchKernel", tid, ts, 1, correlation=n, **({"External id": operation} if operation else {})),
        x("kernel", f"void k{n}<float>(float*)", 7, ts + 5, 1, correlation=n)]
    trace = {"begin_ns": 1_000_000, "end_ns": 2_000_000, "operations": {"11": 0}, "chrome": {
        "baseTimeNanoseconds": 500_000, "traceEvents": [
            *launch(1, 40, 600, 11),  # the event tree has the current line
            *launch(2, 40, 620, 12),  # frame from the Python function around the operation
            *launch(3, 41, 640, 13),  # a thread without Python frames
            *launch(4, 40, 660, None),  # frame from the Python function around the launch
            *launch(9, 40, 100, 11),  # before the two times of the trace
            x("cpu_op", "aten::mul", 40, 619, 3, **{"External id": 12}),
            x("cpu_op", "MulBackward0", 41, 639, 3, **{"External id": 13}),
            x("python_function", f"scripts/compare_torch_stacks.py({first_line}): compare_frames", 40, 550, 200),
            x("python_function", "<built-in function mul>", 40, 618, 10),
            x("python_function", "torch/nn/functional.py(10): linear", 40, 570, 20)]},
        "stacks": [[["torch/nn/modules/linear.py", "forward", 120, 125], [here, "compare_frames", first_line, first_line + 2]]]}
    frame = lambda file, function, line, kind="python": {"file": file, "func": function, "line": line, "type": kind}
    row = lambda **values: {"kind": "launch", "name": "cuLaunchKernel", "pid": 1, "tid": 40, "start_ns": 0, "parent_start_ns": 0,
                            "result": 0, "function": 0, "kernel": "", "stack_id": 0, "stack_status": "complete", "frames": [], **values}
    inside = frame(here, "compare_frames", first_line + 5)

    def recording(first, second):
        native = frame("", "cuLaunchKernel", 0, "native")
        frames = [[native, first, frame(here, "compare_frames", first_line + 2)], [native, second], [native]]
        return [*(row(kind="stack", stack_id=i + 1, frames=f) for i, f in enumerate(frames)),
                *(row(kind="kernel", function=n, name=f"_Z2k{n}IfEvPT_") for n in (1, 2, 3, 4)),
                row(function=1, start_ns=1_100_000, stack_id=1), row(function=2, start_ns=1_120_000, stack_id=2),
                row(function=3, start_ns=1_140_000, tid=41, stack_id=3),
                row(kind="api", name="cuCtxGetCurrent", start_ns=1_159_000, stack_id=2),
                row(function=4, start_ns=1_160_000, parent_start_ns=1_159_000, stack_status="parent")]

    site = "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"
    good, theirs = frame(site, "Linear.forward", 125), launches_of_trace(trace)[0]
    cases = [
        ("all agree", recording(good, inside), 1.0),
        ("another line", recording(dict(good, line=126), inside), 2 / 3),
        ("another function", recording(dict(good, func="Linear.extra"), inside), 2 / 3),
        ("another file", recording(dict(good, file="/x/modules/conv.py"), inside), 2 / 3),
        ("line outside of the function", recording(good, dict(inside, line=1)), 1 / 3),
        ("no Python frame", recording(good, dict(inside, type="native")), 1 / 3),
        ("a launch is missing", [r for r in recording(good, inside) if r["function"] != 2 or r["kind"] != "launch"], 1.0),
    ]
    passed = failed = 0
    for what, rows, want in cases:
        lines = []
        have, alone = compare(launches_of_recording(rows), theirs, lines.append)
        if len(theirs) == 4 and have is not None and abs(have - want) < 1e-9 and alone == (what == "a launch is missing"):
            passed += 1
        else:
            failed += 1
            print(f"{what}: {have}, want {want}", *lines, sep="\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
