#!/usr/bin/env bash
# Records PyTorch jobs of several ranks whose fault is known, and checks what hang and ranks say. Needs root, a GPU
# and PyTorch:
#
#   test-ranks.sh [RANKS [ROUNDS [FOLDER]]]      default: 2 ranks, 1 round
#
# gpurec attaches while the job runs. The fault of rank 1 begins some seconds later. Each job is recorded by one
# recorder for all ranks and by one for each rank, at the same time. With fewer GPUs than ranks, the ranks share a
# GPU, and NCCL takes them for different hosts. $GPUREC is the program, $PYTHON the interpreter, $FAULTS the list of
# faults, $RECORD more flags of record.
set -euo pipefail
ranks=${1:-2} rounds=${2:-1} folder=${3:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
gpurec=${GPUREC:-$here/../build/bin/gpurec}
python=${PYTHON:-python3}
job=$here/../examples/workloads/ranks.py
faults=${FAULTS:-none late stop mismatch kill}
gpus=$(nvidia-smi -L | wc -l)
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OMP_NUM_THREADS=2
wrong=0

# start FAULT FOLDER: starts the ranks and sets pids, ordered by rank.
start() {
	local fault=$1 out=$2 port=$((20000 + RANDOM % 20000))
	for rank in $(seq 0 $((ranks - 1))); do
		host=()
		[ "$gpus" -ge "$ranks" ] || host=(NCCL_HOSTID=host"$rank" NCCL_SOCKET_IFNAME=lo)
		env RANK="$rank" WORLD_SIZE="$ranks" LOCAL_RANK="$rank" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 \
			MASTER_PORT="$port" "${host[@]}" timeout -s KILL 180 "$python" "$job" "$fault" --trigger "$out/trigger" \
			--seconds 40 >"$out/rank$rank.txt" 2>&1 &
	done
	for _ in $(seq 240); do
		[ "$(cat "$out"/rank*.txt | grep -c '^ready')" = "$ranks" ] && break
		sleep 0.5
	done
	mapfile -t pids < <(cat "$out"/rank*.txt | grep '^ready' | sort -k2n | awk '{print $3}')
	[ "${#pids[@]}" = "$ranks" ] || { cat "$out"/rank*.txt; exit 1; }
}

# stop_job: ends all ranks.
stop_job() {
	kill -9 "${pids[@]}" 2>/dev/null || true
	wait
}

# record_job FOLDER SECONDS: records the job by one recorder, and by one for each rank. The fault begins when all
# have attached.
record_job() {
	local out=$1 seconds=$2 recorders=()
	mkdir "$out/one" "$out/each"
	# shellcheck disable=SC2086 # RECORD has several words
	start_recorder() { "$gpurec" record ${RECORD:-} -p "$1" -d "${seconds}s" -o "$2.parquet" >"$2.txt" 2>&1 & recorders+=($!); }
	start_recorder "$(IFS=,; echo "${pids[*]}")" "$out/one/all"
	for rank in "${!pids[@]}"; do start_recorder "${pids[$rank]}" "$out/each/rank$rank"; done
	for _ in $(seq 100); do
		[ "$(cat "$out"/one/*.txt "$out"/each/*.txt | grep -c 'attached to')" = "$((ranks + 1))" ] && break
		sleep 0.2
	done
	sleep "${SECONDS_BEFORE:-3}"
	touch "$out/trigger"
	wait "${recorders[@]}" || true
}

# expect FILE PATTERN WHAT: checks that a report has a pattern.
expect() {
	if grep -qE "$2" "$1"; then
		echo "ok: $3"
	else
		echo "WRONG: $3 ($1 has no $2)"
		wrong=$((wrong + 1))
	fi
}

# check FAULT FOLDER NAME: checks the reports of the recordings in a folder.
check() {
	local fault=$1 out=$2 name=$3
	"$gpurec" analyze hang "$out"/*.parquet >"$out/hang.txt" 2>"$out/hang.err" || true
	"$gpurec" analyze ranks "$out"/*.parquet >"$out/ranks.txt" 2>"$out/ranks.err" || true
	case $fault in
	none) expect "$out/ranks.txt" 'no rank' "$name: accuses no rank" ;;
	late)
		expect "$out/ranks.txt" 'VERDICT +rank 1 .*' "$name: rank 1 is late"
		expect "$out/ranks.txt" 'sleep_late|ranks.py:4[0-9]' "$name: the line"
		;;
	stop)
		expect "$out/hang.txt" 'waits? for rank 1|rank 1 waits for no other' "$name: rank 1 is missing"
		expect "$out/hang.txt" 'stop \(ranks.py' "$name: the line"
		;;
	mismatch)
		expect "$out/hang.txt" 'cannot say which|rank 1' "$name: the mismatch"
		expect "$out/hang.txt" 'AllGather' "$name: the operation"
		;;
	kill) expect "$out/hang.txt" 'rank 1.*(died|dead|killed|exit)' "$name: rank 1 died" ;;
	esac
}

for round in $(seq "$rounds"); do
	for fault in $faults; do
		out=$folder/$round-$fault
		mkdir -p "$out"
		start "$fault" "$out"
		record_job "$out" "${SECONDS_RECORDED:-14}"
		stop_job
		check "$fault" "$out/one" "round $round $fault, one recording"
		check "$fault" "$out/each" "round $round $fault, a recording for each rank"
	done
done
echo "$wrong wrong answers; recordings and reports are in $folder"
[ "$wrong" = 0 ]
