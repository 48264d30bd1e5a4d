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
// effective stay effective. Capabilities in atHand stay permitted, so that With can raise them.
func DropCapabilities(effective, atHand []Capability) error {
	have, keep := cap.GetProc(), cap.NewSet()
	var bounded []cap.Value
	for c := range cap.MaxBits() {
		permitted, err := have.GetFlag(cap.Permitted, c)
		if err != nil {
			return err
		}
		inEffect := slices.Contains(effective, Capability(c))
		if !inEffect && !slices.Contains(atHand, Capability(c)) {
			bounded = append(bounded, c)
			continue
		}
		if err := keep.SetFlag(cap.Permitted, permitted, c); err != nil {
			return err
		}
		if err := keep.SetFlag(cap.Effective, permitted && inEffect, c); err != nil {
			return err
		}
	}
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// Removing capabilities from the bounding set needs CAP_SETPCAP.
	if mayBound, err := have.GetFlag(cap.Effective, cap.SETPCAP); err == nil && mayBound {
		if err := cap.DropBound(bounded...); err != nil {
			return fmt.Errorf("from the bounding set: %w", err)
		}
	}
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("from the ambient set: %w", err)
	}
	return keep.SetProc()
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
