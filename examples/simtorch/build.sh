#!/bin/sh
# Builds the simulated PyTorch allocator and the programs that use it:
#   build.sh [OUTDIR]        default: build/simtorch in the repository
# libcuda.so.1 of simcuda must be in OUTDIR/../simcuda. Rebuilds only files that are older than
# their sources. $CXX is the compiler. $SIMTORCH_CXXFLAGS is appended to the compiler's flags, for
# example to turn on a sanitizer.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/simtorch}
mkdir -p "$out/stripped" "$out/other" "$out/renamed" "$out/silent"
out=$(cd "$out" && pwd)
cd "$here"
cxx=${CXX:-c++}
[ -e "$out/../simcuda/libcuda.so.1" ] || { echo "build.sh: no $out/../simcuda/libcuda.so.1: run examples/simcuda/build.sh first" >&2; exit 1; }

warnings="-std=gnu++20 -Wall -Wextra -Werror -g -I../simcuda"
# As for simcuda, functions begin with push, on which a uprobe is cheap, and appear as stack frames.
# Frame pointers are omitted, as in PyTorch's library, so unwinders need .eh_frame.
library="-O2 -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden -fcf-protection=none -fno-shrink-wrap
	-fno-optimize-sibling-calls -fno-ipa-icf"
# --disable-new-dtags writes DT_RPATH, which the loader searches before LD_LIBRARY_PATH. So on a
# machine with a GPU the programs do not load the real libraries.
rpath="-Wl,--disable-new-dtags -Wl,-rpath,\$ORIGIN:\$ORIGIN/../simcuda:\$ORIGIN/../../simcuda"

# build OUTPUT SOURCES FLAGS…: compiles to a temporary file, then renames it to OUTPUT. Processes
# that have the old OUTPUT mapped keep the old file.
build() {
	output=$out/$1 sources=$2
	shift 2
	if [ -e "$output" ] && [ -z "$(find build.sh ./*.h ../simcuda/cuda_sim*.h $sources -newer "$output" -print -quit)" ]; then
		return
	fi
	$cxx $warnings $sources -o "$output.new" "$@" $rpath -lpthread ${SIMTORCH_CXXFLAGS:-}
	mv "$output.new" "$output"
}

# build_allocator FOLDER FLAGS…: builds a variant of libc10_cuda.so in the background: each takes seconds.
jobs=
build_allocator() {
	folder=$1
	shift
	build "$folder/libc10_cuda.so" "$allocator" "$@" $library -Wl,-z,defs -Wl,-soname,libc10_cuda.so -lc10 $cuda &
	jobs="$jobs $!"
}

cuda="-L$out/../simcuda -l:libcuda.so.1"
allocator="layout.cpp allocator.cpp segments.cpp events.cpp pools.cpp stats.cpp trace.cpp block.cpp driver.cpp ledger.cpp native.cpp"
silent="-Drecord_trace=keep_history -DreportMemoryUsageToProfiler=reportToProfiler"
build libc10.so c10.cpp $library -Wl,-soname,libc10.so
build silent/libc10.so c10.cpp $silent $library -Wl,-soname,libc10.so
build_allocator . -L"$out"
# Variants of the library. stripped has no .symtab. other has the parameters of record_trace in
# PyTorch 2.3. renamed has record_trace under another name, so a recorder has only the calls of
# reportMemoryUsageToProfiler, and no function of the engine. silent lacks both names.
build_allocator other -DSIMTORCH_OTHER -L"$out"
build_allocator renamed -Drecord_trace=keep_history -L"$out"
build_allocator silent $silent -L"$out/silent"
for job in $jobs; do
	wait "$job"
done
if [ ! "$out/stripped/libc10_cuda.so" -nt "$out/libc10_cuda.so" ]; then
	strip --strip-all -o "$out/stripped/libc10_cuda.so" "$out/libc10_cuda.so"
fi

build_engine() {
	folder=$1
	shift
	build "$folder/libtorch_cpu.so" "engine.cpp driver.cpp" "$@" $library -Wl,-z,defs -Wl,-soname,libtorch_cpu.so -L"$out" \
		-lc10_cuda -lc10 $cuda
}
build_engine .
build_engine renamed -Dexecute=run_graph

program="-O1 -fno-omit-frame-pointer -rdynamic -L$out -Wl,--no-as-needed -lc10_cuda -lc10 $cuda"
build tensors tensors.cpp $program
build tensorleak tensorleak.cpp $program
build busyleak busyleak.cpp $program
# Programs load the libraries of their own folder.
for variant in stripped other renamed silent; do
	[ $variant = silent ] || cp -u "$out/libc10.so" "$out/$variant/"
	cp -u "$out/tensors" "$out/tensorleak" "$out/$variant/"
done
