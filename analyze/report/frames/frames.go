package frames

import (
	"slices"

	stackpkg "github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Shown returns the frames of a stack as a report shows them, leaf first: at most limit frames (0:
// all). A Frame with the number of frames replaces those that rules hide, and those beyond the
// limit. Frames of CUDA at the leaf are left out without a number: every stack has them. A stack
// that is hidden as a whole keeps its first frame.
func ForDisplay(s *stackpkg.Table, stack int32, limit int, rules *query.FrameRules) []report.Frame {
	ids := s.Stacks[stack]
	var list []report.Frame
	n := 0
	for i, id := range ids {
		f := &s.Frames[id]
		of, hidden := rules.Hides(f)
		switch {
		case hidden && (of != query.OfCUDA || len(list) > 0):
			list = fold(list, of)
		case hidden:
		case limit > 0 && n == limit:
			return cutShort(list, len(ids)-i)
		default:
			list = append(list, reportFrame(f))
			n++
		}
	}
	if n > 0 || len(ids) == 0 {
		return list
	}
	list = []report.Frame{reportFrame(&s.Frames[ids[0]])}
	for _, id := range ids[1:] {
		of, _ := rules.Hides(&s.Frames[id])
		list = fold(list, of)
	}
	return list
}

func reportFrame(f *format.Frame) report.Frame {
	return report.Frame{Func: query.FrameName(f), File: f.File, Line: f.Line, Module: f.Module}
}

// fold adds a hidden frame to the list.
func fold(list []report.Frame, of string) []report.Frame {
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

// cutShort ends the list with the number of frames beyond the limit.
func cutShort(list []report.Frame, more int) []report.Frame {
	if n := len(list); n > 0 && list[n-1].Folded > 0 {
		more += list[n-1].Folded
		list = list[:n-1]
	}
	return append(list, report.Frame{Folded: more})
}

// Fill sets the stacks of the rows of a table from their StackID. Call it after Arrange, which
// drops rows.
func Fill(t *timeline.Timeline, table *report.Table, opt *query.Options) {
	limit := opt.MaxFrames
	if opt.AllFrames {
		limit = 0
	}
	for i := range table.Rows {
		r := &table.Rows[i]
		r.Stack = ForDisplay(&t.Stacks, r.StackID, limit, opt.FrameRules())
		r.StackFrames = len(t.Stacks.Stacks[r.StackID])
	}
}
