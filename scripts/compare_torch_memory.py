"""Compares the device memory in a recording with the reserved memory of PyTorch.

    compare_torch_memory.py RECORDING CHECKPOINTS [--pool]

CHECKPOINTS has lines "UNIX_NS allocated reserved" (examples/workloads/train.py). At each
checkpoint, the live driver memory of PyTorch's allocator must be within 1 % of reserved. The
script identifies memory of other libraries such as cuBLAS by their stacks and prints it. With
--pool (backend:cudaMallocAsync) a driver pool holds the memory. The script then compares the last
value that the program read with cuMemPoolGetAttribute.
"""
import collections
import re
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

recording, checkpoints = sys.argv[1:3]
pool = "--pool" in sys.argv
DEVICE_KINDS = {"device", "physical"}
RESERVED_CURRENT = 5  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT

columns = ["kind", "name", "start_ns", "dur_ns", "result", "flags", "memory_kind", "ptr", "bytes", "value", "src_ptr", "pid", "stack_id", "stack"]
table = pq.read_table(recording, columns=columns)
wanted = ["alloc", "free", "map", "unmap", "retain"] if not pool else ["api"]
rows = table.filter(pc.is_in(table["kind"], pa.array(wanted))).to_pylist()
events = []
for r in rows:
    if r["result"] != 0 or r["flags"] & 3:
        continue
    if pool:
        if r["name"] == "cuMemPoolGetAttribute" and r["value"] == RESERVED_CURRENT:
            events.append((r["start_ns"] + r["dur_ns"], "reserved", r))
        continue
    at = r["start_ns"] if r["kind"] in ("free", "unmap") else r["start_ns"] + r["dur_ns"]
    events.append((at, r["kind"], r))
events.sort(key=lambda e: e[0])
stacks = table.filter(pc.equal(table["kind"], "stack")).to_pylist()
torch_stacks = {(r["pid"], r["stack_id"]) for r in stacks if "CUDACachingAllocator" in r["stack"]}
library_of = {}
for r in stacks:
    names = re.findall(r"\blib(cu\w+|nccl\w*)\.so", r["stack"])
    library_of[r["pid"], r["stack_id"]] = next((n for n in reversed(names) if n not in ("cuda", "cudart")), "other")
others = collections.Counter()

live, size, references, mapped, mappings = 0, {}, {}, {}, {}


def maybe_end(handle):
    global live
    if references.get(handle, 0) <= 0 and mapped.get(handle, 0) <= 0 and ("h", handle) in size:
        live -= size.pop(("h", handle))


def apply(kind, r):
    global live
    key = r["ptr"]
    if kind == "reserved":
        live = r["bytes"]
    elif kind == "alloc" and r["memory_kind"] in DEVICE_KINDS and (r["pid"], r["stack_id"]) not in torch_stacks:
        others[library_of.get((r["pid"], r["stack_id"]), "other")] += r["bytes"]
    elif kind == "alloc" and r["memory_kind"] == "device":
        size[key] = r["bytes"]
        live += r["bytes"]
    elif kind == "alloc" and r["memory_kind"] == "physical":
        size["h", key], references[key] = r["bytes"], 1
        live += r["bytes"]
    elif kind == "free" and r["memory_kind"] == "physical":
        references[key] = references.get(key, 0) - 1
        maybe_end(key)
    elif kind == "free":
        live -= size.pop(key, 0)
    elif kind == "map":
        mappings[key] = r["src_ptr"], r["bytes"]
        mapped[r["src_ptr"]] = mapped.get(r["src_ptr"], 0) + 1
    elif kind == "unmap":
        for at in [a for a in mappings if key <= a < key + r["bytes"]]:
            handle, _ = mappings.pop(at)
            mapped[handle] -= 1
            maybe_end(handle)


worst, n, i = 0.0, 0, 0
for line in open(checkpoints):
    at, allocated, reserved = map(int, line.split())
    while i < len(events) and events[i][0] <= at:
        apply(*events[i][1:])
        i += 1
    off = abs(live - reserved) / max(reserved, 1)
    if off > 0.01:
        print(f"checkpoint {n}: recording {live}, reserved {reserved}")
    worst, n = max(worst, off), n + 1
for library, taken in others.most_common():
    print(f"not from PyTorch's allocator: {taken} bytes requested by {library}")
print(f"{n} checkpoints, largest difference {100 * worst:.4f} %")
sys.exit(0 if n and worst <= 0.01 else 1)
