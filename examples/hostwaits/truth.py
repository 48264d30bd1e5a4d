"""The truth about the program, as JSON lines. Times are CLOCK_MONOTONIC in ns."""
import json
import time

now_ns = time.monotonic_ns


class Truth:
    def __init__(self, path):
        self.file = open(path, "w") if path else None

    def write(self, event, **values):
        if self.file:
            self.file.write(json.dumps({"event": event, **values}) + "\n")

    def flush(self):
        if self.file:
            self.file.flush()
