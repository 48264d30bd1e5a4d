//go:build linux

package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pidfdInfo is struct pidfd_info of linux/pidfd.h, in its first version.
type pidfdInfo struct {
	Mask, CgroupID                                                    uint64
	Pid, Tgid, Ppid, RUID, RGID, EUID, EGID, SUID, SGID, FsUID, FsGID uint32
	ExitCode                                                          int32
}

// pidfdGetInfo is PIDFD_GET_INFO: _IOWR(0xFF, 11, struct pidfd_info).
const pidfdGetInfo = 3<<30 | uint(unsafe.Sizeof(pidfdInfo{}))<<16 | 0xff<<8 | 11

// exitStatus returns the exit status of a process that has exited. Before its parent has waited for it, /proc has
// the status. Afterwards only the pidfd does, since Linux 6.15.
func (p *Process) exitStatus() (status unix.WaitStatus, ok bool) {
	if p.pidfd <= 0 { // the process was never opened
		return 0, false
	}
	if stat, err := os.ReadFile(p.Path("stat")); err == nil {
		if _, startNs := parseStat(stat); startNs == p.StartNs {
			if status, ok := parseZombie(stat); ok {
				return status, true
			}
		}
	}
	info := pidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.pidfd), uintptr(pidfdGetInfo), uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return unix.WaitStatus(info.ExitCode), true
}

// parseZombie returns the exit status in the text of /proc/PID/stat. Only a zombie has one.
func parseZombie(stat []byte) (status unix.WaitStatus, ok bool) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 50 || fields[0] != "Z" {
		return 0, false
	}
	code, err := strconv.Atoi(fields[49]) // field 52 of proc(5)
	return unix.WaitStatus(code), err == nil
}
