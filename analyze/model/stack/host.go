package stack

import (
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// HostLine returns the innermost line of the program's own code in a stack of class host, by the rule with
// which record chooses a call site. Such a stack has no call of the driver as its first frame: the
// first frame of user space may be the program's own. Frames of the kernel are no lines. It returns
// false if the stack has no frame of user space.
func (s *StackTable) HostLine(stack int32) (*format.Frame, bool) {
	ids := s.Stacks[stack]
	i := symbolize.CodeFrame(len(ids), func(i int) symbolize.SiteCandidate {
		f := &s.Frames[ids[i]]
		return symbolize.SiteCandidate{
			Module: f.Module, Function: f.Func, File: f.File,
			Python: f.Type == query.FrameTypePython, Kernel: f.Type == format.FrameKernel,
		}
	})
	if i < 0 {
		return nil, false
	}
	return &s.Frames[ids[i]], true
}
