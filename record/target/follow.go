//go:build linux

package target

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// Attach makes the processes targets of the BPF programs, follows their children, and attaches the
// probes of libraries. unwinder is nil if stacks are not unwound. An error about a requested
// process ends Attach; an error about another process is written as a note.
func (s *Set) Attach(probes *probe.Probes, unwinder *unwind.Unwinder, libraries []Library) error {
	s.probes, s.unwinder = probes, unwinder
	for _, p := range s.All() {
		if err := probes.AddTarget(p.Pid); err != nil {
			return err
		}
	}
	if s.opt.Children {
		s.followErr = probes.FollowChildren()
		if err := s.addRunningChildren(); err != nil {
			return err
		}
	}
	if err := probes.SetPaused(true); err != nil {
		return err
	}
	probes.HoldFrequentProbes()
	for _, l := range libraries {
		if l.IsMapped {
			probes.SetAllocatorSource(l.Library, l.Pid)
		}
		if err := s.probeLibrary(l.Library, l.Pid); err != nil && slices.Contains(s.requestedPids(), l.Pid) {
			return err
		} else if errors.Is(err, process.ErrNoProcess) {
			continue // a child that has exited
		} else if err != nil {
			s.warnUnprobed(&process.Process{Pid: l.Pid}, err)
			continue
		}
		s.libraries = append(s.libraries, l.Library)
	}
	if err := probes.ReleaseFrequentProbes(); err != nil {
		return err
	}
	if err := probes.SetPaused(false); err != nil {
		return err
	}
	s.beganNs = clock.BootNs()
	for _, p := range s.All() {
		s.noteHistory(p)
	}
	return nil
}

// addRunningChildren adds children that were forked before forks were followed. These children may
// have forked, too, so it repeats the search until it finds no new child.
func (s *Set) addRunningChildren() error {
	for found := true; found; {
		found = false
		for _, pid := range process.Descendants(s.requestedPids()) {
			if s.Get(pid) != nil {
				continue
			}
			p, err := process.Open(pid)
			if err != nil || !s.add(p) {
				continue // the process has exited
			}
			if err := s.probes.AddTarget(pid); err != nil {
				return err
			}
			s.addUnwinding(p)
			found = true
		}
	}
	return nil
}

// Begin starts writing rows: from now on, events about processes go to send, which may block. It
// returns the first rows: the target processes, and notes about missing data. startNs is in Unix
// ns.
func (s *Set) Begin(c clock.Clock, gpus []host.GPU, send func(rows []format.Row), startNs int64) []format.Row {
	s.clock, s.gpus, s.send = c, gpus, send
	var rows []format.Row
	for _, p := range s.All() {
		rows = append(rows, p.Row(p.ReadFacts(gpus), startNs))
	}
	if s.followErr != nil {
		rows = append(
			rows,
			format.Row{
				Kind:    format.KindNote,
				Name:    "children",
				StartNs: startNs,
				Message: "child processes are not recorded: " + s.followErr.Error(),
				Device:  -1,
			},
		)
	}
	for _, note := range s.notes {
		note.StartNs = startNs
		rows = append(rows, note)
	}
	return rows
}

// OnProcessEvent adds a new process to the targets, or updates a target that called exec.
func (s *Set) OnProcessEvent(e bpf.CudaProcessEvent) {
	pid := int(e.Pid)
	known := s.Get(pid)
	if known != nil && e.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) {
		known.RereadComm()
		s.addUnwinding(known)
		s.countMissedEvents()
		s.forgetAllocator(pid)
		s.send([]format.Row{known.Row(known.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
		s.attachLibraries(known, false)
		return
	}
	p, err := process.Open(pid)
	if err != nil { // the process has exited; its calls, if any, are recorded
		s.noteEarlyExit(e)
		s.probes.RemoveTarget(pid)
		return
	}
	if !s.add(p) {
		p.Close()
		return
	}
	if e.Change == uint16(bpf.CudaProcessChangePROCESS_FIRST) {
		s.noteFirstCall(p)
	} else {
		s.noteHistory(p)
	}
	s.send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
	s.addUnwinding(p)
	// Probe the libraries of other targets, if possible before the new process calls them.
	for _, lib := range s.libraries {
		before := s.probes.ProbeCount()
		if err := s.probeLibrary(lib, pid); err != nil && p.Alive() {
			s.warnUnprobed(p, err)
			continue
		}
		if s.probes.ProbeCount() > before && p.HasMapped(lib.ID) {
			s.noteLateAttach(lib, p)
		}
	}
	s.attachLibraries(p, false)
}

// OnLateProcessEvent writes a process that was forked before the recording ended and is no target.
func (s *Set) OnLateProcessEvent(e bpf.CudaProcessEvent) {
	if e.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) || s.Get(int(e.Pid)) != nil {
		return
	}
	p, err := process.Open(int(e.Pid))
	if err != nil {
		s.noteEarlyExit(e)
		return
	}
	defer p.Close()
	s.send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
}

// ReapExited removes the exited processes, and reports whether any target is left.
func (s *Set) ReapExited() (left bool) {
	for _, p := range s.All() {
		if p.Alive() {
			left = true
			continue
		}
		s.send([]format.Row{p.ExitRow(s.clock.NowNs())})
		s.probes.RemoveTarget(p.Pid)
		s.countMissedEvents()
		s.forgetAllocator(p.Pid)
		s.probes.ForgetAllocatorBeginnings(p.Pid)
		s.probes.ForgetNumbers(p.Pid)
		if s.unwinder != nil {
			s.unwinder.Forget(p.Pid)
		}
		s.remove(p.Pid)
	}
	return left
}

// LastRows returns the last rows of a recording: the exits of processes, and a note about lost
// forks and execs.
func (s *Set) LastRows(nowNs int64) []format.Row {
	var rows []format.Row
	s.countMissedEvents()
	if n := s.probes.LostProcessEvents(); n > 0 {
		rows = append(rows, format.Row{
			Kind: format.KindNote, Name: "children", StartNs: nowNs, Device: -1, Value: float64(n),
			Message: fmt.Sprintf("%d forks and execs did not fit into the ring buffer: facts about their "+
				"processes are missing, and calls if no other target uses the same libraries", n),
		})
	}
	for _, p := range s.All() {
		if !p.Alive() {
			rows = append(rows, p.ExitRow(nowNs))
		}
	}
	return rows
}
