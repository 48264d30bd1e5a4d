#!/usr/bin/env bash
# make check: all that CI runs. It stops at the first failed check and prints how to fix it.
set -euo pipefail

cd "$(dirname "$0")/.."
step() { echo "== $*"; }
fail() { echo "check: $*" >&2; exit 1; }
go=${GO:-go}
export GOFLAGS=${GOFLAGS:--trimpath} # clones in other folders share the build cache

# Compilers of C and C++ run while the checks of Go run.
bash scripts/simulations.sh &
simtorch=$!
trap 'kill "$simtorch" 2>/dev/null || true' EXIT

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

step "the page's bundle and its unit tests"
before=$(sha256sum <analyze/export/html/web/bundle.js)
sh scripts/bundle_page.sh
[ "$before" = "$(sha256sum <analyze/export/html/web/bundle.js)" ] || fail "analyze/export/html/web/bundle.js does not match its modules; run make page and commit it"
output=$(node --test analyze/export/html/web/test/*.test.js) || fail "$output"

step "the workflow"
GOWORK=off $go tool -modfile=scripts/tools.mod actionlint .github/workflows/*.yml

step "simcuda and simtorch"
wait "$simtorch" || fail "simcuda or simtorch does not build; run make simtorch"
trap - EXIT

step "viewers, debuggers and CPythons"
bash scripts/viewers.sh
sh scripts/debuggers.sh
bash scripts/pythons.sh

step "self-tests"
build/simcuda/selftest
bash examples/simtorch/selftest.sh
pythons=(build/python/*/bin/python3)
"${pythons[0]}" scripts/compare_torch_stacks.py --self-test
for script in allocator operators modules snapshot; do
	python3 "scripts/compare_torch_$script.py" --self-test >/dev/null
done
python3 scripts/test_torch_blocks.py --self-test >/dev/null

step "other systems" # compiled, not linked; the workflow links them
for target in linux/arm64 darwin/arm64 windows/amd64; do
	CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} $go list -deps -export ./cmd/gpurec >/dev/null ||
		fail "cmd/gpurec does not build for $target"
done
GOWORK=off $go list -deps -export ./cmd/gpurec >/dev/null || fail "cmd/gpurec does not build without the workspace"

step "tests"
if [ "$(id -u)" = 0 ] || [ "${CI:-}" = true ]; then
	export GPUREC_MUST_RUN=1
fi
bash scripts/test.sh || fail "a test failed, see above"
echo "check: all checks passed"
