#!/usr/bin/env python3
"""Runs a program with one known fault, or without a fault, for some time. Tests of verdicts while recording use it.

    timed.py NAME [--seconds 40] [--at 12] [--wait]
    timed.py --list

The program prints "ready PID" and works for --seconds. A fault begins --at seconds after "ready". With --wait, the time
begins at the first line of standard input, which a runner writes when a recorder is attached; the program works before,
too. When the fault begins, the program prints "fault" and the time (CLOCK_REALTIME in ns). `--list` prints each name with its truth as
JSON lines: the kind of the fault, and the functions in which it is. Runs on simcuda and simtorch. Programs with `channels`
need SIMCUDA_CHANNELS=on and devfiles, as root.
"""
import argparse
import ctypes
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "simtorch"), os.path.join(HERE, "..", "hostwaits")]

KIB, MIB = 1 << 10, 1 << 20
STEP_S = 0.05
KERNEL_NS = 2_000_000
NEVER_NS = (1 << 64) - 1
INVALID_POINTER = ctypes.c_uint64(0x1234000)

CHECKED_PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry _Z5scalePf(.param .u64 .ptr .global .align 4 data) { ret; }
"""

programs = {}


class Program:
    """A program: its function, its fault or None, and whether it needs the durations of kernels."""

    def __init__(self, run, kind, functions, channels):
        self.run, self.kind, self.functions, self.channels = run, kind, functions, channels
        self.name = run.__name__.replace("_", "-")
        programs[self.name] = self

    def describe(self):
        return {"name": self.name, "kind": self.kind, "functions": self.functions, "channels": self.channels,
                "about": self.run.__doc__}


def fault(kind, *functions, channels=False):
    """Registers a program with a fault of the kind, in a line of one of the functions."""
    return lambda run: Program(run, kind, functions, channels)


def clean(run):
    """Registers a program without a fault."""
    return Program(run, None, (), False)


def clean_with_kernels(run):
    """Registers a program without a fault that needs the durations of kernels."""
    return Program(run, None, (), True)


class Clock:
    """The time of a running program. With waits, it is 0 until the first line of standard input."""

    def __init__(self, seconds, at, waits):
        self.seconds, self.at, self.waits, self.begin, self.announced = seconds, at, waits, None, False

    def ready(self):
        print("ready", os.getpid(), flush=True)
        if self.waits:
            threading.Thread(target=self.follow, daemon=True).start()
        else:
            self.begin = time.monotonic()

    def follow(self):
        sys.stdin.readline()
        self.begin = time.monotonic()

    def now(self):
        return time.monotonic() - self.begin if self.begin else 0

    def steps(self, length=STEP_S):
        """Yields the number of each step until the end. A step begins every length seconds."""
        self.ready()
        step, begin = 0, time.monotonic()
        while self.now() < self.seconds:
            yield step
            step += 1
            ahead = begin + step * length - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            else:
                step -= int(ahead / length)

    def is_due(self):
        """Returns whether the fault has begun. Announces it the first time."""
        if self.now() < self.at:
            return False
        if not self.announced:
            self.announced = True
            print("fault", time.time_ns(), flush=True)
        return True

    def is_first(self):
        """Returns whether the fault begins with this step."""
        return not self.announced and self.is_due()


class Model:
    """Weights and temporary tensors of simtorch."""

    def __init__(self):
        import simtorch

        self.torch = simtorch
        simtorch.init()
        self.weights = [simtorch.empty(4 * MIB, None) for _ in range(8)]
        self.chance = random.Random(1)

    def train(self, count=12):
        """Allocates activations and frees them at its end."""
        activations = [self.torch.empty(self.chance.choice((96, 128, 256, 384)) * KIB, None) for _ in range(count)]
        return len(activations)


def new_gpu():
    from cuda import GPU

    return GPU()


def work(gpu, launches=4):
    """Uploads a batch, launches kernels and waits for them."""
    gpu.upload()
    for _ in range(launches):
        gpu.launch(gpu.forward, KERNEL_NS)
    gpu.synchronize()


def check(result):
    if result:
        raise RuntimeError(f"error {result}")


def device_memory(gpu, size):
    pointer = ctypes.c_uint64()
    check(gpu.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer


# Leaks


def keep_prediction(torch, size):
    return torch.empty(size, None)


@fault("leak", "keep_prediction")
def late_leak(clock):
    """From --at on, each step keeps a tensor."""
    model, kept = Model(), []
    for _ in clock.steps():
        model.train()
        if clock.is_due():
            kept.append(keep_prediction(model.torch, 256 * KIB))


@fault("leak", "keep_prediction")
def trickle(clock):
    """Keeps 64 KiB a second, next to 300 temporary tensors a second."""
    model, kept = Model(), []
    for step in clock.steps():
        model.train(15)
        if step % 20 == 0:
            kept.append(keep_prediction(model.torch, 64 * KIB))


@fault("leak", "keep_prediction")
def leak_behind_a_cache(clock):
    """A cache fills for 10 s. Another function keeps a tensor in each second step from the start."""
    model, kept, cache = Model(), [], []
    for step in clock.steps():
        model.train()
        if len(cache) < 200:
            cache.append(fill_cache(model.torch))
        if step % 2 == 0:
            kept.append(keep_prediction(model.torch, 128 * KIB))


def pin_batch(gpu):
    pointer = ctypes.c_void_p()
    check(gpu.driver.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(256 * KIB), 0))
    return pointer


@fault("leak", "pin_batch")
def pinned_leak(clock):
    """Each fourth step pins a buffer and never frees it."""
    gpu = new_gpu()
    for step in clock.steps():
        work(gpu)
        if step % 4 == 0:
            pin_batch(gpu)


def new_event(gpu):
    event = ctypes.c_void_p()
    check(gpu.driver.cuEventCreate(ctypes.byref(event), 2))
    return event


@fault("leak", "new_event")
def event_leak(clock):
    """Each step creates an event and never destroys it."""
    gpu = new_gpu()
    for _ in clock.steps():
        work(gpu)
        new_event(gpu)


# Hangs


def wait_for_kernel(gpu):
    return gpu.driver.cuStreamSynchronize(gpu.stream)


@fault("hang", "wait_for_kernel", channels=True)
def stuck_kernel(clock):
    """A kernel never ends, and the program waits for it."""
    gpu = new_gpu()
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            gpu.launch(gpu.backward, NEVER_NS)
            wait_for_kernel(gpu)


@fault("hang", "wait_for_kernel", channels=True)
def stuck_thread(clock):
    """The main thread waits for a kernel that never ends. Another thread continues with copies on its own stream."""
    gpu = new_gpu()
    stream = ctypes.c_void_p()
    gpu.call("cuStreamCreate", ctypes.byref(stream), 1)
    context = ctypes.c_void_p()
    gpu.call("cuCtxGetCurrent", ctypes.byref(context))

    def copy():
        gpu.call("cuCtxSetCurrent", context)
        while True:
            gpu.call("cuMemcpyHtoDAsync_v2", gpu.device, gpu.host, ctypes.c_size_t(4 * KIB), stream)
            time.sleep(0.01)

    threading.Thread(target=copy, daemon=True).start()
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            gpu.launch(gpu.backward, NEVER_NS)
            wait_for_kernel(gpu)


def wait_for_lock(lock):
    with lock:
        pass


def wait_for_mutex(libc, mutex):
    return libc.pthread_mutex_lock(mutex)


@fault("hang", "wait_for_mutex")
def deadlock(clock):
    """The launching thread waits for a mutex that another thread never releases."""
    gpu, libc, mutex = new_gpu(), ctypes.CDLL(None), ctypes.create_string_buffer(64)
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            threading.Thread(target=lambda: (libc.pthread_mutex_lock(mutex), time.sleep(1000)), daemon=True).start()
            time.sleep(0.2)
            wait_for_mutex(libc, mutex)


@fault("hang", "wait_for_lock")
def python_deadlock(clock):
    """The same with a lock of Python, which has no owner: the program looks like a server without requests."""
    gpu, lock = new_gpu(), threading.Lock()
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            threading.Thread(target=lambda: (lock.acquire(), time.sleep(1000)), daemon=True).start()
            time.sleep(0.2)
            wait_for_lock(lock)


# Out of memory


def allocate_workspace(gpu):
    pointer = ctypes.c_uint64()
    return gpu.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 30))


@fault("out of memory", "allocate_workspace")
def oom_once(clock):
    """One allocation exceeds the memory of the device. The program continues without it."""
    gpu = new_gpu()
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            allocate_workspace(gpu)


@fault("out of memory", "allocate_workspace", "oom_exit")  # the process may end before its innermost frame is read
def oom_exit(clock):
    """One allocation exceeds the memory of the device, and the program ends."""
    gpu = new_gpu()
    for _ in clock.steps():
        work(gpu)
        if clock.is_first():
            check(allocate_workspace(gpu))


def larger_batch(torch, size):
    return torch.empty(size, None)


@fault("out of memory", "larger_batch")
def oom_retried(clock):
    """A batch exceeds the memory of the device. The program catches the error and takes half of it."""
    model = Model()
    for _ in clock.steps():
        model.train()
        if clock.is_first():
            try:
                larger_batch(model.torch, 20 << 30)
            except model.torch.OutOfMemoryError:
                larger_batch(model.torch, 10 << 30)


@fault("out of memory", "larger_batch")
def oom_fragmented(clock):
    """Enough memory below the limit is unused, but in gaps. The program continues."""
    model = Model()
    model.torch.set_per_process_memory_fraction(1 / 16)
    allowed = model.torch.memory() // 16
    blocks = [model.torch.empty(9 * MIB, None) for _ in range((allowed // (20 * MIB) - 6) * 2)]
    kept = blocks[::2]
    del blocks
    for _ in clock.steps():
        model.train()
        if clock.is_first():
            try:
                larger_batch(model.torch, allowed // 5 // MIB * MIB)
            except model.torch.OutOfMemoryError:
                pass
    del kept


# Errors


def free_again(gpu, pointer):
    return gpu.driver.cuMemFree_v2(pointer)


@fault("error", "free_again")
def double_free(clock):
    """From --at on, each step frees a block twice."""
    gpu = new_gpu()
    for _ in clock.steps():
        work(gpu)
        pointer = device_memory(gpu, MIB)
        check(gpu.driver.cuMemFree_v2(pointer))
        if clock.is_due():
            free_again(gpu, pointer)


def copy_labels(gpu):
    return gpu.driver.cuMemcpyHtoD_v2(INVALID_POINTER, gpu.host, ctypes.c_size_t(4 * KIB))


@fault("error", "copy_labels")
def ignored_errors(clock):
    """From --at on, each fourth step makes a copy that fails, and continues."""
    gpu = new_gpu()
    for step in clock.steps():
        work(gpu)
        if clock.is_due() and step % 4 == 0:
            copy_labels(gpu)


def synchronize_context(gpu):
    return gpu.driver.cuCtxSynchronize()


@fault("error", "synchronize_context", "illegal_address")
def illegal_address(clock):
    """A kernel uses freed memory, which breaks the context. The program ignores all errors."""
    gpu = new_gpu()
    module, scale = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuModuleLoadData", ctypes.byref(module), CHECKED_PTX)
    gpu.call("cuModuleGetFunction", ctypes.byref(scale), module, b"_Z5scalePf")
    good = device_memory(gpu, MIB)
    argument = ctypes.c_uint64(good.value)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    for _ in clock.steps():
        if clock.is_first():
            freed = device_memory(gpu, MIB)
            argument.value = freed.value
            check(gpu.driver.cuMemFree_v2(freed))
        gpu.driver.cuLaunchKernel(scale, 64, 1, 1, 128, 1, 1, 0, gpu.stream, arguments, None)
        synchronize_context(gpu)


# Programs without a fault


def fill_cache(torch):
    return torch.empty(MIB // 2, None)


@clean
def checkpoints(clock):
    """Each 10 s, the program writes a checkpoint for 3 s and calls nothing."""
    gpu, last = new_gpu(), 0
    for _ in clock.steps():
        work(gpu)
        if clock.now() - last > 10:
            time.sleep(3)
            last = clock.now()


@clean_with_kernels
def long_waits(clock):
    """Each 4 s, the program waits 2 s for a kernel. Its other waits are short."""
    gpu, last = new_gpu(), 0
    for _ in clock.steps():
        work(gpu)
        if clock.now() - last > 4:
            gpu.launch(gpu.backward, 2_000_000_000)
            wait_for_kernel(gpu)
            last = clock.now()


def wait_once(clock, seconds):
    gpu, done = new_gpu(), False
    for _ in clock.steps():
        work(gpu)
        if not done and clock.now() > clock.at:
            gpu.launch(gpu.backward, int(seconds * 1e9))
            wait_for_kernel(gpu)
            done = True


@clean_with_kernels
def one_long_wait(clock):
    """One wait takes 4 s, all others some milliseconds."""
    wait_once(clock, 4)


@clean_with_kernels
def very_long_wait(clock):
    """One wait takes 10 s, all others some milliseconds: before its end, it looks like a hang."""
    wait_once(clock, 10)


@clean
def idle_server(clock):
    """A thread gets requests from a queue: ten in a row, then none for 6 s. It waits for a lock meanwhile."""
    requests = queue.Queue()

    def serve():
        gpu = new_gpu()
        while requests.get():
            work(gpu)

    server = threading.Thread(target=serve)
    server.start()
    for _ in clock.steps(6):
        for _ in range(10):
            requests.put(True)
    requests.put(False)
    server.join()


@clean_with_kernels
def polling(clock):
    """Polls the end of kernels of 300 ms, which returns an error until they end."""
    gpu = new_gpu()
    for _ in clock.steps(0.1):
        gpu.launch(gpu.forward, 300_000_000)
        while gpu.driver.cuStreamQuery(gpu.stream):
            time.sleep(0.002)


@clean_with_kernels
def expected_errors(clock):
    """Queries an event in each step before the GPU is done: the answer is an error."""
    gpu, event = new_gpu(), ctypes.c_void_p()
    gpu.call("cuEventCreate", ctypes.byref(event), 2)
    for _ in clock.steps():
        gpu.launch(gpu.forward, KERNEL_NS)
        gpu.call("cuEventRecord", event, gpu.stream)
        gpu.driver.cuEventQuery(event)
        gpu.synchronize()


def fill_for(clock, seconds):
    model, cache = Model(), []
    for _ in clock.steps():
        model.train()
        if clock.now() < seconds:
            cache.append(fill_cache(model.torch))


@clean
def warm_up(clock):
    """A cache fills for 8 s."""
    fill_for(clock, 8)


@clean
def long_warm_up(clock):
    """A cache fills for 25 s: before its end, it looks like a leak."""
    fill_for(clock, 25)


@clean
def epochs(clock):
    """Keeps the predictions of an epoch of 8 s, and then frees them."""
    model, kept, epoch = Model(), [], 0
    for _ in clock.steps():
        model.train()
        kept.append(keep_prediction(model.torch, 256 * KIB))
        if int(clock.now() / 8) > epoch:
            kept, epoch = [], int(clock.now() / 8)


def load_late(clock, seconds):
    model, more = Model(), []
    for _ in clock.steps():
        model.train()
        if clock.at < clock.now() < clock.at + seconds:
            more.append(fill_cache(model.torch))


@clean
def late_phase(clock):
    """At --at, allocates more weights one by one for 4 s."""
    load_late(clock, 4)


@clean
def second_model(clock):
    """At --at, allocates more weights one by one for 8 s."""
    load_late(clock, 8)


@clean
def ends_early(clock):
    """Ends after --at seconds, without freeing its memory."""
    gpu = new_gpu()
    blocks = [device_memory(gpu, MIB) for _ in range(10)]
    for _ in clock.steps():
        work(gpu)
        if clock.now() > clock.at:
            break
    del blocks


def child_of(clock):
    """The child of a program: works for a second."""
    gpu, end = new_gpu(), time.monotonic() + 1
    device_memory(gpu, MIB)
    while time.monotonic() < end:
        work(gpu)


@clean
def short_children(clock):
    """Starts a process each 4 s, which works for 1 s."""
    gpu, last = new_gpu(), 0
    for _ in clock.steps():
        work(gpu)
        if clock.now() - last > 4:
            subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child"])
            last = clock.now()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=programs)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--at", type=float, default=12)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--wait", action="store_true", help="begin the time at the first line of standard input")
    options = parser.parse_args()
    clock = Clock(options.seconds, options.at, options.wait)
    if options.list:
        for p in programs.values():
            print(json.dumps(p.describe()))
    elif options.child:
        child_of(clock)
    elif options.name:
        programs[options.name].run(clock)
        sys.stdout.flush()
        os._exit(0)  # do not wait for threads of a fault
    else:
        parser.error("a name is required")


if __name__ == "__main__":
    main()
