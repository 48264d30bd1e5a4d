"""Training workloads on random data. Each function returns a function that runs one training step.

mlp_small is CPU-bound: 20 small layers, about 160 kernel launches a step. gpt_train is a
12-layer GPT-2 (transformers, random weights) in bfloat16, about 1,100 launches a step. gpt2_large
is bound by the GPU: 36 layers in bfloat16. gpt_decode decodes 8 tokens a step, without graphs.
gpt_graph replays a CUDA graph of a forward pass 8 times a step. streams has three streams, with
copies and events. gpt_modules has own modules of PyTorch alone: subclasses without a forward function, and layers that
are computed again in the backward pass. slow_loader waits for a data loader that tokenizes text in Python. two_gpus is
a model whose halves are on two GPUs. mlp and gpt2 do not wait for the GPU, so their CPU is ahead of it: 20 layers of
width 512, and GPT-2 small in bfloat16 with 8 texts of 256 tokens. Their steps return the loss as a tensor.
resnet50 trains a ResNet-50 in bfloat16, channels last. empty_cache empties PyTorch's cache after each step, and may use
8 GB. adam_per_tensor is an optimizer that loops over 3,000 parameters in Python.
fake and fake_tensors need neither PyTorch nor a GPU. fake launches kernels on simcuda through ctypes, fake_tensors allocates
tensors of simtorch.
"""
import ctypes
import os
import sys


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


def gpt_modules(layers=8, width=512):
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)

    class QuietLinear(nn.Linear):
        pass

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = QuietLinear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            return self.out(nn.functional.scaled_dot_product_attention(q, k, v))

    class MLP(nn.Sequential):
        pass

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(width), Attention()
            self.mlp = MLP(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            x = x + self.attention(self.norm(x))
            return x + self.mlp(x)

    class FirstBlock(Block):
        pass

    class CheckpointedBlock(Block):
        pass

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(1000, width)
            self.blocks = nn.ModuleList([(FirstBlock, Block, CheckpointedBlock)[i % 3]() for i in range(layers)])
            self.head = QuietLinear(width, 1000)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                again = isinstance(block, CheckpointedBlock)
                x = checkpoint(block, x, use_reentrant=True) if again else block(x)
            return self.head(x)

    model, loss_of = GPT().to("cuda"), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 1000, (8, 128), device="cuda")

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def gpt2_large():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    config = GPT2Config(n_layer=36, n_head=20, n_embd=1280, n_positions=1024)
    model = GPT2LMHeadModel(config).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50000, (8, 1024), device="cuda")

    def step():
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def gpt_decode():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=12, n_embd=768)).to("cuda", torch.bfloat16).eval()
    prompt = torch.randint(0, 50000, (4, 64), device="cuda")
    mask = torch.ones_like(prompt)

    def step():
        with torch.no_grad():
            model.generate(prompt, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()

    return step


def gpt_graph():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=12, n_embd=768)).to("cuda", torch.bfloat16).eval()
    tokens = torch.randint(0, 50000, (4, 64), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                model(tokens, use_cache=False)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            predicted = model(tokens, use_cache=False).logits[:, -1].argmax(-1)

    def step():
        for i in range(8):
            graph.replay()
            tokens[:, i].copy_(predicted)
        torch.cuda.synchronize()

    return step


def streams():
    import torch

    streams = [torch.cuda.Stream() for _ in range(3)]
    matrices = [torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for n in (512, 1024, 2048)]
    events = [torch.cuda.Event() for _ in range(3)]
    host = torch.empty(1 << 20, pin_memory=True)
    device = torch.empty(1 << 20, device="cuda")
    torch.cuda.synchronize()
    steps = 0

    def step():
        nonlocal steps
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                for _ in range(4 + 2 * i):
                    product = torch.mm(matrices[i], matrices[i]) + 1
                if i == 0:
                    device.copy_(host, non_blocking=True)
                if i == 1:
                    host.copy_(device, non_blocking=True)
                if i == 2:
                    product.zero_()
                events[i].record(stream)
        streams[0].wait_event(events[1])
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()

    return step


def slow_loader():
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=4).to("cuda")
    embed = torch.nn.Embedding(1000, 512).to("cuda")
    optimizer = torch.optim.AdamW([*model.parameters(), *embed.parameters()], lr=1e-4)

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 30

        def __getitem__(self, i):
            return tokenize(f"sample {i} " * 100)

    def tokenize(text):
        return torch.tensor([sum(map(ord, text[n : n + 8])) % 1000 for n in range(0, 512, 2)])

    batches = iter(torch.utils.data.DataLoader(Texts(), batch_size=64, num_workers=0, pin_memory=False))

    def step():
        tokens = next(batches).to("cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(embed(tokens)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def two_gpus():
    import torch

    torch.manual_seed(0)
    halves = []
    for i in range(2):
        layer = torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
        halves.append(torch.nn.TransformerEncoder(layer, num_layers=4).to(f"cuda:{i}"))
    optimizers = [torch.optim.AdamW(half.parameters(), lr=1e-4) for half in halves]
    x = torch.randn(32, 256, 512, device="cuda:0")

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = halves[1](halves[0](x).to("cuda:1")).pow(2).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        torch.cuda.synchronize(0)
        return loss.item()

    return step


def mlp():
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(64, 512, device="cuda")

    def step():
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def gpt2():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (8, 256), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def resnet50(batch=64):
    import torch
    from torch import nn

    torch.manual_seed(0)

    def convolution(inputs, outputs, kernel, stride=1):
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs))

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            same = stride == 1 and inputs == 4 * width
            self.shortcut = nn.Identity() if same else convolution(inputs, 4 * width, 1, stride)
            self.first, self.second = convolution(inputs, width, 1), convolution(width, width, 3, stride)
            self.third = convolution(width, 4 * width, 1)

        def forward(self, x):
            y = torch.relu(self.first(x))
            y = self.third(torch.relu(self.second(y)))
            return torch.relu(y + self.shortcut(x))

    blocks, inputs = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(2048, 1000)).to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def empty_cache():
    import torch
    from torch import nn

    torch.manual_seed(0)
    limit = 8e9 / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1, limit))
    layers = [layer for _ in range(12) for layer in (nn.Linear(2048, 2048), nn.GELU(), nn.LayerNorm(2048))]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        torch.cuda.empty_cache()

    return step


def adam_per_tensor(count=3000, size=1024):
    import torch

    torch.manual_seed(0)
    parameters = [torch.randn(size, device="cuda") for _ in range(count)]
    gradients = [torch.randn_like(p) for p in parameters]
    means, squares = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        rate = 1e-3 * (1 - 0.999**steps) ** 0.5 / (1 - 0.9**steps)
        for parameter, gradient, mean, square in zip(parameters, gradients, means, squares):
            mean.mul_(0.9).add_(gradient * 0.1)
            square.mul_(0.999).add_(gradient * gradient * 0.001)
            parameter.sub_(rate * mean / (square.sqrt() + 1e-8))
        torch.cuda.synchronize()

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


def fake_tensors(count=100):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "simtorch"))
    import simtorch

    simtorch.init()

    def step():
        activations = [simtorch.empty(1024 * (1 + n), None) for n in range(count)]
        del activations

    return step


STEPS = {
    "mlp_small": mlp_small, "gpt_train": gpt_train, "gpt2_large": gpt2_large, "gpt_decode": gpt_decode,
    "gpt_graph": gpt_graph, "gpt_modules": gpt_modules, "streams": streams, "slow_loader": slow_loader, "two_gpus": two_gpus,
    "mlp": mlp, "gpt2": gpt2, "resnet50": resnet50, "empty_cache": empty_cache, "adam_per_tensor": adam_per_tensor,
    "fake": fake, "fake_tensors": fake_tensors,
}
