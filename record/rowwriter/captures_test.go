//go:build linux

package rowwriter

import (
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// called passes a successful call to captures.
func called(c *captureTracker, name string, startNs uint64, stream, ptr, src uint64) {
	for i := range bpf.CallTable {
		if call := &bpf.CallTable[i]; call.Name == name {
			c.applyCall(&bpf.CudaEvent{Pid: 7, StartNs: startNs, DurNs: 10, Stream: stream, Ptr: ptr, Src: src}, call)
			return
		}
	}
	panic("no " + name)
}

// TestGraphSizeIsUnknownWithoutLaunches checks that a graph has no size if launches may have been
// missing during its capture, and that graphs cloned from it have none.
func TestGraphSizeIsUnknownWithoutLaunches(t *testing.T) {
	testclass.Unit(t)
	const stream, graph, exec, clone, cloned = 1, 2, 3, 4, 5
	for name, c := range map[string]struct {
		beginNs, endNs uint64
		want           int64
	}{"before": {100, 200, 2}, "into": {950, 1100, 0}, "across": {900, 2100, 0}, "within": {1200, 1300, 0}, "out of": {1900, 2100, 0}, "after": {2000, 2100, 2}} {
		var missing probe.MissingLaunchTimes
		missing.Begin(1000)
		missing.End(2000)
		s := newCaptureTracker(&missing)
		called(s, "cuStreamBeginCapture_v2", c.beginNs, stream, 0, 0)
		called(s, "cuLaunchKernel", c.beginNs+1, stream, 0, 9)
		called(s, "cuLaunchKernel", c.beginNs+2, stream, 0, 9)
		called(s, "cuStreamEndCapture", c.endNs-10, stream, graph, 0)
		called(s, "cuGraphInstantiateWithFlags", c.endNs+10, 0, exec, graph)
		called(s, "cuGraphClone", c.endNs+20, 0, clone, graph)
		called(s, "cuGraphAddKernelNode_v2", c.endNs+30, 0, 0, clone)
		called(s, "cuGraphInstantiateWithFlags", c.endNs+40, 0, cloned, clone)
		want := c.want
		if want > 0 {
			want++
		}
		if got := s.countGraphKernels(objectHandle{7, exec}); got != c.want {
			t.Errorf("captured %s: %d kernels, want %d", name, got, c.want)
		}
		if got := s.countGraphKernels(objectHandle{7, cloned}); got != want {
			t.Errorf("captured %s, then cloned: %d kernels, want %d", name, got, want)
		}
	}
}
