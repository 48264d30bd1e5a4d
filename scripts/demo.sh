#!/usr/bin/env bash
# make demo: starts a program that leaks (on simcuda, no GPU needed), records it for
# five seconds while it runs, and shows which function leaks.
set -euo pipefail

sudo=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || { echo "demo: recording needs root, and there is no sudo here: run make demo as root" >&2; exit 1; }
	sudo=(sudo --preserve-env=LD_LIBRARY_PATH)
fi
out=build/demo
simcuda=$PWD/build/simcuda
rm -rf "$out"
mkdir -p "$out"

# Kernels of 1 ms, so that the GPU samples have something to show.
SIMCUDA_KERNEL_US=1000 LD_LIBRARY_PATH=$simcuda "$simcuda/leak" --steps 0 --ready "$out/ready" >"$out/leak.log" 2>&1 &
leak=$!
trap 'kill $leak 2>/dev/null || true' EXIT
for _ in $(seq 100); do [ -e "$out/ready" ] && break; sleep 0.05; done
[ -e "$out/ready" ] || { echo "demo: the leaking program did not start:" >&2; cat "$out/leak.log" >&2; exit 1; }

run() { echo; echo "\$ $*"; "$@"; }
export PATH=$PWD/build/bin:$PATH
export LD_LIBRARY_PATH=$simcuda # where gpurec finds simcuda's NVML

run "${sudo[@]}" build/bin/gpurec record -p "$leak" -d 5s -o "$out/leak.parquet"
run gpurec analyze leaks "$out/leak.parquet"
run gpurec analyze pprof "$out/leak.parquet" -o "$out/leak.pb.gz"
run gpurec analyze perfetto "$out/leak.parquet" -o "$out/leak.pftrace"
kill -INT $leak
wait $leak || true
echo
echo "the program itself says, from its start to its end:"
tail -n 1 "$out/leak.log"
echo
echo "next: go tool pprof -http=: $out/leak.pb.gz, or open $out/leak.pftrace in https://ui.perfetto.dev"
