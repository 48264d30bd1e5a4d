//go:build linux

package rowwriter

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/overhead"
)

// knownThread is a thread that has made a call, with the name that was last written.
type knownThread struct {
	pid  int32
	name string
	hits overhead.ProbeHits // probe hits since the last call of busiestRates
}

// noteThread writes the name of a thread at its first call.
func (s *Writer) noteThread(pid, tid int32) *knownThread {
	t := &knownThread{pid: pid, name: threadName(pid, tid)}
	s.threads[tid] = t
	s.nameThread(tid, t)
	return t
}

// renameThreads writes thread names that have changed. A worker thread often makes its first call
// before it sets its name.
func (s *Writer) renameThreads() {
	for tid, t := range s.threads {
		if name := threadName(t.pid, tid); name != "" && name != t.name {
			t.name = name
			s.nameThread(tid, t)
		}
	}
}

// nameThread writes a row of kind thread.
func (s *Writer) nameThread(tid int32, t *knownThread) {
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindThread, StartNs: s.counters.clock.NowNs(), Pid: t.pid, Tid: tid, Name: t.name, Device: -1,
	}})
}

// threadName returns the name of a thread, "" if the thread has exited.
func threadName(pid, tid int32) string {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "task", strconv.Itoa(int(tid)), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(comm), "\n")
}
