"""Allocates and frees driver memory as fast as it can, from several functions.

    memory_calls.py SECONDS

Each function allocates its own size, so the size of a call names its function. Some functions have the same native
frames. Prints "ready", waits for a character, works for SECONDS, and prints "done".
"""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
PAGE = 4096


def allocate(pages):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(pages * PAGE)) == 0
    return address


def release(address):
    assert cuda.cuMemFree_v2(address) == 0


def size_1():
    release(allocate(1))


def size_2():
    release(allocate(2))


def size_4():
    release(allocate(4))


def size_8():
    size = 8
    if size:
        release(allocate(size))


def main():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    print("ready", flush=True)
    sys.stdin.read(1)
    end, turn = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end:
        turn += 1
        size_1()
        (size_2 if turn % 2 else size_4)()
        if turn % 50 == 0:
            size_8()
    print("done", flush=True)


main()
