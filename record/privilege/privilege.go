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

// Capability is a Linux capability by number, see capabilities(7).
type Capability int

// String returns the capability's name as capabilities(7) has it.
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

// Error reports missing capabilities.
type Error struct {
	What    string
	Missing []Capability
	Have    []Capability // of those that gpurec knows to use
}

// Error names the missing capabilities and the way to attach.
func (e *Error) Error() string {
	text := e.What + " needs " + joinCapabilities(e.Missing)
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

// Set is a set of capabilities, one bit each.
type Set uint64

func (c Set) has(want Capability) bool { return c>>want&1 == 1 }

func (c Set) known() []Capability {
	var have []Capability
	for _, k := range []Capability{
		unix.CAP_BPF,
		unix.CAP_PERFMON,
		unix.CAP_SYS_ADMIN,
		unix.CAP_SYS_PTRACE,
		unix.CAP_CHECKPOINT_RESTORE,
		unix.CAP_SYSLOG,
	} {
		if c.has(k) {
			have = append(have, k)
		}
	}
	return have
}

// Effective returns the effective capabilities of this process.
func Effective() (Set, error) {
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
			return Set(bits), nil
		}
	}
	return 0, fmt.Errorf("read own capabilities: no CapEff line in /proc/self/status")
}

// Check returns an *Error if this process lacks a capability for attaching in this way.
//
// Loading the programs takes CAP_BPF and CAP_PERFMON, for which CAP_SYS_ADMIN stands (Linux 5.8,
// commit a17b53c4a4b5). A uprobe_multi link needs no more. A perf uprobe needs CAP_SYS_ADMIN since
// commit ba677dbe77af (2025, also in 6.6.y and 6.12.y).
func Check(how Attach) error {
	have, err := Effective()
	if err != nil {
		return err
	}
	if missing := have.missing(how.OnThisKernel()); len(missing) > 0 {
		return &Error{What: "attaching probes by " + string(how.OnThisKernel()), Missing: missing, Have: have.known()}
	}
	return nil
}

func (c Set) missing(how Attach) []Capability {
	if c.has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	if how == AttachPerf {
		return []Capability{unix.CAP_SYS_ADMIN}
	}
	var missing []Capability
	for _, need := range []Capability{unix.CAP_BPF, unix.CAP_PERFMON} {
		if !c.has(need) {
			missing = append(missing, need)
		}
	}
	return missing
}

// ExplainLoad turns the kernel's refusal to load BPF programs or to make their maps into an *Error
// if the capabilities for that are missing. Other errors are returned as they are.
func (c Set) ExplainLoad(err error) error {
	missing := c.missing(AttachMulti)
	if len(missing) == 0 || !errors.Is(err, unix.EPERM) {
		return err
	}
	return &Error{What: "loading BPF programs", Missing: missing, Have: c.known()}
}

// CheckUnwinding returns an *Error if this process lacks a capability that unwinding needs besides
// those of attaching: CAP_SYSLOG for addresses of the kernel's symbols, and CAP_CHECKPOINT_RESTORE
// or CAP_SYS_ADMIN for files that processes have mapped.
func CheckUnwinding() error {
	have, err := Effective()
	if err != nil {
		return err
	}
	var missing []Capability
	if !have.has(unix.CAP_SYSLOG) {
		missing = append(missing, unix.CAP_SYSLOG)
	}
	if !have.has(unix.CAP_CHECKPOINT_RESTORE) && !have.has(unix.CAP_SYS_ADMIN) {
		missing = append(missing, unix.CAP_CHECKPOINT_RESTORE)
	}
	if len(missing) > 0 {
		return &Error{What: "unwinding", Missing: missing, Have: have.known()}
	}
	return nil
}

// CheckAccess returns an *Error if this process may not read /proc of a process of another user.
func CheckAccess(p *process.Process) error {
	file, err := os.Open(p.Path("maps"))
	if err == nil {
		var b [1]byte
		_, err = file.Read(b[:]) // open succeeds, reading is what ptrace access guards
		file.Close()
	}
	if err == nil || !os.IsPermission(err) && err != unix.EPERM {
		return nil
	}
	have, cerr := Effective()
	if cerr == nil && !have.has(unix.CAP_SYS_PTRACE) {
		return &Error{
			What:    fmt.Sprintf("process %d (%s) belongs to another user: reading its mappings", p.Pid, p.Comm),
			Missing: []Capability{unix.CAP_SYS_PTRACE}, Have: have.known(),
		}
	}
	return p.Wrap(err)
}
