"""Launches kernels from trees of modules, and writes the classes of the modules around each launch.

    train.py CHAINS.SO LEDGER.JSON [--style STYLE] [--seed N] [--steps N] [--classes N] [--stable]

prints "ready", waits for a byte on stdin, trains N steps in two threads, prints "done LAUNCHES" and waits for the end of
stdin. gridDimX of a launch is the number of its class path in LEDGER, a JSON object {number: [launches, [class, ...]]} with
the outermost class first. STYLE is explained in module.py. The program finds the path without the interpreter's frames: each forward function adds
type(self).__name__ to a list of its thread.

Trees have random shapes. Most classes have no forward function of their own, so frames and lines of different classes are
the same. Some classes are created while the program trains, and freed later.
"""
import argparse
import ctypes
import gc
import json
import os
import random
import sys
import threading

options = argparse.ArgumentParser()
options.add_argument("library")
options.add_argument("ledger")
options.add_argument("--seed", type=int, default=1)
options.add_argument("--steps", type=int, default=100)
options.add_argument("--classes", type=int, default=30)
options.add_argument("--stable", action="store_true", help="keep the classes and modules of the first step")
options.add_argument("--style", choices=["wrapped", "call", "cell"], default="wrapped")
options = options.parse_args()

os.environ["MODULE_STYLE"] = options.style
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch.nn.modules.module import Module  # noqa: E402

library, driver = ctypes.CDLL(options.library), ctypes.CDLL("libcuda.so.1")
kernels = [library.op_gemm, library.op_softmax, library.op_norm, library.op_elementwise, library.op_composite]

lock = threading.Lock()
numbers, launches = {}, {}  # class path -> its number; number -> launches
own = threading.local()


def at():
    """Returns the number of the thread's class path, and counts a launch of it."""
    path = tuple(getattr(own, "path", ()))
    with lock:
        number = numbers.setdefault(path, len(numbers) + 1)
        launches[number] = launches.get(number, 0) + 1
    return number


class Inside:
    def __init__(self, module):
        self.name = type(module).__name__

    def __enter__(self):
        if not hasattr(own, "path"):
            own.path = []
        own.path.append(self.name)

    def __exit__(self, *what):
        own.path.pop()


class Leaf(Module):
    def __init__(self, kernel):
        self.kernel = kernel

    def forward(self, x):
        with Inside(self):
            for _ in range(x % 3 + 1):
                self.kernel(at())
        return x


class Container(Module):
    def __init__(self, children):
        self.children = children

    def forward(self, x):
        with Inside(self):
            kernels[0](at())
            for child in self.children:
                x = child(x)
            kernels[1](at())
        return x


class Residual(Container):
    """Calls its children with keywords, and from a generator."""

    def forward(self, x):
        with Inside(self):
            for y in (child(x=x) for child in self.children):
                kernels[2](at())
        return y


class Other:
    """A class with methods of the same names in another file. It is no module."""

    def __call__(self, x):
        return self._wrapped_call_impl(x)

    def _wrapped_call_impl(self, x):
        return self._call_impl(x)

    def _call_impl(self, x):
        kernels[3](at())
        return x


def new_class(chance, i):
    base = chance.choice([Leaf, Leaf, Leaf, Container, Container, Residual])
    name = chance.choice(["Linear", "Block", "GPT2Attention", "Schicht_größe", "层", "Very" * 11 + "Long", "_Private"]) + str(i)
    return type(name, (base,), {})


def tree(chance, classes, depth):
    if chance.random() < 0.1:
        return Other()
    of = chance.choice(classes)
    if not issubclass(of, Container) or depth == 0:
        while not issubclass(of, Leaf):
            of = chance.choice(classes)
        return of(chance.choice(kernels))
    return of([tree(chance, classes, depth - 1) for _ in range(chance.randrange(1, 4))])


def train(seed, context):
    driver.cuCtxSetCurrent(context)
    chance = random.Random(seed)
    classes = [Leaf, Container] + [new_class(chance, i) for i in range(options.classes)]
    models = [tree(chance, classes, chance.randrange(1, 9)) for _ in range(8)]
    for step in range(options.steps):
        kernels[3](at())
        chance.choice(models)(step)
        if not options.stable and step % 10 == 9:  # new classes, and an end of old ones
            kept = chance.sample(classes, len(classes) - 5)
            classes = [Leaf, Container] + [c for c in kept if c not in (Leaf, Container)]
            classes += [new_class(chance, 1000 * step + i) for i in range(5)]
            models = [tree(chance, classes, chance.randrange(1, 9)) for _ in range(8)]
            gc.collect()


def main():
    library.chains_init()
    context = ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    print("ready", os.getpid(), flush=True)
    sys.stdin.read(1)
    threads = [threading.Thread(target=train, args=(options.seed + 100 * i, context)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    library.op_synchronize()
    with open(options.ledger, "w") as file:
        json.dump({number: [launches[number], list(path)] for path, number in numbers.items()}, file)
    print("done", sum(launches.values()), flush=True)
    sys.stdin.read()


main()
