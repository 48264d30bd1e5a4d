//go:build linux

package record

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// lastingCapabilities are what a recording needs when everything is attached: links to
// what is mapped later and maps of the programs (BPF, PERFMON); mappings, environment,
// root and mapped files of processes of other users, and their perf maps (SYS_PTRACE,
// CHECKPOINT_RESTORE, DAC_READ_SEARCH).
var lastingCapabilities = []privilege.Capability{
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH,
}

// DropPrivileges gives up, on all threads and for good, every capability that the
// recording can do without from now on, and the right to gain any by executing a
// program. It is for a process that does nothing else: whoever calls it could not
// Start another recording. After an error some may be left.
func (s *Session) DropPrivileges() error {
	if err := privilege.Drop(s.neededCapabilities()); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// neededCapabilities returns those that stay: in effect, and at hand for the thread
// that needs one for a moment.
func (s *Session) neededCapabilities() (effective, atHand []privilege.Capability) {
	effective = append(effective, lastingCapabilities...)
	if s.probes.How == privilege.AttachPerf {
		effective = append(effective, unix.CAP_SYS_ADMIN)
	}
	if s.opt.Command != nil { // it may be another user's, and signals are passed on to it
		effective = append(effective, unix.CAP_KILL)
	}
	if other := s.opt.Owner.Set && s.opt.Owner.UID != os.Geteuid(); other || !isOwnFolder(filepath.Dir(s.output)) {
		effective = append(effective, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	}
	return effective, []privilege.Capability{unix.CAP_SYS_ADMIN} // run times of programs: see probe.MeasureRunTimes
}

// isOwnFolder reports whether we may write there without any capability.
func isOwnFolder(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&unix.S_IWUSR != 0
}
