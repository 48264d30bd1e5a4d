"""Compares the class paths of modules around launches in a recording with those of PyTorch's hooks.

    gpurec analyze kernels --group-by module --top 0 --format json $(compare_torch_modules.py --window TRACE) \
        RECORDING | compare_torch_modules.py TRACE

examples/workloads/traced.py --modules writes TRACE while gpurec records it with --max-overhead=off. Hooks open a range
around each call of a module. The innermost range of a launch's thread at its time has the class path of the launch.

Exit status 1: a class path has another number of launches in the recording than in the trace.
"""
import bisect
import collections
import json
import sys

from compare_torch_operators import utc

NO_MODULE = "(no module)"
PREFIX = "module:"


def ranges_by_thread(events):
    """Returns the ranges of each thread as {thread: ([time], [class path from this time on])}."""
    changes = collections.defaultdict(list)
    for e in events:
        if e.get("cat") == "user_annotation" and e.get("name", "").startswith(PREFIX):
            depth = e["name"].count(" > ")
            # At equal times, inner ranges end before outer ones, and ranges end before others begin.
            changes[e["tid"]].append((e["ts"], 1, depth, e["name"][len(PREFIX):]))
            changes[e["tid"]].append((e["ts"] + e["dur"], 0, -depth, None))
    threads = {}
    for tid, list_of in changes.items():
        times, paths, open_paths = [], [], []
        for at, begins, _, path in sorted(list_of, key=lambda change: change[:3]):
            if begins:
                open_paths.append(path)
            elif open_paths:
                open_paths.pop()
            times.append(at)
            paths.append(open_paths[-1] if open_paths else NO_MODULE)
        threads[tid] = times, paths
    return threads


def modules_of_trace(trace):
    """Returns the number of launches by class path between the two times of the trace."""
    events, base = trace["chrome"]["traceEvents"], int(trace["chrome"].get("baseTimeNanoseconds", 0))
    kernels = {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"}
    threads, found = ranges_by_thread(events), collections.Counter()
    for e in events:
        if e.get("cat") not in ("cuda_runtime", "cuda_driver") or e.get("args", {}).get("correlation") not in kernels:
            continue
        if not trace["begin_ns"] <= base + round(e["ts"] * 1000) <= trace["end_ns"]:
            continue
        times, paths = threads.get(e["tid"], ([], []))
        at = bisect.bisect_right(times, e["ts"]) - 1
        found[paths[at] if at >= 0 else NO_MODULE] += 1
    return found


def modules_of_report(report):
    """Returns the number of launches by class path of gpurec's report. Launches without modules are one path."""
    found = collections.Counter()
    for row in report["parts"]:
        path = row["part"].split("compiled region ")[0].removesuffix(" > ")
        found[NO_MODULE if not path or path.startswith("(") else path] += row["launches"]
    return found


def compare(ours, theirs, out=print):
    """Prints both numbers of each class path. Returns whether all are equal."""
    for path, n in sorted((theirs | ours).items(), key=lambda item: (-item[1], item[0])):
        out(f"{path:70} hooks {theirs[path]:7} gpurec {ours[path]:7}" + ("" if ours[path] == theirs[path] else "  DIFFER"))
    same, total = sum((ours & theirs).values()), max(sum(ours.values()), sum(theirs.values()))
    out(f"launches: hooks {sum(theirs.values())}, gpurec {sum(ours.values())}; same class path {same} "
        f"({100 * same / max(total, 1):.3f} %), {len(theirs)} class paths, {max(theirs, default='').count(' > ') + 1} deep")
    return total > 0 and ours == theirs


def self_test():
    """Tests the comparison with a made-up trace and report."""
    x = lambda cat, name, ts, dur, tid=1, **args: {
        "ph": "X", "cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur, "args": args}
    events = [
        x("user_annotation", "module:GPT", 10, 100), x("user_annotation", "module:GPT > Block", 20, 30),
        x("user_annotation", "module:GPT > Block > Linear", 30, 10), x("user_annotation", "module:GPT > Head", 50, 10),
        x("user_annotation", "other", 1, 500), x("user_annotation", "module:GPT", 10, 100, tid=2),
        x("gpu_user_annotation", "module:GPT", 900, 10),
    ]
    launches = [(1, 5), (1, 15), (1, 25), (1, 35), (1, 45), (1, 55), (1, 65), (1, 115), (2, 15), (3, 15), (1, 999)]
    for i, (tid, ts) in enumerate(launches):
        events += [x("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=tid, correlation=i),
                   x("kernel", "k", ts + 20, 1, tid=7, correlation=i)]
    events.append(x("cuda_runtime", "cudaMemcpyAsync", 35, 1, correlation=99))
    trace = {"begin_ns": 0, "end_ns": 500_000, "chrome": {"traceEvents": events}}
    theirs = modules_of_trace(trace)
    want = {"GPT": 3, "GPT > Block": 2, "GPT > Block > Linear": 1, "GPT > Head": 1, NO_MODULE: 3}
    assert theirs == want, theirs
    rows = [{"part": path, "launches": n} for path, n in want.items()]
    rows[-1]["launches"] = 1
    rows += [{"part": "(backward, no module) MmBackward0", "launches": 1}, {"part": "compiled region c.py", "launches": 1}]
    assert compare(modules_of_report({"parts": rows}), theirs, out=lambda _: None)
    rows[0]["part"] = "GPT > compiled region c.py"
    assert compare(modules_of_report({"parts": rows}), theirs, out=lambda _: None)
    rows[0]["part"] = "GTP"
    assert not compare(modules_of_report({"parts": rows}), theirs, out=lambda _: None)
    assert not compare(collections.Counter(), collections.Counter(), out=lambda _: None)
    assert utc(0).startswith("1970")
    print("self-test passed")
    return 0


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != (2 if arguments[:1] == ["--window"] else 1):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(arguments[-1]) as f:
        trace = json.load(f)
    if len(arguments) == 2:
        print("--from", utc(trace["begin_ns"]), "--to", utc(trace["end_ns"]))
        return 0
    return 0 if compare(modules_of_report(json.load(sys.stdin)), modules_of_trace(trace)) else 1


if __name__ == "__main__":
    sys.exit(main())
