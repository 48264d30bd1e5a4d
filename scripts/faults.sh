#!/usr/bin/env bash
# make faults: runs the fault injection tests with high repeat counts, for example 200 kills of the
# recorder, 1,000 attaches and 500 children at once. Prints a table and fails if a test fails. Run
# as root, after make simcuda; takes 30 minutes.
#
# usage: scripts/faults.sh [PERCENT of the repeat counts, 100]
set -uo pipefail

export GPUREC_FAULTS=${1:-100} GPUREC_MUST_RUN=1
log=build/faults.log
mkdir -p build
: >"$log"
failed=0
# Also run the tests that compare recordings with simcuda's ledger, at full length.
for package in ./record ./cmd/gpurec; do
	nice "${GO:-go}" test "$package" -count=1 -v -timeout 3h -run '^(TestFault|TestFullDisk|TestKilledTarget|TestEveryCallEqualsTheLedger|TestRecordedPlusLost|TestAllocatorEventsEqual)' >>"$log" 2>&1 || failed=1
done
printf '%-32s %-12s %8s  %s\n' fault times seconds result
awk '
	/fault\t/ { split($0, f, "\t"); times[f[2]] = f[3] }
	/^--- / { name = $3; sub(/^Test(Fault)?/, "", name); took = $4; gsub(/[()s]/, "", took)
		printf "%-32s %-12s %8.0f  %s\n", name, (name in times ? times[name] : "once"), took, ($2 == "PASS:" ? "passed" : $2 == "SKIP:" ? "SKIPPED" : "FAILED") }
' "$log"
[ $failed = 0 ] || { echo "faults: see $log" >&2; exit 1; }
