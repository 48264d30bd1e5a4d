#!/usr/bin/env bash
# make soak: records a program and its many short-lived children on simcuda with --ring, for MINUTES
# (default 60). Fails if the recorder's memory grows or the files exceed --max-size.
#
# usage: scripts/soak.sh [MINUTES] [FOLDER], as root, after make build simcuda.
# Variables: CALLS (calls a second, 20000), SIZE (of --max-size, 64MiB), KEEP (of --ring, 1m). With
# NEIGHBOUR=1 another process uses the same library: gpurec then attaches to every child separately.
set -euo pipefail

minutes=${1:-60}
folder=${2:-build/soak}
calls=${CALLS:-20000} size=${SIZE:-64MiB} keep=${KEEP:-1m}
gpurec=build/bin/gpurec
built=$PWD/build/simcuda
[ "$(id -u)" = 0 ] || { echo "soak: recording needs root" >&2; exit 1; }
[ -x "$gpurec" ] && [ -x "$built/storm" ] || { echo "soak: run make build simcuda first" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder"
simcuda=$(realpath "$folder")/simcuda # a private copy, which no other process uses
cp -R "$built" "$simcuda"
cp "$gpurec" "$folder/gpurec"
gpurec=$folder/gpurec
bound=$(numfmt --from=iec-i "${size%B}")
seconds=$((minutes * 60))

# The recorded program: two threads that make calls all the time, and children that run for 0.25 s.
export LD_LIBRARY_PATH=$simcuda SIMCUDA_STATE=$folder/state SIMCUDA_TIME=off
cat >"$folder/program.sh" <<SH
$simcuda/storm --calls 2000000000 --threads 2 --rate $calls >/dev/null 2>&1 &
trap 'kill \$! 2>/dev/null' EXIT
end=\$((SECONDS + $seconds + 600)) n=0
while [ \$SECONDS -lt \$end ] && [ ! -e $folder/stop ]; do
	n=\$((n + 1))
	echo \$n >$folder/children
	$simcuda/storm --calls 2000 --threads 2 --rate 10000 --seed \$n >/dev/null 2>&1
done
SH
nice bash "$folder/program.sh" &
program=$!
trap 'touch "$folder/stop"; kill $program ${recorder:-} ${neighbour:-} 2>/dev/null || true' EXIT
if [ -n "${NEIGHBOUR:-}" ]; then
	"$simcuda/storm" --calls 2000000000 --threads 1 --rate 10 >/dev/null 2>&1 &
	neighbour=$!
fi
sleep 1

nice "$gpurec" record --max-overhead off -p $program --ring "$keep" --max-size "$size" --ready-file "$folder/ready" -o "$folder/soak.parquet" 2>"$folder/record.log" &
recorder=$!
for _ in $(seq 600); do [ -e "$folder/ready" ] && break; kill -0 $recorder || { cat "$folder/record.log" >&2; exit 1; }; sleep 0.1; done

disk() { find "$folder" -name 'soak.parquet*' -type f -printf '%s\n' 2>/dev/null | awk '{ sum += $1 } END { printf "%d", sum }'; }
most=0 next=0 begin=$SECONDS
printf 'seconds\trss_kib\tdisk_bytes\tfiles\tdescriptors\tchildren\n' | tee "$folder/soak.tsv"
while [ $((SECONDS - begin)) -lt $seconds ]; do
	kill -0 $recorder 2>/dev/null || { echo "soak: the recorder has ended" >&2; cat "$folder/record.log" >&2; exit 1; }
	used=$(disk)
	[ "$used" -gt "$most" ] && most=$used
	if [ $((SECONDS - begin)) -ge $next ]; then
		printf '%d\t%d\t%d\t%d\t%d\t%d\n' $((SECONDS - begin)) "$(awk '/^VmRSS/ { print $2 }' /proc/$recorder/status)" "$used" \
			"$(find "$folder/soak.parquet.d" -type f 2>/dev/null | wc -l)" "$(ls /proc/$recorder/fd | wc -l)" "$(cat "$folder/children")" >>"$folder/soak.tsv"
		[ $((next % 60)) = 0 ] && tail -n 1 "$folder/soak.tsv"
		next=$((next + 5))
	fi
	sleep 0.25
done
kill -INT $recorder
while kill -0 $recorder 2>/dev/null; do
	used=$(disk)
	[ "$used" -gt "$most" ] && most=$used
	sleep 0.02
done
wait $recorder || { cat "$folder/record.log" >&2; exit 1; }
cat "$folder/record.log"
# The number of lost calls falls when the ring discards calls. Each increase counts as a loss.
awk '{ for (i = 2; i <= NF; i++) if ($i == "lost") { n = $(i - 1); gsub(",", "", n); if (n > last) sum += n - last; last = n } }
	END { printf "soak: %d calls lost in total\n", sum }' "$folder/record.log"
touch "$folder/stop"
"$gpurec" analyze "$folder/soak.parquet" 2>/dev/null | grep '^quality'

# Memory must be flat: the median of the last quarter must not exceed that of the second quarter.
awk -v most="$most" -v bound="$bound" '
	function median(from, to,   i, j, n, v, x) {
		n = 0
		for (i = from; i <= to; i++) { x = rss[i]; for (j = n++; j > 0 && v[j - 1] > x; j--) v[j] = v[j - 1]; v[j] = x }
		return v[int(n / 2)]
	}
	NR > 1 { rss[++rows] = $2; fds[rows] = $5; children = $6 }
	END {
		q = int(rows / 4)
		if (q < 3) { print "soak: too short to compare memory; use more MINUTES"; exit 1 }
		early = median(q + 1, 2 * q); late = median(rows - q + 1, rows)
		printf "soak: %d children; memory %.1f MiB in the second quarter, %.1f MiB in the last; %d open files in the second quarter, %d at the end; at most %.1f MiB on disk, limit %.1f MiB\n",
			children, early / 1024, late / 1024, fds[2 * q], fds[rows], most / 1048576, bound / 1048576
		if (late > early * 1.1 + 4096) { print "soak: FAILED, memory grows"; exit 1 }
		if (fds[rows] > fds[2 * q] + 20) { print "soak: FAILED, open files increase"; exit 1 }
		if (most > bound) { print "soak: FAILED, the files exceed the limit"; exit 1 }
		print "soak: passed"
	}' "$folder/soak.tsv"
