#!/usr/bin/env python3
"""A training loop with two backward passes. The gradients of one of them are kept in a list.

The thread of the autograd engine allocates all gradients, from one place of the library. Only the line that
calls backward() tells them apart. The sizes of the gradients tell a test which line an allocation is for.
"""
import threading

import simtorch as torch

PARAMETERS, CHECKPOINTED = 4, 2
MODEL, CRITIC, ALONE, TOGETHER, FAILED, DEEPER, AGAIN = (n << 10 for n in (96, 160, 12, 20, 28, 36, 44))


def train(loop, gradients, kept):
    for _ in loop:
        torch.backward(MODEL, gradients.count, CHECKPOINTED, gradients.into)
        gradients.keep(MODEL)  # frees them at once
        torch.backward(CRITIC, gradients.count, 0, gradients.into)  # the leak
        kept.extend(gradients.keep(CRITIC))
        loop.leaked += gradients.count * CRITIC


def use_alone(gradients):
    """Gradients that belong to no line: no thread is inside of the engine."""
    torch.backward_alone(ALONE, gradients.count, gradients.into)
    gradients.keep(ALONE)


def use_together():
    """Gradients that may belong to either of two lines: two threads are inside of the engine."""
    def run():
        gradients = torch.Gradients(PARAMETERS)
        torch.backward(TOGETHER, gradients.count, 0, gradients.into)
        gradients.keep(TOGETHER)

    torch.backward_together(2)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.backward_together(1)


def use_after_error(gradients):
    """Gradients after a call that an exception has left: no thread is inside of the engine."""
    if torch.backward(torch.memory() * 2, 1, 0, gradients.into):
        raise RuntimeError("a gradient larger than the device was allocated")
    batch = torch.empty(512, None)
    torch.backward_alone(FAILED, gradients.count, gradients.into)
    gradients.keep(FAILED)
    del batch


def use_deeper(gradients):
    """Calls from deeper in the stack than a call that an exception has left. The first one looks like an inner call."""
    torch.backward(torch.memory() * 2, 1, 0, gradients.into)
    for size in DEEPER, AGAIN:
        list(map(lambda size: torch.backward(size, gradients.count, 0, gradients.into), [size]))  # deeper
        gradients.keep(size)


def main():
    torch.load_engine()
    loop, gradients, kept = torch.Loop(__doc__.splitlines()[0]), torch.Gradients(PARAMETERS), []
    train(loop, gradients, kept)
    use_alone(gradients)
    use_together()
    use_after_error(gradients)
    use_deeper(gradients)
    steps, line = loop.options.steps, torch.line_of(__file__, "the leak")
    print("via", line - 2, MODEL, steps * PARAMETERS, sep="\t")
    print("via", line, CRITIC, steps * PARAMETERS, sep="\t")
    print("via", 0, ALONE, PARAMETERS, sep="\t")
    print("via", 0, TOGETHER, 2 * PARAMETERS, sep="\t")
    print("via", 0, FAILED, PARAMETERS, sep="\t")
    deeper = torch.line_of(__file__, "deeper")
    print("via", -deeper, DEEPER, PARAMETERS, sep="\t")  # this line or none
    print("via", deeper, AGAIN, PARAMETERS, sep="\t")
    loop.finish(__file__, leaks=True)


if __name__ == "__main__":
    main()
