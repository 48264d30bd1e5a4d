#!/usr/bin/env python3
"""Replays the events of a ledger and compares the results with the ledger's checkpoints.

    python3 replay.py LEDGER

Uses only the data that a recorder sees: action, address, bytes, stream, device and pool of each
call of record_trace, in order. From these it computes block sizes, allocated, reserved and cached
bytes, and bytes that cannot be returned to the driver. Prints how many events and checkpoints
agree, or the first difference.
"""
import bisect
import sys

BLOCK, SMALL = 512, 1 << 20


class Mismatch(Exception):
    pass


def require(got, want, what):
    if got != want:
        raise Mismatch(f"{what}: the replay has {got}, the ledger {want}")


class Ranges:
    """Disjoint address ranges. `known` maps the start of each range to its size or block."""

    def __init__(self):
        self.starts, self.known = [], {}

    def add(self, start, known):
        bisect.insort(self.starts, start)
        self.known[start] = known

    def remove(self, start):
        del self.starts[bisect.bisect_left(self.starts, start)]
        return self.known.pop(start)

    def at_or_before(self, address):
        i = bisect.bisect_right(self.starts, address) - 1
        return self.starts[i] if i >= 0 else None

    def after(self, address):
        i = bisect.bisect_right(self.starts, address)
        return self.starts[i] if i < len(self.starts) else None

    def between(self, begin, end):
        return self.starts[bisect.bisect_left(self.starts, begin) : bisect.bisect_left(self.starts, end)]


class Block:
    def __init__(self, size, requested):
        self.size, self.requested, self.allocated = size, requested, True


class Device:
    """The state of one allocator: its segments, and their blocks that are not free."""

    def __init__(self):
        self.segments = Ranges()  # start -> size, segments from cudaMalloc
        self.blocks = Ranges()  # start -> Block
        self.now = dict.fromkeys(
            "allocated_bytes reserved_bytes requested_bytes active_bytes segments allocations active_blocks ooms "
            "device_allocs device_frees allocated_peak reserved_peak allocated_total allocations_total "
            "segments_total".split(), 0)

    def add(self, **amounts):
        for name, amount in amounts.items():
            self.now[name] += amount
        for kind in ("allocated", "reserved"):
            self.now[f"{kind}_peak"] = max(self.now[f"{kind}_peak"], self.now[f"{kind}_bytes"])

    def block_size(self, ptr, requested):
        """Returns the block size: the rounded request, plus a rest that is too small to be split off."""
        size = (requested + BLOCK - 1) // BLOCK * BLOCK or BLOCK
        segment = self.segments.at_or_before(ptr)
        if segment is None or ptr >= segment + self.segments.known[segment]:
            return size  # in an expandable segment, where every rest is split off
        end = segment + self.segments.known[segment]
        following = self.blocks.after(ptr)
        free = (end if following is None else min(end, following)) - ptr
        return free if size > SMALL and free - size <= SMALL else size

    def alloc(self, ptr, requested):
        block = Block(self.block_size(ptr, requested), requested)
        self.blocks.add(ptr, block)
        self.add(allocated_bytes=block.size, requested_bytes=requested, active_bytes=block.size, allocations=1,
                 active_blocks=1, allocated_total=block.size, allocations_total=1)

    def free_requested(self, ptr, requested):
        block = self.blocks.known[ptr]
        require(block.requested, requested, f"bytes freed at {ptr:#x}")
        block.allocated = False
        self.add(allocated_bytes=-block.size, allocations=-1)

    def free_completed(self, ptr):
        block = self.blocks.remove(ptr)
        require(block.allocated, False, f"allocated when the free of {ptr:#x} completed")
        self.add(active_bytes=-block.size, requested_bytes=-block.requested, active_blocks=-1)

    def segment_alloc(self, ptr, size):
        self.segments.add(ptr, size)
        self.add(reserved_bytes=size, segments=1, segments_total=1, device_allocs=1)

    def segment_free(self, ptr, size):
        require(self.segments.remove(ptr), size, f"size of segment {ptr:#x}")
        self.add(reserved_bytes=-size, segments=-1, device_frees=1)

    def segment_map(self, size):
        self.add(reserved_bytes=size, device_allocs=1)

    def segment_unmap(self, ptr, size):
        require(self.blocks.between(ptr, ptr + size), [], f"blocks in the range unmapped at {ptr:#x}")
        self.add(reserved_bytes=-size, device_frees=1)

    def inactive_split(self):
        """Returns bytes and number of the free parts of segments that are partly in use."""
        total = pieces = 0
        for start in self.segments.starts:
            end = start + self.segments.known[start]
            blocks = self.blocks.between(start, end)
            if not blocks:
                continue
            free_from = start
            for block in blocks + [end]:
                total += block - free_from
                pieces += block > free_from
                free_from = block + self.blocks.known[block].size if block != end else end
        return total, pieces


def replay_event(devices, event):
    """Applies an event, and checks that statistics change before or after it, as in PyTorch."""
    action, ptr, size = event["action"], int(event["ptr"], 16), int(event["bytes"])
    if action == "snapshot":
        return  # snapshots always have device 0
    device = devices.setdefault((event["pid"], event["device"]), Device())

    def check():
        for name in ("allocated_bytes", "reserved_bytes"):
            require(device.now[name], int(event[name]), f"{name} at {action}")

    if action == "alloc":
        check()
        device.alloc(ptr, size)
        require(device.blocks.known[ptr].size, int(event["block_bytes"]), f"block of {size} bytes at {ptr:#x}")
    elif action == "segment_free":
        check()
        device.segment_free(ptr, size)
    else:
        if action == "free_requested":
            device.free_requested(ptr, size)
        elif action == "free_completed":
            device.free_completed(ptr)
        elif action == "segment_alloc":
            device.segment_alloc(ptr, size)
        elif action == "segment_map":
            device.segment_map(size)
        elif action == "segment_unmap":
            device.segment_unmap(ptr, size)
        check()
        if action == "oom":
            device.add(ooms=1)


def check_checkpoint(devices, line):
    device = devices.setdefault((line["pid"], line["device"]), Device())
    for name, value in device.now.items():
        require(value, int(line[name]), f"{name} at a checkpoint")
    total, pieces = device.inactive_split()
    require(total, int(line["inactive_split_bytes"]), "inactive_split_bytes")
    require(pieces, int(line["inactive_split_blocks"]), "inactive_split_blocks")


def check_usage(devices, line):
    """Checks a report, which follows an alloc, or a free_requested and the events that it caused."""
    if line["device"] == "-1":  # CPU memory
        return
    device = devices[(line["pid"], line["device"])]
    for name in ("allocated_bytes", "reserved_bytes"):
        require(device.now[name], int(line[name]), f"{name} of a report")


def main(path):
    columns, devices, count = {}, {}, {"event": 0, "usage": 0, "checkpoint": 0}
    for number, text in enumerate(open(path), 1):
        fields = text.rstrip("\n").split("\t")
        if text.startswith("#"):
            columns[fields[0][1:]] = fields[1:]
            continue
        kind, line = fields[0], dict(zip(columns[fields[0]], fields[1:]))
        count[kind] += 1
        try:
            if kind == "event":
                replay_event(devices, line)
            elif kind == "usage":
                check_usage(devices, line)
            else:
                check_checkpoint(devices, line)
        except (Mismatch, KeyError) as e:
            sys.exit(f"replay: {path}:{number}: {e}")
    print(f"replay: {count['event']} events, {count['usage']} reports and {count['checkpoint']} checkpoints agree")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
