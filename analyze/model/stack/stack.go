package stack

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// StackTable holds the distinct stacks of a recording. Each distinct frame is stored once.
type StackTable struct {
	Frames []format.Frame
	Stacks map[int32][]int32   // stack id → indexes into Frames, innermost first
	About  map[int32]StackInfo // the other columns of a stack's row, by stack id
	// SourceReader sets inlined and Sites: the frames that are inlined into the next frame, and the
	// call site of each stack by source line.
	inlined map[int32]bool
	Sites   map[int32]string
	// unnamed counts the stored frames without a function name; stored counts all.
	unnamed, stored int64
}

// Pair is the stack of a call and, if an autograd thread made it, the stack of the call for which the thread works. Via is
// 0 for other threads.
type Pair struct{ Stack, Via int32 }

// FramesOfPair returns the frames of both stacks as indexes into Frames, innermost first: those of the thread, then
// those of the call for which it works.
func (s *StackTable) FramesOfPair(p Pair) []int32 {
	if p.Via == 0 {
		return s.Stacks[p.Stack]
	}
	return slices.Concat(s.Stacks[p.Stack], s.Stacks[p.Via])
}

// StackInfo has the columns of a stack's row other than its frames.
type StackInfo struct {
	Pid    int32
	Status string
	Reason string // why the stack is truncated; "" if it is complete
	Site   string // call site that the recorder chose
}

// truncationReason returns the reason why a stack is truncated, or "" for a complete stack.
func truncationReason(r *format.Row) string {
	if r.StackStatus != format.StackTruncated {
		return ""
	}
	return cmp.Or(r.Message, format.TruncationOther)
}

// AddStack stores the stack of a row. ids maps the frames stored so far to their indexes; Add adds
// new frames to it.
func (s *StackTable) AddStack(r *format.Row, ids map[format.Frame]int32) {
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
	s.About[r.StackID] = StackInfo{r.Pid, r.StackStatus, truncationReason(r), r.Site}
}

// UnsymbolizedPct returns the share of stored frames without a function name, in percent.
func (s *StackTable) UnsymbolizedPct() float64 { return units.Percent(s.unnamed, s.stored) }

// FramesOf returns the frames of a stack, innermost first. An unknown stack has none.
func (s *StackTable) FramesOf(stack int32) (frames []format.Frame) {
	for _, f := range s.Stacks[stack] {
		frames = append(frames, s.Frames[f])
	}
	return frames
}

// UserFrame returns the innermost frame of the program's own code, by the rule with which record
// chooses a call site. It returns false if the stack has no such frame.
func (s *StackTable) UserFrame(stack int32) (*format.Frame, bool) {
	frames := s.Stacks[stack]
	i := symbolize.SiteFrame(len(frames), func(i int) symbolize.SiteCandidate { return s.siteCandidate(frames[i]) })
	if i < 0 {
		return nil, false
	}
	return &s.Frames[frames[i]], true
}

// siteCandidate returns what decides whether a frame is a call site.
func (s *StackTable) siteCandidate(id int32) symbolize.SiteCandidate {
	f := &s.Frames[id]
	return symbolize.SiteCandidate{
		Module:   f.Module,
		Function: f.Func,
		File:     f.File,
		Python:   f.Type == query.FrameTypePython,
	}
}
