"""Makes a CUDA call, writes "hangs TID", and hangs in the way that its first argument names. TID is the
thread that it waits for, or 0. The second argument is a file or a port."""

import ctypes
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None)
keeps_gil = ctypes.PyDLL(None)


def hangs(thread=None):
    print("hangs", thread.native_id if thread else 0, flush=True)


def start(function):
    started = threading.Event()
    thread = threading.Thread(target=function, args=(started,), daemon=True)
    thread.start()
    started.wait()
    return thread


def in_sleep(_):
    hangs()
    time.sleep(100000)  # hang: sleep


def in_pipe(_):
    read_end, _ = os.pipe()
    hangs()
    os.read(read_end, 1)  # hang: pipe


def in_fifo(path):
    fifo = os.open(path, os.O_RDWR)
    hangs()
    data = os.read(fifo, 100)  # hang: fifo
    print("read", data.decode(), flush=True)


def in_open(path):
    hangs()
    open(path)  # hang: open


def in_network(port):
    connection = socket.create_connection(("127.0.0.1", int(port)))
    hangs()
    data = connection.recv(100)  # hang: network
    print("read", data.decode(), flush=True)


def in_poll(_):
    first, second = os.pipe(), os.pipe()
    hangs()
    select.select([first[0], second[0]], [], [])  # hang: poll


def in_child(_):
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    hangs()
    child.wait()  # hang: child


def in_queue(_):
    hangs()
    queue.Queue().get()  # hang: queue


def in_lock(_):
    mutex = ctypes.create_string_buffer(64)

    def hold(started):
        libc.pthread_mutex_lock(mutex)
        started.set()
        time.sleep(100000)  # owner: lock

    hangs(start(hold))
    libc.pthread_mutex_lock(mutex)  # hang: lock


def in_gil(_):
    go_on = threading.Event()

    def hold(started):
        started.set()
        go_on.wait()
        keeps_gil.sleep(100000)  # owner: gil

    hangs(start(hold))
    go_on.set()
    spin()


def spin():
    while True:  # hang: gil
        pass


def in_import(folder):
    with open(os.path.join(folder, "slow_module.py"), "w") as module:
        module.write("import __main__\n__main__.started.set()\nimport time\ntime.sleep(100000)\n")
    sys.path.append(folder)
    global started

    def load(event):
        global started
        started = event
        import slow_module

    hangs(start(load))
    import slow_module  # hang: import


ctypes.CDLL("libcuda.so.1").cuInit(0)
globals()["in_" + sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
