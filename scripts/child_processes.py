"""Child processes of a test. Every wait has a limit, and kill_all kills the processes that are left.

Threads may start and wait for children at the same time. A test calls exit_at_signals first, and kill_all in a finally
clause of the main thread. Threads that wait for a child that is killed then fail, and so do those that start one.
"""
import os
import signal
import subprocess
import sys
import threading
import time

_children, _lock, _is_closed = set(), threading.RLock(), False


class Failed(Exception):
    """A child did not do what it should. The message is the reason."""


class Child:
    """A running command. log is a file for its messages; output is one for its standard output, by default log."""

    def __init__(self, command, log, output=None, env=None):
        self.command, self.log = [str(word) for word in command], str(log)
        self.name = " ".join(os.path.basename(word) for word in self.command[:3])
        with open(log, "w") as messages, open(output or os.devnull, "w") as out, _lock:
            if _is_closed:
                raise Failed("the test ends")
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out if output else messages, stderr=messages, env=env)
            _children.add(self)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        with _lock:
            _children.discard(self)

    def last_words(self):
        with open(self.log, errors="replace") as f:
            return f.read()[-400:].strip()

    def check(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")

    def wait_for(self, what, condition, seconds):
        """Waits until a condition is true, and fails if the process ends before."""
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > end:
                raise Failed(f"{self.name}: not {what} after {seconds:.0f} s: {self.last_words()}")
            time.sleep(0.02)

    def finish(self, seconds, expected=(0,)):
        """Waits until the process ends, and returns its status. It kills the process after some seconds."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {seconds:.0f} s: {self.last_words()}") from None
        finally:
            self.kill()
        if status not in expected:
            raise Failed(f"{self.name} ended with {status}: {self.last_words()}")
        return status

    def interrupt(self, seconds=20):
        """Sends SIGINT, and waits for the end."""
        self.process.send_signal(signal.SIGINT)
        self.finish(seconds, expected=(0, -signal.SIGINT))


def run(command, log, seconds, output=None, expected=(0,)):
    """Runs a command with a limit, and returns its status."""
    with Child(command, log, output) as child:
        return child.finish(seconds, expected)


def exit_at_signals():
    """Lets SIGINT and SIGTERM kill all children and end the main thread."""
    def end(number, _):
        kill_all()
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def kill_all():
    """Kills all children. New ones cannot be started."""
    global _is_closed
    with _lock:
        _is_closed = True
        for child in _children:
            child.process.kill()
