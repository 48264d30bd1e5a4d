#!/usr/bin/env bash
# Measures the cost of probes: by the probed instruction, with and without a return probe; of a
# recorded kernel launch with each stack mode; and the time to attach and remove 100 to 600 probes.
# BENCHMARKS "Collective" measures the three calls of NCCL that PyTorch makes for a collective, with simnccl or NCCL.
# Runs ROUNDS rounds and prints median, minimum and maximum. Needs root. Launches use build/simcuda
# if it exists, else the GPU. On a machine without Go, set RECORD_TEST to a compiled test binary of
# ./record, and run the script in a folder with the testdata of record.
#
# usage: scripts/bench-probes.sh [ROUNDS, 3] [BENCHMARKS, a regular expression]
set -euo pipefail

rounds=${1:-3}
which=${2:-^Benchmark(Probe|Attach|Launch)$}
[ "$(id -u)" = 0 ] || { echo "bench-probes: attaching probes needs root" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${RECORD_TEST:-}" ]; then
	cd "$(dirname "$0")/.."
	export GOWORK=$PWD/build/go.work
	go test -c -o "$work/record.test" ./record
	RECORD_TEST=$work/record.test
	cd record
fi
for round in $(seq "$rounds"); do
	echo "round $round of $rounds" >&2
	"$RECORD_TEST" -test.run '^$' -test.bench "$which" -test.benchtime 0.5s -test.timeout 20m >"$work/$round" 2>"$work/err" || { cat "$work/$round" "$work/err" >&2; exit 1; }
done
# A benchmark line has a name, the number of runs, then pairs of a number and a unit.
cat "$work"/[0-9]* | awk '
	/^Benchmark/ {
		name = $1
		sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); sub(/#[0-9]+$/, "", name)
		for (i = 3; i < NF; i += 2) {
			if ($(i + 1) == "ns/op" && name ~ /^Attach/) continue
			key = name "\t" $(i + 1)
			if (!(key in n)) order[++keys] = key
			values[key, ++n[key]] = $i
		}
	}
	END {
		printf "%-28s %-10s %12s %12s %12s\n", "what", "unit", "median", "lowest", "highest"
		for (k = 1; k <= keys; k++) {
			key = order[k]
			split(key, part, "\t")
			for (i = 1; i <= n[key]; i++) { # insertion sort
				v = values[key, i]
				for (j = i - 1; j > 0 && sorted[j] + 0 > v + 0; j--) sorted[j + 1] = sorted[j]
				sorted[j + 1] = v
			}
			m = int((n[key] + 1) / 2)
			printf "%-28s %-10s %12s %12s %12s\n", part[1], part[2], sorted[m], sorted[1], sorted[n[key]]
		}
	}'
