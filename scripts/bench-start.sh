#!/usr/bin/env bash
# Measures how much slower a training is in the first seconds of a recording, in windows of 2.5 s
# from the start of the gpurec process. Needs root, a GPU, python3 with PyTorch and transformers.
#
#     scripts/bench-start.sh -o results [--modes default,cuda,empty] [--workloads gpt_train] …
#     scripts/bench-start.sh --cpu-fake --workloads mlp_small    # test the script on simcuda (make simcuda)
#
# GPUREC is the path of gpurec (build/bin/gpurec). --help lists all options.
set -euo pipefail
exec python3 "$(dirname "$0")/bench_start.py" "$@"
