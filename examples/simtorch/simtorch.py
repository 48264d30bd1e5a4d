"""Tensors for Python programs: the allocator of libc10_cuda.so through ctypes.

`empty(bytes, stream)` is the C function itself. So while it allocates, the innermost Python frame
is the calling line, as with PyTorch. It returns a Tensor, which is freed after its last reference.

The environment variable SIMTORCH_LIB names the folder of the library. Default: build/simtorch in
the repository.
"""
import ctypes
import os
import sys
import time

_folder = os.environ.get("SIMTORCH_LIB") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "simtorch")
_library = ctypes.CDLL(os.path.join(_folder, "libc10_cuda.so"))


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    __slots__ = ("ptr", "bytes")

    def __init__(self, ptr, size):
        self.ptr, self.bytes = ptr, size

    def __del__(self, free=_library.simtorch_free):
        free(self.ptr)


def _declare(name, result, *arguments, library=_library):
    function = getattr(library, "simtorch_" + name)
    function.restype, function.argtypes = result, arguments
    return function


def _tensor(ptr, _function, arguments):
    if not ptr:
        raise OutOfMemoryError(f"out of memory: tried to allocate {arguments[0]} bytes")
    return Tensor(ptr, arguments[0])


_pointer = ctypes.c_void_p
_declare("free", None, _pointer)
init = _declare("init", ctypes.c_int)
set_device = _declare("set_device", None, ctypes.c_int)
memory = _declare("memory", ctypes.c_size_t)
set_per_process_memory_fraction = _declare("set_memory_fraction", None, ctypes.c_double)
new_stream = _declare("stream", _pointer)
empty = _declare("alloc", _pointer, ctypes.c_size_t, _pointer)
empty.errcheck = _tensor
_record_stream = _declare("record_stream", None, _pointer, _pointer)
_work = _declare("work", None, _pointer, ctypes.c_size_t, _pointer)
empty_cache = _declare("empty_cache", None)
pool_create = _declare("pool_create", ctypes.c_uint64)
pool_begin = _declare("pool_begin", None, ctypes.c_uint64)
pool_end = _declare("pool_end", None, ctypes.c_uint64)
snapshot = _declare("snapshot", None)
checkpoint = _declare("checkpoint", None)
verify = _declare("verify", None)
events = _declare("events", ctypes.c_uint64)
_stat = _declare("stat", ctypes.c_int64, ctypes.c_char_p)


def stat(name):
    return _stat(name.encode())


def load_engine():
    """Loads the autograd engine, whose thread allocates gradients, and declares its functions.

    `backward(bytes, count, checkpointed, into)` makes gradients and stores their addresses in into. It is the
    C function itself, like empty. It returns their number, or 0 if memory is out.
    """
    global backward, backward_alone, backward_together
    engine = ctypes.CDLL(os.path.join(_folder, "libtorch_cpu.so"))
    integer, size = ctypes.c_int, ctypes.c_size_t
    backward = _declare("backward", integer, size, integer, integer, _pointer, library=engine)
    backward_alone = _declare("backward_alone", integer, size, integer, _pointer, library=engine)
    backward_together = _declare("backward_together", None, integer, library=engine)


class Gradients:
    """Space for the gradients of some parameters. keep() returns them as tensors, which free their memory."""

    def __init__(self, count):
        self.count, self.into = count, (ctypes.c_void_p * count)()

    def keep(self, size):
        return [Tensor(ptr, size) for ptr in self.into]


def record_stream(tensor, stream):
    """Uses the tensor on another stream. After a free, its memory is reused when that stream is done."""
    _record_stream(tensor.ptr, stream)
    _work(tensor.ptr, tensor.bytes, stream)


def line_of(file, marker):
    """Returns the number of the line that ends with the given comment."""
    with open(file) as lines:
        return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith("# " + marker))


class Loop:
    """A training loop: iterate over it for paced steps, then print the truth.

    With --wait it prints "ready PID" and starts at the first byte of stdin. After "done STEPS" it
    waits for another byte, so that a recorder can attach and drain.
    """

    def __init__(self, description):
        import argparse

        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--steps", type=int, default=500)
        parser.add_argument("--step-ms", type=float, default=10)
        parser.add_argument("--wait", action="store_true")
        self.options = parser.parse_args()
        self.leaked = 0
        init()

    def __iter__(self):
        if self.options.wait:
            print("ready", os.getpid(), flush=True)
            sys.stdin.read(1)
        self.start = time.monotonic()
        for step in range(self.options.steps):
            yield step
            ahead = self.start + (step + 1) * self.options.step_ms / 1000 - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        self.minutes = (time.monotonic() - self.start) / 60

    def finish(self, file, leaks, caller=False):
        """Prints truth, file, line of the leak (0: none), leaked bytes and leaked bytes per minute.

        With caller, it also prints the line of the caller that keeps the memory.
        """
        checkpoint()
        line = line_of(file, "the leak") if leaks else 0
        print("done", self.options.steps)
        truth = [os.path.basename(file), line, self.leaked, round(self.leaked / self.minutes)]
        if caller:
            truth.append(line_of(file, "the caller"))
        print("truth", *truth, sep="\t", flush=True)
        if self.options.wait:
            sys.stdin.read(1)
