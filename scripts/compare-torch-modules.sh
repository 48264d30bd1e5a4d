#!/usr/bin/env bash
# Compares the class paths and operators of kernel launches in a recording with PyTorch's hooks and torch.profiler, in
# one run. gpurec attaches to a running training. Needs root, a GPU and python3 with PyTorch, and takes two minutes.
#
#     scripts/compare-torch-modules.sh [gpt_modules] [gpt_train]
#
# Variables: GPUREC is the path of gpurec (build/bin/gpurec), STACKS the value of --stacks (auto and full), STEPS the
# number of traced steps (10), KEEP a folder to save recordings.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trainer= recorder=
end() { kill -KILL $trainer $recorder 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT
[ $# -gt 0 ] || set -- gpt_modules
failed=0

# wait_for TEXT FILE SECONDS: waits until a line of FILE equals TEXT; fails after SECONDS.
wait_for() {
	for _ in $(seq $(($3 * 10))); do
		grep -qx "$1" "$2" 2>/dev/null && return
		kill -0 $trainer $recorder 2>/dev/null || break
		sleep 0.1
	done
	echo "compare-torch-modules: the workload did not print \"$1\":" >&2
	tail -n 5 "$2" >&2
	return 1
}

# compare KEY TRACE RECORDING: compares the parts by a key.
compare() {
	local script=$here/compare_torch_$1s.py
	# shellcheck disable=SC2046 # two options with their values
	"$gpurec" analyze kernels --group-by "$1" --top 0 --format json $(python3 "$script" --window "$2") "$3" |
		python3 "$script" "$2" || failed=1
}

for workload; do
	for stacks in ${STACKS:-auto full}; do
		echo "== $workload, --stacks $stacks"
		recording=$work/$workload-$stacks.parquet trace=$work/trace.json log=$work/log ready=$work/ready
		rm -f "$trace" "$log" "$ready"
		python3 -u "$here/../examples/workloads/traced.py" "$workload" --modules --steps "${STEPS:-10}" \
			--trace "$trace" --when "$ready" >"$log" 2>&1 &
		trainer=$!
		wait_for steady "$log" 60
		"$gpurec" record --max-overhead off --module-classes -p $trainer --stacks "$stacks" --ready-file "$ready" -o "$recording" &
		recorder=$!
		wait_for traced "$log" 60
		kill -INT $recorder
		wait $recorder
		kill -KILL $trainer
		wait $trainer 2>/dev/null || true
		trainer= recorder=
		compare module "$trace" "$recording"
		compare operator "$trace" "$recording"
		if [ -n "${KEEP:-}" ]; then
			mkdir -p "$KEEP"
			cp "$recording" "$KEEP/"
		fi
	done
done
exit $failed
