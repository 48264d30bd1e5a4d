#!/usr/bin/env bash
# make faults: the faults that tests try a few times, often: the recorder killed at 200 random
# moments, 1,000 times attached and detached, 500 children at once, and so on. Prints a table
# and fails if something was not as it should be. As root, after make simcuda; half an hour.
#
# usage: scripts/faults.sh [PERCENT of these numbers, 100]
set -uo pipefail

export GPUREC_FAULTS=${1:-100} GPUREC_MUST_RUN=1
log=build/faults.log
mkdir -p build
: >"$log"
failed=0
# Also what make check compares with the ledger, at full length.
for package in ./record ./cmd/gpurec; do
	nice "${GO:-go}" test "$package" -count=1 -v -timeout 3h -run '^(TestFault|TestFullDisk|TestKilledTarget|TestEveryCallEqualsTheLedger|TestRecordedPlusLost|TestAllocatorEventsEqual)' >>"$log" 2>&1 || failed=1
done
printf '%-32s %-12s %8s  %s\n' fault times seconds result
awk '
	/fault\t/ { split($0, f, "\t"); times[f[2]] = f[3] }
	/^--- / { name = $3; sub(/^Test(Fault)?/, "", name); took = $4; gsub(/[()s]/, "", took)
		printf "%-32s %-12s %8.0f  %s\n", name, (name in times ? times[name] : "once"), took, ($2 == "PASS:" ? "as it should be" : $2 == "SKIP:" ? "SKIPPED" : "FAILED") }
' "$log"
[ $failed = 0 ] || { echo "faults: see $log" >&2; exit 1; }
