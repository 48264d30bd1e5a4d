//go:build linux

package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/identity"
	"github.com/gpurec/gpurec/symbolize"
)

// Bounds of what is read of a process for a list, in bytes.
const (
	maxListedCommandLine = 16 << 10
	maxCgroupText        = 64 << 10
	maxMapsText          = 256 << 20 // 65,530 mappings, the default limit, under names of 4 KiB
)

// lookAtProcess reads a process under /proc. It may block while the kernel has its memory locked.
func lookAtProcess(pid int, listed bool) look {
	if pid == os.Getpid() { // NVML loads libcuda to learn its version
		return look{}
	}
	uses, err := (&process{pid: pid}).mapsDriver()
	if errors.Is(err, fs.ErrPermission) && !listed {
		return look{denied: true}
	}
	if !uses && !listed {
		return look{}
	}
	p, err := openProcess(pid)
	if err != nil {
		return look{} // it has ended
	}
	defer p.close()
	described := p.describe()
	return look{process: described, uses: p.alive()}
}

// describe reads what the list says of a process besides its GPUs.
func (p *process) describe() CUDAProcess {
	c := CUDAProcess{Pid: p.pid, Command: p.comm, StartedUnixNs: startedUnixNs(p.startNs)}
	if line, err := p.readOwn("cmdline", maxListedCommandLine); err == nil {
		c.CommandLine = splitCommandLine(line)
	}
	var st unix.Stat_t
	if unix.Stat(p.path("."), &st) == nil {
		uid := int(st.Uid)
		c.UID, c.User = &uid, userName(uid)
	}
	cgroup, _ := p.readOwn("cgroup", maxCgroupText) // "" if unreadable, as the next
	environ, _ := p.readOwn("environ", maxEnvironment)
	c.Cgroup, _ = cgroupPath(cgroup)
	c.ContainerID = containerID(cgroup)
	c.Identity = identity.Of(environ, cgroup)
	return c
}

// splitCommandLine splits the text of /proc/PID/cmdline into arguments, without empty ones at the
// end; nil if there are none.
func splitCommandLine(text string) []string {
	if text = strings.TrimRight(text, "\x00"); text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// userName returns the name of a user, "" if the UID has none.
func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

// startedUnixNs converts a start on CLOCK_BOOTTIME to Unix time. Both are known to 10 ms; 0 stays 0.
func startedUnixNs(bootNs int64) int64 {
	if bootNs == 0 {
		return 0
	}
	const resolution = int64(1e9 / userHz)
	started := clockNs(unix.CLOCK_REALTIME) - clockNs(unix.CLOCK_BOOTTIME) + bootNs
	return (started + resolution/2) / resolution * resolution
}

// mapsDriver reports whether the process has libcuda mapped as code. It reads no more of the
// mappings than needed for that.
func (p *process) mapsDriver() (bool, error) {
	file, err := os.Open(p.path("maps"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(io.LimitReader(file, maxMapsText), 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte("/libcuda.so")) && isDriverMapping(line) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// isDriverMapping reports whether a line of /proc/PID/maps is of libcuda's code.
func isDriverMapping(line []byte) bool {
	maps, err := symbolize.ReadMaps(bytes.NewReader(line))
	return err == nil && len(maps) == 1 && maps[0].Executable() && libcudaName.MatchString(filepath.Base(maps[0].Path))
}

// isHostPidNamespace reports whether this process is in the machine's first pid namespace.
func isHostPidNamespace() bool {
	const first = 0xEFFFFFFC // PROC_PID_INIT_INO, include/linux/proc_ns.h
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &st) == nil && st.Ino == first
}
