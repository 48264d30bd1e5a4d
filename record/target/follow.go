//go:build linux

package target

import (
	"errors"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// Attach makes the processes targets of the programs, follows their children, and places the
// probes of the libraries. unwinder is nil if stacks are not unwound.
func (s *Set) Attach(probes *probe.Probes, unwinder *unwind.Unwinder, libraries []Library) error {
	s.probes, s.unwinder = probes, unwinder
	for _, p := range s.All() {
		if err := probes.Target(p.Pid); err != nil {
			return err
		}
	}
	if s.opt.Children {
		s.followErr = probes.Follow()
		if err := s.adoptRunningChildren(); err != nil {
			return err
		}
	}
	if err := probes.Pause(true); err != nil {
		return err
	}
	for _, l := range libraries {
		probes.SetAllocatorSource(l.Library, l.Pid)
		if err := s.place(l.Library, l.Pid); err != nil && slices.Contains(s.asked(), l.Pid) {
			return err
		} else if errors.Is(err, process.ErrNoProcess) {
			continue // a child that has ended since
		} else if err != nil {
			s.warnUnprobed(&process.Process{Pid: l.Pid}, err)
			continue
		}
		s.libraries = append(s.libraries, l.Library)
	}
	return probes.Pause(false)
}

// adoptRunningChildren adds the children that were born while the programs were loaded, before forks
// were followed. Children of theirs may have been born, too: it looks until there is none.
func (s *Set) adoptRunningChildren() error {
	for found := true; found; {
		found = false
		for _, pid := range process.Descendants(s.asked()) {
			if s.Get(pid) != nil {
				continue
			}
			p, err := process.Open(pid)
			if err != nil || !s.add(p) {
				continue // it has ended since
			}
			if err := s.probes.Target(pid); err != nil {
				return err
			}
			s.addUnwinding(p)
			found = true
		}
	}
	return nil
}

// Begin begins the recording: from now on rows go to send, which may wait. It returns the first
// rows: the processes, and what is missing of them.
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
				Message: "children are not followed: " + s.followErr.Error(),
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

// OnProcessEvent adds a new process, or notes that a known one became another program.
func (s *Set) OnProcessEvent(e bpf.CudaProcessEvent) {
	pid := int(e.Pid)
	known := s.Get(pid)
	if known != nil && e.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) {
		known.Rename()
		s.addUnwinding(known)
		s.forgetAllocator(pid)
		s.send([]format.Row{known.Row(known.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
		s.attachLibraries(known, false)
		return
	}
	p, err := process.Open(pid)
	if err != nil { // it has ended already; its calls, if any, are recorded
		s.noteGone(e)
		s.probes.Forget(pid)
		return
	}
	if !s.add(p) {
		p.Close()
		return
	}
	s.send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
	s.addUnwinding(p)
	// What other processes use is probed for the new one before it can map it, hopefully.
	for _, lib := range s.libraries {
		before := s.probes.Placed()
		if err := s.place(lib, pid); err != nil && p.Alive() {
			s.warnUnprobed(p, err)
			continue
		}
		if lib.Kind == library.Driver && s.probes.Placed() > before && p.HasMapped(lib.ID) {
			s.noteLate(lib, p)
		}
	}
	s.attachLibraries(p, false)
}

// OnLateProcessEvent notes a process that was born before the recording ended and was never added.
func (s *Set) OnLateProcessEvent(e bpf.CudaProcessEvent) {
	if e.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) || s.Get(int(e.Pid)) != nil {
		return
	}
	p, err := process.Open(int(e.Pid))
	if err != nil {
		s.noteGone(e)
		return
	}
	defer p.Close()
	s.send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(e.StartNs))})
}

// ReapExited removes the processes that have ended, and reports whether any is left.
func (s *Set) ReapExited() (left bool) {
	for _, p := range s.All() {
		if p.Alive() {
			left = true
			continue
		}
		s.send([]format.Row{p.ExitRow(s.clock.NowNs())})
		s.probes.Forget(p.Pid)
		s.forgetAllocator(p.Pid)
		if s.unwinder != nil {
			s.unwinder.Forget(p.Pid)
		}
		s.remove(p.Pid)
	}
	return left
}

// LastRows returns the rows of processes that have ended, and a note on lost forks and execs. It
// is for the end of the recording.
func (s *Set) LastRows(nowNs int64) []format.Row {
	var rows []format.Row
	if n := s.probes.LostChanges(); n > 0 {
		rows = append(rows, format.Row{
			Kind: format.KindNote, Name: "children", StartNs: nowNs, Device: -1, Value: float64(n),
			Message: "the ring buffer had no room for this many forks and execs: their processes lack facts, and if " +
				"others use libcuda, calls",
		})
	}
	for _, p := range s.All() {
		if !p.Alive() {
			rows = append(rows, p.ExitRow(nowNs))
		}
	}
	return rows
}
