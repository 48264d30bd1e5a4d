#!/usr/bin/env bash
# make check: everything that CI runs. Stops at the first thing that is wrong and
# says how to put it right.
set -euo pipefail
step() { echo "== $*"; }
fail() { echo "check: $*" >&2; exit 1; }
go=${GO:-go}

step "format and vet"
wrong=$(bash scripts/format.sh --check) || fail "not formatted, or longer than 120 columns; scripts/format.sh formats: $wrong"
$go vet ./...
GOWORK=off $go mod verify >/dev/null

# The committed objects must be what the sources say; only the pinned clang can tell.
if command -v clang-14 >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ]; then
	step "generated files"
	before=$(cat bpf/*_bpfel.* | sha256sum)
	$go generate ./bpf
	[ "$before" = "$(cat bpf/*_bpfel.* | sha256sum)" ] || fail "bpf/ is not what its sources make; commit what make generate made"
else
	echo "(no clang-14 or libbpf-dev: the BPF objects are taken as committed)"
fi

step "the page's bundle"
before=$(sha256sum <analyze/export/html/web/bundle.js)
sh scripts/bundle_page.sh
[ "$before" = "$(sha256sum <analyze/export/html/web/bundle.js)" ] || fail "analyze/export/html/web/bundle.js is not what its modules make; commit what make page made"

# What computes runs beside what mostly waits, with a lower priority: beside NAME runs that
# function, and shows at the end what it said. Each has a process group of its own, so that
# nothing is left behind.
logs=$(mktemp -d)
set -m
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$logs"' EXIT
beside() { (renice -n 10 "$BASHPID" >/dev/null 2>&1 || true; "$1") </dev/null >"$logs/$1" 2>&1 & }

computing() {
	step "lint"
	GOWORK=off $go tool -modfile=scripts/tools.mod staticcheck ./...

	step "known vulnerabilities"
	if ! said=$(GOWORK=off $go tool -modfile=scripts/tools.mod govulncheck ./... 2>&1); then
		case $said in
		*"fetching vulnerabilities"*) echo "(not looked for: the database cannot be reached: ${said##*: })" ;;
		*) fail "$said" ;;
		esac
	fi

	step "other systems"
	for target in linux/arm64 darwin/arm64 windows/amd64; do
		CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} $go build -o /dev/null ./cmd/gpurec || fail "does not build for $target"
	done
	GOWORK=off $go build -o /dev/null ./cmd/gpurec || fail "does not build without the workspace"

	# Last, when the tests have compiled the same.
	step "benchmarks run"
	said=$($go test -vet=off -run '^$' -bench . -benchtime 1x -short ./... 2>&1) || fail "$said"
}
beside computing

step "simcuda and simtorch"
make -s simtorch

step "viewers and CPythons"
bash scripts/viewers.sh
bash scripts/pythons.sh

step "the page's unit tests"
said=$(node --test analyze/export/html/web/test/*.test.js) || fail "$said"

self_tests() {
	step "self-tests"
	build/simcuda/selftest
	bash examples/simtorch/selftest.sh
	pythons=(build/python/*/bin/python3)
	"${pythons[0]}" scripts/compare_torch_stacks.py --self-test
	python3 scripts/compare_torch_allocator.py --self-test >/dev/null
	python3 scripts/compare_torch_snapshot.py --self-test >/dev/null
}
beside self_tests

if [ "$(id -u)" = 0 ] || [ "${CI:-}" = true ]; then
	export GPUREC_MUST_RUN=1
fi

# These packages need no kernel: their tests run under the race detector. Those of analyze run only
# so; of the others, what takes long and has one goroutine runs with the rest.
pure_tests() {
	step "tests under the race detector"
	$go test -race -vet=off -timeout 40m ./analyze/... | grep -v 'no test files'
	$go test -race -vet=off -timeout 40m -short ./format/... ./symbolize/...
}
beside pure_tests

# Attaching needs root; on a developer's machine without it the rest still runs. Packages are
# tested in this order, as many at a time as there are cores: those first that take longest.
tests() {
	step "tests"
	$go test -vet=off -timeout 40m ./record ./cmd/gpurec ./cmd/... ./record/... ./bpf/... ./format/... ./symbolize/...
}
tests </dev/null &

ok=true
wait -n && wait -n && wait -n && wait -n || ok=false # until the first that fails
cat "$logs"/*
$ok || fail "not good; see above"
echo "check: all good"
