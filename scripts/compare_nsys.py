"""Compares a gpurec recording with the CSV output of nsys stats for the same run.

    compare_nsys.py RECORDING FOLDER_OF_NSYS_CSV

The script compares kernel launches by mangled kernel name, without launches captured into CUDA
graphs: nsys reports a graph as a whole. It compares copies and fills by direction: number and bytes.
"""
import collections
import csv
import glob
import sys

import pyarrow.compute as pc
import pyarrow.parquet as pq

CAPTURED = 16  # format.FlagCaptured
recording, folder = sys.argv[1:]

columns = ["kind", "name", "pid", "result", "flags", "function", "kernel", "bytes", "copy_kind", "start_ns"]
rows = pq.read_table(recording, columns=columns)
kernel_rows = rows.filter(pc.equal(rows["kind"], "kernel")).to_pylist()
mangled = {(r["pid"], r["function"]): r["name"] for r in kernel_rows}


def done(kind):
    """Returns the successful calls of a kind that were not captured into a CUDA graph."""
    keep = pc.and_(pc.equal(rows["kind"], kind), pc.equal(rows["result"], 0))
    return [r for r in rows.filter(keep).to_pylist() if not r["flags"] & CAPTURED]


def read(report):
    files = glob.glob(f"{folder}/nsys_{report}*.csv")
    if not files:
        return []
    with open(files[0], newline="") as f:
        return list(csv.DictReader(f))


def column(row, *starts):
    """Returns the value of the first column whose title starts with one of starts."""
    for title, value in row.items():
        if title.startswith(starts):
            return value
    raise SystemExit(f"nsys has no column {starts}: {list(row)}")


failed = 0


def compare(what, ours, theirs):
    global failed
    different = [k for k in sorted(set(ours) | set(theirs)) if ours.get(k) != theirs.get(k)]
    for k in different[:20]:
        print(f"{what} {k}: gpurec {ours.get(k)}, nsys {theirs.get(k)}")
    failed += len(different)
    print(f"{what}: {len(set(ours) | set(theirs)) - len(different)} equal, {len(different)} different")


launches = [r for r in done("launch") if not r["name"].startswith("cuGraphLaunch")]
named = sum(1 for r in launches if r["kernel"])
ours = collections.Counter(mangled.get((r["pid"], r["function"]), "?") for r in launches)
theirs = collections.Counter()
for r in read("cuda_gpu_kern_sum"):
    theirs[column(r, "Name")] += int(column(r, "Instances"))
print(f"launches: {len(launches)}, with a kernel name {100 * named / max(len(launches), 1):.3f} %")
compare("kernels", ours, theirs)

ours, theirs = {}, {}
for r in done("memcpy"):
    n, b = ours.get(r["copy_kind"], (0, 0))
    ours[r["copy_kind"]] = n + 1, b + r["bytes"]
for r in done("memset"):
    n, b = ours.get("memset", (0, 0))
    ours["memset"] = n + 1, b + r["bytes"]
names = {"Host-to-Device": "HtoD", "Device-to-Host": "DtoH", "Device-to-Device": "DtoD", "memset": "memset"}
for r in read("cuda_gpu_mem_size_sum"):
    operation = column(r, "Operation")
    kind = next((v for k, v in names.items() if k in operation), operation)
    theirs[kind] = int(column(r, "Count")), round(float(column(r, "Total")) * 1e6)
# nsys rounds its totals to 1,000 bytes.
for k in set(ours) & set(theirs):
    if ours[k][0] == theirs[k][0] and abs(ours[k][1] - theirs[k][1]) <= 1000:
        theirs[k] = ours[k]
compare("copies", ours, theirs)
sys.exit(1 if failed else 0)
