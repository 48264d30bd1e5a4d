//go:build linux

package process

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/identity"
)

// containerIDPattern matches a container ID in a cgroup's path: 64 hexadecimal digits. The text
// around them depends on the container engine.
var containerIDPattern = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// FindContainerID returns the container ID in the text of /proc/PID/cgroup, or "" if there is none.
func FindContainerID(cgroup string) string { return containerIDPattern.FindString(cgroup) }

// Facts describes a process. It is the message, as JSON, of a row of kind process. Fields that
// could not be read are empty.
type Facts struct {
	ParentPid   int      `json:"parent_pid"`
	Exe         string   `json:"exe,omitempty"`
	CommandLine []string `json:"command_line,omitempty"`
	UID         int      `json:"uid"`
	// NamespacePids are the pids of the process in each pid namespace, from the recorder's to its
	// own.
	NamespacePids []string `json:"namespace_pids,omitempty"`
	Cgroup        string   `json:"cgroup,omitempty"`
	ContainerID   string   `json:"container_id,omitempty"`
	StartBootNs   int64    `json:"start_boottime_ns"`
	// Identity is the role of the process in its job. It is nil if unknown.
	Identity *format.Identity `json:"identity,omitempty"`
	// Devices maps the process's device ordinals to GPUs.
	Devices []deviceFact `json:"devices,omitempty"`
	// ExitNs is the time at which the recorder noticed the exit, Unix ns. It is absent for a
	// running process.
	ExitNs int64 `json:"exit_ns,omitempty"`
	// ExitSignal is the signal that ended the process. ExitCode is its exit status if no signal did. nil: unknown.
	ExitSignal int  `json:"exit_signal,omitempty"`
	ExitCode   *int `json:"exit_code,omitempty"`
}

// ReadFacts reads the facts of the process and stores them in Known. Fields that cannot be read
// stay empty.
func (p *Process) ReadFacts(gpus []host.GPU) Facts {
	environ, err := p.ReadEnvironment()
	if err != nil {
		environ = ""
	}
	f := Facts{StartBootNs: p.StartNs, UID: -1, Devices: mapDeviceOrdinals(environ, gpus)}
	defer func() { p.Known = f }()
	if exe, err := os.Readlink(p.Path("exe")); err == nil {
		f.Exe = exe
	}
	if line, err := p.ReadProcFile("cmdline", maxCommandLineBytes); err == nil {
		f.CommandLine = strings.Split(strings.TrimSuffix(line, "\x00"), "\x00")
	}
	if cgroup, err := os.ReadFile(p.Path("cgroup")); err == nil {
		f.Cgroup = strings.TrimSpace(string(cgroup))
		f.ContainerID = FindContainerID(f.Cgroup)
	}
	if id := identity.FindIdentity(environ, f.Cgroup); id.Known() {
		f.Identity = &id
	}
	var st unix.Stat_t
	if unix.Stat(p.Path("."), &st) == nil {
		f.UID = int(st.Uid)
	}
	f.NamespacePids = p.readNamespacePids()
	if stat, err := os.ReadFile(p.Path("stat")); err == nil {
		f.ParentPid = parseParentPid(stat)
	}
	return f
}

// readNamespacePids returns the pids of the process: first in the recorder's pid namespace, last in
// its own.
func (p *Process) readNamespacePids() []string {
	status, err := os.ReadFile(p.Path("status"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(status)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(pids)
		}
	}
	return nil
}

// PidInOwnNamespace returns the pid of the process in its own pid namespace.
func (p *Process) PidInOwnNamespace() string {
	if pids := p.readNamespacePids(); len(pids) > 0 {
		return pids[len(pids)-1]
	}
	return strconv.Itoa(p.Pid)
}

// ExitRow returns the row of kind process for the exit of the process. now is in Unix ns.
func (p *Process) ExitRow(now int64) format.Row {
	f := p.Known
	f.ExitNs = now
	if status, ok := p.exitStatus(); ok {
		if status.Signaled() {
			f.ExitSignal = int(status.Signal())
		} else {
			code := status.ExitStatus()
			f.ExitCode = &code
		}
	}
	return p.Row(f, now)
}

// Row returns a row of kind process with these facts. startNs is in Unix ns.
func (p *Process) Row(f Facts, startNs int64) format.Row {
	text, err := json.Marshal(f)
	if err != nil {
		text = nil // plain strings and numbers always encode
	}
	return format.Row{
		Kind:    format.KindProcess,
		StartNs: startNs,
		Pid:     int32(p.Pid),
		Tid:     int32(p.Pid),
		Name:    p.Comm,
		Message: string(text),
		Device:  -1,
	}
}
