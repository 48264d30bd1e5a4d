//go:build linux

package privilege

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/process"
)

// ExplainMemoryRefusal returns why the kernel refuses to read the memory of a process, and what to do or to check.
// Call it after such a refusal.
func ExplainMemoryRefusal(p *process.Process) string {
	a := memoryAccess{pid: p.Pid, ptraceScope: readPtraceScope(), otherNamespace: isInOtherUserNamespace(p)}
	if have, err := ReadEffective(); err == nil {
		a.hasPtrace = have.hasCapability(unix.CAP_SYS_PTRACE)
	}
	var st unix.Stat_t
	a.sameUser = unix.Stat(p.Path("."), &st) == nil && int(st.Uid) == os.Geteuid()
	return a.explain()
}

// memoryAccess has what decides whether this process may read the memory of another one: see ptrace(2).
type memoryAccess struct {
	pid            int
	hasPtrace      bool // CAP_SYS_PTRACE is effective
	sameUser       bool
	ptraceScope    int // of the security module Yama, 0 if there is none
	otherNamespace bool
}

// Values of kernel.yama.ptrace_scope.
const (
	scopeDescendants = 1 // only descendants may be read without CAP_SYS_PTRACE
	scopeNobody      = 3 // until the next boot
)

// explain returns the first of these reasons that holds.
func (a memoryAccess) explain() string {
	const task = "reading its memory "
	switch {
	case a.ptraceScope >= scopeNobody:
		return task + "is forbidden to everyone until the next boot: kernel.yama.ptrace_scope is 3"
	case !a.hasPtrace && a.sameUser && a.ptraceScope >= scopeDescendants:
		return fmt.Sprintf("%sneeds CAP_SYS_PTRACE, also for its own user: kernel.yama.ptrace_scope is %d", task,
			a.ptraceScope)
	case !a.hasPtrace:
		return task + "needs CAP_SYS_PTRACE"
	case a.otherNamespace:
		return fmt.Sprintf("%sneeds CAP_SYS_PTRACE in its user namespace, and gpurec is in another one: run it on the "+
			"host; readlink /proc/self/ns/user /proc/%d/ns/user shows both", task, a.pid)
	}
	return task + "is forbidden although gpurec has CAP_SYS_PTRACE, by a security module or a seccomp filter: see " +
		"dmesg, and grep Seccomp: /proc/self/status"
}

// readPtraceScope returns kernel.yama.ptrace_scope, 0 without Yama.
func readPtraceScope() int {
	text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return 0
	}
	scope, _ := strconv.Atoi(strings.TrimSpace(string(text))) // the kernel writes a number
	return scope
}

// isInOtherUserNamespace reports whether a process is in another user namespace. If its namespace cannot be read, this
// is assumed of each process if gpurec is not in the initial one.
func isInOtherUserNamespace(p *process.Process) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return false
	}
	if of, err := os.Readlink(p.Path("ns/user")); err == nil {
		return of != own
	}
	const initial = "0 0 4294967295" // all user IDs, mapped to themselves
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(ids)), " ") != initial
}
