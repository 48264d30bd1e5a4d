package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// callDetails are the columns of a call that callRef lacks.
type callDetails struct {
	kind, name, kernel, Site string
	stream, ptr, context     int64
	parentNs                 int64
	device, result, Stack    int32
	flags                    int32
	grid, block              [3]int32
}

// WantAll asks for the details of every call that the report may show.
func (s *Scan) WantAll() {
	s.want(s.Long...)
	for _, l := range s.Threads {
		s.want(l.last)
		s.want(l.open...)
	}
	for _, p := range s.Processes {
		if p.errors > 0 {
			s.want(p.lastError)
		}
		for _, launches := range p.streams {
			s.want(launches...)
		}
	}
}

// want asks for the details of calls.
func (s *Scan) want(calls ...callRef) {
	for i := range calls {
		s.details[calls[i].rowRef] = new(callDetails)
	}
}

// Details returns the details of a call, after ReadDetails. It is nil for a call that was not
// wanted.
func (s *Scan) Details(c *callRef) *callDetails { return s.details[c.rowRef] }

// ReadDetails reads the details of all calls that were wanted, row group by row group.
func (s *Scan) ReadDetails() error {
	bySpan := make(map[int32][]int32)
	for ref := range s.details {
		bySpan[ref.span] = append(bySpan[ref.span], ref.row)
	}
	for index, rows := range bySpan {
		g := s.Spans[index].Group
		for _, row := range rows {
			*s.details[rowRef{index, row}] = callDetails{}
		}
		s.detailsOf(g, index, rows)
		if err := g.Err(); err != nil {
			return s.T.Wrap(err)
		}
	}
	return nil
}

// detailsOf reads the details of some rows of a row group, column by column.
func (s *Scan) detailsOf(g *format.Group, index int32, rows []int32) {
	texts := func(column string, to func(*callDetails) *string) {
		values := g.Strings(column)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = values.At(int(row))
		}
	}
	texts("kind", func(d *callDetails) *string { return &d.kind })
	texts("name", func(d *callDetails) *string { return &d.name })
	texts("kernel", func(d *callDetails) *string { return &d.kernel })
	texts("site", func(d *callDetails) *string { return &d.Site })
	for column, to := range map[string]func(*callDetails) *int64{
		"stream":          func(d *callDetails) *int64 { return &d.stream },
		"ptr":             func(d *callDetails) *int64 { return &d.ptr },
		"context":         func(d *callDetails) *int64 { return &d.context },
		"parent_start_ns": func(d *callDetails) *int64 { return &d.parentNs },
	} {
		s.Start = g.Int64(column, s.Start)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = s.Start[row]
		}
	}
	for column, to := range map[string]func(*callDetails) *int32{
		"device":   func(d *callDetails) *int32 { return &d.device },
		"result":   func(d *callDetails) *int32 { return &d.result },
		"stack_id": func(d *callDetails) *int32 { return &d.Stack },
		"flags":    func(d *callDetails) *int32 { return &d.flags },
		"grid_x":   func(d *callDetails) *int32 { return &d.grid[0] },
		"grid_y":   func(d *callDetails) *int32 { return &d.grid[1] },
		"grid_z":   func(d *callDetails) *int32 { return &d.grid[2] },
		"block_x":  func(d *callDetails) *int32 { return &d.block[0] },
		"block_y":  func(d *callDetails) *int32 { return &d.block[1] },
		"block_z":  func(d *callDetails) *int32 { return &d.block[2] },
	} {
		s.Flags = g.Int32(column, s.Flags)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = s.Flags[row]
		}
	}
}

// recordedOn returns the stream on which an event was last recorded (cuEventRecord) before a
// moment, and when. ok is false if no such call is in the recording.
func (s *Scan) recordedOn(pid int32, event, beforeNs int64) (stream, atNs int64, ok bool) {
	for i := range s.Spans {
		g := s.Spans[i].Group
		if s.Spans[i].FirstNs > beforeNs || !slices.Contains(g.Kinds(), format.KindAPI) {
			continue
		}
		s.Name = g.StringsInto("name", s.Name)
		records := make([]bool, len(s.Name.Dict))
		for k, n := range s.Name.Dict {
			records[k] = strings.HasPrefix(n, "cuEventRecord")
		}
		if !slices.Contains(records, true) {
			continue
		}
		s.Start, s.Dur, s.Stream = g.Int64("start_ns", s.Start), g.Int64("ptr", s.Dur), g.Int64("stream", s.Stream)
		s.Pid = g.Int32("pid", s.Pid)
		for k, at := range s.Start {
			if records[s.Name.Index[k]] && s.Pid[k] == pid && s.Dur[k] == event && at <= beforeNs &&
				(!ok || at >= atNs) {
				stream, atNs, ok = s.Stream[k], at, true
			}
		}
	}
	return stream, atNs, ok
}

// kernelOf returns the short name of the kernel of a launch, or the function that was called.
func (s *Scan) kernelOf(c *callRef) string {
	d := s.Details(c)
	if d.kernel == "" {
		return d.name
	}
	return symbolize.ShortKernel(d.kernel)
}

// lastKernel returns the name of the kernel that a process launched last, "" without launches.
func (s *Scan) lastKernel(p *processLife) string {
	c := p.lastLaunch()
	if c == nil {
		return ""
	}
	return s.kernelOf(c)
}

// waitsFor says what a call waits for, "" if its columns do not show it.
func (s *Scan) waitsFor(c *callRef) string {
	d := s.Details(c)
	switch name := catalog.BaseName(d.name); {
	case name == "cuEventSynchronize":
		text := fmt.Sprintf("event 0x%x", uint64(d.ptr))
		if stream, atNs, ok := s.recordedOn(c.pid, d.ptr, c.startNs); ok {
			text += fmt.Sprintf(
				", recorded on stream %s %s before",
				query.StreamName(stream),
				units.Duration(c.startNs-atNs),
			)
		}
		return text
	case strings.HasPrefix(name, "cuCtxSynchronize"):
		return "all streams of the context"
	case d.kind == format.KindSync:
		return "stream " + query.StreamName(d.stream)
	case d.kind == format.KindMemcpy || d.kind == format.KindMemset:
		return "a copy or fill on stream " + query.StreamName(d.stream)
	case d.kind == format.KindLaunch:
		return "room in the queue of stream " + query.StreamName(d.stream)
	}
	return ""
}

// nameOf returns the number and name of a thread.
func (s *Scan) nameOf(th origin.Thread) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, s.T.Facts.Threads[th]))
}
