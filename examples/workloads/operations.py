"""Makes known numbers of each kind of operation, so that a recording shows how many steps each adds to which channel.

    python3 operations.py FOLDER

It needs neither PyTorch nor a compiler: it calls the driver through ctypes. It writes FOLDER/ready, makes operations when
FOLDER/go appears, and writes FOLDER/phases.json: for each phase its name, its number of operations, and the Unix times in ns
at which it began and ended with nothing left to do.
"""
import ctypes
import json
import os
import sys
import time

PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry touch()
{
	ret;
}
"""
COUNT = 200
PAUSE_S = 0.004  # readers of progress words see each phase's end

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name}: error {result}")


def made(name, *arguments, kind=ctypes.c_void_p):
    value = kind()
    call(name, ctypes.byref(value), *arguments)
    return value


class Driver:
    def __init__(self):
        call("cuInit", 0)
        device = made("cuDeviceGet", 0, kind=ctypes.c_int)
        call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", device))
        module = made("cuModuleLoadData", PTX)
        self.kernel = made("cuModuleGetFunction", module, b"touch")
        self.stream, self.other = made("cuStreamCreate", 1), made("cuStreamCreate", 1)
        self.device, self.second = (made("cuMemAlloc_v2", ctypes.c_size_t(8 << 20), kind=ctypes.c_uint64) for _ in range(2))
        self.pinned = made("cuMemAllocHost_v2", ctypes.c_size_t(8 << 20))
        self.pageable = ctypes.create_string_buffer(8 << 20)
        self.timed, self.untimed = made("cuEventCreate", 0), made("cuEventCreate", 2)
        self.graph = self.capture(lambda: self.launch())
        self.mixed = self.capture(self.mix)

    def capture(self, run):
        call("cuStreamBeginCapture_v2", self.stream, 0)
        run()
        graph = made_after("cuStreamEndCapture", self.stream)
        return made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))

    def mix(self):
        self.launch()
        call("cuMemsetD8Async", self.device, 1, ctypes.c_size_t(1 << 20), self.stream)
        self.launch()

    def launch(self, stream=None):
        call("cuLaunchKernel", self.kernel, 1, 1, 1, 32, 1, 1, 0, stream or self.stream, None, None)

    def synchronize(self):
        call("cuCtxSynchronize")

    def to_device(self, host, size):
        call("cuMemcpyHtoDAsync_v2", self.device, host, ctypes.c_size_t(size), self.stream)

    def to_host(self, host, size):
        call("cuMemcpyDtoHAsync_v2", host, self.device, ctypes.c_size_t(size), self.stream)

    def on_device(self, size):
        call("cuMemcpyDtoDAsync_v2", self.second, self.device, ctypes.c_size_t(size), self.stream)

    def fill(self, size):
        call("cuMemsetD8Async", self.device, 0, ctypes.c_size_t(size), self.stream)


def made_after(name, argument):
    value = ctypes.c_void_p()
    call(name, argument, ctypes.byref(value))
    return value


def phases(d):
    yield "kernel", lambda: d.launch()
    yield "kernel on another stream", lambda: d.launch(d.other)
    for size in (4, 12, 64, 256, 1024, 4096, 8192, 16384, 24576, 32768, 49152, 65536, 65537, 81920, 131072, 1 << 20):
        yield f"pageable HtoD {size}", lambda: d.to_device(d.pageable, size)
        yield f"pinned HtoD {size}", lambda: d.to_device(d.pinned, size)
        yield f"HtoD of a waiting call {size}", lambda: call("cuMemcpyHtoD_v2", d.device, d.pageable, ctypes.c_size_t(size))
        yield f"pinned HtoD of a waiting call {size}", lambda: call(
            "cuMemcpyHtoD_v2", d.device, d.pinned, ctypes.c_size_t(size))
        yield f"pageable DtoH {size}", lambda: d.to_host(d.pageable, size)
        yield f"pinned DtoH {size}", lambda: d.to_host(d.pinned, size)
        yield f"DtoD {size}", lambda: d.on_device(size)
        yield f"memset {size}", lambda: d.fill(size)
    for name, event in ("timed", d.timed), ("untimed", d.untimed):
        yield f"record of a {name} event", lambda: call("cuEventRecord", event, d.stream)
        yield f"kernel and record of a {name} event", lambda: (d.launch(), call("cuEventRecord", event, d.stream))
        yield f"kernel, record, wait of another stream, kernel ({name})", lambda: (
            d.launch(), call("cuEventRecord", event, d.stream), call("cuStreamWaitEvent", d.other, event, 0),
            d.launch(d.other))
    yield "kernel and copy of 12 pageable bytes", lambda: (d.launch(), d.to_device(d.pageable, 12))
    yield "kernel and copy of 12 pinned bytes", lambda: (d.launch(), d.to_device(d.pinned, 12))
    yield "graph of a kernel", lambda: call("cuGraphLaunch", d.graph, d.stream)
    yield "graph of kernel, memset, kernel", lambda: call("cuGraphLaunch", d.mixed, d.stream)
    yield "wait for the stream", lambda: call("cuStreamSynchronize", d.stream)


def run(d, name, operation):
    operation()  # what happens only once is not counted
    d.synchronize()
    time.sleep(PAUSE_S)
    begin = time.time_ns()
    for i in range(COUNT):
        operation()
        if i % 20 == 19:
            d.synchronize()
    d.synchronize()
    time.sleep(PAUSE_S)
    return {"name": name, "count": COUNT, "begin_ns": begin, "end_ns": time.time_ns()}


def main():
    folder = sys.argv[1]
    print("pid", os.getpid(), flush=True)
    d = Driver()
    for _ in range(50):
        d.launch()
    d.synchronize()
    open(os.path.join(folder, "ready"), "w").close()
    while not os.path.exists(os.path.join(folder, "go")):  # the recorder finds channels that move
        for stream in d.stream, d.other:
            d.launch(stream)
            d.to_device(d.pinned, 1 << 20)
            d.to_host(d.pinned, 1 << 20)
        d.synchronize()
        time.sleep(0.002)
    done = [run(d, name, operation) for name, operation in phases(d)]
    with open(os.path.join(folder, "phases.json"), "w") as file:
        json.dump(done, file)


if __name__ == "__main__":
    main()
