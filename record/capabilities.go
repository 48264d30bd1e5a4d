//go:build linux

package record

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// lastingCapabilities are what a recording needs when everything is attached: links to
// what is mapped later and maps of the programs (BPF, PERFMON); mappings, environment,
// root and mapped files of processes of other users, and their perf maps (SYS_PTRACE,
// CHECKPOINT_RESTORE, DAC_READ_SEARCH).
var lastingCapabilities = []Capability{
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH,
}

// DropPrivileges gives up, on all threads and for good, every capability that the
// recording can do without from now on, and the right to gain any by executing a
// program. It is for a process that does nothing else: whoever calls it could not
// Start another recording. After an error some may be left.
func (s *Session) DropPrivileges() error {
	if err := dropCapabilities(s.neededCapabilities()); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// neededCapabilities returns those that stay: in effect, and at hand for the thread
// that needs one for a moment.
func (s *Session) neededCapabilities() (effective, atHand []Capability) {
	effective = append(effective, lastingCapabilities...)
	if s.probes.how == AttachPerf {
		effective = append(effective, unix.CAP_SYS_ADMIN)
	}
	if s.opt.Command != nil { // it may be another user's, and signals are passed on to it
		effective = append(effective, unix.CAP_KILL)
	}
	if other := s.opt.Owner.Set && s.opt.Owner.UID != os.Geteuid(); other || !isOwnFolder(filepath.Dir(s.output)) {
		effective = append(effective, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	}
	return effective, []Capability{unix.CAP_SYS_ADMIN} // run times of programs: see measureRunTimes
}

// isOwnFolder reports whether we may write there without any capability.
func isOwnFolder(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&unix.S_IWUSR != 0
}

// dropCapabilities leaves this process the given capabilities, as far as it has them.
func dropCapabilities(effective, atHand []Capability) error {
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
	if mayBound, err := have.GetFlag(cap.Effective, cap.SETPCAP); err == nil && mayBound { // else no program could be given any either
		if err := cap.DropBound(bounded...); err != nil {
			return fmt.Errorf("from the bounding set: %w", err)
		}
	}
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("from the ambient set: %w", err)
	}
	return keep.SetProc()
}

// withCapability runs do with a capability in effect that is at hand, on this thread
// only. Where it is not at hand do runs without it.
func withCapability(c Capability, do func() error) error {
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
		return fmt.Errorf("lower %v: %w", c, lerr) // and the thread, being locked, ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}
