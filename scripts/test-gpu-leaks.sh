#!/usr/bin/env bash
# Part of make test-gpu. Records two running programs with a leak: one in CUDA C++, and one in
# PyTorch that keeps outputs in a list. The first row of the leak report must be the leaking
# function or line with the verdict growing. Needs root, a GPU, nvcc and PyTorch. GPUREC is the path
# of gpurec.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
work=${WORK:-$(mktemp -d)}
failed=0

# check_leak NAME SITE PID SECONDS: records the process and compares the first row of the leak
# report with SITE.
check_leak() {
	"$gpurec" record -p "$3" -d "$4s" -o "$work/$1.parquet" --force 2>"$work/$1.log" || { cat "$work/$1.log"; failed=1; return; }
	"$gpurec" analyze leaks "$work/$1.parquet" --top 3
	first=$("$gpurec" analyze leaks --format csv --no-header "$work/$1.parquet" | head -1)
	if [[ $first == *growing* && $first == *$2* ]]; then
		echo "$1: passed: $2"
	else
		echo "$1: want $2 growing, but the first row is: $first"
		failed=1
	fi
}

nvcc -g -o "$work/leak" examples/cuda-leak/leak.cu
"$work/leak" 30 >"$work/leak.out" &
sleep 3
check_leak cuda-leak "Features::of" $! 20
wait %1 && cat "$work/leak.out"

python3 examples/pytorch-leak/train.py --leak list --seconds 45 >"$work/list.out" &
until [ -s "$work/list.out" ]; do sleep 0.3; done
line=$(grep -n 'LEAK list' examples/pytorch-leak/train.py | cut -d: -f1)
check_leak pytorch-list "train.py:$line" $! 20
wait && tail -2 "$work/list.out"
exit $failed
