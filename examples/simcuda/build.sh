#!/bin/sh
# Builds the simulated CUDA and the programs that run on it:
#   build.sh [OUTDIR]        default: build/simcuda in the repository
# Only what is older than its sources is built. $CC is the compiler, $SIMCUDA_CFLAGS goes to it last (sanitizers, for example).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/simcuda}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
cc=${CC:-cc}

warnings="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -g"
# Exported functions begin with push %rbp, as in the real driver: that is an instruction a probe is cheap on. endbr64 in front of it
# and setting up the frame late, only on the path that needs it, would spoil that. Sibling calls would take exported functions out of
# the stack, and folding equal functions would give two names one address.
library="-O2 -fPIC -shared -fvisibility=hidden -fno-omit-frame-pointer -fcf-protection=none -fno-shrink-wrap
	-fno-optimize-sibling-calls -fno-ipa-icf"
# -Bsymbolic: the library's own calls never go through a symbol that somebody might have put a probe on or in front of.
# The old kind of rpath: it goes before LD_LIBRARY_PATH, so on a machine with a GPU nothing here finds the real libraries instead.
rpath="-Wl,--disable-new-dtags -Wl,-rpath,\$ORIGIN"
link="-Wl,-Bsymbolic -Wl,-z,defs $rpath"

# build OUTPUT HEADERS SOURCES FLAGS…: compiles beside the output and renames, so that a process that has the old file mapped keeps it.
build() {
	output=$out/$1 headers=$2 sources=$3
	shift 3
	if [ -e "$output" ] && [ -z "$(find build.sh $headers $sources -newer "$output" -print -quit)" ]; then
		return
	fi
	$cc $warnings "$@" $sources -o "$output.new" $libraries ${SIMCUDA_CFLAGS:-}
	mv "$output.new" "$output"
}

common="config.c identity.c state_birth.c"
libraries="-lpthread -ldl"
build libcuda.so.1 "sim.h state.h space.h config.h identity.h cuda_sim.h" \
	"$common call.c process.c fault.c ledger.c object.c timeline.c state.c space.c device.c context.c memory.c copy.c stream.c event.c
	module.c launch.c proc.c error.c" $library $link -Wl,-soname,libcuda.so.1
ln -sf libcuda.so.1 "$out/libcuda.so"
build libnvidia-ml.so.1 "nvml_sim.h watch.h state.h config.h identity.h" \
	"$common nvml.c watch.c" $library $link -Wl,-soname,libnvidia-ml.so.1
build libcudart.so.13 "cudart_sim.h cudart_driver.h cuda_sim.h identity.h" \
	"cudart.c cudart_driver.c cudart_kernels.c" $library $link -Wl,-soname,libcudart.so.13

program="-O1 -fno-omit-frame-pointer -rdynamic"
# No rpath: the leak finds whichever libcuda.so.1 the system or LD_LIBRARY_PATH gives it.
build leak cuda_sim.h ../leak/leak.c $program -I.
build storm "cuda_sim.h storm.h" "storm.c storm_calls.c" $program $rpath
build selftest "selftest.h cuda_sim.h cudart_sim.h nvml_sim.h" \
	"selftest.c selftest_driver.c selftest_memory.c selftest_ledger.c selftest_nvml.c selftest_runtime.c" \
	$program $rpath
