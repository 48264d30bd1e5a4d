"""The CUDA driver through ctypes. Each call releases the global interpreter lock."""
import ctypes

PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry _Z7forwardPKfPf(.param .u64 duration_ns) { ret; }
.visible .entry _Z8backwardPKfPf(.param .u64 duration_ns) { ret; }
"""
BATCH, RESULT, NON_BLOCKING = 256 << 10, 4096, 1


class GPU:
    """A context with one stream and two kernels. All methods are for one thread."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context, module, self.device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.host, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.forward, self.backward = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(self.forward), module, b"_Z7forwardPKfPf")
        self.call("cuModuleGetFunction", ctypes.byref(self.backward), module, b"_Z8backwardPKfPf")
        self.call("cuMemAlloc_v2", ctypes.byref(self.device), ctypes.c_size_t(BATCH))
        self.call("cuMemHostAlloc", ctypes.byref(self.host), ctypes.c_size_t(BATCH), 0)
        self.call("cuStreamCreate", ctypes.byref(self.stream), NON_BLOCKING)
        self.duration = ctypes.c_uint64()
        self.arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self.duration))

    def call(self, name, *arguments):
        if result := getattr(self.driver, name)(*arguments):
            raise RuntimeError(f"{name}: error {result}")

    def launch(self, kernel, duration_ns):
        self.duration.value = duration_ns
        self.call("cuLaunchKernel", kernel, 64, 1, 1, 128, 1, 1, 0, self.stream, self.arguments, None)

    def upload(self, size=BATCH):
        self.call("cuMemcpyHtoDAsync_v2", self.device, self.host, ctypes.c_size_t(size), self.stream)

    def synchronize(self):
        self.call("cuStreamSynchronize", self.stream)

    def download(self):
        self.call("cuMemcpyDtoH_v2", self.host, self.device, ctypes.c_size_t(RESULT))
