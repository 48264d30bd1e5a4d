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

// knownThread is a thread that made a call, and its name as last read.
type knownThread struct {
	pid  int32
	name string
	hits overhead.Hits // since rates were asked for last
}

// noteThread writes a thread's name down when it makes its first call.
func (s *Writer) noteThread(pid, tid int32) *knownThread {
	t := &knownThread{pid: pid, name: threadName(pid, tid)}
	s.threads[tid] = t
	s.nameThread(tid, t)
	return t
}

// renameThreads writes the names down that threads have given themselves since: a
// worker often makes its first call before it is named.
func (s *Writer) renameThreads() {
	for tid, t := range s.threads {
		if name := threadName(t.pid, tid); name != "" && name != t.name {
			t.name = name
			s.nameThread(tid, t)
		}
	}
}

func (s *Writer) nameThread(tid int32, t *knownThread) {
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindThread, StartNs: s.counters.clock.NowNs(), Pid: t.pid, Tid: tid, Name: t.name, Device: -1,
	}})
}

func threadName(pid, tid int32) string {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "task", strconv.Itoa(int(tid)), "comm"))
	if err != nil {
		return "" // gone already
	}
	return strings.TrimSuffix(string(comm), "\n")
}
