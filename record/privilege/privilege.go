//go:build linux

package privilege

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/process"
)

// Capability is the number of a Linux capability: see capabilities(7).
type Capability int

// String returns the capability's name in capabilities(7).
func (c Capability) String() string {
	if name, ok := capabilityNames[c]; ok {
		return name
	}
	return "capability " + strconv.Itoa(int(c))
}

var capabilityNames = map[Capability]string{
	unix.CAP_BPF:                "CAP_BPF",
	unix.CAP_PERFMON:            "CAP_PERFMON",
	unix.CAP_SYS_ADMIN:          "CAP_SYS_ADMIN",
	unix.CAP_SYS_PTRACE:         "CAP_SYS_PTRACE",
	unix.CAP_CHECKPOINT_RESTORE: "CAP_CHECKPOINT_RESTORE",
	unix.CAP_SYSLOG:             "CAP_SYSLOG",
}

// Error is the error for missing capabilities.
type Error struct {
	Task    string
	Missing []Capability
	Have    []Capability // effective capabilities, of those that gpurec uses
}

// Error returns the task and the missing capabilities.
func (e *Error) Error() string {
	text := e.Task + " needs " + joinCapabilities(e.Missing)
	if len(e.Have) > 0 {
		text += " (have " + joinCapabilities(e.Have) + ")"
	}
	return text
}

func joinCapabilities(all []Capability) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.String()
	}
	return strings.Join(names, ", ")
}

// CapabilitySet is a set of capabilities. Bit n is the capability with number n.
type CapabilitySet uint64

// hasCapability reports whether the set contains a capability.
func (c CapabilitySet) hasCapability(want Capability) bool { return c>>want&1 == 1 }

// listUsed returns the capabilities in the set that gpurec uses.
func (c CapabilitySet) listUsed() []Capability {
	var have []Capability
	for _, k := range []Capability{
		unix.CAP_BPF,
		unix.CAP_PERFMON,
		unix.CAP_SYS_ADMIN,
		unix.CAP_SYS_PTRACE,
		unix.CAP_CHECKPOINT_RESTORE,
		unix.CAP_SYSLOG,
	} {
		if c.hasCapability(k) {
			have = append(have, k)
		}
	}
	return have
}

// ReadEffective returns the effective capabilities of this process.
func ReadEffective() (CapabilitySet, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("read own capabilities: %w", err)
			}
			return CapabilitySet(bits), nil
		}
	}
	return 0, fmt.Errorf("read own capabilities: no CapEff line in /proc/self/status")
}

// CheckAttach returns an *Error if this process lacks a capability for attaching probes with an
// interface.
//
// Loading BPF programs needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN (Linux 5.8, commit
// a17b53c4a4b5). A uprobe_multi link needs no other capabilities. A perf uprobe needs CAP_SYS_ADMIN
// since commit ba677dbe77af (2025, also in 6.6.y and 6.12.y).
func CheckAttach(how AttachMethod) error {
	have, err := ReadEffective()
	if err != nil {
		return err
	}
	if missing := have.missingForAttach(how.ResolveForKernel()); len(missing) > 0 {
		return &Error{
			Task:    "attaching probes by " + string(how.ResolveForKernel()),
			Missing: missing,
			Have:    have.listUsed(),
		}
	}
	return nil
}

// missingForAttach returns the capabilities for attaching probes that the set lacks.
func (c CapabilitySet) missingForAttach(how AttachMethod) []Capability {
	if c.hasCapability(unix.CAP_SYS_ADMIN) {
		return nil
	}
	if how == AttachPerf {
		return []Capability{unix.CAP_SYS_ADMIN}
	}
	var missing []Capability
	for _, need := range []Capability{unix.CAP_BPF, unix.CAP_PERFMON} {
		if !c.hasCapability(need) {
			missing = append(missing, need)
		}
	}
	return missing
}

// ExplainLoadError converts EPERM from loading BPF programs or creating maps to an *Error, if
// capabilities are missing. It returns all other errors unchanged.
func (c CapabilitySet) ExplainLoadError(err error) error {
	missing := c.missingForAttach(AttachMulti)
	if len(missing) == 0 || !errors.Is(err, unix.EPERM) {
		return err
	}
	return &Error{Task: "loading BPF programs", Missing: missing, Have: c.listUsed()}
}

// CheckUnwinding returns an *Error if this process lacks a capability for unwinding, in addition to
// those for attaching. Kernel symbol addresses need CAP_SYSLOG. Mapped files of processes need
// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
func CheckUnwinding() error {
	have, err := ReadEffective()
	if err != nil {
		return err
	}
	var missing []Capability
	if !have.hasCapability(unix.CAP_SYSLOG) {
		missing = append(missing, unix.CAP_SYSLOG)
	}
	if !have.hasCapability(unix.CAP_CHECKPOINT_RESTORE) && !have.hasCapability(unix.CAP_SYS_ADMIN) {
		missing = append(missing, unix.CAP_CHECKPOINT_RESTORE)
	}
	if len(missing) > 0 {
		return &Error{Task: "unwinding", Missing: missing, Have: have.listUsed()}
	}
	return nil
}

// CheckProcessAccess returns an *Error if this process may not read /proc of another user's
// process.
func CheckProcessAccess(p *process.Process) error {
	file, err := os.Open(p.Path("maps"))
	if err == nil {
		var b [1]byte
		_, err = file.Read(b[:]) // open succeeds; read checks the ptrace access mode
		file.Close()
	}
	if err == nil || !os.IsPermission(err) && err != unix.EPERM {
		return nil
	}
	have, cerr := ReadEffective()
	if cerr == nil && !have.hasCapability(unix.CAP_SYS_PTRACE) {
		return &Error{
			Task:    fmt.Sprintf("process %d (%s) belongs to another user: reading its mappings", p.Pid, p.Comm),
			Missing: []Capability{unix.CAP_SYS_PTRACE}, Have: have.listUsed(),
		}
	}
	return p.WrapError(err)
}
