#!/usr/bin/env bash
# Runs the stages of scripts/kernels.sh in a qemu guest: kernels-guest.sh REPOSITORY FOLDER.
# scripts/kernels.sh prints the lines that start with "= " in its table.
root=$1
folder=$2 # folder of the settings, tests and results
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run/tmp LANG=C.UTF-8 NO_COLOR=1
mkdir -p $TMPDIR
chmod 1777 $TMPDIR
cd "$root" || exit
# shellcheck source=/dev/null
. "$folder/settings" # sets COMMAND, STAGES, TESTS and SKIP
if [ -n "$COMMAND" ]; then
	export folder
	bash -c "$COMMAND"
	exit
fi

gpurec=$root/build/bin/gpurec
export LD_LIBRARY_PATH=$root/build/simcuda SIMCUDA_TIME=off SIMCUDA_STATE=$TMPDIR/state
# drop_status removes the status lines of gpurec record from its output.
drop_status() { tr '\r' '\n' | grep -v ' calls  .*/s  '; }

echo "= kernel $(uname -r)"
$gpurec check
$gpurec check 2>/dev/null | grep -q '^BPF programs *ok' && echo "= programs accepted"

# recording NAME FLAGS…: records a program and compares the number of calls of each function with
# simcuda's ledger.
recording() {
	local name=$1 out=$TMPDIR/$1.parquet ledger=$TMPDIR/$1.ledger
	shift
	echo "-- recording $name: $*"
	SIMCUDA_LEDGER=$ledger $gpurec record --max-overhead off "$@" -o "$out" -- build/simcuda/leak --steps 100 2>&1 | drop_status | tee "$TMPDIR/messages"
	$gpurec analyze leaks "$out"
	local stacks probes cost differs
	$gpurec analyze api --format json "$out" | python3 -c '
import collections, json, sys
happened = collections.Counter(line.split("\t")[4] for line in open(sys.argv[1]) if line[0] != "#")
recorded = {r["name"]: r["calls"] for r in json.load(sys.stdin)["api"]}
differ = {c: (n, happened[c]) for c, n in recorded.items() if n != happened[c]}
need = {"cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"} - set(recorded)
print("differ from the ledger: %s" % (differ or need) if differ or need else "%d calls, all of the ledger" % sum(recorded.values()))
' "$ledger" >"$TMPDIR/compared" 2>&1 || true
	cat "$TMPDIR/compared"
	stacks=$($gpurec analyze stacks "$out" 2>/dev/null | sed -n 's/.*, stacks \([^,]*\),.*/\1/p; s/^quality:.*stacks \([^,]*\)$/\1/p' | head -1)
	probes=$(sed -n 's/.*: \([0-9]* probes by [a-z_]*\);.*/\1/p' "$TMPDIR/messages")
	cost=$(sed -n 's/.*own cost: \(attach [^,]*\(, detach [^,]*\)\{0,1\}\),.*/\1/p; s/.* perf uprobes removed in \(.*\)/detach \1/p' "$TMPDIR/messages" | paste -sd, | sed 's/,d/, d/')
	if grep -q 'all of the ledger' "$TMPDIR/compared"; then differs=ok; else differs=FAIL; fi
	echo "= recording $differs $name: $probes, $cost; $(tail -1 "$TMPDIR/compared"); stacks $stacks"
}
recordings() {
	recording fp --stacks fp
	recording auto --stacks auto
	if grep -q uprobe_multi "$TMPDIR/messages"; then recording perf --stacks fp --attach perf; fi
}

# as CAPABILITIES COMMAND…: replaces the shell by COMMAND as an unprivileged user with only these
# capabilities.
as() {
	local caps=-all
	[ -z "$1" ] || caps=-all,+${1//,/,+}
	shift
	exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps="$caps" --ambient-caps="$caps" "$@"
}

# privileges: prints the messages of gpurec for users with different sets of capabilities.
privileges() {
	as "" build/simcuda/leak --steps 0 --step-ms 20 >/dev/null 2>&1 &
	local user_pid=$! root_pid capabilities messages
	build/simcuda/leak --steps 0 --step-ms 20 >/dev/null 2>&1 &
	root_pid=$!
	sleep 2
	echo "-- perf_event_paranoid $(cat /proc/sys/kernel/perf_event_paranoid), unprivileged_bpf_disabled $(cat /proc/sys/kernel/unprivileged_bpf_disabled)"
	for capabilities in "" bpf,perfmon bpf,perfmon,syslog,checkpoint_restore sys_admin sys_admin,syslog,sys_ptrace,dac_read_search; do
		for pid in $user_pid $root_pid; do
			messages=$(as "$capabilities" $gpurec record -p "$pid" -d 1s --force -o "$TMPDIR/caps.parquet" 2>&1 | drop_status)
			if [ "$pid" = "$root_pid" ]; then whose="root's"; else whose="the user's own"; fi
			echo "= with [$capabilities], $whose process: $(grep -E 'error:|warning: stacks| lost ->' <<<"$messages" | sed 's/^gpurec: //; s/; next:.*//' | paste -sd '|')"
		done
	done
	echo "-- check without capabilities"
	(as "" $gpurec check 2>&1)
	kill $user_pid $root_pid
}

tests() {
	# Each test binary runs in the folder of its package: record, or a folder below it.
	local binary package status=0
	for binary in "$folder"/tests/*.test; do
		package=$(basename "$binary" .test)
		if [ "$package" != record ]; then package=record/$package; fi
		(cd "$package" && "$binary" -test.v -test.timeout 3h -test.run "$TESTS" -test.skip "$SKIP" 2>&1) || status=$?
	done
	echo "= tests end with status $status"
}

for stage in $STAGES; do $stage; done
echo "= end"
