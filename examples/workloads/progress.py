"""How far a workload is, in a file that the workload and a benchmark both map.

The file is an array of 64-bit words: pid, state, command, number of finished steps, then
a ring of the times (CLOCK_MONOTONIC, ns) at which steps were finished. Writing one step
down takes well under a microsecond, so it does not disturb what is measured.
"""
import mmap
import os
import time

PID, STATE, COMMAND, STEPS, TIMES = 0, 1, 2, 3, 8
HELD = 1 << 18  # steps whose times are held: minutes of the fastest workload

# States: what the workload does. Commands: what it is asked to do.
STARTING, STEADY, PROFILED = 0, 1, 2
RUN, PROFILE, QUIT = 0, 1, 2


class Progress:
    def __init__(self, path, create=False):
        size = 8 * (TIMES + HELD)
        if create:
            with open(path, "wb") as f:
                f.truncate(size)
        fd = os.open(path, os.O_RDWR)
        try:
            self.words = memoryview(mmap.mmap(fd, size)).cast("Q")
        finally:
            os.close(fd)

    def finish_step(self):
        n = self.words[STEPS]
        self.words[TIMES + n % HELD] = time.monotonic_ns()
        self.words[STEPS] = n + 1

    def rate(self, begin_ns, end_ns):
        """Steps a second from the last step finished before begin_ns to the last one before
        end_ns, or None when there was none between."""
        n = self.words[STEPS]
        last, steps = None, 0
        for i in range(n - 1, max(n - HELD, -1), -1):
            at = self.words[TIMES + i % HELD]
            if at > end_ns:
                continue
            if at <= begin_ns:
                return steps * 1e9 / (last - at) if steps else None
            last = last or at
            steps += 1
        return None
