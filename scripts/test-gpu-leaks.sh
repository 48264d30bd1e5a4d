#!/usr/bin/env bash
# Part of make test-gpu: two programs that leak, one in CUDA C++ from one of three functions and one in PyTorch from
# a list that keeps outputs, are recorded while they run; the first row of leaks must be the line or function that
# leaks, its verdict growing. Needs root, a GPU, nvcc and PyTorch. GPUREC names the binary.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
work=${WORK:-$(mktemp -d)}
failed=0

# judge NAME SITE PID SECONDS: records the process and holds the first row to SITE.
judge() {
	"$gpurec" record -p "$3" -d "$4s" -o "$work/$1.parquet" --force 2>"$work/$1.log" || { cat "$work/$1.log"; failed=1; return; }
	"$gpurec" analyze leaks "$work/$1.parquet" --top 3
	first=$("$gpurec" analyze leaks --format csv --no-header "$work/$1.parquet" | head -1)
	if [[ $first == *growing* && $first == *$2* ]]; then
		echo "$1: right: $2"
	else
		echo "$1: the first row is not $2, growing: $first"
		failed=1
	fi
}

nvcc -g -o "$work/leak" examples/cuda-leak/leak.cu
"$work/leak" 30 >"$work/leak.out" &
sleep 3
judge cuda-leak "Features::of" $! 20
wait %1 && cat "$work/leak.out"

python3 examples/pytorch-leak/train.py --leak list --seconds 45 >"$work/list.out" &
until [ -s "$work/list.out" ]; do sleep 0.3; done
line=$(grep -n 'LEAK list' examples/pytorch-leak/train.py | cut -d: -f1)
judge pytorch-list "train.py:$line" $! 20
wait && tail -2 "$work/list.out"
exit $failed
