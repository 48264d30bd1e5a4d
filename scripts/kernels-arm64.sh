#!/usr/bin/env bash
# make kernels-arm64: tests gpurec on Debian's arm64 kernels in an emulated machine. It builds
# gpurec, its tests and simcuda for arm64. The guest has only these, the C library of the cross
# compiler, and busybox. Kernel packages are unpacked, not installed.
#
# usage: scripts/kernels-arm64.sh [VERSION…]   as root, after make workspace VERSION is a kernel
# version such as 6.1 (default: 6.1 and 6.12). Variables: TESTS (a regular expression) and TIMEOUT
# (seconds, 3600). The default TESTS exclude tests with tight timing, NVML (it needs cgo), Python
# and compilers. Results are in build/kernels/arm64/VERSION. Needs qemu-system-arm, busybox-static
# and g++-aarch64-linux-gnu with libc6-dev-arm64-cross.
set -euo pipefail

cd "$(dirname "$0")/.."
dir=$PWD/build/kernels/arm64
libraries=/usr/aarch64-linux-gnu/lib
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(6.1 6.12)
tests=${TESTS:-'PerfUprobes|CommandIsRecorded|CommandExitStatus|StartReturns|SelfTestDetects|XidsInThe|XidProgram|XidsAreFollowed|EveryFunction'}
bash scripts/check-patterns.sh "$tests" record
die() { echo "kernels-arm64.sh: $*" >&2; exit 1; }
command -v qemu-system-aarch64 aarch64-linux-gnu-gcc busybox >/dev/null && [ -e $libraries/libc.so.6 ] ||
	die "needs apt-get install qemu-system-arm busybox-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
mkdir -p "$dir"/apt/{lists/partial,cache/archives/partial}
: >"$dir/apt/status"

# arm APT_TOOL ARGUMENTS…: runs apt-get or apt-cache for arm64 with this machine's mirrors and
# separate package lists.
arm() {
	local tool=$1
	shift
	"$tool" -qq -o Dir::State::Lists="$dir/apt/lists" -o Dir::Cache="$dir/apt/cache" -o Dir::State::status="$dir/apt/status" \
		-o Dir::Etc::SourceParts=- -o Dir::Etc::SourceList=/etc/apt/sources.list.d/debian.sources \
		-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root "$@"
}

# initramfs VERSION: unpacks the newest kernel package of that version and packs the guest's files
# into an initramfs.
initramfs() {
	local at=$dir/$1 tree=$dir/$1/tree package
	package=$(arm apt-cache search --names-only "^linux-image-${1//./\\.}\\..*-cloud-arm64\$" | cut -d ' ' -f 1 | sort -V | tail -1)
	[ -n "$package" ] || die "apt has no cloud kernel package $1 for arm64"
	rm -rf "$at"
	mkdir -p "$at/kernel" "$tree"/{bin,proc,sys,dev,run,tmp,lib,repository/record,repository/build/bin}
	(cd "$at/kernel" && arm apt-get download "$package" busybox-static && for deb in *.deb; do dpkg-deb -x "$deb" .; done && rm ./*.deb)
	cp "$at/kernel/bin/busybox" "$tree/bin/"
	cp $libraries/{ld-linux-aarch64.so.1,libc.so.6,libm.so.6,libdl.so.2,libpthread.so.0,libgcc_s.so.1} "$tree/lib/"
	cp "$dir/gpurec" "$tree/repository/build/bin/"
	mkdir -p "$tree/repository/record/xid"
	cp "$dir/tests/record.test" "$tree/repository/record/"
	cp "$dir/tests/xid.test" "$tree/repository/record/xid/"
	cp -R "$dir/simcuda" "$tree/repository/build/"
	cat >"$tree/init" <<-SH
		#!/bin/busybox sh
		/bin/busybox --install -s /bin
		export PATH=/bin TMPDIR=/tmp NO_COLOR=1 SIMCUDA_TIME=off SIMCUDA_STATE=/tmp/state
		mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
		mount -t tracefs none /sys/kernel/tracing; mount -t cgroup2 none /sys/fs/cgroup; ip link set lo up
		chown 0:0 /tmp # /tmp belongs to the user of the build: gpurec refuses folders of other users
		{
			uname -srm
			cd /repository/record
			../build/bin/gpurec check
			LD_LIBRARY_PATH=/repository/build/simcuda ../build/bin/gpurec record --stacks fp -o /tmp/fp.parquet -- ../build/simcuda/leak --steps 100
			../build/bin/gpurec analyze leaks /tmp/fp.parquet
			LD_LIBRARY_PATH=/repository/build/simcuda ../build/bin/gpurec record -o /tmp/auto.parquet -- ../build/simcuda/leak --steps 100
			../build/bin/gpurec analyze leaks /tmp/auto.parquet
			./record.test -test.v -test.timeout 2h -test.run '$tests'
			echo "tests end with status \$?"
			cd xid
			./xid.test -test.v -test.timeout 2h -test.run '$tests'
			echo "tests of Xids end with status \$?"
		} >/dev/console 2>&1
		poweroff -f
	SH
	chmod +x "$tree/init"
	(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) >"$at/initramfs.cpio"
	rm -rf "$tree"
}

arm apt-get update
export GOWORK=$PWD/build/go.work
CGO_ENABLED=0 GOARCH=arm64 go build -o "$dir/gpurec" ./cmd/gpurec
mkdir -p "$dir/tests"
CGO_ENABLED=0 GOARCH=arm64 go test -c -o "$dir/tests/" ./record ./record/xid
CC=aarch64-linux-gnu-gcc sh examples/simcuda/build.sh "$dir/simcuda"
failed=()
for version in "${versions[@]}"; do
	initramfs "$version"
	timeout "${TIMEOUT:-3600}" nice qemu-system-aarch64 -M virt -cpu max,pauth=off -accel tcg -smp 2 -m 3G -nodefaults -display none -no-reboot \
		-serial file:"$dir/$version/results" -kernel "$dir/$version"/kernel/boot/vmlinuz-* -initrd "$dir/$version/initramfs.cpio" \
		-append 'console=ttyAMA0 quiet panic=-1 oops=panic' || failed+=("$version")
	tr '\r' '\n' <"$dir/$version/results" | grep -v ' calls  .*/s  '
	grep -q '^tests end with status 0' "$dir/$version/results" || failed+=("$version")
done
[ ${#failed[@]} = 0 ] || die "failed on Linux ${failed[*]}: see $dir/VERSION/results"
