"""Compares the recorded NCCL operations of a job with NCCL's own log.

    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=nccl.%p gpurec record -o r.parquet -- COMMAND
    gpurec dump r.parquet | python3 compare_nccl.py nccl.*

Prints for each process, communicator and function the number of operations and of elements by both, and exits
with status 1 if they differ. A broadcast in the log is that of ncclBroadcast, whichever function was called.
"""
import collections
import re
import shlex
import sys

OPERATION = re.compile(
    r"[^:\s]+:(\d+):\d+ \[\d+\] NCCL INFO (\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) "
    r"op \d+ root \d+ comm (0x\w+)"
)
INIT = re.compile(r"[^:\s]+:(\d+):\d+ \[\d+\] NCCL INFO \w+ comm (0x\w+) rank (\d+) nranks (\d+) .*commId (0x\w+)")


def read_logs(paths):
    """Returns {(pid, communicator, function): [operations, elements]}."""
    found, hashes = collections.defaultdict(lambda: [0, 0]), {}
    for path in paths:
        for line in open(path, errors="replace"):
            if m := INIT.match(line):
                hashes[m[1], m[2]] = int(m[5], 16)
            elif m := OPERATION.match(line):
                entry = found[int(m[1]), hashes.get((m[1], m[5]), 0), m[2]]
                entry[0] += 1
                entry[1] += int(m[3])
    return found


def read_rows(lines):
    found = collections.defaultdict(lambda: [0, 0])
    for line in lines:
        if not line.startswith("collective "):
            continue
        row = dict(part.split("=", 1) for part in shlex.split(line)[1:] if "=" in part)
        name = row["name"].removeprefix("nccl")
        if name == "Bcast":
            name = "Broadcast"
        key = int(row["pid"]), int(row.get("communicator", "0")) % (1 << 64), name
        found[key][0] += 1
        found[key][1] += int(float(row.get("value", "0")))
    return found


def main():
    logged, recorded = read_logs(sys.argv[1:]), read_rows(sys.stdin)
    wrong = 0
    for key in sorted(set(logged) | set(recorded)):
        a, b = logged.get(key, [0, 0]), recorded.get(key, [0, 0])
        wrong += a != b
        print(f"{key[0]} {key[1]:016x} {key[2]:14} log {a[0]} ({a[1]} elements) gpurec {b[0]} ({b[1]})"
              + ("" if a == b else "  DIFFER"))
    print(f"{sum(v[0] for v in logged.values())} operations in the log, {wrong} differences")
    return 1 if wrong or not logged else 0


if __name__ == "__main__":
    sys.exit(main())
