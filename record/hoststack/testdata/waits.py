"""One thread for each way to wait in Python. It writes the stacks of faulthandler, then "ready"."""

import ctypes
import faulthandler
import os
import queue
import select
import socket
import sys
import threading
import time

lock, event, condition = threading.Lock(), threading.Event(), threading.Condition()
lock.acquire()
read_end, write_end = os.pipe()
left, right = socket.socketpair()


def in_sleep():
    time.sleep(100000)


def in_queue():
    queue.Queue().get()


def in_lock():
    lock.acquire()


def in_event():
    event.wait()


def in_event_for_a_time():
    event.wait(100000)


def in_condition():
    with condition:
        condition.wait()


def in_read():
    os.read(read_end, 10)


def in_recv():
    left.recv(10)


def in_select():
    select.select([read_end], [], [])


class Item:
    def __lt__(self, other):
        time.sleep(100000)


def in_sort():
    sorted([Item(), Item()])  # C code between two Python functions


def recurse(n):
    if n:
        return recurse(n - 1)
    time.sleep(100000)


def in_recursion():
    recurse(60)


def generate():
    yield 1
    time.sleep(100000)


def in_generator():
    list(generate())


def in_ünïcode_名前():
    time.sleep(100000)


def in_eval():
    eval("(lambda: time.sleep(100000))()")


def all_wait():
    """Returns whether all other threads wait."""
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/stat") as stat:
            if int(tid) != os.getpid() and stat.read().rpartition(")")[2].split()[0] != "S":
                return False
    return True


for name, function in sorted(globals().items()):
    if name.startswith("in_"):
        threading.Thread(target=function, name=name, daemon=True).start()
sleep = ctypes.CDLL(None).sleep
while not all_wait():
    time.sleep(0.01)
# One line, so that the line of the first thread is known.
faulthandler.dump_traceback(sys.stdout, all_threads=True); sys.stdout.write("ready\n"); sys.stdout.flush(); sleep(100000)
