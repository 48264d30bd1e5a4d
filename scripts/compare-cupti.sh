#!/usr/bin/env bash
# Records a training with --gpu-time while CUPTI records it in the same process, and writes both
# files to a folder. Needs root, a GPU, g++, CUPTI, and python3 with PyTorch and transformers.
#
#     scripts/compare-cupti.sh gpt2_large results [auto|full|RATE]
#     go run ./scripts/compare-cupti results/run.parquet results/run.ref
#
# The second command needs no GPU. GPUREC is the path of gpurec (build/bin/gpurec), CUDA the folder of
# CUDA (/usr/local/cuda).
set -euo pipefail
[ $# -ge 2 ] || { echo "compare-cupti: name a workload and a folder; for example: $0 gpt2_large results full" >&2; exit 2; }
workload=$1 folder=$2 rate=${3:-full}
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
"$gpurec" record -p $job -d 10s --gpu-time "$rate" --max-overhead off --force -o "$folder/run.parquet" 2>"$folder/record.log" &
recorder=$!
until grep -q 'attached to' "$folder/record.log"; do
	kill -0 $recorder || { cat "$folder/record.log" >&2; exit 1; }
	sleep 0.1
done
sleep 2 # gpurec finds the progress words
printf '%s' "$folder/run.ref" >"$folder/on"
sleep 4
touch "$folder/off"
wait $recorder
cat "$folder/record.log"
until [ ! -e "$folder/on" ]; do sleep 0.25; done
