package stack

import (
	"cmp"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// Table holds the distinct stacks of a recording, each distinct frame once.
type Table struct {
	Frames []format.Frame
	Stacks map[int32][]int32 // stack id → frames, leaf first
	About  map[int32]About
	// What AddSource adds: frames that are inlined into the next one, and what stacks'
	// places in the program are called.
	inlined map[int32]bool
	Sites   map[int32]string
	// unnamed counts stored frames that have no function name, of all stored.
	unnamed, stored int64
}

// About is what a recording says of a stack beside its frames.
type About struct {
	Pid    int32
	Status string
	Reason string // why it is truncated
	Site   string
}

// truncatedBy returns why a stack is truncated.
func truncatedBy(r *format.Row) string {
	if r.StackStatus != format.StackTruncated {
		return ""
	}
	return cmp.Or(r.Message, format.WhyOther)
}

func (s *Table) Add(r *format.Row, ids map[format.Frame]int32) {
	stack := make([]int32, len(r.Frames))
	for i, f := range r.Frames {
		id, ok := ids[f]
		if !ok {
			id = int32(len(s.Frames))
			ids[f] = id
			s.Frames = append(s.Frames, f)
		}
		stack[i] = id
		s.stored++
		if f.Func == "" {
			s.unnamed++
		}
	}
	s.Stacks[r.StackID] = stack
	s.About[r.StackID] = About{r.Pid, r.StackStatus, truncatedBy(r), r.Site}
}

// UnsymbolizedPct is the share of stored frames without a function name.
func (s *Table) UnsymbolizedPct() float64 { return units.Percent(s.unnamed, s.stored) }

// UserFrame returns the frame of the program's own code that made the call, as record
// chooses a call's site.
func (s *Table) UserFrame(stack int32) (*format.Frame, bool) {
	frames := s.Stacks[stack]
	i := symbolize.SiteFrame(len(frames), func(i int) symbolize.Caller {
		f := &s.Frames[frames[i]]
		return symbolize.Caller{Module: f.Module, Function: f.Func, File: f.File, Python: f.Type == query.FramePython}
	})
	if i < 0 {
		return nil, false
	}
	return &s.Frames[frames[i]], true
}
