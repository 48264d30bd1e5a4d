#!/usr/bin/env bash
# make demo: starts a leaking program on simcuda (no GPU needed), records the running program for
# five seconds, and shows the function that leaks.
set -euo pipefail

sudo=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || { echo "demo: recording needs root, and sudo is not installed: run make demo as root" >&2; exit 1; }
	sudo=(sudo --preserve-env=LD_LIBRARY_PATH)
fi
out=build/demo
simcuda=$PWD/build/simcuda
rm -rf "$out"
mkdir -p "$out"

# Simulated kernels run for 1 ms each, so that the NVML samples show GPU utilisation.
SIMCUDA_KERNEL_US=1000 LD_LIBRARY_PATH=$simcuda "$simcuda/leak" --steps 0 --ready "$out/ready" >"$out/leak.log" 2>&1 &
leak=$!
trap 'kill $leak 2>/dev/null || true' EXIT
for _ in $(seq 100); do [ -e "$out/ready" ] && break; sleep 0.05; done
[ -e "$out/ready" ] || { echo "demo: the leaking program did not start:" >&2; cat "$out/leak.log" >&2; exit 1; }

run() { echo; echo "\$ $*"; "$@"; }
export PATH=$PWD/build/bin:$PATH
export LD_LIBRARY_PATH=$simcuda # gpurec loads simcuda's NVML from this path

run "${sudo[@]}" build/bin/gpurec record -p "$leak" -d 5s -o "$out/leak.parquet"
run gpurec analyze leaks "$out/leak.parquet"
run gpurec analyze pprof "$out/leak.parquet" -o "$out/leak.pb.gz"
run gpurec analyze perfetto "$out/leak.parquet" -o "$out/leak.pftrace"
kill -INT $leak
wait $leak || true
echo
echo "the program prints its own count of leaked bytes, from start to end:"
tail -n 1 "$out/leak.log"
echo
echo "next: go tool pprof -http=: $out/leak.pb.gz, or open $out/leak.pftrace in https://ui.perfetto.dev"
