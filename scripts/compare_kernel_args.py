"""Compares the arguments of kernel launches in a recording with those that a program printed.

Usage: compare_kernel_args.py ROWS.jsonl EXPECTED [--last]

ROWS.jsonl is made by "gpurec analyze export jsonl --kind kernel_args". EXPECTED has lines "launch KERNEL HEX ...".
The launches of each kernel are compared in their order; with --last, the recorded ones are the last of them.
With an unknown layout, a word of 8 bytes may be longer or shorter than a value.
"""

import json
import sys
from collections import defaultdict


def read_expected(path):
    launches = defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if words and words[0] == "launch":
                launches[words[1]].append(words[2:])
    return launches


def read_rows(path):
    launches = defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for row in sorted((json.loads(line) for line in lines), key=lambda r: r["start_ns"]):
            launches[row.get("kernel", "").split("(")[0]].append(json.loads(row["message"]))
    return launches


def difference(recorded, wanted):
    """Returns a sentence on the first difference of a launch, or None."""
    values = recorded.get("values") or []
    if recorded["layout"] != "unknown" and len(values) < len(wanted):
        return f"{len(values)} values, not {len(wanted)}"
    for i, want in enumerate(wanted):
        if i >= len(values):
            return f"value {i} is missing" if i == 0 else None
        have = values[i]["hex"]
        if recorded["layout"] == "unknown":
            size = min(len(have), len(want))
            have, want = have[:size], want[:size]
        if have != want:
            return f"value {i} is {have}, not {want}"
    return None


def compare(recorded, expected, is_last):
    failed = 0
    for kernel, wanted in expected.items():
        have = recorded.get(kernel, [])
        if is_last:
            wanted = wanted[len(wanted) - len(have) :]
        if len(have) != len(wanted) or not have:
            print(f"{kernel}: {len(have)} launches are recorded, not {len(wanted)}")
            failed += 1
            continue
        wrong = [text for text in map(difference, have, wanted) if text]
        layouts = sorted({r["layout"] for r in have})
        print(f"{kernel}: {len(have) - len(wrong)} of {len(have)} launches are equal, layout {', '.join(layouts)}")
        for text in wrong[:3]:
            print(f"  {text}")
        failed += bool(wrong)
    return failed


def main():
    rows, expected = read_rows(sys.argv[1]), read_expected(sys.argv[2])
    if not expected:
        sys.exit("the program printed no launches")
    sys.exit(1 if compare(rows, expected, "--last" in sys.argv[3:]) else 0)


main()
