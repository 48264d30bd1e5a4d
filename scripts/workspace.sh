#!/bin/sh
# Writes build/go.work, a Go workspace that replaces the unwinder module by a patched copy.
# record/unwind/patches/README.md describes the patches.
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
		# Inside a repository, git apply skips files outside the repository. GIT_DIR makes git
		# ignore it.
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
# Keep the time of an unchanged file, so that Go's build cache stays valid.
if cmp -s build/go.work.new build/go.work 2>/dev/null; then rm build/go.work.new; else mv build/go.work.new build/go.work; fi
