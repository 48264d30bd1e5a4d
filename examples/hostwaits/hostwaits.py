"""A training loop whose launching thread is held up on the host, with a known cause.

    python3 hostwaits.py KIND[,KIND] [--seed N] [--steps N] [--truth FILE] [--folder FOLDER] [--wait] [--hang]

It is like the C program of the same name; README.md has the kinds. It writes the functions with the delays
as a module into the folder: the seed draws their names and lines.
"""
import argparse
import importlib.util
import os
import random
import select
import sys
import tempfile
import threading
import time
import zlib

import chains
import faults
from cuda import GPU, RESULT
from truth import Truth, now_ns

PRIORITY, PAUSE_S = -15, 0.06
CHAIN_STEPS = 60  # more steps with chains: a recorder finds one thread after the other
KINDS = faults.KINDS | chains.KINDS
FUNCTIONS = (
    "load_batch", "tokenize_text", "augment_images", "collate_samples", "write_metrics", "clip_gradients",
    "save_checkpoint", "decode_audio", "shuffle_samples", "read_labels", "log_progress", "resize_pictures", "naïve_größe",
)
CLASSES = ("Pipeline", "Collator", "Monitor", "Reader")
FILES = ("dataset", "collating", "transforms", "monitoring")


def generate(chosen, rng, folder):
    """Writes the functions of the faults. Each fault gets its function, line and file."""
    lines = ['"""Functions of a training, drawn at random."""', "import gc", "import importlib", "import os", "import time"]
    names = rng.sample(FUNCTIONS, len(chosen))
    classes = rng.sample(CLASSES, len(chosen))
    path = os.path.join(folder, rng.choice(FILES) + ".py")
    for fault, name, owner in zip(chosen, names, classes):
        lines += ["", ""] + ["# a comment"] * rng.randint(0, 30)
        fault.owner_class = owner if rng.random() < 0.5 else None
        if fault.owner_class:
            lines += [f"class {owner}:", "    @staticmethod"]
        indent = "    " * (fault.owner_class is not None)
        lines += [f"{indent}def {name}(fault, program):", f"{indent}    fault.begin(program)"]
        lines += [f"{indent}    total = 0"] * rng.randint(0, 3)
        lines.append(f"{indent}    {fault.statement}")
        fault.line, fault.file, fault.name_in_file = len(lines), path, name
        fault.function = f"{owner}.{name}" if fault.owner_class else name
        lines.append(f"{indent}    fault.end()")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for fault in chosen:
        holder = getattr(module, fault.owner_class) if fault.owner_class else module
        fault.delay = getattr(holder, fault.name_in_file)


class Program:
    """The random program."""

    def __init__(self, options):
        self.options, self.truth = options, Truth(options.truth)
        self.rng = random.Random(f"{options.kinds} {options.seed}")
        self.launches, self.checksum = self.rng.randint(4, 12), 0
        self.kernel_ns = self.rng.randint(2000, 4000) * 1000 // self.launches // 3
        self.copies_back = self.rng.random() < 0.5
        self.steps = options.steps or self.rng.randint(90, 110)
        if not options.steps and "gc" in options.kinds.split(","):
            self.steps *= 3  # collections are short, and rules need a second
        if not options.steps and chains.KINDS.keys() & set(options.kinds.split(",")):
            self.steps += CHAIN_STEPS
        self.stuck_step = self.rng.randint(5, self.steps // 2) if options.hang else None
        self.faults = [KINDS[k](n, self.rng) for n, k in enumerate(options.kinds.split(","))]
        for fault in self.faults:
            fault.folder, fault.steps, fault.normal_priority = options.folder, self.steps, options.normal_priority
            fault.stuck_step = self.stuck_step if fault is self.faults[-1] else None
        generate(self.faults, self.rng, options.folder)
        for fault in sorted(self.faults, key=lambda f: not f.forks):
            fault.start()

    def note(self, data):
        self.checksum = zlib.crc32(data, self.checksum) + self.step & 0xFFFFFFFF

    def hold(self, fault, kind, from_ns, to_ns, queued_ns):
        self.truth.write(
            "hold", fault=fault.number, kind=kind, step=self.step, from_ns=from_ns, to_ns=to_ns, queued_ns=queued_ns
        )

    def describe(self):
        self.truth.write(
            "program", language="python", seed=self.options.seed, pid=os.getpid(), tid=threading.get_native_id(),
            steps=self.steps, hangs=self.stuck_step is not None,
        )

    def describe_fault(self, fault):
        self.truth.write(
            "fault", fault=fault.number, kind=fault.kind, file=fault.file, function=fault.function, line=fault.line,
            owner=fault.owner, owner_tid=fault.owner_tid, target=fault.target,
        )

    def come(self, place):
        for fault in self.faults:
            if fault.place != place or fault.kind == "none":
                continue
            fault.endless = fault is self.faults[-1] and self.step == self.stuck_step
            if self.rng.randint(1, 100) <= fault.percent or fault.endless:
                try:
                    fault.delay(fault, self)
                except faults.Released:
                    fault.end()

    def launch(self, kernel):
        for _ in range(self.launches):
            self.gpu.launch(kernel, self.kernel_ns)

    def run_step(self):
        self.come(0)
        self.gpu.upload()
        self.launch(self.gpu.forward)
        self.come(1)
        self.launch(self.gpu.backward)
        self.come(2)
        self.launch(self.gpu.forward)
        self.gpu.synchronize()
        if self.copies_back:
            self.gpu.download()

    def warm_up(self):
        while True:
            self.gpu.upload(RESULT)
            self.launch(self.gpu.forward)
            self.gpu.synchronize()
            time.sleep(PAUSE_S)
            if select.select([0], [], [], 0)[0]:
                return os.read(0, 1)

    def release(self):
        """Ends the endless delay at the next byte of stdin."""
        faults.name_thread("release")
        if os.read(0, 1):
            self.faults[-1].release()

    def run(self):
        thread = None
        if self.stuck_step is not None and self.faults[-1].kind != "gil":
            thread = threading.Thread(target=self.release, daemon=True)
            thread.start()
        for self.step in range(self.steps):
            from_ns = now_ns()
            self.run_step()
            self.truth.write("step", step=self.step, from_ns=from_ns, to_ns=now_ns())
        if thread:
            thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", metavar="KIND[,KIND]", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--truth")
    parser.add_argument("--folder", help="gets the generated module; default: a new folder in /tmp")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--normal-priority", action="store_true")
    options = parser.parse_args()
    if not options.folder:
        temporary = tempfile.TemporaryDirectory()
        options.folder = temporary.name
    sys.dont_write_bytecode = True
    program = Program(options)
    if not options.normal_priority:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # other programs shall not delay this one; needs root
    program.gpu = GPU()
    program.describe()
    for fault in program.faults:
        if fault.kind != "none":
            program.describe_fault(fault)
    program.truth.flush()
    print("ready", os.getpid(), flush=True)
    if options.wait:
        os.read(0, 1)
        program.warm_up()
    program.run()
    program.truth.flush()
    print("done", program.steps, f"{program.checksum:x}", flush=True)
    if options.wait:
        os.read(0, 1)


main()
