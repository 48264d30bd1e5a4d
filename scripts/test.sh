#!/usr/bin/env bash
# Runs the tests of the classes in GPUREC_TESTS (unit,browser,gate), as go test -vet=off with further
# arguments: packages and flags (all packages). It prints the ten slowest tests, and how many ran, were skipped
# and were unstable. A test of timing whose case did not arise runs once more, alone: CONTRIBUTING.md.
set -euo pipefail

cd "$(dirname "$0")/.."
export GPUREC_TESTS=${GPUREC_TESTS:-unit,browser,gate}
export GPUREC_RUN=$$-$EPOCHSECONDS # tests of class root run again, see internal/testclass
go=${GO:-go}
results=$PWD/build/tests
rm -rf "$results"
mkdir -p "$results" build/tools/bin
GOWORK=off GOBIN=$PWD/build/tools/bin $go install -modfile=scripts/tools.mod gotest.tools/gotestsum
# The slowest packages come first: go test runs packages in this order, one per core.
[ $# -gt 0 ] || set -- ./record ./cmd/gpurec ./analyze/export/html ./...

# run_tests NAME ARGUMENT…: runs go test, and writes its events to NAME.json. Three packages run at a time:
# those with real probes often wait. The limit of time only ends a hang.
run_tests() {
	local name=$1
	shift
	build/tools/bin/gotestsum --format pkgname --hide-summary=skipped --jsonfile "$results/$name.json" -- \
		-p 3 -vet=off -timeout 60m "$@"
}

failed=
run_tests first "$@" || failed=yes
if [ -n "$failed" ] && reruns=$($go run ./scripts/gate reruns "$results/first.json"); then
	failed=
	while read -r package name; do
		run_tests "again-$name" -count=1 -run "^$name\$" "$package" || failed=yes
	done <<<"$reruns"
fi
echo "the slowest tests:"
build/tools/bin/gotestsum tool slowest --jsonfile "$results/first.json" --num 10 --threshold 100ms
$go run ./scripts/gate summary "$results/first.json" $(ls "$results"/again-*.json 2>/dev/null)
[ -z "$failed" ]
