"""Chains: the launching thread waits for a thread or process, which waits for the next one, and so on.

The last member does something, and the first one may compute before it waits. Their functions are in a module
that the seed draws: everything that a member does has a line of its own.
"""
import concurrent.futures
import ctypes
import functools
import importlib.util
import multiprocessing
import operator
import os
import queue
import random
import signal
import threading
import time

import faults
import truth

FUNCTIONS = (
    "decode_shard", "fetch_shard", "unpack_record", "parse_header", "resize_frame", "merge_parts", "refill_cache",
    "verify_digest", "stage_block", "index_rows", "pad_tokens", "warp_image", "lade_stück",
)
FILES = ("shards", "feeding", "caches", "stages")
NAMES = ("fetch", "decode", "stage", "cache", "merge", "parse", "shard", "relay")
ACTIVITIES = {
    "sleep": "time.sleep(member.length)",
    "spin": "while time.monotonic_ns() < member.until: sum(range(500))",
    "file": "os.pread(member.chain.descriptor, 1, member.offset)",
}
WITH_GIL = "member.marks.extend(map(operator.call, member.calls))"  # one call of C, which keeps the GIL
PRIORITY = -15


# ---- how a member ends the wait of the one before it ----


class ByCondition:
    wait = "with {0}.changed: {0}.changed.wait_for({0}.take)"

    def __init__(self):
        self.changed, self.full = threading.Condition(), 0

    def take(self):
        if not self.full:
            return False
        self.full -= 1
        return True

    def give(self, _):
        with self.changed:
            self.full += 1
            self.changed.notify()


class ByQueue:
    wait = "{0}.queue.get()"

    def __init__(self):
        self.queue = queue.Queue()

    def give(self, _):
        self.queue.put(b"q")


class ByPipe:
    wait = "os.read({0}.pipe[0], 1)"

    def __init__(self):
        self.pipe = os.pipe()

    def give(self, _):
        os.write(self.pipe[1], b"p")


class ByProcessQueue:
    """A queue between processes. A thread of its own, the feeder, writes into the pipe. It brings the ends, too."""

    wait = "{0}.chain.ends.extend({0}.queue.get())"

    def __init__(self):
        self.queue = multiprocessing.get_context("fork").Queue()

    def give(self, chain):
        self.queue.put(list(chain.ends))
        chain.ends.clear()


class ByFuture:
    """The job of a pool. The end of the job is that of the member's function."""

    wait = "{0}.future.result()"

    def give(self, _):
        pass


class ByGIL:
    """The GIL, which the member keeps. Nothing else says when it is free."""

    wait = "pass"

    def give(self, _):
        pass


THREAD_MEANS = (ByCondition, ByQueue, ByPipe)


# ---- members ----


class Member:
    """A thread, a process, or a pool of threads. Lengths are in seconds."""

    activity, own_line, least, most, workers, links = None, 0, 0.0, 0.0, 1, 1
    is_process = is_early = False

    def __init__(self, chain, number, means, name):
        self.chain, self.number, self.name, self.means = chain, number, name, means()
        self.means.chain, self.next, self.marks = chain, None, []
        self.names, self.wanted = {}, os.pipe()
        self.random = random.Random(chain.random.random())  # of its own, because it can be in another process

    def draw_length(self):
        self.length = self.random.uniform(self.least, self.most)
        self.offset = int(self.length * 1e6) * faults.PAGE

    def name_thread(self):
        """Is called by each thread at its start."""
        name = f"{self.name}_{len(self.names)}" if self.workers > 1 else self.name
        self.names[threading.get_native_id()] = name
        faults.name_thread(name)
        if not self.chain.normal_priority:
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # of this thread

    def run(self, started=None):
        self.name_thread()
        if started:
            started()
        while True:
            if not self.is_early:
                os.read(self.wanted[0], 1)
            self.function(self)
            self.means.give(self.chain)

    def ask(self):
        """Lets the member begin. The caller keeps the GIL, so that it waits only in its next statement."""
        if self.workers > 1:
            self.means.future = self.pool.submit(self.function, self)
        else:
            faults.locked_libc.write(self.wanted[1], b"w", 1)

    def ask_next(self):
        if self.next and not self.is_early:
            self.next.ask()

    def begin(self):
        self.draw_length()
        self.queued_ns = truth.queued_ns()
        self.from_ns = truth.now_ns()
        self.until = self.from_ns + int(self.length * 1e9)

    def end(self):
        to_ns = truth.now_ns()
        self.note_end(self.from_ns, to_ns, truth.queued_ns() - self.queued_ns)

    def note_end(self, from_ns, to_ns, queued_ns):
        tid = threading.get_native_id()
        self.chain.ends.append(dict(
            activity=self.activity, pid=os.getpid(), tid=tid, thread=self.names[tid], file=self.chain.path,
            function=self.function.__name__, line=self.own_line, links=self.links, from_ns=from_ns, to_ns=to_ns,
            queued_ns=queued_ns,
        ))


class Chain(faults.Fault):
    """Waits for the first member. `kind_means` are those between it and the launching thread."""

    kind_means = None

    def __init__(self, number, rng):
        super().__init__(number, rng)
        self.ends, self.statement = [], self.kind_means.wait.format("fault.box")
        self.members = []
        for i in range(self.draw_count()):
            self.add_member(i)
        for member, after in zip(self.members, self.members[1:]):
            member.next = after
        self.box = self.members[0].means
        self.draw_work()
        self.count_links()

    def draw_count(self):
        return self.random.randint(2, 4)

    def draw_means(self, number):
        is_drawn = number > 0 and (self.kind_means is ByFuture or self.random.random() < 0.5)
        return self.random.choice(THREAD_MEANS) if is_drawn else self.kind_means

    def add_member(self, number):
        name = f"{self.random.choice(NAMES)}-{self.number}{number}"
        self.members.append(Member(self, number, self.draw_means(number), name))
        self.members[-1].is_process = isinstance(self.members[-1].means, ByProcessQueue)

    def draw_work(self):
        first, last = self.members[0], self.members[-1]
        last.activity, last.least, last.most = self.random.choice(list(ACTIVITIES)), self.least, self.most
        variant = self.random.randrange(4)
        if variant == 0:  # two causes
            first.activity, first.least = "spin", self.random.randint(5, 8) / 1000
            first.most = first.least + self.random.randint(0, 2) / 1000
            last.least, last.most = last.least - first.least, last.most - first.least
        elif variant == 1 and self.kind_means is not ByFuture:  # members wait before they are asked
            for member in self.members[:-1]:
                member.is_early = True
        self.asked = next(m for m in self.members if not m.is_early)

    def count_links(self):
        """The feeder of a queue between processes is a link of its own."""
        links = 0
        for member in self.members:
            links += 2 if member.is_process else 1
            member.links = links

    # ---- the module with the functions ----

    def statements(self, member):
        """Returns the statements of a member's function, and the place of what it does itself; None: nothing."""
        if member.activity:
            lines = ["member.begin()", ACTIVITIES[member.activity], "member.end()"]
        else:
            lines = []
        if member.next:
            lines += ["member.ask_next()", member.next.means.wait.format("member.next.means")]
        return lines, 1 if member.activity else None

    def generate(self):
        lines = ['"""What threads of a training do, drawn at random."""', "import operator", "import os", "import time"]
        names = self.random.sample(FUNCTIONS, len(self.members))
        self.path = os.path.join(self.folder, f"{self.random.choice(FILES)}_{self.number}.py")
        for member, name in zip(self.members, names):
            lines += ["", ""] + ["# a comment"] * self.random.randint(0, 20) + [f"def {name}(member):"]
            statements, own = self.statements(member)
            for i, statement in enumerate(statements):
                lines.append("    " + statement)
                if i == own:
                    member.own_line = len(lines)
        with open(self.path, "w") as file:
            file.write("\n".join(lines) + "\n")
        spec = importlib.util.spec_from_file_location(os.path.basename(self.path)[:-3], self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for member, name in zip(self.members, names):
            member.function = getattr(module, name)

    # ---- threads and processes ----

    def start(self):
        self.generate()
        if any(m.activity == "file" for m in self.members):
            self.start_server()
        self.owner = self.members[-1].name
        for i, member in enumerate(self.members):
            if member.is_process:
                self.start_process(i)
        self.start_threads_after(-1)

    def start_server(self):
        server = faults.SlowFile(self.number, self.random)
        server.start()
        self.server, self.descriptor, self.target = server, server.descriptor, server.target

    def start_process(self, number):
        started = multiprocessing.get_context("fork").Event()
        process = multiprocessing.get_context("fork").Process(
            target=self.run_process, args=(number, started), daemon=True
        )
        process.start()
        started.wait()

    def run_process(self, number, started):
        faults.die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.start_threads_after(number)
        self.members[number].run(started.set)

    def start_threads_after(self, number):
        """Starts the members of this process that come after a member."""
        for member in self.members[number + 1 :]:
            if member.is_process:
                break
            if member.workers > 1:
                self.start_pool(member)
                continue
            started = threading.Event()
            threading.Thread(target=member.run, args=(started.set,), daemon=True).start()
            started.wait()

    def start_pool(self, member):
        member.pool = concurrent.futures.ThreadPoolExecutor(member.workers, initializer=member.name_thread)
        all_started = threading.Barrier(member.workers + 1)
        for _ in range(member.workers):
            member.pool.submit(all_started.wait)
        all_started.wait()

    # ---- a delay ----

    def begin(self, program):
        super().begin(program)
        self.ask()

    def ask(self):
        self.asked.ask()

    def write_holds(self, end_ns):
        super().write_holds(end_ns)
        for end in self.ends:
            self.program.truth.write("end", fault=self.number, step=self.program.step, **end)
        self.ends.clear()


class Condition(Chain):
    kind, kind_means = "condition", ByCondition


class Queue(Chain):
    kind, kind_means = "queue", ByQueue


class PipeChain(Chain):
    kind, kind_means = "pipe_chain", ByPipe


class Pool(Chain):
    """The first member is a pool of threads."""

    kind, kind_means = "pool", ByFuture

    def add_member(self, number):
        super().add_member(number)
        if number == 0:
            self.members[0].workers = self.random.randint(2, 3)


class Processes(Chain):
    """The first member is a process, with threads or another process behind it."""

    kind, kind_means, forks = "processes", ByProcessQueue, True

    def draw_count(self):
        return self.random.randint(1, 3)


class GILChain(Chain):
    """The last but one member waits for the GIL, which the last one holds: it is in a function of C that keeps it."""

    kind, kind_means = "gil_chain", ByPipe

    def __init__(self, number, rng):
        self.kind_means = rng.choice(THREAD_MEANS)
        super().__init__(number, rng)

    def draw_means(self, number):
        return ByGIL if number == self.count - 1 else super().draw_means(number)

    def draw_count(self):
        self.count = super().draw_count()
        return self.count

    def draw_work(self):
        holder = self.members[-1]
        holder.activity, holder.least, holder.most = self.random.choice(list(ACTIVITIES)), self.least, self.most
        for member in self.members[:-2]:
            member.is_early = True
        self.asked = holder

    def statements(self, member):
        if member is self.members[-1]:
            return ["member.chain.take_gil()", WITH_GIL], 1
        if member is self.members[-2]:
            return ["pass"], None
        return super().statements(member)

    def start(self):
        super().start()
        turns = 1_000_000
        begin = time.thread_time()
        sum(range(turns))
        self.turns_per_s = turns / (time.thread_time() - begin)

    def take_gil(self):
        """Is called by the holder. It lets the member before wait for the GIL."""
        holder, waiter = self.members[-1], self.members[-2]
        holder.draw_length()
        holder.marks.clear()
        holder.queued_ns = truth.queued_ns()
        holder.calls = (truth.now_ns, self.work_of(holder), truth.now_ns)
        faults.locked_libc.write(waiter.wanted[1], b"w", 1)

    def work_of(self, holder):
        """Returns a function of C that keeps the GIL for the time of the delay."""
        if holder.activity == "sleep":
            return functools.partial(faults.locked_libc.usleep, int(holder.length * 1e6))
        if holder.activity == "spin":
            return functools.partial(sum, range(int(self.turns_per_s * holder.length)))
        return functools.partial(
            faults.locked_libc.pread, self.descriptor, ctypes.create_string_buffer(1), ctypes.c_size_t(1),
            ctypes.c_int64(holder.offset),
        )

    def write_holds(self, end_ns):
        holder = self.members[-1]
        ((tid, name),) = holder.names.items()
        self.ends.append(dict(
            activity=holder.activity, pid=os.getpid(), tid=tid, thread=name, file=self.path,
            function=holder.function.__name__, line=holder.own_line, links=holder.links, from_ns=holder.marks[0],
            to_ns=holder.marks[2], queued_ns=truth.queued_ns(tid) - holder.queued_ns,
        ))
        super().write_holds(end_ns)


KINDS = {c.kind: c for c in (Condition, Queue, PipeChain, Pool, Processes, GILChain)}
