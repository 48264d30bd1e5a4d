#!/usr/bin/env bash
# Part of make test-gpu, on a machine with a GPU, nvcc and PyTorch with Triton. Compares recorded arguments of kernels
# with those that a CUDA C++ program and a Triton kernel print, and the report about a use after free with the truth.
# Needs root, and less than 3 minutes. GPUREC is the path of gpurec (default: build/bin/gpurec); WORK keeps the files.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
failed=0

# record NAME OPTION -- COMMAND…: records a command, whose output goes to NAME.out.
record() {
	local name=$1
	shift
	"$gpurec" record --stacks "${STACKS:-auto}" --max-overhead off --force -o "$work/$name.parquet" "$@" \
		>"$work/$name.out" 2>"$work/$name.log" || { tail -5 "$work/$name.log"; failed=1; }
	"$gpurec" analyze export jsonl --kind kernel_args "$work/$name.parquet" >"$work/$name.jsonl"
	tail -2 "$work/$name.log"
}

# check NAME [--last]: compares the arguments.
check() {
	if python3 scripts/compare_kernel_args.py "$work/$1.jsonl" "$work/$1.out" "${@:2}"; then
		echo "$1: passed"
	else
		echo "$1: failed"
		failed=1
	fi
}

if [ -n "${POINTERS_PROGRAM:-}" ]; then # a program that was built before
	cp "$POINTERS_PROGRAM" "$work/pointers"
else
	nvcc -arch="${ARCH:-sm_90}" -std=c++17 -O1 -g -o "$work/pointers" examples/cuda-pointers/pointers.cu
fi
echo "== all arguments of a CUDA C++ program"
record cuda --kernel-args=all -- "$work/pointers" 300
check cuda
echo "== arguments of the last launches"
record last --kernel-args -- "$work/pointers" 3000
check last --last
rows=$(wc -l <"$work/last.jsonl")
[ "$rows" = 48 ] || { echo "last: $rows launches of 3 streams, not 48"; failed=1; }

echo "== a use after free"
record use --kernel-args -- "$work/pointers" 300 use-after-free
grep '^error' "$work/use.out" || true
"$gpurec" analyze pointers --max-frames 3 "$work/use.parquet" | tee "$work/use.txt"
if grep -q 'freed.*load_batch.*drop_batch.*run_mixed' "$work/use.txt"; then
	echo "use: passed"
else
	echo "use: the report does not name load_batch, drop_batch and run_mixed"
	failed=1
fi
"$gpurec" analyze rules --rule use-after-free "$work/use.parquet" | head -8

if python3 -c 'import triton' 2>/dev/null; then
	echo "== a Triton kernel"
	record triton --kernel-args=all -- python3 examples/workloads/arguments.py 50
	check triton
else
	echo "Triton is not installed"
fi
[ $failed = 0 ] && echo "test-gpu-pointers: passed"
exit $failed
