//go:build linux

package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// minKernelVersion is the oldest kernel that can record. The BPF programs need
// bpf_get_attach_cookie for uprobes, which Linux 5.15 has (commit 7adfc6c9b315).
var minKernelVersion = [2]int{5, 15}

// KernelError is the error for a kernel that is too old to record. Release is its release.
type KernelError struct{ Release string }

// Error returns the kernel's release and the oldest supported version.
func (e *KernelError) Error() string {
	return fmt.Sprintf(
		"this kernel is Linux %s, recording needs %d.%d or newer",
		e.Release,
		minKernelVersion[0],
		minKernelVersion[1],
	)
}

// CheckKernel returns a *KernelError if the running kernel is too old to record.
func CheckKernel() error { return checkKernelRelease(KernelRelease()) }

// checkKernelRelease returns a *KernelError for a release that is too old.
func checkKernelRelease(release string) error {
	if IsOlderRelease(release, minKernelVersion[0], minKernelVersion[1]) {
		return &KernelError{Release: release}
	}
	return nil
}

// IsOlderRelease reports whether a kernel release is older than major.minor. It returns false for a
// release that it cannot parse: the kernel itself will report missing features.
func IsOlderRelease(release string, major, minor int) bool {
	var have [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return false
	}
	return have[0] < major || have[0] == major && have[1] < minor
}

// KernelRelease returns the kernel's release, such as 6.18.44-generic. It returns "" if uname(2)
// fails.
func KernelRelease() string {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return ""
	}
	return unix.ByteSliceToString(uts.Release[:])
}
