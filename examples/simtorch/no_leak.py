#!/usr/bin/env python3
"""A training loop without a leak. Caches and optimizer state grow during the first steps only."""
import simtorch as torch

LAYERS, MASKS = 6, 40


class Model:
    def __init__(self):
        self.weights = [torch.empty(4 << 20, None) for _ in range(LAYERS)]
        self.state, self.masks = {}, {}

    def mask(self, length):
        if length not in self.masks:
            self.masks[length] = torch.empty(length * 4096, None)
        return self.masks[length]

    def forward(self, step):
        self.mask(64 + min(step, step * 37 % MASKS))
        return [torch.empty((256 << 10) + step % 5 * 8192, None) for _ in range(LAYERS)]

    def update(self, step):
        """Allocates the optimizer's momentum of one layer in each of the first steps."""
        if step < LAYERS:
            self.state[step] = torch.empty(8 << 20, None)


def main():
    loop = torch.Loop(__doc__)
    model = Model()
    for step in loop:
        activations = model.forward(step)
        gradients = [torch.empty(a.bytes, None) for a in activations]
        del activations
        model.update(step)
        del gradients
    loop.finish(__file__, leaks=False)


if __name__ == "__main__":
    main()
