#!/usr/bin/env bash
# make stability: runs the tests with real probes of .ci/run RUNS (10) times in random order, every second
# time next to two busy processes, and prints how often each test passed. PKG (./...) names packages.
# It fails if a test failed. Needs root, make simtorch and the programs that make check installs.
set -euo pipefail

cd "$(dirname "$0")/.."
runs=${RUNS:-10}
results=$PWD/build/stability
rm -rf "$results"
mkdir -p "$results"
export GPUREC_TESTS=${GPUREC_TESTS:-gate} GPUREC_MUST_RUN=1
busy=()
trap 'for pid in "${busy[@]}"; do kill "$pid" 2>/dev/null || true; done' EXIT

for run in $(seq "$runs"); do
	busy=()
	if [ $((run % 2)) = 0 ]; then
		for _ in 1 2; do
			(while :; do :; done) &
			busy+=($!)
		done
	fi
	start=$SECONDS
	"${GO:-go}" test -json -p 3 -vet=off -count=1 -shuffle=on -timeout 60m ${PKG:-./...} >"$results/run-$run.json" || true
	for pid in "${busy[@]}"; do kill "$pid"; wait "$pid" 2>/dev/null || true; done
	echo "run $run of $runs: $((SECONDS - start)) s, ${#busy[@]} busy processes"
done
"${GO:-go}" run ./scripts/gate rates "$results"/run-*.json
