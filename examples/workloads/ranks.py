"""One rank of a PyTorch training with DistributedDataParallel or FSDP, and faults of one rank.

    torchrun --nproc-per-node 2 ranks.py FAULT [--fsdp] [--rank 1] [--trigger FILE] [--steps N]

FAULT is one of:

    none        nothing
    late        the rank sleeps 20 ms before each step
    gpu         the GPU of the rank multiplies matrices for some ms in each step
    copy        the rank copies 256 MiB to its GPU in each step
    stop        the rank sleeps for ever
    mismatch    the rank calls all_gather where the others call all_reduce
    kill        the rank kills itself with SIGKILL
    leak        the rank keeps 64 KiB of each step
    oom         the rank asks for a petabyte in each thousandth step, and continues

The fault begins when FILE exists; without --trigger it begins with the first step. Each rank prints "ready
RANK PID" after some steps, and its steps per second at the end. --times FILE makes rank 0 write the time of
each tenth step (CLOCK_MONOTONIC, ns), and rank --rank the time at which its fault began ("fault NS"). With fewer GPUs than ranks, several ranks share
a GPU: set NCCL_HOSTID to another text for each rank, so that NCCL takes them for different hosts.
"""
import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

FAULTS = ("none", "late", "gpu", "copy", "stop", "mismatch", "kill", "leak", "oom")
WARM_STEPS = 20


def make_model():
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def share_model(model, device, by_fsdp):
    """Returns the model with gradients that all ranks share. FSDP gathers each layer when it needs it."""
    if not by_fsdp:
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def sleep_late():
    time.sleep(0.02)


def multiply(matrix):
    for _ in range(8):
        torch.mm(matrix, matrix)


def upload(source, target):
    target.copy_(source, non_blocking=True)


def stop():
    while True:
        time.sleep(3600)


def gather_instead(value, size):
    parts = [torch.empty_like(value) for _ in range(size)]
    dist.all_gather(parts, value)


kept = []


def keep_prediction(prediction):
    kept.append(prediction[:16].clone())


def ask_for_too_much(device):
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--trigger")
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--times")
    options = parser.parse_args()

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    model = share_model(make_model().to(device), device, options.fsdp)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(256, 1024, device=device)
    loss_sum = torch.zeros(256, device=device)
    matrix = torch.randn(4096, 4096, device=device)
    pinned = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(pinned, device=device)
    is_faulty = rank == options.rank
    times = open(f"{options.times}.{rank}", "w", buffering=1) if options.times else None
    began = False

    def step(number):
        nonlocal began
        fault = options.fault if is_faulty else "none"
        if fault != "none" and options.trigger and not os.path.exists(options.trigger):
            fault = "none"
        if fault != "none" and times and not began:
            began = True
            print("fault", time.monotonic_ns(), file=times)
        if rank == 0 and times and number % 10 == 0:
            print(time.monotonic_ns(), file=times)
        if fault == "late":
            sleep_late()
        elif fault == "gpu":
            multiply(matrix)
        elif fault == "copy":
            upload(pinned, target)
        elif fault == "stop":
            stop()
        elif fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        prediction = model(batch)
        if fault == "leak":
            keep_prediction(prediction)
        elif fault == "oom" and number % 1000 == 0:
            ask_for_too_much(device)
        loss = prediction.pow(2).mean()
        loss.backward()
        optimizer.step()
        if fault == "mismatch":
            gather_instead(loss_sum, size)
        else:
            dist.all_reduce(loss_sum)
        return loss.item()

    for number in range(WARM_STEPS):
        step(number)
    print(f"ready {rank} {os.getpid()}\n", end="", flush=True)  # one write, so lines of ranks do not mix
    begin, steps = time.monotonic(), 0
    while steps < options.steps:
        step(steps)
        steps += 1
        # All ranks must agree on the last step.
        if options.seconds < 1e9 and steps % 50 == 0:
            over = torch.tensor([time.monotonic() - begin > options.seconds], device=device, dtype=torch.int32)
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
    print("rank", rank, f"{steps / (time.monotonic() - begin):.1f} steps/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
