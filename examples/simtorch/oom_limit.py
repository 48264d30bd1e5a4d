#!/usr/bin/env python3
"""Runs out of memory twice under a memory limit, the first time because of fragmentation.

    SIMCUDA_MEMORY=32G python3 oom_limit.py [--wait]

The limit is 1/64 of the device. Each 20 MiB segment has a block of 9 MiB, followed by a gap. The
first request is smaller than the sum of the gaps, the second is larger. The device has room for
both. On a much smaller device with expandable segments, the first request succeeds in the free last
page.

Prints for each request: truth, bytes requested, unused and allowed, and "fits" or "not". With
--wait it prints "ready PID" and starts at the first byte of stdin.
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
