//go:build linux

package record

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// recordingCapabilities are the capabilities that a recording needs after all probes are attached.
// CAP_BPF and CAP_PERFMON attach to libraries that are mapped later, and access BPF maps. The
// others read mappings, environment, files and perf maps of other users' processes.
var recordingCapabilities = []privilege.Capability{
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH,
}

// DropPrivileges gives up every capability that the running recording does not need, on all threads
// and permanently, and the ability to gain capabilities by exec. The process cannot Start another
// recording afterwards. After an error, some capabilities may remain.
func (s *Session) DropPrivileges() error {
	if err := privilege.DropCapabilities(s.neededCapabilities()); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// neededCapabilities returns the capabilities to keep: effective ones, and permitted ones that a
// thread makes effective when it needs them.
func (s *Session) neededCapabilities() (effective, permitted []privilege.Capability) {
	effective = append(effective, recordingCapabilities...)
	if s.probes.How == privilege.AttachPerf {
		effective = append(effective, unix.CAP_SYS_ADMIN)
	}
	if s.opt.Command != nil { // the command may be another user's, and receives signals from gpurec
		effective = append(effective, unix.CAP_KILL)
	}
	if other := s.opt.Owner.Set &&
		s.opt.Owner.UID != os.Geteuid(); other ||
		!ownsWritableFolder(filepath.Dir(s.output)) {
		effective = append(effective, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	}
	return effective, []privilege.Capability{unix.CAP_SYS_ADMIN} // for probe.EnableRunTimeStats
}

// ownsWritableFolder reports whether the user may write to a folder without capabilities.
func ownsWritableFolder(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&unix.S_IWUSR != 0
}
