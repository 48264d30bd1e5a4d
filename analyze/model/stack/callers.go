package stack

import (
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/symbolize"
)

// CallerReader finds the callers of call sites. It classifies each frame once. It is not safe for
// concurrent use.
type CallerReader struct {
	stacks *StackTable
	own    map[int32]bool // by frame: whether it is the program's own code
}

// NewCallerReader returns a CallerReader of the stacks.
func NewCallerReader(stacks *StackTable) *CallerReader {
	return &CallerReader{stacks: stacks, own: make(map[int32]bool)}
}

// CallSiteAndCallers returns the frames of the program's own code in a stack, innermost first, as
// indexes of StackTable.Frames. The first one is the call site, as UserFrame chooses it; the others
// are its callers. In a stack with Python code of the program, only that code counts. The result is
// empty if the call site is not the program's own code.
func (r *CallerReader) CallSiteAndCallers(stack int32) []int32 {
	var python, all []int32
	for i, id := range r.stacks.Stacks[stack] {
		if i == 0 || !r.isOwn(id) {
			continue // frame 0 is the called function
		}
		all = append(all, id)
		if r.isPython(id) {
			python = append(python, id)
		}
	}
	if len(python) > 0 {
		return python
	}
	return all
}

func (r *CallerReader) isPython(id int32) bool {
	return r.stacks.Frames[id].Type == query.FrameTypePython
}

func (r *CallerReader) isOwn(id int32) bool {
	own, ok := r.own[id]
	if !ok {
		own = symbolize.IsOwnCode(r.stacks.siteCandidate(id))
		r.own[id] = own
	}
	return own
}
