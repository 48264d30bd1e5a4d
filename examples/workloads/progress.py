"""The progress of a workload, in a file that both the workload and a benchmark map.

The file is an array of 64-bit words: PID, state, command, number of finished steps, then a ring
of the finish times of steps (CLOCK_MONOTONIC, ns). Recording a step takes less than a
microsecond, so it does not affect the benchmark.
"""
import mmap
import os
import time

PID, STATE, COMMAND, STEPS, TIMES = 0, 1, 2, 3, 8
RING = 1 << 18  # number of finish times in the ring: minutes of the fastest workload

# States of the workload, and commands from the benchmark.
STARTING, STEADY, PROFILED = 0, 1, 2
RUN, PROFILE, QUIT = 0, 1, 2


class Progress:
    def __init__(self, path, create=False):
        size = 8 * (TIMES + RING)
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
        self.words[TIMES + n % RING] = time.monotonic_ns()
        self.words[STEPS] = n + 1

    def rate(self, begin_ns, end_ns):
        """Returns steps a second from the last step finished before begin_ns to the last one before
        end_ns. Returns None if no step finished between them."""
        n = self.words[STEPS]
        last, steps = None, 0
        for i in range(n - 1, max(n - RING, -1), -1):
            at = self.words[TIMES + i % RING]
            if at > end_ns:
                continue
            if at <= begin_ns:
                return steps * 1e9 / (last - at) if steps else None
            last = last or at
            steps += 1
        return None

    def finish_times(self, begin_ns):
        """Returns the finish times of all steps since the last one before begin_ns."""
        n, times = self.words[STEPS], []
        for i in range(n - 1, max(n - RING, -1), -1):
            times.append(self.words[TIMES + i % RING])
            if times[-1] <= begin_ns:
                break
        return times[::-1]
