"""Compares a memory snapshot of gpurec with PyTorch's snapshot of the same time.

    compare_torch_snapshot.py OURS.pickle PYTORCHS.pickle
    compare_torch_snapshot.py --self-test

The segments must be equal: their blocks, sizes, states, streams and pools. The newest trace events
that both snapshots have must be equal. Stacks are not compared because PyTorch collects different
frames. Exit status 1: a difference.
"""
import copy
import pickle
import sys

SEGMENT = ["device", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type", "segment_pool_id", "is_expandable"]
ENTRY = ["action", "addr", "device_free", "size", "stream"]


def describe(segment):
    blocks = []
    for b in segment["blocks"]:
        active = b["state"] != "inactive"
        blocks.append((b["address"], b["size"], b["state"], b["requested_size"] if active else None))
    return [segment[key] for key in SEGMENT] + [blocks]


def compare(ours, theirs):
    """Returns the differences as a list of sentences."""
    a, b = ({s["address"]: describe(s) for s in snapshot["segments"]} for snapshot in (ours, theirs))
    wrong = [f"segment {address:#x}: {a.get(address)}, PyTorch has {b.get(address)}" for address in sorted(a.keys() | b.keys()) if a.get(address) != b.get(address)]
    compared = 0
    for device, (mine, other) in enumerate(zip(ours["device_traces"], theirs["device_traces"])):
        for n in range(1, min(len(mine), len(other)) + 1):
            x, y = ({key: entry.get(key) for key in ENTRY} for entry in (mine[-n], other[-n]))
            compared += 1
            if x != y:
                wrong.append(f"device {device}, event {n} from the end: {x}, PyTorch has {y}")
                break
    sums = [sum(s[key] for s in ours["segments"]) for key in ("total_size", "allocated_size", "active_size", "requested_size")]
    print(f"{len(a)} segments, {sum(len(s[-1]) for s in a.values())} blocks and gaps; reserved {sums[0]}, allocated {sums[1]}, active {sums[2]}, requested {sums[3]}")
    print(f"{compared} events compared, {len(wrong)} differences")
    return wrong


def self_test():
    block = {"address": 512, "size": 512, "requested_size": 100, "state": "active_allocated", "frames": []}
    segment = {key: 1 for key in SEGMENT} | {"address": 512, "blocks": [block], "frames": []}
    ours = {"segments": [segment], "device_traces": [[{"action": "alloc", "addr": 512, "size": 100, "stream": 0}] * 3]}
    theirs = copy.deepcopy(ours)
    theirs["device_traces"][0].pop()
    assert compare(ours, theirs) == []
    theirs["segments"][0]["blocks"][0]["state"] = "inactive"
    theirs["device_traces"][0][0] = {"action": "oom"}
    assert len(compare(ours, theirs)) == 2
    theirs["segments"] = []
    assert len(compare(ours, theirs)) == 2
    print("self-test passed")


if sys.argv[1:] == ["--self-test"]:
    self_test()
    sys.exit()
if len(sys.argv) != 3:
    sys.exit(__doc__)
differences = compare(*(pickle.load(open(path, "rb")) for path in sys.argv[1:]))
print(*differences[:20], sep="\n")
sys.exit(1 if differences else 0)
