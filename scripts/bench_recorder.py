"""Measures what the recorder itself needs: CPU time and memory of `gpurec record`, every ten seconds.

    bench_recorder.py [-d 60] [--set NAME=FLAGS]... [--json FILE] -- COMMAND [ARG...]

For each set of flags, starts COMMAND, waits until it has printed a line that contains --ready (or for
--warm-up seconds), and records it for -d seconds. Reads /proc/PID/stat and status of the recorder.
Prints a Markdown table with a row for each interval:

    CPU %   user and system time of the recorder, in percent of one core
    anon    RssAnon at the end of the interval, MiB: the memory that only the recorder has
    peak    the highest RssAnon in the interval, MiB, from a sample every 0.2 s
    file    RssFile at the end, MiB: pages of files that the kernel can drop
    shmem   RssShmem at the end, MiB: buffers shared with the kernel

The intervals begin with the gpurec process. Without --set, the sets are:

    nvml     almost only NVML is sampled: probes of module loads, without stacks
    default  no flags
    gpu      --gpu-time auto
    host     --host auto
    both     --gpu-time auto --host auto

Runs as root. COMMAND gets the environment of the script. An example on a machine with a GPU:

    bench_recorder.py -d 60 --warm-up 20 --json recorder.json -- python3 train.py
"""
import argparse
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SETS = {
    "nvml": "--record=module --stacks=off --allocator=off",
    "default": "",
    "gpu": "--gpu-time=auto",
    "host": "--host=auto",
    "both": "--gpu-time=auto --host=auto",
}
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE = 0.2  # seconds


class Failed(Exception):
    """A recording that cannot be measured."""


def cpu_seconds(pid):
    """Returns the user and system time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid):
    """Returns the resident memory of a process by kind, MiB."""
    with open(f"/proc/{pid}/status") as file:
        kib = dict(re.findall(r"^(RssAnon|RssFile|RssShmem):\s+(\d+) kB", file.read(), re.MULTILINE))
    return {kind: int(value) / 1024 for kind, value in kib.items()}


class Workload:
    """The recorded program."""

    def __init__(self, options):
        self.process = subprocess.Popen(options.command, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                                        text=True, start_new_session=True)
        self.ready = threading.Event()
        self.wanted = options.ready
        threading.Thread(target=self.read, daemon=True).start()
        if self.wanted and not self.ready.wait(options.start_timeout):
            self.end()
            raise Failed(f"{options.command[0]} did not print {self.wanted!r}")
        time.sleep(options.warm_up)
        if self.process.poll() is not None:
            raise Failed(f"{options.command[0]} has ended with status {self.process.returncode}")

    def read(self):
        """Reads the output of the program, so that it never waits for a reader."""
        for line in self.process.stdout:
            if self.wanted and self.wanted in line:
                self.ready.set()

    def end(self):
        """Kills the program and its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def measure(pid, seconds, every):
    """Returns the intervals of a running recorder."""
    begin = time.monotonic()
    rows, before, peak, next_end = [], 0.0, 0.0, every
    at = 0.0
    while next_end <= seconds + 1e-6:
        time.sleep(max(0.0, min(begin + next_end - time.monotonic(), SAMPLE)))
        try:
            memory, cpu = memory_mib(pid), cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            raise Failed("the recorder has ended early") from None
        if "RssAnon" not in memory:
            raise Failed("the recorder has ended early")
        peak = max(peak, memory["RssAnon"])
        now = time.monotonic() - begin
        if now < next_end:
            continue
        rows.append({"from_s": round(at, 2), "to_s": round(now, 2), "cpu_percent": 100 * (cpu - before) / (now - at),
                     "anon_mib": memory["RssAnon"], "peak_anon_mib": peak, "file_mib": memory["RssFile"],
                     "shmem_mib": memory["RssShmem"]})
        print(f"{now:.0f} s: {rows[-1]['cpu_percent']:.1f} % of a core, {memory['RssAnon']:.0f} MiB", file=sys.stderr, flush=True)
        at, before, peak = now, cpu, 0.0
        next_end += every
    return rows


def record(options, name, flags, folder):
    """Records a new process of the workload, and returns the measurement."""
    workload = Workload(options)
    recorder = None
    try:
        log = os.path.join(folder, f"{name}.log")
        command = [options.gpurec, "record", "-p", str(workload.process.pid), "-o",
                   os.path.join(folder, f"{name}.parquet"), "--force", *shlex.split(flags)]
        with open(log, "w") as out:
            recorder = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            rows = measure(recorder.pid, options.duration, options.every)
        except Failed as problem:
            with open(log) as file:
                raise Failed(f"{name}: {problem}: {file.read()[-500:]}") from None
        recorder.send_signal(signal.SIGINT)
        begin = time.monotonic()
        try:
            recorder.wait(options.end_timeout)
        except subprocess.TimeoutExpired:
            print(f"bench_recorder: {name}: the recorder did not end within {options.end_timeout:g} s", file=sys.stderr)
        with open(log) as file:
            lines = [line for line in file.read().splitlines() if line.strip()]
        return {"set": name, "flags": flags, "intervals": rows, "end_s": time.monotonic() - begin, "log": lines}
    finally:
        if recorder and recorder.poll() is None:
            recorder.kill()
            recorder.wait()
        workload.end()


def table(results):
    """Returns the Markdown table of all intervals, with a row for the time after the first interval."""
    lines = ["| set | seconds | CPU % | anon MiB | peak | file | shmem |", "|---|---|---|---|---|---|---|"]
    for result in results:
        rows = result["intervals"]
        for r in rows:
            lines.append(f"| {result['set']} | {r['from_s']:.0f}–{r['to_s']:.0f} | {r['cpu_percent']:.1f} | "
                         f"{r['anon_mib']:.0f} | {r['peak_anon_mib']:.0f} | {r['file_mib']:.0f} | {r['shmem_mib']:.0f} |")
        if later := rows[1:]:
            lines.append(f"| **{result['set']}** | later, mean | {statistics.mean(r['cpu_percent'] for r in later):.1f} | "
                         f"{later[-1]['anon_mib']:.0f} | {max(r['peak_anon_mib'] for r in rows):.0f} | "
                         f"{later[-1]['file_mib']:.0f} | {later[-1]['shmem_mib']:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--duration", type=float, default=60, help="seconds of each recording")
    parser.add_argument("--every", type=float, default=10, help="seconds of an interval")
    parser.add_argument("--set", action="append", default=[], metavar="NAME[=FLAGS]",
                        help="flags of a recording, or the name of a set above")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds from the start, or from --ready, to the recording")
    parser.add_argument("--ready", help="wait until the program prints a line with this text")
    parser.add_argument("--start-timeout", type=float, default=300)
    parser.add_argument("--end-timeout", type=float, default=300, help="seconds until a recorder must have ended")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to FILE, or - for the standard output")
    parser.add_argument("--keep", metavar="FOLDER", help="keep recordings and logs")
    parser.add_argument("--gpurec", default=os.environ.get("GPUREC", os.path.join(ROOT, "build", "bin", "gpurec")))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("COMMAND is missing")
    sets = {}
    for item in options.set or SETS:
        name, given, flags = item.partition("=")
        if not given and name not in SETS:
            parser.error(f"no set {name}: use NAME=FLAGS, or one of {', '.join(SETS)}")
        sets[name] = flags if given else SETS[name]
    results, failed = [], False
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for name, flags in sets.items():
            try:
                results.append(record(options, name, flags, folder))
                print(f"{name}: {results[-1]['log'][-1] if results[-1]['log'] else ''}", file=sys.stderr, flush=True)
            except Failed as problem:
                failed = True
                print(f"bench_recorder: {problem}", file=sys.stderr, flush=True)
    if options.json == "-":
        json.dump(results, sys.stdout, indent=1)
        print()
    else:
        print(table(results))
        if options.json:
            with open(options.json, "w") as file:
                json.dump(results, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
