"""Launches a Triton kernel, and prints the bytes of its values: one line "launch KERNEL HEX HEX ..." for each launch.

scripts/test-gpu-pointers.sh compares the lines with a recording.
"""

import struct
import sys
import time

import torch
import triton
import triton.language as tl


@triton.jit
def add_scaled(x, y, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + factor * tl.load(y + at, mask=mask), mask=mask)


def main():
    launches = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    x, y = torch.rand(100_003, device="cuda"), torch.rand(100_003, device="cuda")
    out = torch.empty_like(x)
    for i in range(launches):
        n, factor = 100_003 - 2 * i, 0.5 + i
        add_scaled[(triton.cdiv(n, 1024),)](x, y, out, n, factor, BLOCK=1024)
        values = [struct.pack("<Q", t.data_ptr()) for t in (x, y, out)]
        values += [struct.pack("<i", n), struct.pack("<f", factor)]
        print("launch add_scaled", *(v.hex() for v in values))
    torch.cuda.synchronize()
    sys.stdout.flush()
    time.sleep(1)


main()
