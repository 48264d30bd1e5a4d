#!/bin/sh
# Builds the stand-in for PyTorch's allocator and the programs that run on it:
#   build.sh [OUTDIR]        default: build/simtorch in the repository; simcuda's libcuda.so.1 is in ../simcuda from there
# Only what is older than its sources is built. $CXX is the compiler, $SIMTORCH_CXXFLAGS goes to it last (sanitizers, for example).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/simtorch}
mkdir -p "$out/stripped" "$out/other" "$out/renamed" "$out/silent"
out=$(cd "$out" && pwd)
cd "$here"
cxx=${CXX:-c++}
[ -e "$out/../simcuda/libcuda.so.1" ] || { echo "build.sh: no $out/../simcuda/libcuda.so.1: build examples/simcuda first" >&2; exit 1; }

warnings="-std=gnu++20 -Wall -Wextra -Werror -g -I../simcuda"
# As simcuda's: functions begin with a push, which a probe is cheap on, and stay the frames that stacks show. Frame pointers are left
# out, as in PyTorch's library: stacks have to be unwound by .eh_frame.
library="-O2 -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden -fcf-protection=none -fno-shrink-wrap
	-fno-optimize-sibling-calls -fno-ipa-icf"
# The old kind of rpath: it goes before LD_LIBRARY_PATH, so on a machine with a GPU nothing here finds the real libraries instead.
rpath="-Wl,--disable-new-dtags -Wl,-rpath,\$ORIGIN:\$ORIGIN/../simcuda:\$ORIGIN/../../simcuda"

# build OUTPUT SOURCES FLAGS…: compiles beside the output and renames, so that a process that has the old file mapped keeps it.
build() {
	output=$out/$1 sources=$2
	shift 2
	if [ -e "$output" ] && [ -z "$(find build.sh ./*.h ../simcuda/cuda_sim*.h $sources -newer "$output" -print -quit)" ]; then
		return
	fi
	$cxx $warnings $sources -o "$output.new" "$@" $rpath -lpthread ${SIMTORCH_CXXFLAGS:-}
	mv "$output.new" "$output"
}

cuda="-L$out/../simcuda -l:libcuda.so.1"
allocator="allocator.cpp segments.cpp events.cpp pools.cpp stats.cpp trace.cpp block.cpp driver.cpp ledger.cpp native.cpp"
build libc10.so c10.cpp $library -Wl,-soname,libc10.so
build libc10_cuda.so "$allocator" $library -Wl,-z,defs -Wl,-soname,libc10_cuda.so -L"$out" -lc10 $cuda
# The same without .symtab; with the parameters that record_trace had in PyTorch 2.3; with record_trace under another name, so that a
# recorder has only the reports; and without the name of that function either.
build other/libc10_cuda.so "$allocator" -DSIMTORCH_OTHER $library -Wl,-z,defs -Wl,-soname,libc10_cuda.so -L"$out" -lc10 $cuda
if [ ! "$out/stripped/libc10_cuda.so" -nt "$out/libc10_cuda.so" ]; then
	strip --strip-all -o "$out/stripped/libc10_cuda.so" "$out/libc10_cuda.so"
fi

build renamed/libc10_cuda.so "$allocator" -Drecord_trace=keep_history $library -Wl,-z,defs -Wl,-soname,libc10_cuda.so -L"$out" -lc10 $cuda
silent="-Drecord_trace=keep_history -DreportMemoryUsageToProfiler=tellNobody"
build silent/libc10.so c10.cpp $silent $library -Wl,-soname,libc10.so
build silent/libc10_cuda.so "$allocator" $silent $library -Wl,-z,defs -Wl,-soname,libc10_cuda.so -L"$out/silent" -lc10 $cuda

program="-O1 -fno-omit-frame-pointer -rdynamic -L$out -Wl,--no-as-needed -lc10_cuda -lc10 $cuda"
build tensors tensors.cpp $program
build tensorleak tensorleak.cpp $program
# Programs look for libraries beside themselves.
for variant in stripped other renamed silent; do
	[ $variant = silent ] || cp -u "$out/libc10.so" "$out/$variant/"
	cp -u "$out/tensors" "$out/tensorleak" "$out/$variant/"
done
