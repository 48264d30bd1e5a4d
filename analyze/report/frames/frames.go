package frames

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// DisplayFrames returns the frames of a stack for display, leaf first, at most limit frames. A
// limit of 0 means all frames. A placeholder Frame with a count replaces frames that the rules hide
// and frames beyond the limit. Hidden CUDA frames at the leaf are dropped without a placeholder,
// because every stack has them. If the rules hide the whole stack, its first frame stays.
func DisplayFrames(s *stack.StackTable, of stack.Pair, limit int, rules *query.FrameRules) []report.Frame {
	ids := s.FramesOfPair(of)
	var list []report.Frame
	n := 0
	for i, id := range ids {
		f := &s.Frames[id]
		library, hidden := rules.HidesFrame(f)
		switch {
		case hidden && (library != query.FrameOwnerCUDA || len(list) > 0):
			list = foldHiddenFrame(list, library)
		case hidden:
		case limit > 0 && n == limit:
			return cutFrames(list, len(ids)-i)
		default:
			list = append(list, newReportFrame(f))
			n++
		}
	}
	if n > 0 || len(ids) == 0 {
		return list
	}
	list = []report.Frame{newReportFrame(&s.Frames[ids[0]])}
	for _, id := range ids[1:] {
		library, _ := rules.HidesFrame(&s.Frames[id])
		list = foldHiddenFrame(list, library)
	}
	return list
}

func newReportFrame(f *format.Frame) report.Frame {
	return report.Frame{Func: query.FrameName(f), File: f.File, Line: f.Line, Module: f.Module}
}

// foldHiddenFrame adds a hidden frame to the placeholder at the end of the list. of is the frame's
// library.
func foldHiddenFrame(list []report.Frame, of string) []report.Frame {
	if n := len(list); n == 0 || list[n-1].Folded == 0 {
		list = append(list, report.Frame{})
	}
	last := &list[len(list)-1]
	last.Folded++
	if !slices.Contains(last.Libraries, of) {
		last.Libraries = append(last.Libraries, of)
	}
	return list
}

// cutFrames ends the list with a placeholder for the frames beyond the limit.
func cutFrames(list []report.Frame, more int) []report.Frame {
	if n := len(list); n > 0 && list[n-1].Folded > 0 {
		more += list[n-1].Folded
		list = list[:n-1]
	}
	return append(list, report.Frame{Folded: more})
}

// FillRowStacks sets the stack of each row of a table from its StackID and ViaStackID. Call it after
// Table.Arrange, which removes rows.
func FillRowStacks(t *timeline.Timeline, table *report.Table, opt *query.Options) {
	limit := opt.MaxFrames
	if opt.AllFrames {
		limit = 0
	}
	for i := range table.Rows {
		r := &table.Rows[i]
		of := stack.Pair{Stack: r.StackID, Via: r.ViaStackID}
		r.Stack = DisplayFrames(&t.Stacks, of, limit, opt.FrameRules())
		r.StackFrames = len(t.Stacks.FramesOfPair(of))
	}
}
