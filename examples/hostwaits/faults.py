"""What holds up the launching thread: one class for each kind.

`statement` is the source of the one line that waits. start() runs before CUDA is loaded, prepare() before
each delay, and release() ends a delay without end.
"""
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import truth

CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 1 << 18, 1 << 14
PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
FOREVER_S, PAGE = 100000.0, 4096
libc, locked_libc = ctypes.CDLL(None, use_errno=True), ctypes.PyDLL(None)


class Released(Exception):
    """Ends a sleep without end."""


def name_thread(name):
    libc.prctl(PR_SET_NAME, name.encode())


class Fault:
    """A delay. Lengths are seconds."""

    kind, statement, can_end = "none", "pass", True
    forks = False  # start() forks, so it comes before all threads

    def __init__(self, number, random):
        self.number, self.random = number, random
        self.place, self.percent = random.randrange(3), random.randint(60, 90)
        self.least = random.randint(15, 20) / 1000
        self.most = self.least + random.randint(0, 20) / 1000
        self.owner, self.owner_tid, self.target = "", 0, ""
        self.endless, self.data = False, b""

    def draw_length(self):
        self.length = FOREVER_S if self.endless else self.random.uniform(self.least, self.most)

    def start(self):
        pass

    def prepare(self):
        pass

    def release(self):
        pass

    def begin(self, program):
        """Is called by the generated function before its statement."""
        self.program = program
        self.draw_length()
        if self.endless:
            program.truth.flush()
            print("stuck", threading.get_native_id(), flush=True)
        self.queued_ns = truth.queued_ns()
        self.prepare()
        self.begin_ns = truth.now_ns()

    def end(self):
        """Is called by the generated function after its statement."""
        self.write_holds(truth.now_ns())
        self.program.note(self.data)

    def write_holds(self, end_ns):
        self.program.hold(self, self.kind, self.begin_ns, end_ns, truth.queued_ns() - self.queued_ns)


class Sleep(Fault):
    kind, statement = "sleep", "time.sleep(fault.length)"

    def start(self):
        signal.signal(signal.SIGUSR1, self.handle)

    def handle(self, *_):
        raise Released

    def release(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


class Owner(Fault):
    """A fault that another thread ends."""

    def start(self):
        self.owner = self.random.choice(("prefetch", "logger", "uploader", "watcher")) + f"-{self.number}"
        self.wanted, self.entered, self.released = os.pipe(), threading.Event(), threading.Event()
        threading.Thread(target=self.run, daemon=True).start()
        self.entered.wait()

    def run(self):
        name_thread(self.owner)
        self.owner_tid = threading.get_native_id()
        self.entered.set()
        while True:
            os.read(self.wanted[0], 1)
            self.own()

    def prepare(self):
        self.entered.clear()
        os.write(self.wanted[1], b"w")
        self.entered.wait()

    def hold(self):
        """Is called by the owner for the time of the delay."""
        self.entered.set()
        if self.endless:
            self.released.wait()
        else:
            time.sleep(self.length)

    def release(self):
        self.released.set()


class Lock(Owner):
    kind, statement = "lock", "with fault.lock: fault.data = b'locked'"

    def start(self):
        self.lock = threading.Lock()
        super().start()

    def own(self):
        with self.lock:
            self.hold()


class Pipe(Owner):
    kind, statement = "pipe", "fault.data = os.read(fault.pipe[0], 1)"

    def start(self):
        self.pipe, self.target = os.pipe(), "pipe"
        super().start()

    def own(self):
        self.hold()
        os.write(self.pipe[1], b"p")


class Import(Owner):
    """Another thread imports the module, whose code takes the time of the delay."""

    kind, statement = "import", "fault.module = importlib.import_module(fault.name)"

    def start(self):
        self.name = self.random.choice(("plugins", "metrics_backend", "tokenizers_fast")) + f"_{self.number}"
        with open(os.path.join(self.folder, self.name + ".py"), "w") as file:
            file.write("import faults\n\nfaults.Import.current.hold()\n")
        sys.path.insert(0, self.folder)
        super().start()

    def own(self):
        Import.current = self
        sys.modules.pop(self.name, None)
        __import__(self.name)


class GIL(Owner):
    """Another thread holds the lock: it computes in Python, or in a C function that does not release it."""

    kind, statement = "gil", "while time.monotonic_ns() < fault.until: time.sleep(0)"

    def start(self):
        self.in_c = self.random.random() < 0.5
        super().start()

    def prepare(self):
        self.until = truth.now_ns() + int(self.length * 1e9)
        locked_libc.write(self.wanted[1], b"w", 1)  # keeps the lock, so that this thread waits in its statement

    def own(self):
        if self.endless:  # it reads stdin itself, because no other thread can
            byte = ctypes.create_string_buffer(1)
            locked_libc.read(0, byte, 1)
            self.until = 0
            return
        if self.in_c:
            locked_libc.usleep(max(0, int(self.until - truth.now_ns()) // 1000))
        while truth.now_ns() < self.until:
            sum(range(2000))


class SlowFile(Fault):
    """A file of FUSE. A read at offset 4096 × N takes N µs."""

    kind, statement = "file", "fault.data = os.pread(fault.descriptor, 1, fault.offset)"

    def start(self):
        build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "simcuda")
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "namespace of mounts")
        self.server = subprocess.Popen(
            [os.path.join(build, "hostwaits"), "--serve", "/mnt"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
        )
        self.server.stdout.readline()
        self.owner, self.target = "hostwaits", f"/mnt/batch-{self.random.randrange(100)}.bin"
        self.descriptor = os.open(self.target, os.O_RDONLY)

    def prepare(self):
        self.offset = int(self.length * 1e6) * PAGE

    def release(self):
        self.server.send_signal(signal.SIGUSR1)


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Spin(Fault):
    kind, statement = "spin", "while time.monotonic_ns() < fault.until: fault.total = sum(range(500))"

    released = False

    def prepare(self):
        self.until = truth.now_ns() + int(self.length * 1e9)
        if self.released:  # before it began
            self.until = 0

    def release(self):
        self.released = True
        self.until = 0


class Collect(Fault):
    """Garbage collections of many objects: by a call, or by allocations."""

    kind, can_end = "gc", False
    LEAST_NS = 1_000_000  # shorter collections are not written, and shorter pauses between them neither

    def __init__(self, number, random):
        super().__init__(number, random)
        self.is_called = random.random() < 0.5
        self.statement = "gc.collect()" if self.is_called else "fault.kept = list(map(list, [[[]]] * (3 * fault.pairs)))"
        self.pauses, self.kept = [], None

    def start(self):
        self.heap = [[n] for n in range(self.random.randint(60, 120) * 1000)]
        self.pairs = self.random.randint(2000, 5000)
        gc.collect()
        gc.disable()
        gc.callbacks.append(self.note_collection)

    def prepare(self):
        self.pauses.clear()
        if not self.is_called:
            gc.set_threshold(100, 1, 1)
            gc.enable()

    def note_collection(self, phase, _):
        now = truth.now_ns()
        if phase == "stop":
            self.pauses[-1][1] = now
        elif self.pauses and now - self.pauses[-1][1] < self.LEAST_NS:
            pass  # one pause with the collection before
        else:
            self.pauses.append([now, now])

    def write_holds(self, end_ns):
        gc.disable()
        # The time in run queues is known of the whole delay only.
        share = (truth.queued_ns() - self.queued_ns) / max(1, end_ns - self.begin_ns)
        for begin, end in self.pauses:
            if end - begin >= self.LEAST_NS:
                self.program.hold(self, self.kind, begin, end, int(share * (end - begin)))
        self.kept = None


class Samples:
    """A dataset whose samples take their time in the worker. A negative time has no end."""

    def __init__(self, lengths, released):
        self.lengths, self.released = lengths, released

    def __getitem__(self, index):
        length = self.lengths[index % len(self.lengths)]
        if length < 0:
            os.read(self.released, 1)
        elif length:
            time.sleep(length)
        return bytes(64)


class Loader(Fault):
    """A worker process is slow. The launching thread waits in the loader for its next batch."""

    kind, statement, forks = "loader", "fault.data = next(fault.batches)", True

    def start(self):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "loader"))
        from torch.utils.data import DataLoader

        self.percent, self.owner, self.end_pipe = 100, "pt_data_worker", os.pipe()
        share = self.random.uniform(0.5, 0.9)
        lengths = [self.random.uniform(0.02, 0.05) if self.random.random() < share else 0 for _ in range(self.steps)]
        if self.stuck_step is not None:
            lengths[self.stuck_step] = -1
        self.batches = iter(DataLoader(Samples(lengths, self.end_pipe[0]), num_workers=1))

    def release(self):
        os.write(self.end_pipe[1], b"e")

    def write_holds(self, end_ns):
        if end_ns - self.begin_ns >= 1_000_000:  # else the batch was there
            super().write_holds(end_ns)


class Child(Fault):
    """The end of a child process."""

    kind, statement = "child", "os.waitpid(fault.child.pid, 0)"

    def prepare(self):
        self.child = subprocess.Popen(["sleep", str(self.length)], preexec_fn=die_with_parent)
        self.owner, self.owner_tid = "sleep", self.child.pid

    def end(self):
        self.child.returncode = 0  # the statement has waited for it
        super().end()

    def release(self):
        self.child.kill()


KINDS = {c.kind: c for c in (Sleep, Lock, Pipe, Import, GIL, SlowFile, Spin, Collect, Loader, Child, Fault)}
