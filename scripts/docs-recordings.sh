#!/usr/bin/env bash
# docs-recordings.sh: renew the recordings of docs/recordings, from which the outputs in docs/ are made (root, no GPU).
# Then renew the outputs: GPUREC_UPDATE=1 go test ./cmd/gpurec -run TestDocs
# The programs run from /srv/demo under the host name "node1", so that no path or name of this machine is recorded.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
	exec unshare --mount --uts --cgroup -- bash "$0" --inside
fi
root=$(cd "$(dirname "$0")/.." && pwd)
hostname node1
mount -t tmpfs demo /srv
mount -t tracefs tracefs /sys/kernel/tracing
mkdir -p /srv/demo/out
cd /srv/demo
cp "$root"/build/bin/gpurec "$root"/build/simcuda/* .
cp "$root"/build/simtorch/lib* "$root"/build/simtorch/tensorleak .
cp "$root"/examples/simtorch/{simtorch,leak_list,oom_limit}.py .
export PATH=/srv/demo:$PATH LD_LIBRARY_PATH=/srv/demo SIMTORCH_LIB=/srv/demo SIMCUDA_STATE=/srv/demo/state SIMCUDA_MEMORY=32G

# attach NAME DURATION PROGRAM...: records a program that waits for a byte on its input, from that moment on, with the
# options in the array "options".
options=()
attach() {
	local name=$1 duration=$2
	shift 2
	rm -f start
	mkfifo start
	"$@" <start >"$name.log" &
	local pid=$!
	exec 3>start
	until grep -q ready "$name.log"; do sleep 0.1; done
	gpurec record -p $pid -d "$duration" "${options[@]}" -o "out/$name.parquet" 2>"$name.err" &
	local recorder=$!
	until grep -q 'attached to' "$name.err"; do sleep 0.1; done
	echo >&3
	wait $recorder
	exec 3>&-
	wait $pid
}

# leak NAME ARGS...: records examples/leak for 5 s, attached while it runs.
leak() {
	local name=$1
	shift
	SIMCUDA_KERNEL_US=1000 ./leak --steps 0 --step-ms 15 --ready "$name.ready" "$@" >"$name.log" &
	local pid=$!
	until [ -e "$name.ready" ]; do sleep 0.1; done
	gpurec record -p $pid -d 5s -o "out/$name.parquet"
	kill -INT $pid
	wait $pid || true
}

leak leak
leak fixed --leak-bytes 0
attach torch 5s /usr/bin/python3 leak_list.py --wait --steps 300 --step-ms 10
options=(--record memory --allocator=off --blocks-every 100ms)
attach blocks 12s /usr/bin/python3 leak_list.py --wait --steps 1100 --step-ms 10
options=()
attach oom 2s /usr/bin/python3 oom_limit.py --wait
attach frees 3s ./verdicts --scenario invalid-frees --wait
install -m 644 out/*.parquet "$root/docs/recordings/"
