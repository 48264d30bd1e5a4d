//go:build linux

package interpreter

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// maxTids limits the threads of a process that are translated.
	maxTids = 1 << 16
	// minScanInterval is the shortest time between two scans of all threads. It is at least scanFactor times
	// as long as the last one took.
	minScanInterval = 100 * time.Millisecond
	scanFactor      = 50
	// maxStatusBytes limits the text of /proc/PID/status.
	maxStatusBytes = 16 << 10
)

// tids translates thread IDs of a process's PID namespace, which CPython stores, to those of the
// recorder's /proc.
type tids struct {
	pid int
	// isSame says that both namespaces are the same, once isKnown is true.
	isSame, isKnown bool
	known           map[uint64]int32
	used            map[uint64]bool // since the last check
	nextScan        time.Time
}

func newTids(pid int) *tids {
	return &tids{pid: pid, known: make(map[uint64]int32), used: make(map[uint64]bool)}
}

// host returns the recorder's ID of a thread, 0 if it is unknown.
func (t *tids) host(inside uint64) int32 {
	if inside == 0 || inside >= 1<<31 {
		return 0
	}
	if !t.isKnown {
		own := readNamespaceTids(fmt.Sprintf("/proc/%d/status", t.pid))
		t.isSame, t.isKnown = len(own) == 1, len(own) > 0
	}
	if t.isSame {
		return int32(inside)
	}
	tid, ok := t.known[inside]
	if !ok && time.Now().After(t.nextScan) {
		t.scan()
		tid = t.known[inside]
	}
	t.used[inside] = true
	return tid
}

// scan reads the IDs of all threads.
func (t *tids) scan() {
	begin := time.Now()
	clear(t.known)
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxTids) // an error is the end of the process
	for _, name := range names {
		t.learn(name)
	}
	t.nextScan = time.Now().Add(max(minScanInterval, scanFactor*time.Since(begin)))
}

// learn reads the IDs of one thread.
func (t *tids) learn(name string) {
	ids := readNamespaceTids(fmt.Sprintf("/proc/%d/task/%s/status", t.pid, name))
	tid, err := strconv.ParseInt(name, 10, 32)
	if err == nil && len(ids) > 0 {
		t.known[ids[len(ids)-1]] = int32(tid)
	}
}

// check reads the IDs of the threads that were used since the last check again: one may have ended, and
// another one may have its ID.
func (t *tids) check() {
	for inside := range t.used {
		tid := t.known[inside]
		delete(t.known, inside)
		if tid != 0 {
			t.learn(strconv.Itoa(int(tid)))
		}
	}
	clear(t.used)
	t.isKnown = false
}

// readNamespaceTids returns the IDs in a status file of /proc: first that of the recorder's namespace,
// last that of the thread's own.
func readNamespaceTids(path string) []uint64 {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, maxStatusBytes)
	n, _ := file.Read(text) // an error is the end of the thread
	return parseNamespaceTids(string(text[:n]))
}

// parseNamespaceTids returns the IDs of the line NSpid, nil if there is none. A process controls its name in
// an earlier line, in which the kernel escapes newlines.
func parseNamespaceTids(status string) []uint64 {
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		var ids []uint64
		for _, field := range strings.Fields(list) {
			id, err := strconv.ParseUint(field, 10, 31)
			if err != nil {
				return nil
			}
			ids = append(ids, id)
		}
		return ids
	}
	return nil
}
