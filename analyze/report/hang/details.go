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

// callDetails are the columns of a call that callRef omits.
type callDetails struct {
	kind, name, kernel, Site string
	stream, ptr, context     int64
	parentNs                 int64
	device, result, Stack    int32
	flags                    int32
	grid, block              [3]int32
}

// RequestAllDetails requests the details of every call that the report may show.
func (s *Scan) RequestAllDetails() {
	s.requestDetails(s.Long...)
	for _, l := range s.Threads {
		s.requestDetails(l.last)
		s.requestDetails(l.open...)
	}
	for _, p := range s.Processes {
		if p.errors > 0 {
			s.requestDetails(p.lastError)
		}
		for _, launches := range p.streams {
			s.requestDetails(launches...)
		}
	}
}

// requestDetails requests the details of calls. ReadDetails reads them.
func (s *Scan) requestDetails(calls ...callRef) {
	for i := range calls {
		s.details[calls[i].rowRef] = new(callDetails)
	}
}

// Details returns the details of a call. It returns nil if RequestAllDetails did not request the
// call. Call ReadDetails first.
func (s *Scan) Details(c *callRef) *callDetails { return s.details[c.rowRef] }

// ReadDetails reads the details of all requested calls, one row group at a time.
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
		s.readGroupDetails(g, index, rows)
		if err := g.Err(); err != nil {
			return s.T.WrapReadError(err)
		}
	}
	return nil
}

// readGroupDetails reads the details of rows of one row group, one column at a time.
func (s *Scan) readGroupDetails(g *format.Group, index int32, rows []int32) {
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

// streamOfEvent returns the stream on which an event was last recorded (cuEventRecord) before a
// time, and the time of that call (Unix ns). ok is false if the recording has no such call.
func (s *Scan) streamOfEvent(pid int32, event, beforeNs int64) (stream, atNs int64, ok bool) {
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

// kernelOfLaunch returns the short kernel name of a launch, or the driver function if the name is
// unknown.
func (s *Scan) kernelOfLaunch(c *callRef) string {
	d := s.Details(c)
	if d.kernel == "" {
		return d.name
	}
	return symbolize.ShortKernel(d.kernel)
}

// lastKernelName returns the name of the last kernel that a process launched, or "" without
// launches.
func (s *Scan) lastKernelName(p *processHistory) string {
	c := p.lastLaunch()
	if c == nil {
		return ""
	}
	return s.kernelOfLaunch(c)
}

// awaitedObject returns the object that a call waits for, or "" if it is unknown.
func (s *Scan) awaitedObject(c *callRef) string {
	d := s.Details(c)
	switch name := catalog.BaseFunctionName(d.name); {
	case name == "cuEventSynchronize":
		text := fmt.Sprintf("event 0x%x", uint64(d.ptr))
		if stream, atNs, ok := s.streamOfEvent(c.pid, d.ptr, c.startNs); ok {
			text += fmt.Sprintf(
				", recorded on stream %s %s before",
				query.StreamName(stream),
				units.FormatDuration(c.startNs-atNs),
			)
		}
		return text
	case strings.HasPrefix(name, "cuCtxSynchronize"):
		return "all streams of the context"
	case d.kind == format.KindSync:
		return "stream " + query.StreamName(d.stream)
	case d.kind == format.KindMemcpy || d.kind == format.KindMemset:
		return "a copy or memset on stream " + query.StreamName(d.stream)
	case d.kind == format.KindLaunch:
		return "space in the launch queue of stream " + query.StreamName(d.stream)
	}
	return ""
}

// threadLabel returns the id and name of a thread.
func (s *Scan) threadLabel(th origin.Thread) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, s.T.Facts.Threads[th]))
}
