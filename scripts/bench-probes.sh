#!/usr/bin/env bash
# What a probe costs by the instruction it is placed on, with and without one at the return; what a recorded launch costs with each kind of
# stack; how long it takes to place 100 to 600 probes and to take them away. All of it ROUNDS times in turn; prints medians, lowest and highest.
# As root. With build/simcuda launches go there, else to the GPU's driver. Without Go: RECORD_TEST names a compiled test of ./record, and
# its testdata lies in the current folder.
#
# usage: scripts/bench-probes.sh [ROUNDS, 3] [BENCHMARKS, a regular expression]
set -euo pipefail

rounds=${1:-3}
which=${2:-^Benchmark(Probe|Attach|Launch)$}
[ "$(id -u)" = 0 ] || { echo "bench-probes: placing probes needs root" >&2; exit 1; }
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
# A line of a benchmark: its name, how often it ran, then pairs of a number and its unit.
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
			for (i = 1; i <= n[key]; i++) { # insertion sort: there are few
				v = values[key, i]
				for (j = i - 1; j > 0 && sorted[j] + 0 > v + 0; j--) sorted[j + 1] = sorted[j]
				sorted[j + 1] = v
			}
			m = int((n[key] + 1) / 2)
			printf "%-28s %-10s %12s %12s %12s\n", part[1], part[2], sorted[m], sorted[1], sorted[n[key]]
		}
	}'
