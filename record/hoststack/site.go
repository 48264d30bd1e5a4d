//go:build linux

package hoststack

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// Site returns the frame that the thread executes in the program's own code, by the rule with which a
// recording chooses call sites. It returns nil without user frames.
func (t *Thread) Site() *format.Frame {
	user := t.Frames
	for len(user) > 0 && user[0].Type == FrameKernel {
		user = user[1:]
	}
	if len(user) == 0 {
		return nil
	}
	i := symbolize.SiteFrame(len(user)+1, func(i int) symbolize.SiteCandidate { // never chooses frame 0
		f := &user[max(0, i-1)]
		return symbolize.SiteCandidate{Module: f.Module, Function: f.Func, File: f.File, Python: f.Type == "python"}
	})
	return &user[i-1]
}
