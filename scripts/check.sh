#!/usr/bin/env bash
# make check: runs all checks of CI. Stops at the first failed check and prints how to fix it.
set -euo pipefail
step() { echo "== $*"; }
fail() { echo "check: $*" >&2; exit 1; }
go=${GO:-go}

step "format and vet"
wrong=$(bash scripts/format.sh --check) || fail "wrong format or lines above 120 columns; run bash scripts/format.sh: $wrong"
$go vet ./...
GOWORK=off $go mod verify >/dev/null

# The committed BPF objects must match their sources. Only clang-14 generates the same bytes.
if command -v clang-14 >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ]; then
	step "generated files"
	before=$(cat bpf/*_bpfel.* | sha256sum)
	$go generate ./bpf
	[ "$before" = "$(cat bpf/*_bpfel.* | sha256sum)" ] || fail "the BPF objects in bpf/ do not match their sources; run make generate and commit the objects"
else
	echo "(no clang-14 or libbpf-dev: the BPF objects are not checked)"
fi

step "texts"
wrong=$(sh scripts/prose.sh) || fail "texts need other words; CONTRIBUTING.md has the rules: $wrong"

step "the page's bundle"
before=$(sha256sum <analyze/export/html/web/bundle.js)
sh scripts/bundle_page.sh
[ "$before" = "$(sha256sum <analyze/export/html/web/bundle.js)" ] || fail "analyze/export/html/web/bundle.js does not match its modules; run make page and commit it"

# Some checks use the CPU, others mostly wait. background NAME runs the function NAME in the
# background with low priority. Its output is printed at the end. Each background function has its
# own process group, which is killed on exit.
logs=$(mktemp -d)
set -m
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$logs"' EXIT
background() { (renice -n 10 "$BASHPID" >/dev/null 2>&1 || true; "$1") </dev/null >"$logs/$1" 2>&1 & }

compute_checks() {
	step "lint"
	GOWORK=off $go tool -modfile=scripts/tools.mod staticcheck ./...

	step "known vulnerabilities"
	if ! output=$(GOWORK=off $go tool -modfile=scripts/tools.mod govulncheck ./... 2>&1); then
		case $output in
		*"fetching vulnerabilities"*) echo "(not checked: the vulnerability database is unreachable: ${output##*: })" ;;
		*) fail "$output" ;;
		esac
	fi

	step "other systems"
	for target in linux/arm64 darwin/arm64 windows/amd64; do
		CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} $go build -o /dev/null ./cmd/gpurec || fail "cmd/gpurec does not build for $target"
	done
	GOWORK=off $go build -o /dev/null ./cmd/gpurec || fail "cmd/gpurec does not build without the workspace"

	# Last, because the tests have compiled the same packages by then.
	step "benchmarks run"
	output=$($go test -vet=off -run '^$' -bench . -benchtime 1x -short ./... 2>&1) || fail "$output"
}
background compute_checks

step "simcuda and simtorch"
make -s simtorch

step "viewers, debuggers and CPythons"
bash scripts/viewers.sh
sh scripts/debuggers.sh
bash scripts/pythons.sh

step "the page's unit tests"
output=$(node --test analyze/export/html/web/test/*.test.js) || fail "$output"

self_tests() {
	step "self-tests"
	build/simcuda/selftest
	bash examples/simtorch/selftest.sh
	pythons=(build/python/*/bin/python3)
	"${pythons[0]}" scripts/compare_torch_stacks.py --self-test
	python3 scripts/compare_torch_allocator.py --self-test >/dev/null
	python3 scripts/compare_torch_operators.py --self-test >/dev/null
	python3 scripts/compare_torch_modules.py --self-test >/dev/null
	python3 scripts/compare_torch_snapshot.py --self-test >/dev/null
}
background self_tests

if [ "$(id -u)" = 0 ] || [ "${CI:-}" = true ]; then
	export GPUREC_MUST_RUN=1
fi

# The tests of these packages need no kernel features. The race detector makes tests ten times slower, so it is for
# those in which goroutines meet: the one of ./analyze runs all reports at a time. make race runs all tests under it.
# The tests of the page run in tests(), and one of them here.
pure_tests() {
	step "tests under the race detector"
	$go test -race -vet=off -timeout 40m -run '^TestReportsShareATimeline$' ./analyze
	$go test -race -vet=off -timeout 40m -run '^TestHTMLIsDeterministic$' ./analyze/export/html
	$go test -race -vet=off -timeout 40m -run 'Concurrent|Cancel|Limits' ./analyze/mcp
	$go test -race -vet=off -timeout 40m -short -skip 'Oracle' ./analyze/live ./analyze/model/calls ./analyze/model/job \
		./analyze/model/timeline
	$go test -race -vet=off -timeout 40m -short -skip 'ProgressRows|ColumnsEqualRows|RowsAreReadAsWritten' ./format/...

	step "tests without the race detector"
	$go test -vet=off -timeout 40m $($go list ./analyze/... ./agent/... | grep -v '/export/html$') | grep -v 'no test files'
}
background pure_tests

# Attaching probes needs root: without root these tests skip, unless GPUREC_MUST_RUN=1. The slowest
# packages come first because go test runs packages in this order, one per core.
tests() {
	step "tests"
	$go test -vet=off -timeout 40m ./record ./cmd/gpurec ./analyze/export/html ./cmd/... ./record/... ./bpf/... ./format/... ./symbolize/...
}
tests </dev/null &

ok=true
wait -n && wait -n && wait -n && wait -n || ok=false # stops at the first failure
cat "$logs"/*
$ok || fail "a check failed, see above"
echo "check: all checks passed"
