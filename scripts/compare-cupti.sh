#!/usr/bin/env bash
# Records a training with --gpu-time while CUPTI records it in the same process, once for each rate.
# Needs root, a GPU, g++, CUPTI, and python3 with PyTorch and transformers.
#
#     scripts/compare-cupti.sh gpt2_large results full auto auto:60
#     go run ./scripts/compare-cupti results/full.parquet results/full.ref
#
# "auto:60" records for 60 s and writes results/auto-60.parquet; the default is 10 s. CUPTI is on for
# 4 s of each recording, or with WHOLE=1 from before its begin until its end: CUPTI makes graphs slower, so their mean
# in a whole recording differs from that of 4 s. results/steps has the Unix time in ns of every step's end. The second command
# needs no GPU. GPUREC is the path of gpurec (build/bin/gpurec), CUDA the folder of CUDA
# (/usr/local/cuda).
set -euo pipefail
[ $# -ge 3 ] || { echo "compare-cupti: name a workload, a folder and rates; for example: $0 gpt2_large results full auto" >&2; exit 2; }
workload=$1 folder=$2 whole=${WHOLE:-0}
shift 2
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
cuda=${CUDA:-/usr/local/cuda}
cupti=$(find -L "$cuda" -name 'libcupti.so' | head -1)
include=$(dirname "$(find -L "$cuda" -name cupti.h | head -1)")
[ -n "$cupti" ] || { echo "compare-cupti: no libcupti.so in $cuda; set CUDA to the folder of CUDA" >&2; exit 1; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
rm -f "$folder"/{ready,on,off,quit}
g++ -O2 -shared -fPIC -I"$include" -I"$cuda/include" "$here/cupti_reference.cpp" -o "$folder/libreference.so" \
	"$cupti" -Wl,-rpath,"$(dirname "$cupti")"
python3 "$here/../examples/workloads/referenced.py" "$workload" "$folder" --reference "$folder/libreference.so" &
job=$!
trap 'touch "$folder/quit"; wait $job' EXIT
until [ -e "$folder/ready" ]; do
	kill -0 $job || exit 1
	sleep 0.25
done

# turn_on NAME
turn_on() {
	printf '%s' "$folder/$1.ref" >"$folder/on.new"
	mv "$folder/on.new" "$folder/on"
}

# record RATE SECONDS NAME
record() {
	: >"$folder/$3.log"
	[ "$whole" = 0 ] || { turn_on "$3"; sleep 1; }
	"$gpurec" record -p $job -d "$2s" --gpu-time "$1" --max-overhead off --force -o "$folder/$3.parquet" 2>"$folder/$3.log" &
	recorder=$!
	until grep -q 'attached to' "$folder/$3.log"; do
		kill -0 $recorder || { cat "$folder/$3.log" >&2; exit 1; }
		sleep 0.1
	done
	if [ "$whole" = 0 ]; then
		sleep 3 # gpurec finds the progress words
		turn_on "$3"
		sleep 4
		touch "$folder/off"
	fi
	wait $recorder
	[ "$whole" = 0 ] || touch "$folder/off"
	cat "$folder/$3.log"
	until [ ! -e "$folder/on" ]; do sleep 0.1; done
}

for rate; do
	seconds=10 name=$rate
	case $rate in *:*) seconds=${rate#*:} name=${rate/:/-} ;; esac
	record "${rate%:*}" "$seconds" "$name"
done
