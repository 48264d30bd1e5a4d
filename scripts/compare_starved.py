"""Compares what gpurec says about a late host with the log of examples/workloads/starved.py.

    gpurec analyze gaps --top 500 --format json starved.parquet >gaps.json
    python3 compare_starved.py gaps.json starved.log

Prints the share of the time of the late host that gpurec explains, and the shares that it gives to another
cause than the log: time of a cause beyond that in the log, and time of the log that is missing. The GPU is
idle during all of "loader" and "tokenizer".
"""
import json
import sys

# Causes of gpurec, and the cause of the log in which they may lie. All others may lie in any.
LOGGED = {
    "waited for the DataLoader": "loader",
    "collected garbage": "gc",
}
UNKNOWN = ("unknown", "waited, reason unknown")


def main():
    report = json.load(open(sys.argv[1]))
    begin, end = report["window"]["from_ns"], report["window"]["to_ns"]
    logged = {}
    for line in open(sys.argv[2]):
        interval = json.loads(line)
        ns = min(interval["to"], end) - max(interval["from"], begin)
        if ns > 0:
            logged[interval["cause"]] = logged.get(interval["cause"], 0) + ns
    found, tokenizer = {}, 0
    for row in report["host"]:
        found[row["cause"]] = found.get(row["cause"], 0) + row["host_ns"]
        if "tokenize" in (row.get("line") or ""):
            tokenizer += row["host_ns"]
    whole = sum(found.values())
    known = sum(ns for cause, ns in found.items() if cause not in UNKNOWN)
    wrong = sum(max(0, found.get(cause, 0) - logged.get(name, 0)) for cause, name in LOGGED.items())
    wrong += max(0, tokenizer - logged.get("tokenizer", 0))
    missing = max(0, logged.get("loader", 0) - found.get("waited for the DataLoader", 0))
    missing += max(0, logged.get("tokenizer", 0) - tokenizer)
    print(f"the recording has {(end - begin) / 1e9:.1f} s, the host was late for {whole / 1e9:.3f} s")
    whole = max(1, whole)
    print(f"explained {100 * known / whole:.1f} %, too much {100 * wrong / whole:.1f} %, missing {100 * missing / whole:.1f} %")
    print("log    ", {cause: f"{ns / 1e9:.3f} s" for cause, ns in sorted(logged.items())})
    print("gpurec ", {cause: f"{ns / 1e9:.3f} s" for cause, ns in sorted(found.items(), key=lambda f: -f[1])})
    print(f"gpurec: lines with tokenize {tokenizer / 1e9:.3f} s")


if __name__ == "__main__":
    main()
