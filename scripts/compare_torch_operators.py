"""Compares the launches of each operator in a recording with torch.profiler's.

    gpurec analyze kernels --group-by operator --top 0 --format json $(compare_torch_operators.py --window TRACE) \
        RECORDING | compare_torch_operators.py TRACE

examples/workloads/traced.py writes TRACE while gpurec records it with --max-overhead=off. The profiler notes the
innermost operator of each launch. It has names without overloads, so aten::add_Tensor counts as aten::add.

Exit status 1: less than 99 % of the launches have the same operator by their numbers.
"""
import collections
import datetime
import json
import sys

NEEDED = 0.99
NO_OPERATOR = "(no operator)"


def utc(ns):
    at = datetime.datetime.fromtimestamp(ns // 10**9, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{ns % 10**9:09d}Z"


def operators_of_trace(trace):
    """Returns the number of launches by operator between the two times of the trace."""
    events, base = trace["chrome"]["traceEvents"], int(trace["chrome"].get("baseTimeNanoseconds", 0))
    kernels = {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"}
    names = {e["args"].get("External id"): e["name"] for e in events if e.get("cat") == "cpu_op"}
    found = collections.Counter()
    for e in events:
        if e.get("cat") not in ("cuda_runtime", "cuda_driver") or e.get("args", {}).get("correlation") not in kernels:
            continue
        if trace["begin_ns"] <= base + round(e["ts"] * 1000) <= trace["end_ns"]:
            name = names.get(e["args"].get("External id"), NO_OPERATOR)
            found[name if "::" in name and not name.startswith("autograd::") else NO_OPERATOR] += 1
    return found


def base_names():
    """Returns the names of operators without overloads, by their names in C++."""
    import torch

    names = {}
    for schema in torch._C._jit_get_all_schemas():
        names[schema.name + ("_" + schema.overload_name if schema.overload_name else "")] = schema.name
    return names


def operators_of_report(report, names):
    found = collections.Counter()
    for row in report["parts"]:
        found[names.get(row["part"], row["part"])] += row["launches"]
    return found


def compare(ours, theirs, out=print):
    """Prints both numbers of each operator. Returns the share of launches with the same operator."""
    total = max(sum(ours.values()), sum(theirs.values()))
    same = sum((ours & theirs).values())
    for name, n in (theirs | ours).most_common():
        out(f"{name:44} torch.profiler {theirs[name]:7} gpurec {ours[name]:7}" + ("" if ours[name] == theirs[name] else "  DIFFER"))
    out(f"launches: torch.profiler {sum(theirs.values())}, gpurec {sum(ours.values())}; same operator {same} "
        f"({100 * same / max(total, 1):.3f} %)")
    return same / total if total else None


def self_test():
    """Tests the comparison with a made-up trace and report."""
    x = lambda cat, name, ts, **args: {"ph": "X", "cat": cat, "name": name, "tid": 1, "ts": ts, "dur": 1, "args": args}
    events = [x("cpu_op", "aten::add", 1, **{"External id": 7}), x("cpu_op", "AddmmBackward0", 2, **{"External id": 8})]
    for i, operator in enumerate([7, 7, 8, 9]):
        events += [x("cuda_runtime", "cudaLaunchKernel", 10 + i, correlation=i, **{"External id": operator}),
                   x("kernel", "k", 20, correlation=i)]
    trace = {"begin_ns": 10_000, "end_ns": 12_500, "chrome": {"traceEvents": events}}
    theirs = operators_of_trace(trace)
    assert theirs == {"aten::add": 2, NO_OPERATOR: 1}, theirs
    rows = [{"part": "aten::add_Tensor", "launches": 1}, {"part": "aten::add_Scalar", "launches": 1},
            {"part": NO_OPERATOR, "launches": 1}]
    names = {"aten::add_Tensor": "aten::add", "aten::add_Scalar": "aten::add"}
    assert compare(operators_of_report({"parts": rows}, names), theirs, out=lambda _: None) == 1
    rows[0]["launches"] = 2
    assert compare(operators_of_report({"parts": rows}, names), theirs, out=lambda _: None) == 0.75
    assert utc(1_500_000_000_000_000_001) == "2017-07-14T02:40:00.000000001Z"
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
    share = compare(operators_of_report(json.load(sys.stdin), base_names()), operators_of_trace(trace))
    return 0 if share is not None and share >= NEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
