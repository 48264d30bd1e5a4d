//go:build linux

package target

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
)

// maxWarnedProcesses limits the number of processes with a warning about failed probes. Each
// warning costs a line and a row, and a program can start any number of processes.
const maxWarnedProcesses = 100

// warnUnprobed warns, once per process, that calls of the process are missing, and why.
func (s *Set) warnUnprobed(p *process.Process, failed ...error) {
	if s.unprobed[p.Pid] || len(s.unprobed) == maxWarnedProcesses {
		return
	}
	s.unprobed[p.Pid] = true
	var why []string
	for _, err := range failed {
		if of := (*process.Error)(nil); errors.As(err, &of) {
			err = of.Err
		}
		if err != nil {
			why = append(why, strings.ReplaceAll(err.Error(), "\n", ", "))
		}
	}
	message := fmt.Sprintf("calls of process %d (%s) are missing: %s", p.Pid, p.Comm, strings.Join(why, "; "))
	if len(s.unprobed) == maxWarnedProcesses {
		message += "; further processes get no warning"
	}
	s.opt.Warn(message)
	row := format.Row{Kind: format.KindNote, Name: "attach", Pid: int32(p.Pid), Device: -1, Message: message}
	if s.send == nil { // before Begin, which writes the notes
		s.notes = append(s.notes, row)
		return
	}
	row.StartNs = s.clock.NowNs()
	s.send([]format.Row{row})
}

// noteEarlyExit writes the exit of a process that exited before its facts could be read.
func (s *Set) noteEarlyExit(e bpf.CudaProcessEvent) {
	gone := process.Process{Pid: int(e.Pid), Known: process.Facts{ParentPid: int(e.ParentPid), UID: -1}}
	s.send([]format.Row{gone.ExitRow(s.clock.NowNs())})
}
