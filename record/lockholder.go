//go:build linux

package record

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/process"
)

// LockHolder is a thread that holds the lock of a caching allocator.
type LockHolder struct {
	Tid          int    // in the PID namespace of gpurec, 0 if it is unknown
	NamespaceTid int    // in the PID namespace of the process
	Name         string // "" if it is unknown
	SystemCall   string // the system call in which it waits, "" if it runs or if it is unknown
	WaitPlace    string // the function of the kernel in which it waits, "" if it runs or if it is unknown
}

// Limits in bytes of files in /proc.
const (
	maxThreadStatusBytes = 8 << 10
	maxThreadLineBytes   = 1 << 10
)

// findLockHolder describes the thread with an ID in the PID namespace of a process.
func findLockHolder(p *process.Process, namespaceTid int) *LockHolder {
	h := &LockHolder{NamespaceTid: namespaceTid, Tid: findThread(p, namespaceTid)}
	if h.Tid == 0 {
		return h
	}
	read := func(file string) string {
		text, err := p.ReadProcFile(fmt.Sprintf("task/%d/%s", h.Tid, file), maxThreadLineBytes)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(text, "\n")
	}
	h.Name = read("comm")
	h.SystemCall = parseSystemCall(read("syscall"))
	if h.WaitPlace = read("wchan"); h.WaitPlace == "0" {
		h.WaitPlace = ""
	}
	return h
}

// parseSystemCall returns the name of the system call in a text of /proc/PID/task/TID/syscall, or its number if the
// name is unknown. It returns "" if the thread runs, or is in no system call.
func parseSystemCall(text string) string {
	number, rest, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || rest == "" {
		return ""
	}
	if name := hoststack.SystemCallName(n); name != "" {
		return name
	}
	return "system call " + number
}

// findThread returns the ID in gpurec's PID namespace of the thread with an ID in the namespace of its process, 0 if
// there is none.
func findThread(p *process.Process, namespaceTid int) int {
	if readNamespaceTid(p, strconv.Itoa(namespaceTid)) == namespaceTid { // both are in one namespace
		return namespaceTid
	}
	dir, err := os.Open(p.Path("task"))
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // an error is the end of the process
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil && readNamespaceTid(p, name) == namespaceTid {
			return tid
		}
	}
	return 0
}

// readNamespaceTid returns the ID of a thread in the PID namespace of its process, 0 if it is unknown. The name of the
// thread, which the process controls, is in an earlier line. The kernel escapes newlines in it.
func readNamespaceTid(p *process.Process, tid string) int {
	status, err := p.ReadProcFile("task/"+tid+"/status", maxThreadStatusBytes)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			list := strings.Fields(ids)
			if len(list) == 0 {
				return 0
			}
			id, _ := strconv.Atoi(list[len(list)-1]) // the kernel writes numbers
			return id
		}
	}
	return 0
}
