#!/usr/bin/env python3
"""A training loop with a forward hook that stores each layer output and is never removed."""
import simtorch as torch

WIDTH = 200 << 10


class Layer:
    def __init__(self, size):
        self.weight, self.size, self.hooks = torch.empty(2 << 20, None), size, []

    def register_forward_hook(self, hook):
        self.hooks.append(hook)

    def __call__(self, x):
        y = torch.empty(self.size, None)
        for hook in self.hooks:
            hook(self, x, y)
        return y


class Attention(Layer):
    def __call__(self, x):
        y = torch.empty(self.size, None)  # the leak
        for hook in self.hooks:
            hook(self, x, y)
        return y


def main():
    loop = torch.Loop(__doc__)
    model = [Layer(WIDTH), Attention(WIDTH), Layer(WIDTH)]
    captured = []
    model[1].register_forward_hook(lambda layer, x, y: captured.append(y))
    for step in loop:
        x = torch.empty(WIDTH, None)
        for layer in model:
            x = layer(x)
        loop.leaked += captured[-1].bytes
    loop.finish(__file__, leaks=True)


if __name__ == "__main__":
    main()
