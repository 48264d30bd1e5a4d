#!/usr/bin/env bash
# make kernels: tests gpurec on Debian's kernels in qemu and prints a table. It runs the tests of
# package record, recordings with the gpurec binary, and checks of privileges. Kernel packages are
# unpacked, not installed. The guest mounts the host's root file system read-only with virtiofs, so
# programs, libraries and Pythons have the same paths. The guest writes to tmpfs.
#
# usage: scripts/kernels.sh [VERSION…] [-- COMMAND…]   as root, after make build simcuda simtorch
#   VERSION   kernel version such as 6.1 (default: 6.1 and 6.12): the newest cloud kernel package in apt
#   COMMAND   bash command to run in the guest instead of the tests
# Variables: TESTS and SKIP (regular expressions) select tests; STAGES selects from "recordings
# privileges tests"; MEMORY (4G); TIMEOUT (seconds, 5400); ACCEL (kvm if available, else tcg).
# Results are in build/kernels/VERSION. Needs qemu-system-x86 with virtiofsd, and busybox-static.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
dir=$root/build/kernels
versions=() command=
while [ $# -gt 0 ]; do
	case $1 in
	--) shift; command=$*; break ;;
	*) versions+=("$1"); shift ;;
	esac
done
[ ${#versions[@]} -gt 0 ] || versions=(6.1 6.12)
virtiofsd=/usr/lib/qemu/virtiofsd
[ -x $virtiofsd ] || virtiofsd=/usr/libexec/virtiofsd
die() { echo "kernels.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root"
command -v qemu-system-x86_64 >/dev/null && command -v busybox >/dev/null && [ -x $virtiofsd ] ||
	die "needs apt-get install qemu-system-x86 busybox-static"
if [ -z "${ACCEL:-}" ]; then
	ACCEL=tcg
	if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then ACCEL=kvm; fi
fi
# In emulation a probe hit takes 0.1 ms and attaching 30 s. These tests cover every mechanism but no
# high call rates.
emulated='Xids|PerfUprobes|CommandIsRecorded|CommandExitStatus|StartReturns|KilledTarget|WaitForLibrary|ChildrenAreRecorded|ProcessInItsOwn|SelfTestDetects|StacksOfANew|StacksOfNative|StacksOfPython/system|ReusedPid|StateOfExited|FaultProgramCallsExec|XidProgram|OldKernels|NativePaths|Nested|EveryFunction'
SKIP=${SKIP:-}
if [ $ACCEL = kvm ]; then TESTS=${TESTS:-.}; else TESTS=${TESTS:-$emulated}; fi
bash scripts/check-patterns.sh "$emulated" record
bash scripts/check-patterns.sh "$TESTS" record

# fetch VERSION: downloads and unpacks the newest kernel package of that version into
# $dir/VERSION/kernel.
fetch() {
	local package to=$dir/$1/kernel
	package=$(apt-cache search --names-only "^linux-image-${1//./\\.}\\..*-cloud-amd64\$" | cut -d " " -f 1 | sort -V | tail -1)
	[ -n "$package" ] || die "apt has no cloud kernel package $1: run apt-get update, or choose another version"
	if [ "$(cat "$to/package" 2>/dev/null)" = "$package" ]; then return; fi
	rm -rf "$to"
	mkdir -p "$to"
	(cd "$to" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x ./*.deb . && rm ./*.deb)
	echo "$package" >"$to/package"
}

# initramfs KERNEL FOLDER: builds the initramfs, which mounts the host's root and runs
# kernels-guest.sh FOLDER.
initramfs() {
	local tree=$1/initramfs module found
	rm -rf "$tree"
	mkdir -p "$tree"/{bin,proc,sys,dev,host,modules}
	cp "$(command -v busybox)" "$tree/bin/busybox"
	for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci fuse virtiofs; do
		found=$(find "$1" -path "$tree" -prune -o \( -name "$module.ko" -o -name "$module.ko.xz" \) -print -quit)
		case $found in # not found: the module is built into the kernel
		*.xz) xz -dc "$found" >"$tree/modules/$module.ko" ;;
		*.ko) cp "$found" "$tree/modules/" ;;
		esac
		if [ -n "$found" ]; then echo "$module" >>"$tree/modules/order"; fi
	done
	cat >"$tree/init" <<-SH
		#!/bin/busybox sh
		b=/bin/busybox
		[ -f /modules/order ] && while read -r m; do \$b insmod /modules/\$m.ko; done </modules/order
		\$b mount -t virtiofs -o ro host /host || \$b poweroff -f
		\$b mkdir /repository # the repository may be below /tmp, where tmpfs is mounted next
		\$b mount -o bind /host$root /repository
		\$b mount -t tmpfs none /host/tmp
		\$b mkdir -p /host$root
		\$b mount -o bind /repository /host$root
		\$b mount -t proc none /host/proc
		\$b mount -t sysfs none /host/sys
		\$b mount -t devtmpfs none /host/dev
		\$b mount -t tmpfs none /host/run
		\$b mkdir -p /host/dev/pts /host/dev/shm
		\$b mount -t devpts none /host/dev/pts
		\$b mount -t tmpfs none /host/dev/shm
		\$b mount -t cgroup2 none /host/sys/fs/cgroup
		\$b mount -t tracefs none /host/sys/kernel/tracing
		\$b ip link set lo up
		\$b chroot /host /bin/bash $root/scripts/kernels-guest.sh $root $2 </host/dev/null >/host/dev/ttyS1 2>&1
		\$b poweroff -f
	SH
	chmod +x "$tree/init"
	(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) >"$1/initramfs.cpio"
}

# boot VERSION: boots the guest; the output of kernels-guest.sh goes to $dir/VERSION/results.
boot() {
	local at=$dir/$1 socket daemon
	socket=$(mktemp -u /tmp/virtiofsd.XXXXXX)
	$virtiofsd --socket-path="$socket" -o source=/ -o cache=always -o sandbox=chroot -f >"$at/virtiofsd.log" 2>&1 &
	daemon=$!
	while [ ! -S "$socket" ]; do
		kill -0 $daemon 2>/dev/null || die "virtiofsd: $(tail -1 "$at/virtiofsd.log")"
		sleep 0.1
	done
	printf '%s=%q\n' STAGES "${STAGES:-recordings privileges tests}" COMMAND "$command" TESTS "$TESTS" SKIP "$SKIP" >"$at/settings"
	local status=0
	timeout "${TIMEOUT:-5400}" nice qemu-system-x86_64 -accel "$ACCEL" -cpu max -smp 2 -m "${MEMORY:-4G}" -nodefaults -display none -no-reboot \
		-object memory-backend-memfd,id=mem,size="${MEMORY:-4G}",share=on -numa node,memdev=mem \
		-chardev socket,id=host,path="$socket" -device vhost-user-fs-pci,chardev=host,tag=host \
		-serial file:"$at/console" -serial file:"$at/results" \
		-kernel "$at"/kernel/boot/vmlinuz-* -initrd "$at/kernel/initramfs.cpio" -append 'console=ttyS0 quiet panic=-1 oops=panic' || status=$?
	kill $daemon 2>/dev/null || true
	wait $daemon 2>/dev/null || true
	rm -f "$socket"
	[ $status = 0 ] || die "Linux $1: qemu ended with status $status, see $at/console and $at/results"
}

# table VERSION: prints a summary of the results; fails if a recording or test failed.
table() {
	local results=$dir/$1/results passed failed skipped
	passed=$(grep -c '^--- PASS' "$results" || true)
	failed=$(grep -c '^--- FAIL' "$results" || true)
	skipped=$(grep -c '^--- SKIP' "$results" || true)
	echo
	sed -n '/^= end/d; s/^= //p' "$results"
	echo "tests of record: $passed passed, $failed failed, $skipped skipped ($ACCEL; run ${TESTS:-all}${SKIP:+, without $SKIP})"
	grep -A1 '^--- SKIP' "$results" | grep -v '^--$' || true
	grep -h -A3 '^ *--- FAIL' "$results" || true
	grep -q '^= programs accepted' "$results" && ! grep -qE '^= (recording FAIL|tests end with status [^0])' "$results" && grep -q '^= end' "$results"
}

failed=()
for version in "${versions[@]}"; do
	fetch "$version"
	mkdir -p "$dir/$version/tests"
	GOWORK=$root/build/go.work go test -c -o "$dir/$version/tests/" ./record/...
	initramfs "$dir/$version/kernel" "$dir/$version"
	boot "$version"
	if [ -n "$command" ]; then
		cat "$dir/$version/results"
	else
		table "$version" || failed+=("$version")
	fi
done
[ ${#failed[@]} = 0 ] || die "failed on Linux ${failed[*]}: see $dir/VERSION/results"
