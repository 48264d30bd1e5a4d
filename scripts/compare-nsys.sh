#!/usr/bin/env bash
# Compares a recording with Nsight Systems for the same run of a program: kernel launches by kernel,
# copies and bytes by direction. Needs root, nsys on the PATH, python3 with pyarrow, and a GPU.
#
#     scripts/compare-nsys.sh python3 examples/workloads/train.py --steps 20
#
# GPUREC is the path of gpurec (build/bin/gpurec).
set -euo pipefail
[ $# -gt 0 ] || { echo "compare-nsys: no command to run; for example: $0 python3 examples/workloads/train.py --steps 20" >&2; exit 2; }
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$gpurec" record --max-overhead off -o "$work/run.parquet" -- \
	nsys profile -t cuda --sample=none --cpuctxsw=none -o "$work/run" "$@"
nsys stats -q --format csv -o "$work/nsys" -r cuda_gpu_kern_sum:mangled,cuda_gpu_mem_size_sum,cuda_gpu_mem_time_sum "$work/run.nsys-rep" >/dev/null
python3 "$here/compare_nsys.py" "$work/run.parquet" "$work"
