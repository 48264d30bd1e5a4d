//go:build linux

package ps

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/identity"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// maxCommandLineBytes and maxCgroupBytes limit the data that is read of a process.
const maxCommandLineBytes, maxCgroupBytes = 16 << 10, 64 << 10

// readProcess reads a process in /proc. It may block while the kernel has locked the process's
// memory.
func readProcess(pid int, listed bool) processResult {
	if pid == os.Getpid() { // NVML loads libcuda into this process
		return processResult{}
	}
	uses, err := library.HasMappedDriver((&process.Process{Pid: pid}))
	if errors.Is(err, fs.ErrPermission) && !listed {
		return processResult{denied: true}
	}
	if !uses && !listed {
		return processResult{}
	}
	p, err := process.Open(pid)
	if err != nil {
		return processResult{} // the process has ended
	}
	defer p.Close()
	described := describeProcess(p)
	return processResult{process: described, uses: p.Alive()}
}

// describeProcess returns the process's values, except for its GPUs.
func describeProcess(p *process.Process) Process {
	c := Process{Pid: p.Pid, Command: p.Comm, StartedUnixNs: bootToUnixNs(p.StartNs)}
	if line, err := p.ReadProcFile("cmdline", maxCommandLineBytes); err == nil {
		c.CommandLine = splitCommandLine(line)
	}
	var st unix.Stat_t
	if unix.Stat(p.Path("."), &st) == nil {
		uid := int(st.Uid)
		c.UID, c.User = &uid, lookUpUserName(uid)
	}
	cgroup, _ := p.ReadProcFile("cgroup", maxCgroupBytes) // "" if unreadable
	environ, _ := p.ReadEnvironment()
	c.Cgroup, _ = process.ParseCgroupPath(cgroup)
	c.ContainerID = process.FindContainerID(cgroup)
	c.Identity = identity.FindIdentity(environ, cgroup)
	return c
}

// splitCommandLine splits the text of /proc/PID/cmdline into arguments, without empty ones at the
// end. It returns nil if there are none.
func splitCommandLine(text string) []string {
	if text = strings.TrimRight(text, "\x00"); text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// lookUpUserName returns the name of a user, or "" if the UID has none.
func lookUpUserName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

// bootToUnixNs converts a start time on CLOCK_BOOTTIME to Unix ns, rounded to 10 ms. It returns 0
// for 0.
func bootToUnixNs(bootNs int64) int64 {
	if bootNs == 0 {
		return 0
	}
	const resolution = int64(1e9 / process.UserTicksPerSecond)
	started := clock.ReadNs(unix.CLOCK_REALTIME) - clock.ReadNs(unix.CLOCK_BOOTTIME) + bootNs
	return (started + resolution/2) / resolution * resolution
}

// isHostPidNamespace reports whether this process is in the initial pid namespace of the machine.
func isHostPidNamespace() bool {
	const first = 0xEFFFFFFC // PROC_PID_INIT_INO, include/linux/proc_ns.h
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &st) == nil && st.Ino == first
}
