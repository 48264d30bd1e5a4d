"""Compares the allocator statistics of a recording with those of PyTorch's allocator.

    compare_torch_allocator.py RECORDING CHECKPOINTS [--gpurec PATH] [--pid PID] [--device N]
    compare_torch_allocator.py --self-test

CHECKPOINTS has lines "UNIX_NS key=value …" with values of torch.cuda.memory_stats(), written by
examples/workloads/allocator.py, or is a simtorch ledger. No thread allocates at a checkpoint. The
values must equal those of `gpurec analyze allocator --at` byte by byte.

If gpurec attached to a running program, the script compares changes since the first checkpoint,
without inactive_split_bytes: the blocks cached before are unknown. For a light recording
(--allocator=light) it compares only allocated bytes and the number of blocks.
Exit status 1: a difference.
"""
import argparse
import itertools
import json
import subprocess
import sys

# memory_stats() name: name in gpurec's report
KEYS = {
    "allocated_bytes": "allocated_bytes", "reserved_bytes": "reserved_bytes", "requested_bytes": "requested_bytes", "active_bytes": "active_bytes",
    "inactive_split_bytes": "inactive_split_bytes", "segment": "segments", "allocation": "allocations",
}
REPORTED = ("allocated_bytes", "allocation")  # the keys in a light recording
CHUNK = 2000  # maximum number of times in one command line


def read_checkpoints(lines):
    """Returns [(UNIX_NS, {key: value})]."""
    checkpoints = []
    for line in lines:
        at, *values = line.split()
        checkpoints.append((int(at), {key: int(value) for key, value in (v.split("=") for v in values)}))
    return checkpoints


def read_ledger(lines, offset, device):
    """Returns the checkpoints of a device in a simtorch ledger.

    offset is Unix time minus ledger time in ns.
    """
    names, checkpoints = {}, []
    for line in lines:
        columns = line.rstrip("\n").split("\t")
        if columns[0] == "#checkpoint":
            names = {name: i for i, name in enumerate(columns)}
        elif columns[0] == "checkpoint" and int(columns[names["device"]]) == device:
            at = int(columns[names["end_ns"]]) + offset
            checkpoints.append((at, {key: int(columns[names[ours]]) for key, ours in KEYS.items()}))
    return checkpoints


def run(command):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def metadata(options):
    """Returns the recording's metadata, which is the start of the output of gpurec dump."""
    with subprocess.Popen([options.gpurec, "dump", options.recording], stdout=subprocess.PIPE, text=True) as dump:
        head = "".join(line[2:] for line in itertools.takewhile(lambda line: line.startswith("#"), dump.stdout))
        dump.kill()
    return json.JSONDecoder().raw_decode(head, head.index("{"))[0]


def ask(options, times):
    """Returns the allocator statistics at each time, and the time window of the recording. The second
    result is true if the recording has the allocator events from the start of the program."""
    moments, allocators, window = {}, [], {}
    for i in range(0, max(1, len(times)), CHUNK):
        command = [options.gpurec, "analyze", "allocator", "--format", "json", "--device", str(options.device)]
        if times[i : i + CHUNK]:
            command += ["--at", ",".join(map(str, times[i : i + CHUNK]))]
        if options.pid:
            command += ["--pid", str(options.pid)]
        report = run(command + [options.recording])
        allocators, window = report["allocators"], report["window"]
        moments.update((row["at_ns"], row) for row in report["moments"])
    pids = sorted({row["pid"] for row in allocators})
    if len(pids) != 1:
        sys.exit(f"the recording has allocators of processes {pids}: select one with --pid")
    return moments, all(row["from_start"] for row in allocators), window


def compare(checkpoints, moments, from_start):
    """Returns {key: (equal, compared, largest difference)}, and prints the differences."""
    keys = [key for key in KEYS if from_start or key != "inactive_split_bytes"]
    if any(row["segments"] is None for row in moments.values()):
        keys = REPORTED
    result = {}
    for key in keys:
        equal, worst, base = 0, 0, 0
        for n, (at, want) in enumerate(checkpoints):
            diff = moments[at][KEYS[key]] - want[key]
            if n == 0 and not from_start:
                base = diff  # memory from before the recording
            diff -= base
            equal += diff == 0
            if abs(diff) > worst:
                worst = abs(diff)
                print(f"checkpoint {n} at {at}: {key} {moments[at][KEYS[key]] - base}, PyTorch {want[key]}")
        result[key] = equal, len(checkpoints), worst
    return result


def report(result):
    """Prints the comparison and returns the exit status."""
    for key, (equal, compared, worst) in result.items():
        print(f"{key}: {equal} of {compared} checkpoints equal, largest difference {worst}")
    return 0 if result and all(equal == compared > 0 for equal, compared, _ in result.values()) else 1


def self_test():
    lines = [f"{at} " + " ".join(f"{key}={at * 10 + i}" for i, key in enumerate(KEYS)) for at in (100, 200, 300)]
    checkpoints = read_checkpoints(lines)
    exact = {at: {KEYS[key]: value for key, value in values.items()} for at, values in checkpoints}
    assert report(compare(checkpoints, exact, True)) == 0
    late = {at: {key: value - 7 for key, value in row.items()} for at, row in exact.items()}
    assert report(compare(checkpoints, late, True)) == 1
    assert report(compare(checkpoints, late, False)) == 0
    late[300]["segments"] += 1
    result = compare(checkpoints, late, False)
    assert result["segment"] == (2, 3, 1) and "inactive_split_bytes" not in result and report(result) == 1
    assert report(compare([], {}, True)) == 1
    reports = {at: {**row, "segments": None, "requested_bytes": None} for at, row in exact.items()}
    assert tuple(compare(checkpoints, reports, True)) == REPORTED
    reports[200]["allocations"] += 1
    assert report(compare(checkpoints, reports, True)) == 1
    names = ["#checkpoint", "end_ns", "device", *KEYS.values()]
    ledger = ["\t".join(names), "\t".join(["checkpoint", "5", "1", *"1234567"]), "\t".join(["checkpoint", "6", "0", *"2345678"])]
    assert read_ledger(ledger, 100, 0) == [(106, dict(zip(KEYS, range(2, 9))))]
    print("self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?")
    parser.add_argument("checkpoints", nargs="?")
    parser.add_argument("--gpurec", default="build/bin/gpurec")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not options.checkpoints:
        parser.error("RECORDING and CHECKPOINTS are required")
    meta = metadata(options)
    with open(options.checkpoints) as file:
        lines = file.readlines()
    if lines and lines[0].startswith("#"):
        checkpoints = read_ledger(lines, meta["clock_offset_ns"], options.device)
    else:
        checkpoints = read_checkpoints(lines)
    _, from_start, window = ask(options, [])
    if not from_start:
        checkpoints = [c for c in checkpoints if c[0] >= window["from_ns"]]
    # gpurec removes probes one by one: checkpoints during the removal are not compared.
    checkpoints = [c for c in checkpoints if c[0] <= window["to_ns"] - meta["cost"]["detach_ns"]]
    moments, from_start, _ = ask(options, [at for at, _ in checkpoints])
    print("recorded from the start" if from_start else "attached later: changes since the first checkpoint are compared")
    return report(compare(checkpoints, moments, from_start))


if __name__ == "__main__":
    sys.exit(main())
