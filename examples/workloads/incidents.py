"""Provokes an incident on a GPU: python3 incidents.py oom|hang

oom keeps tensors until PyTorch has no memory left, and ends. hang waits for a kernel that does not end, until it is
killed. Prints the time of the incident in Unix ns.
"""
import sys
import time

import torch


def keep_tensors():
    kept = []
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))


def oom():
    try:
        keep_tensors()
    except torch.OutOfMemoryError:
        print("incident", time.time_ns(), flush=True)
    time.sleep(3)


def wait_forever():
    torch.cuda._sleep(1 << 62)
    print("incident", time.time_ns(), flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    torch.ones(1, device="cuda")
    {"oom": oom, "hang": wait_forever}[sys.argv[1]]()
