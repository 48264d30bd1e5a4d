#!/usr/bin/env bash
# Compares the NVML samples of a recording with nvidia-smi, metric by metric. It runs both at the
# same time on a machine with an NVIDIA GPU. Needs root, nvidia-smi and python3.
#
#   compare-nvml.sh SECONDS -- COMMAND…    records a command, which should use the GPU
#   compare-nvml.sh SECONDS -p PID         records a running process
#
# GPUREC is the path of gpurec (build/bin/gpurec). Exit status 1: a metric differs.
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
	# nvidia-smi takes half a second, so its sample lies between the times before and after the
	# call.
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
