#!/usr/bin/env bash
# What recorders cost PyTorch training, in steps a second: gpurec in each of its stack
# modes, Nsight Systems and torch.profiler against bare windows around them. About nine
# minutes. Needs root, a GPU, python3 with PyTorch and transformers, and for nsys its libraries on
# LD_LIBRARY_PATH.
#
#     scripts/bench-torch.sh -o results [--modes auto,off] [--workloads gpt_train] …
#     scripts/bench-torch.sh --cpu-fake --workloads mlp_small    # tries it out on simcuda (make simcuda)
#
# GPUREC names the binary (build/bin/gpurec). --help tells the rest.
set -euo pipefail
exec python3 "$(dirname "$0")/bench_torch.py" "$@"
