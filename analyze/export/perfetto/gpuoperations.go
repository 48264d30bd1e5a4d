package perfetto

import (
	"fmt"
	"iter"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxSortedOperations is the number of operations that are sorted by their start. Operations of several streams come
// in another order. 36 MiB hold so many.
const maxSortedOperations = 1 << 19

// gpuOperation is an operation that the trace shows at its time on the GPU.
type gpuOperation struct {
	startNs, endNs, callNs int64 // Unix ns
	startErrorNs           int64 // half the distance between the bounds of the start
	lane                   streamLane
	tid                    int32
	label                  int32
	op                     activity.Op
	start, end             activity.Quality
}

// startsBefore reports whether an operation begins before another one.
func (w *gpuOperation) startsBefore(o *gpuOperation) bool {
	if w.startNs != o.startNs {
		return w.startNs < o.startNs
	}
	return w.callNs < o.callNs
}

// gpuOperations reads the operations of a recording in order of their start.
type gpuOperations struct {
	activity *activity.Activity
	// streams and copies are the streams, and the directions of copies of a process, that have a channel.
	streams   map[streamLane]bool
	copies    map[copyLane]bool
	next      func() (gpuOperation, bool)
	stop      func()
	operation gpuOperation
	has       bool
	err       error
}

// copyLane are the copies of a process in one direction.
type copyLane struct {
	pid int32
	op  activity.Op
}

// newGPUOperations returns the operations that pass the filter. Without progress words there are none.
func newGPUOperations(p *traceBuilder) (*gpuOperations, error) {
	g := &gpuOperations{
		streams: make(map[streamLane]bool), copies: make(map[copyLane]bool),
		stop: func() {},
	}
	a, err := activity.Of(p.t, p.t.RecordingWindow())
	if err != nil || len(a.Channels) == 0 {
		return g, err
	}
	g.activity = a
	for i := range a.Streams {
		s := &a.Streams[i]
		switch {
		case s.Channel == 0:
		case s.Copies != 0:
			g.copies[copyLane{s.Pid, s.Copies}] = true
		default:
			g.streams[laneOfStream(s.Pid, s.Device, s.Handle)] = true
		}
	}
	g.next, g.stop = iter.Pull(g.sorted(p))
	g.operation, g.has = g.next()
	return g, nil
}

// laneOfStream returns the lane of a stream. The default streams share the handle 0.
func laneOfStream(pid, device int32, handle int64) streamLane {
	return streamLane{stream: activity.RecordedHandle(handle), pid: pid, device: device, onGPU: true}
}

// shows reports whether the operations of a kind on a stream are shown at their times on the GPU.
func (g *gpuOperations) shows(lane streamLane, kind, copyKind string) bool {
	lane.onGPU = true
	if kind == format.KindMemcpy {
		switch copyKind {
		case "HtoD":
			return g.copies[copyLane{lane.pid, activity.OpCopyToDevice}]
		case "DtoH":
			return g.copies[copyLane{lane.pid, activity.OpCopyToHost}]
		}
	}
	return g.streams[lane]
}

// sorted returns the operations in order of their start.
func (g *gpuOperations) sorted(p *traceBuilder) iter.Seq[gpuOperation] {
	return func(yield func(gpuOperation) bool) {
		s := operationSorter{last: make(map[streamLane]gpuOperation)}
		wanted := true
		g.err = g.activity.EachOperation(func(w *activity.Operation) {
			if !wanted || w.Call.Op == activity.OpRecordEvent || !g.passes(w, p) {
				return
			}
			s.add(newGPUOperation(w))
			if len(s.heap) > maxSortedOperations {
				wanted = yield(s.pop())
			}
		})
		s.addLast()
		for wanted && len(s.heap) > 0 {
			wanted = yield(s.pop())
		}
	}
}

// operationSorter sorts operations by their start. On a stream, operations do not overlap.
type operationSorter struct {
	heap []gpuOperation
	last map[streamLane]gpuOperation // last operation of each lane, whose end the next operation may correct
}

// add adds an operation. The operations of a lane come in their order.
func (s *operationSorter) add(w gpuOperation) {
	if last, ok := s.last[w.lane]; ok {
		w.startNs = max(w.startNs, last.startNs)
		w.endNs = max(w.endNs, w.startNs)
		last.endNs = min(last.endNs, w.startNs)
		s.push(last)
	}
	s.last[w.lane] = w
}

func (s *operationSorter) push(w gpuOperation) { s.heap = stats.HeapPush(s.heap, w, operationBefore) }

func operationBefore(a, b gpuOperation) bool { return a.startsBefore(&b) }

// addLast adds the last operations of all lanes to the heap.
func (s *operationSorter) addLast() {
	for _, w := range s.last {
		s.push(w)
	}
	clear(s.last)
}

// pop returns the first operation.
func (s *operationSorter) pop() gpuOperation {
	for lane, w := range s.last {
		if w.startsBefore(&s.heap[0]) {
			s.push(w)
			delete(s.last, lane)
		}
	}
	first := s.heap[0]
	s.heap = stats.HeapPop(s.heap, operationBefore)
	return first
}

// passes reports whether the call of an operation passes the filter.
func (g *gpuOperations) passes(w *activity.Operation, p *traceBuilder) bool {
	c, f := &w.Call, &p.filter
	if c.StartNs < p.window.FromNs || c.StartNs > p.window.ToNs {
		return false
	}
	lane := laneOfStream(c.Pid, c.Device, c.Stream)
	if !f.PassesCaller(c.Pid, c.Tid, c.Device, lane.stream) {
		return false
	}
	kind, label := kindOfOperation(c.Op), g.labelOf(c.Label)
	return f.PassesKernel(kind, label.Kernel) && f.PassesSize(kind, label.Bytes)
}

// kindOfOperation returns the kind of the rows of an operation.
func kindOfOperation(op activity.Op) string {
	switch op {
	case activity.OpFill:
		return format.KindMemset
	case activity.OpCopyOnDevice, activity.OpCopyToDevice, activity.OpCopyToHost:
		return format.KindMemcpy
	}
	return format.KindLaunch
}

// labelOf returns a label by its number, or an empty one.
func (g *gpuOperations) labelOf(number int32) activity.Label {
	if number < 0 || int(number) >= len(g.activity.Labels) {
		return activity.Label{}
	}
	return g.activity.Labels[number]
}

// newGPUOperation returns the operation of the trace. An operation without a known start is placed at its call.
func newGPUOperation(w *activity.Operation) gpuOperation {
	c := &w.Call
	g := gpuOperation{
		startNs: c.StartNs,
		endNs:   c.StartNs,
		callNs:  c.StartNs,
		lane:    laneOfStream(c.Pid, c.Device, c.Stream),
		tid:     c.Tid,
		label:   c.Label,
		op:      c.Op,
		start:   w.StartQuality,
	}
	if c.Op == activity.OpCopyToDevice || c.Op == activity.OpCopyToHost {
		g.lane.copies = c.Op
	}
	if w.StartQuality == activity.Unknown {
		return g
	}
	g.startNs, g.startErrorNs = max(w.StartNs(), c.StartNs), w.Start.WidthNs()/2
	if _, g.end = w.ProbableEnd(); g.end != activity.Unknown {
		g.endNs = w.EndNs()
	}
	g.endNs = max(g.endNs, g.startNs)
	return g
}

// writeOperation writes the next operation: a slice on its lane, or an instant if its start or end is unknown.
func (t *traceBuilder) writeOperation() {
	w := t.operations.operation
	t.operations.operation, t.operations.has = t.operations.next()
	if t.full && w.callNs >= t.stats.LeftOutNs {
		return
	}
	track := t.findGPULane(w.lane)
	name, category := t.operations.name(&w), kindOfOperation(w.op)
	if w.start == activity.Unknown || w.end == activity.Unknown {
		t.w.startEvent(eventTypeInstant, track.uuid)
	} else {
		lane := w.lane
		t.beginSlice(openSlice{
			startNs:  w.startNs,
			atNs:     w.endNs,
			thread:   track,
			caller:   origin.Thread{Pid: lane.pid},
			lane:     &lane,
			name:     name,
			category: category,
		})
	}
	t.w.setEventName(name)
	t.w.addEventCategory(category)
	t.w.event = appendFixed64Field(t.w.event, fieldTerminatingFlowIDs, flowOfCall(w.lane.pid, w.tid, w.callNs))
	t.w.addTextAnnotation("start_known", qualityNames[w.start])
	if w.start != activity.Unknown {
		t.w.addAnnotation("start_error_ns", fieldAnnotationInt, uint64(w.startErrorNs))
		t.w.addAnnotation("queue_ns", fieldAnnotationInt, uint64(max(0, w.startNs-w.callNs)))
	}
	t.w.addTextAnnotation("end_known", qualityNames[w.end])
	if late := int64(t.w.lastNs) - int64(t.w.toMonotonicClock(w.startNs)); late > 0 {
		// the operation became known after maxSortedOperations later ones
		t.w.addAnnotation("shown_late_ns", fieldAnnotationInt, uint64(late))
	}
	t.w.finishEvent(w.startNs)
}

// writeLateOperations writes the operations that began after the window, of calls inside of it.
func (t *traceBuilder) writeLateOperations() {
	for t.operations.has {
		for len(t.ends) > 0 && t.ends[0].atNs <= t.operations.operation.startNs {
			t.endFirstSlice()
		}
		t.writeOperation()
	}
}

// qualityNames name the certainty of a time.
var qualityNames = [...]string{
	activity.Unknown: "unknown", activity.Estimated: "estimated", activity.Bounded: "bounded",
	activity.Measured: "measured",
}

// name returns the name of the slice of an operation.
func (g *gpuOperations) name(w *gpuOperation) string {
	label := g.labelOf(w.label)
	switch w.op {
	case activity.OpGraph:
		return fmt.Sprintf("graph 0x%x", uint64(label.Graph))
	case activity.OpFill:
		return "memset " + units.FormatBytes(label.Bytes)
	case activity.OpCopyOnDevice:
		return "copy DtoD " + units.FormatBytes(label.Bytes)
	case activity.OpCopyToDevice:
		return "copy HtoD " + units.FormatBytes(label.Bytes)
	case activity.OpCopyToHost:
		return "copy DtoH " + units.FormatBytes(label.Bytes)
	}
	if label.Kernel == "" {
		return "kernel"
	}
	return units.ReplaceInvalidUTF8(label.Kernel)
}

// flowOfCall returns the id of the flow from a call to its operation. A thread makes one call at a time.
func flowOfCall(pid, tid int32, callNs int64) uint64 {
	return (uint64(uint32(pid))<<32|uint64(uint32(tid)))*0x9e3779b97f4a7c15 ^ uint64(callNs)*0xbf58476d1ce4e5b9 | 1
}
