#!/usr/bin/env bash
# make test-gpu, on a machine with a GPU and nvcc. Records examples/counts from its first call, with
# the CUDA runtime linked statically and dynamically. Compares the recordings with the number of
# calls that the program prints. Needs root. GPUREC is the path of gpurec (default:
# build/bin/gpurec).
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
launches=${LAUNCHES:-100000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

for cudart in static shared; do
	nvcc -o "$work/counts" examples/counts/counts.cu -cudart $cudart
	"$gpurec" record --max-overhead off -o "$work/$cudart.parquet" -- "$work/counts" "$launches" >"$work/expected"
	"$gpurec" dump "$work/$cudart.parquet" | awk '
		/^(alloc|free|launch|memcpy|memset) / { result = 0; if (match($0, / result=[0-9]+/)) result = substr($0, RSTART + 8, RLENGTH - 8); n[$1 " " result]++ }
		END { for (k in n) print k, n[k] }' >"$work/recorded"
	while read -r _ kind result want; do
		have=$(awk -v k="$kind" -v r="$result" '$1 == k && $2 == r { print $3 }' "$work/recorded")
		if [ "${have:-0}" = "$want" ]; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
			echo "$cudart cudart: $kind with result $result: $want calls made, ${have:-0} recorded"
		fi
	done <"$work/expected"
done
if python3 -c 'import torch' 2>/dev/null; then
	if GPUREC=$gpurec bash scripts/test-torch-allocator.sh; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
if GPUREC=$gpurec bash scripts/test-gpu-pointers.sh; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "test-gpu: $passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
