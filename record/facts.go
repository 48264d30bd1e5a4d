//go:build linux

package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/identity"
)

// hostFacts fills in what the metadata says about the machine.
func hostFacts(meta *format.Meta) {
	meta.Arch = runtime.GOARCH
	meta.OSRelease = osRelease()
	meta.Machine, meta.Clocks = machineFacts(), []format.ClockSnapshot{readClocks()}
	if host, err := os.Hostname(); err == nil {
		meta.Host = host
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		meta.BootID = strings.TrimSpace(string(id))
	}
}

// containerDigits is how container engines name the cgroup of a container: 64 hexadecimal
// digits, with something around them that differs from engine to engine.
var containerDigits = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// containerID returns the id of the container in the text of /proc/PID/cgroup, "" if there is none.
func containerID(cgroup string) string { return containerDigits.FindString(cgroup) }

// processFacts is the message of a row of kind process, as JSON.
type processFacts struct {
	ParentPid   int      `json:"parent_pid"`
	Exe         string   `json:"exe,omitempty"`
	CommandLine []string `json:"command_line,omitempty"`
	UID         int      `json:"uid"`
	// NamespacePids are the process's numbers from this pid namespace inwards.
	NamespacePids []string `json:"namespace_pids,omitempty"`
	Cgroup        string   `json:"cgroup,omitempty"`
	ContainerID   string   `json:"container_id,omitempty"`
	StartBootNs   int64    `json:"start_boottime_ns"`
	// Identity is the process's part in its job; nil if nothing tells one.
	Identity *format.Identity `json:"identity,omitempty"`
	// Devices pairs the process's device ordinals with GPUs.
	Devices []deviceFact `json:"devices,omitempty"`
	// ExitNs is when the process was seen to have ended, Unix ns; absent if it ran on.
	ExitNs int64 `json:"exit_ns,omitempty"`
}

// facts reads what is known of the process; what cannot be read stays empty. They
// are kept for when it is gone.
func (p *process) facts(gpus []gpuName) processFacts {
	environ, err := p.readOwn("environ", maxEnvironment)
	if err != nil {
		environ = ""
	}
	f := processFacts{StartBootNs: p.startNs, UID: -1, Devices: devicesOf(environ, gpus)}
	defer func() { p.known = f }()
	if exe, err := os.Readlink(p.path("exe")); err == nil {
		f.Exe = exe
	}
	if line, err := p.readOwn("cmdline", maxCommandLine); err == nil {
		f.CommandLine = strings.Split(strings.TrimSuffix(line, "\x00"), "\x00")
	}
	if cgroup, err := os.ReadFile(p.path("cgroup")); err == nil {
		f.Cgroup = strings.TrimSpace(string(cgroup))
		f.ContainerID = containerID(f.Cgroup)
	}
	if id := identity.Of(environ, f.Cgroup); id.Known() {
		f.Identity = &id
	}
	var st unix.Stat_t
	if unix.Stat(p.path("."), &st) == nil {
		f.UID = int(st.Uid)
	}
	f.NamespacePids = p.namespacePids()
	if stat, err := os.ReadFile(p.path("stat")); err == nil {
		f.ParentPid = parentOf(stat)
	}
	return f
}

// namespacePids are the numbers of the process, in our pid namespace first, in its own last.
func (p *process) namespacePids() []string {
	status, err := os.ReadFile(p.path("status"))
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

// ownPid is the number that the process has for itself.
func (p *process) ownPid() string {
	if pids := p.namespacePids(); len(pids) > 0 {
		return pids[len(pids)-1]
	}
	return strconv.Itoa(p.pid)
}

// exitRow says that the process has ended.
func (p *process) exitRow(now int64) format.Row {
	f := p.known
	f.ExitNs = now
	return p.row(f, now)
}

func (p *process) row(f processFacts, startNs int64) format.Row {
	text, err := json.Marshal(f)
	if err != nil {
		text = nil // plain strings and numbers always encode
	}
	return format.Row{
		Kind: format.KindProcess, StartNs: startNs, Pid: int32(p.pid), Tid: int32(p.pid), Name: p.comm, Message: string(text), Device: -1,
	}
}

// defaultOutput is where a recording goes unless told: gpurec-COMM-PID-TIME.parquet.
func defaultOutput(comm string, pid int, at string) string {
	clean := strings.Map(func(r rune) rune {
		if r == filepath.Separator || r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, comm)
	return "gpurec-" + clean + "-" + strconv.Itoa(pid) + "-" + at + ".parquet"
}
