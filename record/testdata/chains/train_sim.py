"""A simulated training loop that writes the stack of each of its launches.

    train_sim.py CHAINS.SO EXPECTED.JSONL [--variant plain|recursive|random] [--seconds N] [--rate LAUNCHES_PER_SECOND] [--seed N]

prints "ready", waits for a byte on stdin, trains for N seconds, prints "done LAUNCHES" and waits for the end of stdin.
gridDimX of a launch is the number of its stack in EXPECTED. Two launches have the same number only if all their frames are
the same, including the lines of Python frames. Layers repeat, different call sites run the same functions at the same
depth, and all launches go through one native function. So stacks with equal inner frames differ in outer frames. The
backward pass runs in a native thread.

    plain      a transformer: the same launches in every step
    recursive  trees of layers, of another shape in every step
    random     the transformer's layers in another order in every step, through several call paths of the same length
"""
import argparse
import ctypes
import json
import os
import random
import sys
import time

options = argparse.ArgumentParser()
options.add_argument("library")
options.add_argument("expected")
options.add_argument("--variant", choices=["plain", "recursive", "random"], default="plain")
options.add_argument("--seconds", type=float, default=3)
options.add_argument("--rate", type=float, default=0)
options.add_argument("--seed", type=int, default=1)
options.add_argument("--layers", type=int, default=6)
options.add_argument("--modules", help="folder of another class Module, ../modules")
options = options.parse_args()

library = ctypes.CDLL(options.library)
gemm, softmax, norm, elementwise, composite = (
    getattr(library, name) for name in ("op_gemm", "op_softmax", "op_norm", "op_elementwise", "op_composite"))
synchronize = library.op_synchronize
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int)
NATIVE = {  # native functions of an operation, innermost first
    "gemm": ["launch_kernel", "op_gemm"], "softmax": ["launch_kernel", "op_softmax"], "norm": ["launch_kernel", "op_norm"],
    "elementwise": ["launch_kernel", "op_elementwise"], "composite": ["launch_kernel", "op_elementwise", "op_composite"],
}
BACKWARD = ["backward_node", "backward_thread"]
BACKWARD_GEMM, BACKWARD_REDUCE = 1, 2  # backward_node calls one function for odd numbers, the other for even ones

numbers = {}  # stack -> its number
stacks = {  # number -> stack
    BACKWARD_GEMM: ["launch_kernel", "backward_gemm", *BACKWARD], BACKWARD_REDUCE: ["launch_kernel", "backward_reduce", *BACKWARD]}
launches = 0


def at(op):
    """Returns the number of the stack from which the caller launches op on the same line."""
    global launches
    launches += 1
    frame, key = sys._getframe(1), [op]
    while frame is not None:
        key.append(frame.f_code)
        key.append(frame.f_lineno)
        frame = frame.f_back
    key = tuple(key)
    number = numbers.get(key)
    if number is None:
        number = numbers[key] = len(stacks) + 1
        stacks[number] = key
    return number


class Module:
    def __call__(self, *args, **kwargs):
        return self._wrapped_call_impl(*args, **kwargs)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


if options.modules:
    sys.path.insert(0, options.modules)
    from torch.nn.modules.module import Module


class Linear(Module):
    def __init__(self, bias=True):
        self.bias = bias

    def forward(self, x):
        x += gemm(at("gemm"))
        if self.bias:
            x += elementwise(at("elementwise"))
        return x


class LayerNorm(Module):
    def forward(self, x):
        return x + norm(at("norm"))


class GELU(Module):
    def forward(self, x):
        return x + composite(at("composite"))


class Dropout(Module):
    def forward(self, x):
        return x + elementwise(at("elementwise"))


def scaled_dot_product(q, k, v):
    scores = gemm(at("gemm"))
    weights = softmax(at("softmax"))
    return scores + weights + gemm(at("gemm"))


class Attention(Module):
    def __init__(self):
        self.q, self.k, self.v, self.out, self.dropout = Linear(), Linear(), Linear(), Linear(bias=False), Dropout()

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        x = scaled_dot_product(q, k, v)
        return self.dropout(
            self.out(
                x))


class MLP(Module):
    def __init__(self):
        self.layers = [Linear(), GELU(), Linear(), Dropout()]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Block(Module):
    def __init__(self):
        self.ln_1, self.attn, self.ln_2, self.mlp = LayerNorm(), Attention(), LayerNorm(), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x += elementwise(at("elementwise"))
        normed = self.ln_2(x)
        x = x + self.mlp(normed)
        x += elementwise(at("elementwise"))
        return x


class Transformer(Module):
    def __init__(self, layers):
        self.blocks = [Block() for _ in range(layers)]
        self.ln_f, self.head = LayerNorm(), Linear(bias=False)

    def forward(self, x):
        x += elementwise(at("elementwise"))
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        return self.head(x)


class Tree(Module):
    """A tree of layers down to depth 0, whose shape is random."""

    def __init__(self, chance):
        self.chance, self.leaves = chance, [LayerNorm(), Linear(), GELU(), Dropout()]

    def forward(self, x, depth):
        if depth == 0 or self.chance.random() < 0.2:
            return self.chance.choice(self.leaves)(x)
        x = self.forward(x, depth - 1)
        if self.chance.random() < 0.4:
            x = self(x, depth - 1)
        return x + norm(at("norm"))


class Shuffled(Module):
    """Layers in random order. Only the line of one frame shows which of three calls called a layer."""

    def __init__(self, chance):
        self.chance = chance
        self.layers = [LayerNorm(), Linear(), GELU(), Dropout(), Attention(), MLP(), Block()]

    def one(self, layer, x):
        return layer(x)

    def other(self, layer, x):
        return layer(x)

    def forward(self, x):
        for _ in range(12):
            layer = self.chance.choice(self.layers)
            way = self.chance.randrange(4)
            if way == 0:
                x = self.one(layer, x)
            elif way == 1:
                x = self.other(layer, x)
            elif way == 2:
                x = self.one(layer, x)
            else:
                x = layer(x)
        return x


class AdamW:
    def __init__(self, parameters):
        self.parameters = parameters

    def step(self):
        for i in range(self.parameters):
            if i % 4:
                self.fused()
            else:
                self.single()

    def fused(self):
        elementwise(at("elementwise"))
        elementwise(at("elementwise"))

    def single(self):
        elementwise(at("elementwise"))

    def zero_grad(self):
        for _ in range(self.parameters):
            elementwise(at("elementwise"))


class Function:
    """A gradient function in Python, which the native engine runs."""

    @staticmethod
    def scale():
        elementwise(at("elementwise"))

    @staticmethod
    def project():
        gemm(at("gemm"))
        Function.scale()


def run_backward(which):
    if which % 2:
        Function.scale()
    else:
        Function.project()


engine_callback = CALLBACK(run_backward)


def backward(nodes):
    global launches
    launches += sum(node > 0 for node in nodes)
    library.backward_run((ctypes.c_int * len(nodes))(*nodes), len(nodes), engine_callback)


def loss_of(x):
    x = softmax(at("softmax"))
    return x + composite(at("composite"))


def train_step(model, optimizer, chance):
    optimizer.zero_grad()
    if options.variant == "recursive":
        x = model(0, chance.randrange(1, 12))
    else:
        x = model(0)
    loss_of(x)
    nodes = [BACKWARD_GEMM, BACKWARD_REDUCE, BACKWARD_GEMM, -1, BACKWARD_REDUCE, -2] * options.layers
    if options.variant != "plain":
        chance.shuffle(nodes)
    backward(nodes)
    optimizer.step()
    synchronize()


def train(model, seconds):
    chance = random.Random(options.seed)
    optimizer = AdamW(8)
    begin = time.monotonic()
    while (now := time.monotonic() - begin) < seconds:
        if options.rate and launches > options.rate * now:
            time.sleep(0.001)
            continue
        train_step(model, optimizer, chance)


def frames_of(number):
    stack = stacks[number]
    if isinstance(stack, list):
        return [{"func": name} for name in stack]
    frames = [{"func": name} for name in NATIVE[stack[0]]]
    for code, line in zip(stack[1::2], stack[2::2]):
        frames.append({"func": getattr(code, "co_qualname", code.co_name), "file": code.co_filename, "line": line})
    if stack[-2] is run_backward.__code__:
        frames += [{"func": name} for name in ["backward_custom", *BACKWARD]]
    return frames


def main():
    chance = random.Random(options.seed + 1)
    model = {"plain": lambda: Transformer(options.layers), "recursive": lambda: Tree(chance), "random": lambda: Shuffled(chance)}
    library.chains_init()
    model = model[options.variant]()
    print("ready", os.getpid(), flush=True)
    sys.stdin.read(1)
    train(model, options.seconds)
    with open(options.expected, "w") as file:
        for number in stacks:
            native_only = number in (BACKWARD_GEMM, BACKWARD_REDUCE)
            print(json.dumps({"name": f"stack {number}", "grid_x": number, "python": not native_only, "frames": frames_of(number)}),
                  file=file)
    print("done", launches, flush=True)
    sys.stdin.read()


main()
