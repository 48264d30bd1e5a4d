"""A training loop of bf16 matrix products whose SM clock falls at a known time.

    python3 clocks.py --fault FAULT [--seconds 60] [--at 30] [--size 2048] [--load-size 8192]

FAULT is load or none. The products of the training are small and leave power for high clocks. With load, a
second thread begins large products on a stream of its own at the time --at, in seconds after "ready". They
reach the power cap of the GPU, so the SM clock falls and steps become longer. With none, nothing changes.

The program prints "ready PID" after its warm-up, one line of JSON with the truth, and its steps at the end:

    {"fault": "load", "begin_ns": 1790000000000000000, "series": ["SM clock", "power", "step time"]}

begin_ns is Unix time in ns: the launch of the first large product. Compare it with gpurec analyze changes.
"""
import argparse
import json
import os
import threading
import time

import torch


def make_products(size):
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    return a, b, torch.empty_like(a)


def run_load(products, begin, end):
    """Computes large products from begin on, until end."""
    a, b, c = products
    begin.wait()
    if end.is_set():
        return
    truth = {"fault": "load", "begin_ns": time.time_ns(), "series": ["SM clock", "power", "step time"]}
    print(json.dumps(truth), flush=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        while not end.is_set():
            for _ in range(8):
                torch.matmul(a, b, out=c)
            torch.cuda.current_stream().synchronize()


def train_step(products):
    a, b, c = products
    for _ in range(64):
        torch.matmul(a, b, out=c)
    torch.cuda.current_stream().synchronize()
    time.sleep(0.01)  # the data loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=("load", "none"), required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--at", type=float, default=30)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--load-size", type=int, default=8192)
    options = parser.parse_args()

    products, large = make_products(options.size), make_products(options.load_size)
    for _ in range(20):
        train_step(products)
    torch.matmul(large[0], large[1], out=large[2])  # loads its kernel
    torch.cuda.synchronize()
    begin, end = threading.Event(), threading.Event()
    second = threading.Thread(target=run_load, args=(large, begin, end), name="load")
    second.start()
    print("ready", os.getpid(), flush=True)
    start, steps = time.monotonic(), 0
    while time.monotonic() - start < options.seconds:
        if options.fault == "load" and time.monotonic() - start >= options.at:
            begin.set()
        train_step(products)
        steps += 1
    end.set()
    begin.set()
    second.join()
    if options.fault == "none":
        print(json.dumps({"fault": "none"}), flush=True)
    print(f"{steps / (time.monotonic() - start):.2f} steps/s", flush=True)


if __name__ == "__main__":
    main()
