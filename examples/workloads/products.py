"""Eight matrix products and eight tanh a step, with a small operation between them. Measures both kernels itself.

    python3 products.py --copy pageable --bytes 12 --seconds 40

The program measures the mean times of both kernels with CUDA events: before its loop, and with --events in the loop. The
last line of its output is JSON with these times. --reference FOLDER lets CUPTI record it as referenced.py does:
FOLDER/libreference.so is loaded, and FOLDER/on and FOLDER/off turn CUPTI on and off.
"""
import argparse
import json
import os
import random
import time

import torch

from reference import Reference

LAYERS, SIZE = 8, 4096


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--copy", choices=["none", "pageable", "pinned", "to-host"], default="none")
    parser.add_argument("--bytes", type=int, default=12, help="length of the copy, a multiple of 4")
    parser.add_argument("--memset", action="store_true", help="a memset after each product")
    parser.add_argument("--item", action="store_true", help="read one number of the result in each step")
    parser.add_argument("--events", action="store_true", help="measure kernels with events in each 10th step")
    parser.add_argument("--streams", type=int, default=1, help="streams that run layers in turn")
    parser.add_argument("--graph", action="store_true", help="run the layers as a CUDA graph")
    parser.add_argument("--pause-ms", type=float, default=300, help="length of a pause, one in 40 steps")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--reference", help="folder of libreference.so")
    return parser.parse_args()


def mean_us(run, count=200):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    begin.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / count


class Program:
    def __init__(self, options):
        self.options = options
        self.weights = [torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(LAYERS)]
        self.x = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.streams = [torch.cuda.Stream() for _ in range(options.streams)] if options.streams > 1 else [None]
        words = max(1, options.bytes // 4)
        self.host = torch.randn(words, pin_memory=options.copy == "pinned")
        self.device = torch.randn(words, device="cuda")
        self.scratch = torch.empty(1 << 18, device="cuda")
        self.timed = {"product": [], "tanh": []}
        self.graph = None
        if options.graph:
            self.layers(self.x)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.layers(self.x)

    def layers(self, x, timed=False):
        for weight in self.weights:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if timed else []
            if timed:
                marks[0].record()
            x = x @ weight
            if self.options.memset:
                self.scratch.zero_()
            if timed:
                marks[1].record()
            x = torch.tanh(x)
            if timed:
                marks[2].record()
                self.timed["product"].append(marks[:2])
                self.timed["tanh"].append(marks[1:])
        return x

    def copy(self):
        if self.options.copy in ("pageable", "pinned"):
            return self.host.to("cuda", non_blocking=self.options.copy == "pinned")
        if self.options.copy == "to-host":
            self.device.to("cpu")
        return self.device

    def step(self, number):
        with torch.cuda.stream(self.streams[number % len(self.streams)]):
            x = self.x + self.copy().sum().to(torch.bfloat16) * 0
            if self.graph:
                self.graph.replay()
            else:
                x = self.layers(x, timed=self.options.events and number % 10 == 0)
            if self.options.item:
                x[0, 0].item()

    def timed_us(self, name):
        pairs = self.timed[name][80:]  # not those of the first steps
        return sum(a.elapsed_time(b) for a, b in pairs) * 1000 / len(pairs) if pairs else None


def main():
    options = parse()
    print("pid", os.getpid(), flush=True)
    random.seed(1)
    program = Program(options)
    product_us = mean_us(lambda: program.x @ program.weights[0])
    tanh_us = mean_us(lambda: torch.tanh(program.x))
    reference = None
    if options.reference:
        reference = Reference(options.reference, os.path.join(options.reference, "libreference.so"))
        reference.write("ready")
    steps, begin = 0, time.time()
    while time.time() - begin < options.seconds and not (reference and reference.is_over):
        program.step(steps)
        if reference:
            reference.look()
        if random.random() < 1 / 40:
            time.sleep(options.pause_ms / 1000)
        steps += 1
    torch.cuda.synchronize()
    truth = {"product_us": product_us, "tanh_us": tanh_us, "steps": steps,
             "loop_product_us": program.timed_us("product"), "loop_tanh_us": program.timed_us("tanh")}
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
