#!/usr/bin/env bash
# Compares the Python lines of kernel launches in a recording with those of torch.profiler. gpurec
# attaches to a running training, and torch.profiler(with_stack=True) traces some steps. Needs root,
# a GPU, and python3 with PyTorch, transformers and pyarrow.
#
#     scripts/compare-torch-stacks.sh [mlp_small] [gpt_train]
#
# Variables: GPUREC is the path of gpurec (build/bin/gpurec), STACKS the value of --stacks (auto),
# STEPS the number of traced steps (10), KEEP a folder to save recordings and traces.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trainer= recorder=
end() { kill -KILL $trainer $recorder 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT
[ $# -gt 0 ] || set -- mlp_small gpt_train
failed=0

# wait_for TEXT FILE SECONDS: waits until a line of FILE equals TEXT; fails after SECONDS.
wait_for() {
	for _ in $(seq $(($3 * 10))); do
		grep -qx "$1" "$2" 2>/dev/null && return
		kill -0 $trainer $recorder 2>/dev/null || break
		sleep 0.1
	done
	echo "compare-torch-stacks: the workload did not print \"$1\":" >&2
	tail -n 5 "$2" >&2
	return 1
}

for workload; do
	echo "== $workload, --stacks ${STACKS:-auto}"
	recording=$work/$workload.parquet trace=$work/$workload.trace.json log=$work/$workload.log
	python3 -u "$here/../examples/workloads/traced.py" "$workload" --steps "${STEPS:-10}" \
		--trace "$trace" --when "$work/$workload.ready" >"$log" 2>&1 &
	trainer=$!
	wait_for steady "$log" 120
	"$gpurec" record --max-overhead off -p $trainer --stacks "${STACKS:-auto}" --ready-file "$work/$workload.ready" -o "$recording" &
	recorder=$!
	wait_for traced "$log" 240
	kill -INT $recorder
	wait $recorder
	kill -KILL $trainer
	wait $trainer 2>/dev/null || true
	trainer= recorder=
	python3 "$here/compare_torch_stacks.py" "$recording" "$trace" || failed=1
	if [ -n "${KEEP:-}" ]; then
		mkdir -p "$KEEP"
		cp "$recording" "$trace" "$log" "$KEEP/"
	fi
done
exit $failed
