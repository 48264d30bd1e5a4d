//go:build linux

package rowwriter

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// knownThread is a thread that has made a call, with the name that was last written.
type knownThread struct {
	pid  int32
	name string
}

// addThread writes the name of a thread at its first call.
func (w *Writer) addThread(pid, tid int32) {
	t := &knownThread{pid: pid, name: readThreadName(pid, tid)}
	w.threads[tid] = t
	w.writeThreadName(tid, t)
}

// writeChangedThreadNames writes thread names that have changed. A worker thread often makes its
// first call before it sets its name.
func (w *Writer) writeChangedThreadNames() {
	for tid, t := range w.threads {
		if name := readThreadName(t.pid, tid); name != "" && name != t.name {
			t.name = name
			w.writeThreadName(tid, t)
		}
	}
}

// writeThreadName writes a row of kind thread.
func (w *Writer) writeThreadName(tid int32, t *knownThread) {
	w.writeRows(format.ClassFact, []format.Row{{
		Kind: format.KindThread, StartNs: w.counters.clock.NowNs(), Pid: t.pid, Tid: tid, Name: t.name, Device: -1,
	}})
}

// readThreadName returns the name of a thread, "" if the thread has exited.
func readThreadName(pid, tid int32) string {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "task", strconv.Itoa(int(tid)), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(comm), "\n")
}
