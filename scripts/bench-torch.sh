#!/usr/bin/env bash
# Measures the overhead of recorders for PyTorch training, in steps a second. It compares gpurec
# with its default budget and without a budget, Nsight Systems and torch.profiler with the training
# without a recorder. Takes nine minutes. Needs root, a GPU, python3 with PyTorch and transformers, and nsys with its
# libraries on LD_LIBRARY_PATH.
#
#     scripts/bench-torch.sh -o results [--modes default,auto] [--workloads gpt_train] …
#     scripts/bench-torch.sh --cpu-fake --workloads mlp_small    # test the script on simcuda (make simcuda)
#
# GPUREC is the path of gpurec (build/bin/gpurec). --help lists all options.
set -euo pipefail
exec python3 "$(dirname "$0")/bench_torch.py" "$@"
