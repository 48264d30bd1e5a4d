#!/bin/sh
# Builds the simulated NCCL and the programs that use it:
#   build.sh [OUTDIR]        default: build/simcuda in the repository, next to libcuda.so.1
# Rebuilds only files that are older than their sources. $CC is the compiler. $SIMCUDA_CFLAGS is
# appended to the compiler's flags.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/simcuda}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
cc=${CC:-cc}

warnings="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -I../simcuda"
# As for simcuda, functions begin with push, on which a uprobe is cheap, and appear as stack frames.
library="-O2 -fPIC -shared -fvisibility=hidden -fno-omit-frame-pointer -fcf-protection=none -fno-shrink-wrap
	-fno-optimize-sibling-calls -fno-ipa-icf -Wl,-Bsymbolic -Wl,-z,defs"
# DT_RPATH comes before LD_LIBRARY_PATH, so the programs never load the real libraries.
rpath="-Wl,--disable-new-dtags -Wl,-rpath,\$ORIGIN"
program="-O1 -fno-omit-frame-pointer -rdynamic"

# build OUTPUT SOURCES FLAGS…: compiles to a temporary file, then renames it to OUTPUT. Processes
# that have the old OUTPUT mapped keep the old file.
build() {
	output=$out/$1 sources=$2
	shift 2
	if [ -e "$output" ] && [ -z "$(find build.sh ./*.h ../simcuda/cuda_sim*.h $sources -newer "$output" -print -quit)" ]; then
		return
	fi
	$cc $warnings $sources -o "$output.new" "$@" $rpath -lpthread -ldl ${SIMCUDA_CFLAGS:-}
	mv "$output.new" "$output"
}

nccl="api.c communicator.c driver.c group.c ledger.c plan.c shared.c"
build libnccl.so.2 "$nccl" $library -Wl,-soname,libnccl.so.2
build libnccl-custom.so.2 "$nccl" $library -Wl,-soname,libnccl-custom.so.2
build libncclwrapper.so wrapper.c -O2 -fPIC -shared
build ncclstatic "ncclcalls.c $nccl" -O1 -fno-omit-frame-pointer -DLINKED
ln -sf libnccl.so.2 "$out/libnccl.so"
build ncclcalls ncclcalls.c $program
build ranks "ranks.c ranks_step.c" $program
