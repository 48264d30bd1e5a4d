//go:build linux

package hoststack

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// findWaits sets Thread.Wait of all threads of a snapshot. It reads /proc only, which never waits for the
// process.
func (r *rounds) findWaits(threads []Thread) {
	d := &r.target.descriptors
	all := make([]waiting, len(threads))
	for i := range threads {
		all[i] = newWaiting(&threads[i])
	}
	for i := range threads {
		t, w := &threads[i], &all[i]
		t.Wait = format.WaitFact{Reason: w.findReason(), SystemCall: t.SystemCall, CUDACall: t.CUDACall}
		if t.State == snapshot.StateRunning || t.State == snapshot.StateRunnable {
			t.Wait.SystemCall = ""
			continue
		}
		switch t.Wait.Reason {
		case format.ReasonImportLock:
			setOwner(&t.Wait, r.pid, findImporter(threads, all, i))
		case format.ReasonGIL:
			setOwner(&t.Wait, r.pid, r.findOwner(threads, w.memory.gilHolder))
		case format.ReasonStopped:
			r.setTracer(&t.Wait, t)
		case format.ReasonChild:
			r.setChild(&t.Wait, w, t.Tid)
		default:
			r.setTarget(&t.Wait, w, d, threads)
		}
		t.Wait.Target = t.Wait.Target[:min(len(t.Wait.Target), maxTargetBytes)]
	}
}

// setTarget sets reason, owner and target of a wait in a system call.
func (r *rounds) setTarget(fact *format.WaitFact, w *waiting, d *descriptors, threads []Thread) {
	call := w.waitCall()
	reason, target := "", ""
	switch {
	case w.isMutexWait():
		if owner := r.findOwner(threads, w.memory.mutexOwner); owner != nil {
			fact.Reason = format.ReasonLock
			setOwner(fact, r.pid, owner)
		}
	case descriptorCalls[call]:
		reason, target = d.describe(w.arguments[0])
		reason = cmp.Or(w.kernelReason(), reason)
	case strings.HasPrefix(call, "epoll_"):
		reason, target = d.describeAll(d.watched(w.arguments[0]))
	case len(w.memory.descriptors) > 0:
		reason, target = d.describeAll(w.memory.descriptors)
	case callReasons[call] == format.ReasonPoll && w.memory.isRead:
		reason = format.ReasonSleep // poll and select without descriptors
	case w.memory.path != "":
		reason, target = w.kernelReason(), w.memory.path
	}
	if fact.Reason != format.ReasonCUDA && reason != "" {
		fact.Reason = reason
	}
	fact.Target = cmp.Or(fact.Target, target)
	if reason == format.ReasonChild {
		fact.OwnerPid, fact.Target = parseID(target), ""
		fact.Owner = readName(int(fact.OwnerPid))
	}
}

// kernelReason returns the reason that the functions of the kernel show, "" if they show none. A named
// pipe has the path of a file.
func (w *waiting) kernelReason() string {
	switch {
	case w.inKernel("pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write", "fifo_pipe_read",
		"fifo_pipe_write", "fifo_open", "wait_for_partner", "unix_stream_read_generic", "unix_stream_recvmsg",
		"unix_dgram_recvmsg", "eventfd_read"):
		return format.ReasonPipe
	case w.inKernel("tcp_recvmsg", "inet_recvmsg", "inet6_recvmsg", "tcp_sendmsg", "inet_csk_accept",
		"inet_stream_connect", "udp_recvmsg"):
		return format.ReasonNetwork
	}
	return ""
}

// findOwner returns the thread with an ID in the namespace of the process, nil if there is none. A glance
// has only some threads: of another one it returns only ID and name.
func (r *rounds) findOwner(threads []Thread, id uint32) *Thread {
	if t := findThread(threads, id); t != nil || id == 0 || !r.isPartial {
		return t
	}
	if threads[0].Tid != threads[0].NamespaceTid {
		return nil
	}
	name, err := r.target.process.ReadProcFile(fmt.Sprintf("task/%d/comm", id), maxFdInfoBytes)
	if err != nil {
		return nil
	}
	return &Thread{Tid: int(id), NamespaceTid: int(id), Name: strings.TrimSuffix(name, "\n")}
}

// findThread returns the thread with an ID in the namespace of the process, nil if there is none.
func findThread(threads []Thread, id uint32) *Thread {
	for i := range threads {
		if id != 0 && threads[i].NamespaceTid == int(id) {
			return &threads[i]
		}
	}
	return nil
}

// findImporter returns the only other thread that imports a module, nil if there are none or several.
func findImporter(threads []Thread, all []waiting, waiter int) (found *Thread) {
	for i := range all {
		if i == waiter || !all[i].isImporting() {
			continue
		}
		if found != nil {
			return nil
		}
		found = &threads[i]
	}
	return found
}

// setOwner sets the owner of a lock, if it is known.
func setOwner(fact *format.WaitFact, pid int, owner *Thread) {
	if owner != nil {
		fact.OwnerPid, fact.OwnerTid, fact.Owner = int32(pid), int32(owner.Tid), owner.Name
	}
}

// setTracer sets the debugger of a stopped thread.
func (r *rounds) setTracer(fact *format.WaitFact, t *Thread) {
	status, err := r.target.process.ReadProcFile(fmt.Sprintf("task/%d/status", t.Tid), maxFdInfoBytes)
	if err != nil {
		return
	}
	if tracer := parseID(findField(status, "TracerPid:")); tracer > 0 {
		fact.OwnerPid, fact.Owner = tracer, readName(int(tracer))
	}
}

// Kinds of numbers in the first argument of waitid.
const (
	waitForPid   = 1
	waitForPidfd = 3
)

// setChild sets the process for whose end a thread waits, if there is only one.
func (r *rounds) setChild(fact *format.WaitFact, w *waiting, tid int) {
	wanted := int32(-1) // in the namespace of the process; -1: any
	switch call := w.waitCall(); {
	case call == "wait4":
		wanted = int32(w.arguments[0])
	case call == "waitid" && w.arguments[0] == waitForPid:
		wanted = int32(w.arguments[1])
	case call == "waitid" && w.arguments[0] == waitForPidfd:
		d := &r.target.descriptors
		wanted = parseID(findField(d.readInfo(w.arguments[1]), "Pid:"))
	}
	children := r.children("*")
	if w.waitCall() == "vfork" {
		children = r.children(strconv.Itoa(tid)) // a thread waits for its own child
	}
	var found []int32
	for _, pid := range children {
		if wanted <= 0 || wanted == pid || wanted == numberInOwnNamespace(pid) {
			found = append(found, pid)
		}
	}
	if len(found) == 1 {
		fact.OwnerPid, fact.Owner = found[0], readName(int(found[0]))
	}
}

// children returns the children of a thread, or of all threads for "*".
func (r *rounds) children(tid string) (list []int32) {
	files, err := filepath.Glob(r.target.process.Path("task/" + tid + "/children"))
	if err != nil {
		return nil
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended, or the kernel has no such file
		}
		for _, field := range strings.Fields(string(text)) {
			if pid := parseID(field); pid > 0 {
				list = append(list, pid)
			}
		}
	}
	return list
}

// numberInOwnNamespace returns the number of a process in its own PID namespace, 0 if it is unknown.
func numberInOwnNamespace(pid int32) int32 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	numbers := strings.Fields(findField(string(status), "NSpid:"))
	if len(numbers) == 0 {
		return 0
	}
	return parseID(numbers[len(numbers)-1])
}

// readName returns the name of a process, "" if it is unknown.
func readName(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// parseID parses a process or thread ID, 0 if it is none.
func parseID(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
