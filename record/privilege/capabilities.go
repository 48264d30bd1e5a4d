//go:build linux

package privilege

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// DropCapabilities removes all capabilities from all threads, except for two lists. Capabilities in
// effective stay effective. Capabilities in atHand stay permitted, so that With can raise them. The
// process cannot gain others by exec: no_new_privs limits the capabilities of a new program to those
// of the old one, also for root (capabilities(7)). So the bounding set need not change, which would
// take a system call on every thread for each capability.
func DropCapabilities(effective, atHand []Capability) error {
	have, keep := cap.GetProc(), cap.NewSet()
	for _, c := range slices.Concat(effective, atHand) {
		permitted, err := have.GetFlag(cap.Permitted, cap.Value(c))
		if err != nil {
			return err
		}
		if err := keep.SetFlag(cap.Permitted, permitted, cap.Value(c)); err != nil {
			return err
		}
		if err := keep.SetFlag(cap.Effective, permitted && slices.Contains(effective, c), cap.Value(c)); err != nil {
			return err
		}
	}
	return onProcessors(broadcastProcessors, func() error {
		if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		return keep.SetProc() // it also clears the ambient set, which is part of the inheritable set
	})
}

// WithCapability runs do on the current thread with a permitted capability made effective. If the
// capability is not permitted, WithCapability runs do without it.
func WithCapability(c Capability, do func() error) error {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read own capabilities: %w", err)
	}
	raised := before
	raised[c/32].Effective |= before[c/32].Permitted & (1 << (c % 32))
	if raised == before {
		runtime.UnlockOSThread()
		return do()
	}
	if err := unix.Capset(&header, &raised[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("raise %v: %w", c, err)
	}
	err := do()
	if lerr := unix.Capset(&header, &before[0]); lerr != nil {
		return fmt.Errorf("lower %v: %w", c, lerr) // the locked thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}
