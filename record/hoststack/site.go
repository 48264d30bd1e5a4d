//go:build linux

package hoststack

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// Site returns the frame that the thread executes in the program's own code, by the rule with which a
// recording chooses call sites. It returns nil without user frames.
func (t *Thread) Site() *format.Frame {
	i := symbolize.CodeFrame(len(t.Frames), func(i int) symbolize.SiteCandidate {
		f := &t.Frames[i]
		return symbolize.SiteCandidate{
			Module: f.Module, Function: f.Func, File: f.File,
			Python: f.Type == "python", Kernel: f.Type == format.FrameKernel,
		}
	})
	if i < 0 {
		return nil
	}
	return &t.Frames[i]
}
