"""Training workloads on random data. Each function returns a function that runs one training step.

mlp_small is CPU-bound: 20 small layers, about 160 kernel launches a step. gpt_train is a
12-layer GPT-2 (transformers, random weights) in bfloat16, about 1,100 launches a step.
fake needs neither PyTorch nor a GPU: it launches kernels on simcuda through ctypes.
"""
import ctypes


def mlp_small():
    import torch

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)]).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.randn(64, 256, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


def gpt_train():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=12, n_embd=768)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50000, (8, 512), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry fake_kernel()
{
	ret;
}
"""


def fake(launches=40):
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: error {result}")

    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    function, stream = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"fake_kernel")
    call("cuStreamCreate", ctypes.byref(stream), 0)

    def layer(n):
        call("cuLaunchKernel", function, 1 + n, 1, 1, 32, 1, 1, 0, stream, None, None)
        return sum(range(1000))

    def step():
        for n in range(launches):
            layer(n)
        call("cuStreamSynchronize", stream)

    return step


STEPS = {"mlp_small": mlp_small, "gpt_train": gpt_train, "fake": fake}
