#!/bin/sh
# Writes build/go.work, the workspace in which gpurec is built with a patched copy of the
# unwinder's module. record/unwind/patches/README.md describes the patches.
set -eu

cd "$(dirname "$0")/.."
module=go.opentelemetry.io/ebpf-profiler
patches=record/unwind/patches
copy=build/workspace/ebpf-profiler
die() { echo "workspace.sh: $*" >&2; exit 1; }
command -v git >/dev/null || die "needs git to apply $patches"

version=$(GOWORK=off go list -m -f '{{.Version}}' "$module")
state="$version $(cat "$patches"/*.patch | git hash-object --stdin)"

if [ "$(cat build/workspace/version 2>/dev/null)" != "$state" ]; then
	cache=$(GOWORK=off go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
	rm -rf build/workspace
	mkdir -p build/workspace
	cp -R "$cache" "$copy"
	chmod -R u+w "$copy"
	for patch in "$patches"/*.patch; do
		# In a repository git apply would skip files outside of it, so GIT_DIR names none.
		GIT_DIR=/dev/null git -C "$copy" -c core.autocrlf=false apply --whitespace=nowarn - <"$patch" ||
			die "$patch does not apply to $module $version: see $patches/README.md"
	done
	echo "$state" >build/workspace/version
fi

cat >build/go.work.new <<-GO
	go $(sed -n 's/^go //p' go.mod)

	use ..

	replace $module => ./workspace/ebpf-profiler
GO
# An unchanged file keeps its time: Go's caches stay good.
if cmp -s build/go.work.new build/go.work 2>/dev/null; then rm build/go.work.new; else mv build/go.work.new build/go.work; fi
