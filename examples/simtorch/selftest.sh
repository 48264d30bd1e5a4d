#!/bin/sh
# Checks simtorch: symbols, the layout of its statistics, and that the ledger's checkpoints follow
# from the events alone.
#   selftest.sh [OUTDIR]     OUTDIR is the output folder of build.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:-$here/../../build/simtorch}" && pwd)
ledger=$(mktemp)
trap 'rm -f "$ledger" "$ledger".*' EXIT
fail() { echo "selftest: $*" >&2; exit 1; }

# ---- symbols that a recorder looks up ----

native="c10::cuda::CUDACachingAllocator::Native"
trace="$native::DeviceCachingAllocator::record_trace(c10::CachingDeviceAllocator::TraceEntry::Action, unsigned long, unsigned long,\
 CUstream_st*, signed char, std::pair<unsigned long long, unsigned long long>, std::shared_ptr<c10::GatheredContext>)"
mangled=_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceENS_22CachingDeviceAllocator10TraceEntry6Action\
EmmP11CUstream_staSt4pairIyyESt10shared_ptrINS_15GatheredContextEE
has() { # has LIBRARY SYMBOL: fails unless .symtab has it as a local symbol
	nm -C "$out/$1" | cut -d' ' -f2- | grep -qxF "t $2" || fail "no $2 in $1"
}
has libc10_cuda.so "$trace"
nm "$out/libc10_cuda.so" | grep -q " t $mangled\$" || fail "record_trace has a different mangled name"
has libc10_cuda.so "$native::NativeCachingAllocator::malloc(void**, signed char, unsigned long, CUstream_st*)"
has libc10_cuda.so "$native::local_raw_delete(void*)"
has other/libc10_cuda.so "$native::DeviceCachingAllocator::record_trace(c10::cuda::CUDACachingAllocator::TraceEntry::Action, long,\
 unsigned long, CUstream_st*, signed char, std::shared_ptr<c10::GatheredContext>)"
nm "$out/renamed/libc10_cuda.so" | grep -q record_trace && fail "renamed/libc10_cuda.so has the symbol record_trace"
nm "$out/silent/libc10.so" | grep -q reportMemoryUsageToProfiler && fail "silent/libc10.so has the symbol reportMemoryUsageToProfiler"
nm -D "$out/libc10_cuda.so" | grep -q record_trace && fail "libc10_cuda.so exports record_trace"
nm "$out/stripped/libc10_cuda.so" 2>/dev/null | grep -q . && fail "stripped/libc10_cuda.so has symbols"
engine=_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_
nm -D "$out/libtorch_cpu.so" | grep -q " T $engine\$" || fail "libtorch_cpu.so does not export Engine::execute"
nm -D "$out/renamed/libtorch_cpu.so" | grep -q " $engine\$" && fail "renamed/libtorch_cpu.so exports Engine::execute"
nm -D "$out/libc10.so" | grep -q ' T _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE$' || fail "libc10.so does not export reportMemoryUsageToProfiler"

# ---- offsets of the statistics ----

# PyTorch 2.11 has allocated_bytes.all.current at 0x1a8 and reserved_bytes.all.current at 0x208.

objdump -d --no-show-raw-insn "$out/libc10_cuda.so" |
	awk '/^[0-9a-f]+ <.*alloc_found_block[^.]*>:/ { on = 1 } on && /^$/ { exit } on' > "$ledger.code"
for argument in '0x1a8(%r..*),%rdx' '0x208(%r..*),%rcx'; do
	grep -q "mov  *$argument" "$ledger.code" || fail "alloc_found_block does not pass $argument to reportMemoryUsageToProfiler"
done

# ---- events and statistics ----

export SIMTORCH_LEDGER="$ledger"
run() { # run PROGRAM ARGUMENTS…: runs the program and replays its ledger
	: > "$ledger"
	"$out/$@" >/dev/null 2>"$ledger.errors" || { cat "$ledger.errors" >&2; fail "$* failed"; }
	python3 "$here/replay.py" "$ledger"
}
for conf in expandable_segments:False expandable_segments:True; do
	export PYTORCH_CUDA_ALLOC_CONF=$conf
	for seed in 1 2 3; do
		run tensors --events 10000 --seed $seed
	done
	SIMCUDA_MEMORY=300M run tensors --events 10000 --seed 4
	run tensors --events 10000 --threads 4 --devices 2 --streams 3
	SIMCUDA_MEMORY=400M run tensors --events 10000 --threads 4
done
# The programs check the statistics against the blocks, so a broken layout is only different for others.
for seed in 1 2 3; do
	SIMTORCH_LAYOUT=$seed run tensors --events 5000 --seed $seed --threads 2 --devices 2
	SIMTORCH_LAYOUT=$seed PYTORCH_CUDA_ALLOC_CONF= run tensors --events 5000 --seed $seed --threads 2 --devices 2
done
for broken in kinds load sets hash stale chain class async pluggable; do
	SIMTORCH_BROKEN=$broken SIMTORCH_LAYOUT=1 run tensors --events 2000
done
SIMTORCH_BROKEN=totals SIMTORCH_LEDGER= "$out/tensors" --events 2000 >/dev/null 2>&1 || fail "SIMTORCH_BROKEN=totals failed"
SIMTORCH_BROKEN=no "$out/tensors" --events 2000 >/dev/null 2>&1 && fail "an unknown name in SIMTORCH_BROKEN was accepted"
SIMTORCH_LAYOUT=x "$out/tensors" --events 2000 >/dev/null 2>&1 && fail "SIMTORCH_LAYOUT=x was accepted"
PYTORCH_CUDA_ALLOC_CONF= run stripped/tensors --events 2000
PYTORCH_CUDA_ALLOC_CONF= run other/tensors --events 2000
PYTORCH_CUDA_ALLOC_CONF= run renamed/tensors --events 2000 --host 10
PYTORCH_CUDA_ALLOC_CONF= run silent/tensors --events 2000
SIMTORCH_LEDGER_SYNC=1 run tensors --events 2000
run tensorleak --steps 20 --step-ms 0

# One thread with the same seed gives the same events, except for addresses, times and threads.
for again in 1 2 3; do
	[ $again = 3 ] && export SIMTORCH_LAYOUT=7
	SIMCUDA_TIME=off run tensors --events 5000 >/dev/null
	cut -f 1,6,8,10-15 "$ledger" | grep '^event' > "$ledger.$again"
done
unset SIMTORCH_LAYOUT
cmp -s "$ledger.1" "$ledger.2" || fail "two runs with the same seed gave different events"
cmp -s "$ledger.1" "$ledger.3" || fail "another layout gave different events"

for script in leak_list leak_graph leak_hook leak_caller leak_backward no_leak; do
	: > "$ledger"
	SIMTORCH_LIB=$out python3 -B "$here/$script.py" --steps 50 --step-ms 0 | grep -q '^truth' || fail "$script.py failed"
	python3 "$here/replay.py" "$ledger"
done
for conf in expandable_segments:False expandable_segments:True; do
	: > "$ledger"
	SIMCUDA_MEMORY=32G PYTORCH_CUDA_ALLOC_CONF=$conf SIMTORCH_LIB=$out python3 -B "$here/oom_limit.py" > "$ledger.truth" ||
		fail "oom_limit.py failed with $conf"
	python3 "$here/replay.py" "$ledger"
done
: > "$ledger"
SIMTORCH_LIB=$out python3 -B "$here/tensors.py" --events 3000 --threads 3 >/dev/null
python3 "$here/replay.py" "$ledger"
echo "selftest: all checks passed"
