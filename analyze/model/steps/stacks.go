package steps

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// stackInfo has the parts of a stack that the search for steps needs.
type stackInfo struct {
	path       []int32 // frames, outermost first: Python frames, or native frames if there are none
	python     bool
	autograd   bool // the stack is of PyTorch's backward thread
	optimizers bool // a function of the stack updates weights
}

// stackTable describes the stacks of a recording. It is not safe for concurrent use.
type stackTable struct {
	t     *timeline.Timeline
	infos map[int32]*stackInfo
}

// infoOf returns the description of a stack.
func (s *stackTable) infoOf(id int32) *stackInfo {
	info := s.infos[id]
	if info == nil {
		info = s.describe(id)
		s.infos[id] = info
	}
	return info
}

func (s *stackTable) describe(id int32) *stackInfo {
	info := new(stackInfo)
	ids := s.t.Stacks.Stacks[id]
	for _, id := range ids {
		f := &s.t.Stacks.Frames[id]
		info.python = info.python || f.Type == query.FrameTypePython
		info.autograd = info.autograd || stack.IsAutogradFrame(f)
		info.optimizers = info.optimizers || stack.IsOptimizerFrame(f)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		f := &s.t.Stacks.Frames[ids[i]]
		if info.python && (f.Type != query.FrameTypePython || strings.HasPrefix(f.File, "<")) {
			continue
		}
		info.path = append(info.path, ids[i])
	}
	return info
}
