//go:build linux

package stack

import (
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// AddFrames numbers a stack whose frames are already named. Frames of the kernel are part of the stack,
// but never its call site. why is the reason why the stack is truncated, "" if it is complete. It returns
// the row of a new stack.
func (t *Table) AddFrames(pid int32, status, why string, frames []format.Frame) (*KnownStack, []format.Row) {
	key := t.keys.hashFrames(uint32(pid), why, frames)
	if known, ok := t.chains[key]; ok {
		return known, nil
	}
	s := &KnownStack{ID: t.lastID + 1, pid: pid, Site: nameHostSite(frames), Status: status}
	if t.roomBytes < s.memoryBytes() {
		return &lostStack, t.noteTableFull()
	}
	t.lastID++
	t.roomBytes -= s.memoryBytes()
	t.chains[key] = s
	return s, []format.Row{{
		Kind: format.KindStack, Pid: pid, Device: -1, StackID: s.ID, StackStatus: status, Message: why, Site: s.Site,
		Stack: foldStack(frames), Frames: slices.Clone(frames),
	}}
}

// nameHostSite returns the name of the line that a thread executes: that of its program, if there is one.
func nameHostSite(frames []format.Frame) string {
	i := symbolize.CodeFrame(len(frames), func(i int) symbolize.SiteCandidate {
		f := &frames[i]
		return symbolize.SiteCandidate{
			Module: f.Module, Function: f.Func, File: f.File,
			Python: f.Type == "python", Kernel: f.Type == format.FrameKernel,
		}
	})
	if i < 0 {
		return ""
	}
	return symbolize.NameWithLine(formatFrameName(frames[i]), frames[i].File, frames[i].Line)
}
