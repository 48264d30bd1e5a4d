//go:build linux

package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// minKernel is what the BPF programs need: bpf_get_attach_cookie for uprobes came
// with Linux 5.15 (commit 7adfc6c9b315).
var minKernel = [2]int{5, 15}

// KernelError says that the running kernel is too old.
type KernelError struct{ Release string }

// Error names the kernel and the oldest one that will do.
func (e *KernelError) Error() string {
	return fmt.Sprintf("this kernel is Linux %s, recording needs %d.%d or newer", e.Release, minKernel[0], minKernel[1])
}

// CheckKernel returns a *KernelError if the running kernel is too old to record.
func CheckKernel() error { return checkRelease(Release()) }

func checkRelease(release string) error {
	if OlderThan(release, minKernel[0], minKernel[1]) {
		return &KernelError{Release: release}
	}
	return nil
}

// OlderThan reports whether a kernel release is older than a version. A release without a number
// is not: the kernel refuses what it does not have.
func OlderThan(release string, major, minor int) bool {
	var have [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return false
	}
	return have[0] < major || have[0] == major && have[1] < minor
}

// Release returns the kernel's release, such as 6.18.44-generic; "" if it cannot be read.
func Release() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return ""
	}
	return unix.ByteSliceToString(uts.Release[:])
}
