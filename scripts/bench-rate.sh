#!/usr/bin/env bash
# Measures gpurec under sustained load. simcuda's storm makes CUDA calls from two threads at each of
# RATES for SECONDS, recorded with --max-overhead=off. Prints a row per rate: calls made, recorded,
# only counted and lost, and the cost of the recorder. Fails if seen differs from recorded + lost.
# Run as root, with jq, after make build simcuda. storm and gpurec share the cores.
#
# usage: scripts/bench-rate.sh [SECONDS, 60] [RATES, "50000 100000 200000 300000 0"]
# A rate of 0 means as fast as possible.
set -euo pipefail

seconds=${1:-60}
rates=${2:-50000 100000 200000 300000 0}
gpurec=${GPUREC:-build/bin/gpurec}
simcuda=$PWD/build/simcuda
[ "$(id -u)" = 0 ] || { echo "bench-rate: recording needs root" >&2; exit 1; }
[ -x "$gpurec" ] && [ -x "$simcuda/storm" ] || { echo "bench-rate: run make build simcuda first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$simcuda SIMCUDA_STATE=$work/state SIMCUDA_TIME=off

printf '%9s %9s %12s %12s %11s %6s %9s %7s %10s\n' wanted/s made/s called recorded 'only counted' lost core% MiB bytes/call
failed=0
for rate in $rates; do
	calls=$((${rate/#0/250000} * seconds))
	mkfifo "$work/go"
	"$simcuda/storm" --calls "$calls" --threads 2 --rate "$rate" --wait <"$work/go" >"$work/out" 2>"$work/err" &
	storm=$!
	exec 3>"$work/go"
	until grep -q ready "$work/out"; do sleep 0.1; done
	"$gpurec" record --max-overhead off -p $storm --ready-file "$work/attached" -o "$work/rate.parquet" --force 2>"$work/log" 3>&- &
	recorder=$!
	until [ -e "$work/attached" ]; do kill -0 $recorder || { cat "$work/log" >&2; exit 1; }; sleep 0.1; done
	echo >&3
	exec 3>&-
	wait $storm || { cat "$work/err" >&2; failed=1; }
	wait $recorder || { cat "$work/log" >&2; failed=1; }
	"$gpurec" dump "$work/rate.parquet" | sed -n '/^# {/,/^# }/ s/^# //p' >"$work/meta"
	jq -r --arg wanted "$rate" --arg err "$(cat "$work/err")" --arg bytes "$(stat -c %s "$work/rate.parquet")" --arg log "$(cat "$work/log")" '
		[.calls[]] as $c | ($c | map(.seen // 0) | add) as $seen | ($c | map(.recorded // 0) | add) as $recorded
		| ($c | map(.counted // 0) | add) as $counted | ($c | map([.lost // {} | .[]?] | add // 0) | add) as $lost
		| ($err | capture("(?<calls>[0-9]+) calls in (?<s>[0-9.]+) s, (?<rate>[0-9]+)")) as $made
		| [$wanted, $made.rate, $made.calls, $recorded, $counted, $lost, ($log | capture(", (?<p>[0-9.]+) % of a core") | .p), ($log | capture("(?<m>[0-9.]+) MiB memory") | .m),
			(($bytes | tonumber) / $recorded * 10 | round / 10), ($seen - $recorded - $lost)] | @tsv' "$work/meta" >"$work/row"
	awk -F'\t' '{ printf "%9s %9s %12s %12s %11s %6s %9s %7s %10s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9; if ($10 != 0) { printf "bench-rate: seen differs from recorded + lost by %d calls\n", $10; exit 1 } }' "$work/row" || failed=1
	rm -f "$work/go" "$work/attached"
done
exit $failed
