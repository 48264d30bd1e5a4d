#!/usr/bin/env bash
# Measures what --gpu-time=auto costs a training, in steps a second, by alternating recordings with
# and without it. Needs root, a GPU, python3 with PyTorch and transformers.
#
#     scripts/bench-gpu-time.sh -o results [--workloads gpt_train,mlp_small] [--pairs 12]
#     scripts/bench-gpu-time.sh --cpu-fake --workloads mlp_small    # test the script on simcuda (make simcuda)
#
# GPUREC is the path of gpurec (build/bin/gpurec). --help lists all options.
set -euo pipefail
exec python3 "$(dirname "$0")/bench_gpu_time.py" "$@"
