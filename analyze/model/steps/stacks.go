package steps

import (
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
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
func (s *stackTable) infoOf(stack int32) *stackInfo {
	info := s.infos[stack]
	if info == nil {
		info = s.describe(stack)
		s.infos[stack] = info
	}
	return info
}

// optimizerNames matches names of functions and kernels that update weights.
var optimizerNames = regexp.MustCompile(`(?i)optim|adam|adagrad|rmsprop|(^|[^a-z])(sgd|lion|lamb)([^a-z]|$)` +
	`|(weights?|params?|parameters?)_?update|update_?(weights?|params?|parameters?)`)

func (s *stackTable) describe(stack int32) *stackInfo {
	info := new(stackInfo)
	ids := s.t.Stacks.Stacks[stack]
	for _, id := range ids {
		f := &s.t.Stacks.Frames[id]
		info.python = info.python || f.Type == query.FrameTypePython
		info.autograd = info.autograd || strings.Contains(f.Func, "torch::autograd::Engine")
		info.optimizers = info.optimizers || isOptimizer(f)
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

// isOptimizer reports whether a function updates weights. Optimizer.zero_grad does not.
func isOptimizer(f *format.Frame) bool {
	if strings.Contains(f.Func, "zero_grad") {
		return false
	}
	return f.Type == query.FrameTypePython && strings.Contains(f.File, "torch/optim/") &&
		strings.HasSuffix(f.Func, "step") ||
		!strings.Contains(f.File, "torch/optim/") && optimizerNames.MatchString(f.Func)
}
