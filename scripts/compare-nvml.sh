#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: records a process and asks nvidia-smi at the same
# time, then compares the two, metric by metric. Needs root, nvidia-smi and python3.
#
#   compare-nvml.sh SECONDS -- COMMAND…    records the command (it should use the GPU)
#   compare-nvml.sh SECONDS -p PID         records a process that runs
#
# GPUREC names the binary (build/bin/gpurec). Exit status 1: something differs.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
seconds=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$gpurec" record -o "$work/r.parquet" -d "${seconds}s" "$@" >"$work/stdout" 2>"$work/stderr" &
recorder=$!
fields=$(python3 "$here/compare-nvml.py" fields)
for ((i = 0; i < seconds; i++)); do
	kill -0 $recorder 2>/dev/null || break
	# The time of asking is the middle of the call: nvidia-smi takes half a second.
	before=$(date +%s%N)
	nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits >"$work/answer" || break
	after=$(date +%s%N)
	sed "s/^/gpu, $before, $after, /" "$work/answer" >>"$work/smi"
	nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits >"$work/answer" || true
	sed "s/^/process, $before, $(date +%s%N), /" "$work/answer" >>"$work/smi"
	sleep 0.3
done
wait $recorder || { cat "$work/stderr"; exit 1; }
"$gpurec" dump "$work/r.parquet" >"$work/dump"
python3 "$here/compare-nvml.py" compare "$work/smi" "$work/dump"
