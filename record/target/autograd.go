//go:build linux

package target

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// autogradThread is the beginning of the names of the threads of PyTorch's autograd engine, as in bpf/state.h.
const autogradThread = "pt_autograd_"

// noteMissingEngine writes a note, once for each process, if its autograd engine cannot be probed and has threads: the
// recording does not say for which line of the program they work.
func (s *Set) noteMissingEngine(libs []*library.Library, p *process.Process) {
	engine := library.FirstOfKind(libs, library.KindEngine)
	if engine == nil || engine.Missing == "" || s.send == nil || s.withoutEngine[p.Pid] ||
		len(s.withoutEngine) == maxWarnedProcesses || !hasThreadNamed(p, autogradThread) {
		return
	}
	s.withoutEngine[p.Pid] = true
	message := fmt.Sprintf(
		"the lines of the program that call backward() are unknown: %s: %s",
		engine.Path,
		engine.Missing,
	)
	s.send([]format.Row{{
		Kind: format.KindNote, Name: format.NoteAutograd, StartNs: s.clock.NowNs(), Pid: int32(p.Pid), Device: -1,
		Message: message,
	}})
}

// hasThreadNamed reports whether the name of a thread of a process begins with prefix.
func hasThreadNamed(p *process.Process, prefix string) bool {
	threads, _ := os.ReadDir(p.Path("task")) // on an error, the process has exited
	for _, thread := range threads {
		name, err := p.ReadProcFile(filepath.Join("task", thread.Name(), "comm"), maxCommBytes)
		if err == nil && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// maxCommBytes is the size of the name of a thread with its line feed.
const maxCommBytes = 17
