#!/bin/sh
# Builds the simulated CUDA libraries and the programs that run on them:
#   build.sh [OUTDIR]        default: build/simcuda in the repository
# Rebuilds only files that are older than their sources. $CC is the compiler. $SIMCUDA_CFLAGS is
# appended to the compiler's flags, for example to turn on a sanitizer.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build/simcuda}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
cc=${CC:-cc}

warnings="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -g"
# Exported functions must begin with push %rbp, as in the real driver, because a uprobe on that
# instruction is cheap. So the build turns off endbr64 and late frame set-up (shrink wrapping). It
# turns off sibling calls, which would remove exported functions from stacks. It turns off the
# folding of equal functions, which would give two names one address.
library="-O2 -fPIC -shared -fvisibility=hidden -fno-omit-frame-pointer -fcf-protection=none -fno-shrink-wrap
	-fno-optimize-sibling-calls -fno-ipa-icf"
# -Bsymbolic binds calls inside the library directly, so no interposed symbol intercepts them.
# --disable-new-dtags writes DT_RPATH, which the loader searches before LD_LIBRARY_PATH. So on a
# machine with a GPU the programs do not load the real libraries.
rpath="-Wl,--disable-new-dtags -Wl,-rpath,\$ORIGIN"
link="-Wl,-Bsymbolic -Wl,-z,defs $rpath"

# build OUTPUT HEADERS SOURCES FLAGS…: compiles to a temporary file, then renames it to OUTPUT.
# Processes that have the old OUTPUT mapped keep the old file.
build() {
	output=$out/$1 headers=$2 sources=$3
	shift 3
	if [ -e "$output" ] && [ -z "$(find build.sh $headers $sources -newer "$output" -print -quit)" ]; then
		return
	fi
	$cc $warnings "$@" $sources -o "$output.new" $libraries ${SIMCUDA_CFLAGS:-}
	mv "$output.new" "$output"
}

common="config.c identity.c process_start.c"
libraries="-lpthread -ldl"
api="cuda_sim.h cuda_sim_structs.h"
libraries="-lpthread -ldl -lm"
build libcuda.so.1 "channel.h device_file.h sim.h state.h space.h config.h identity.h memory.h graph.h nodes.h copy.h image.h arguments.h $api" \
	"$common call.c process.c fault.c ledger.c object.c timeline.c gate.c state.c state_export.c space.c device.c context.c peer.c
	memory.c pool.c pool_share.c graph_memory.c vmm.c share.c array.c ipc.c external.c graphics.c semaphore.c register.c
	managed.c texture.c copy.c shape.c set.c stream.c event.c memop.c host.c graph.c nodes.c nodes_any.c capture.c exec.c
	image.c module.c library.c link.c launch.c arguments.c proc.c error.c
	channel.c channel_config.c channel_memory.c channel_clock.c channel_work.c channel_gpu.c channel_ledger.c channel_noise.c" $library $link -Wl,-soname,libcuda.so.1
ln -sf libcuda.so.1 "$out/libcuda.so"
libraries="-lpthread -ldl"
build libnvidia-ml.so.1 "nvml_sim.h nvml_device.h watch.h state.h config.h identity.h" \
	"$common nvml.c nvml_use.c nvml_hardware.c nvml_mig.c nvml_gpm.c nvml_overrides.c watch.c" $library $link -Wl,-soname,libnvidia-ml.so.1
build libcudart.so.13 "cudart_sim.h cudart_driver.h identity.h $api" \
	"cudart.c cudart_driver.c cudart_kernels.c cudart_graph.c" $library $link -Wl,-soname,libcudart.so.13

program="-O1 -fno-omit-frame-pointer -rdynamic"
# leak and verdicts get no rpath, so they load libcuda.so.1 from the system or LD_LIBRARY_PATH.
build leak "$api" ../leak/leak.c $program -I.
build verdicts "../verdicts/verdicts.h $api" \
	"../verdicts/verdicts.c ../verdicts/leaks.c ../verdicts/caches.c ../verdicts/kinds.c ../verdicts/processes.c ../verdicts/faults.c" \
	$program -I. -I../verdicts
build devfiles device_file.h devfiles.c $program
build works "works.h $api" "works.c works_phases.c" $program $rpath
build jobs "jobs.h $api" "jobs.c jobs_step.c jobs_scenarios.c jobs_truth.c" $program $rpath
libraries="-lpthread -ldl -lm"
build changing "$api" changing.c $program $rpath
libraries="-lpthread -ldl"
build hostwaits "../hostwaits/hostwaits.h ../hostwaits/hostwaits_chains.h $api" \
	"../hostwaits/hostwaits.c ../hostwaits/hostwaits_places.c ../hostwaits/hostwaits_faults.c ../hostwaits/hostwaits_slowfile.c
	../hostwaits/hostwaits_chains.c ../hostwaits/hostwaits_truth.c" $program $rpath -I. -I../hostwaits
build objectleaks "../objectleaks/objectleaks.h $api" \
	"../objectleaks/objectleaks.c ../objectleaks/objectleaks_kinds.c ../objectleaks/objectleaks_patterns.c" \
	$program $rpath -I. -I../objectleaks
build pointers "pointers.h $api" "pointers.c pointers_sites.c" $program $rpath
build signatures "$api" signatures.c $program $rpath
build storm "storm.h $api" "storm.c storm_calls.c storm_sequences.c" $program $rpath
build torchrun "$api" torchrun.c $program $rpath
build watched "$api" watched.c $program $rpath
build children "$api" children.c $program $rpath
build every "every.h $api" "every.c every_memory.c every_child.c every_copy.c every_hints.c every_work.c every_nodes.c every_module.c" $program $rpath
build selftest "selftest.h cudart_sim.h nvml_sim.h $api" \
	"selftest.c selftest_driver.c selftest_memory.c selftest_ledger.c selftest_nvml.c selftest_runtime.c
	selftest_virtual.c selftest_graph.c selftest_shape.c selftest_columns.c" \
	$program $rpath
