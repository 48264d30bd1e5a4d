#!/usr/bin/env python3
"""Runs out of memory twice under a limit, first for fragmentation.

    SIMCUDA_MEMORY=32G python3 oom_limit.py [--wait]

On a much smaller device the first request fits with expandable segments: their last page is free.
1/64 of the device may be reserved. Segments of 20 MiB have a block of 9 MiB each and a gap behind
it. The first request fits into all gaps together, the second does not; both fit on the device.
Prints for each: truth, bytes requested, unused, allowed, and fits or not. With --wait it prints
"ready PID" and starts at the first byte of stdin.
"""
import os
import sys

import simtorch as torch

MIB = 1 << 20


def keep():
    return torch.empty(9 * MIB, None)


def request(size, allowed):
    try:
        torch.empty(size, None)
    except torch.OutOfMemoryError:
        pass
    else:
        raise SystemExit(f"{size} bytes were allocated in spite of the limit")
    unused = torch.stat("reserved_bytes") - torch.stat("active_bytes")
    print("truth", size, unused, allowed, "fits" if unused >= size else "not", sep="\t", flush=True)


def main():
    torch.init()
    if sys.argv[1:] == ["--wait"]:
        print("ready", os.getpid(), flush=True)
        sys.stdin.read(1)
    torch.set_per_process_memory_fraction(1 / 64)
    allowed = torch.memory() // 64
    blocks = [keep() for _ in range(allowed // (20 * MIB) * 2)]
    kept = blocks[::2]
    del blocks
    request(allowed // 5 // MIB * MIB, allowed)
    request(allowed * 4 // 5 // MIB * MIB, allowed)
    torch.checkpoint()
    torch.verify()
    del kept


if __name__ == "__main__":
    main()
