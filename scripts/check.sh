#!/usr/bin/env bash
# make check: everything that CI runs. Stops at the first thing that is wrong and
# says how to put it right.
set -euo pipefail
step() { echo "== $*"; }
fail() { echo "check: $*" >&2; exit 1; }
go=${GO:-go}

step "format and vet"
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || fail "not formatted: $unformatted; gofmt -w them"
$go vet ./...
GOWORK=off $go mod verify >/dev/null

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

# The committed objects must be what the sources say; only the pinned clang can tell.
if command -v clang-14 >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ]; then
	step "generated files"
	before=$(cat bpf/*_bpfel.* | sha256sum)
	$go generate ./bpf
	[ "$before" = "$(cat bpf/*_bpfel.* | sha256sum)" ] || fail "bpf/ is not what its sources make; commit what make generate made"
else
	echo "(no clang-14 or libbpf-dev: the BPF objects are taken as committed)"
fi

step "simcuda and simtorch"
make -s simtorch
build/simcuda/selftest
bash examples/simtorch/selftest.sh

step "viewers and CPythons"
bash scripts/viewers.sh
bash scripts/pythons.sh
pythons=(build/python/*/bin/python3)
"${pythons[0]}" scripts/compare_torch_stacks.py --self-test
python3 scripts/compare_torch_allocator.py --self-test >/dev/null
python3 scripts/compare_torch_snapshot.py --self-test >/dev/null

# Attaching needs root; on a developer's machine without it the rest still runs.
step "tests"
if [ "$(id -u)" = 0 ] || [ "${CI:-}" = true ]; then
	export GPUREC_MUST_RUN=1
fi
$go test -timeout 8m ./...

step "benchmarks run"
$go test -run '^$' -bench . -benchtime 1x -short ./... >/dev/null
echo "check: all good"
