#!/usr/bin/env bash
# Are the Python lines that gpurec puts on top of launches those that torch.profiler
# names? Trains under gpurec, attached while it runs, and traces some of the steps with
# torch.profiler(with_stack=True). Needs root, a GPU, and python3 with PyTorch,
# transformers and pyarrow.
#
#     scripts/compare-torch-stacks.sh [mlp_small] [gpt_train]
#
# GPUREC names the binary (build/bin/gpurec), STACKS the mode (auto), STEPS how many
# steps are traced (10), KEEP a folder where recordings and traces stay.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trainer= recorder=
end() { kill -KILL $trainer $recorder 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT
[ $# -gt 0 ] || set -- mlp_small gpt_train
failed=0

# wait_for TEXT FILE SECONDS: until FILE has TEXT in a line of its own.
wait_for() {
	for _ in $(seq $(($3 * 10))); do
		grep -qx "$1" "$2" 2>/dev/null && return
		kill -0 $trainer $recorder 2>/dev/null || break
		sleep 0.1
	done
	echo "compare-torch-stacks: the workload did not say \"$1\":" >&2
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
	"$gpurec" record -p $trainer --stacks "${STACKS:-auto}" --ready-file "$work/$workload.ready" -o "$recording" &
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
