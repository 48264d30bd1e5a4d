package perfetto

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestTraceShowsAllocators checks that the counters of an allocator end with the allocator's
// totals, and that they are never negative.
func TestTraceShowsAllocators(t *testing.T) {
	testclass.Unit(t)
	recording, worlds := analyzetest.TorchAllocatorRecording(t, 5, 400, func(*analyzetest.TorchAllocator) {})
	for _, pid := range []int32{42, 77} {
		recording.AddRow(format.Row{Kind: format.KindProcess, Pid: pid, Name: "python3"})
	}
	tl := recording.Timeline()
	d, _ := traced(t, tl, Options{})
	end, err := state.ReadAllocators(tl, tl.RecordingWindow().ToNs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range worlds {
		model := analyzetest.FindAllocatorState(end, w)
		for total, want := range map[string]int64{
			"allocated": model.Allocated,
			"reserved":  model.Reserved,
			"requested": model.Requested,
		} {
			name := fmt.Sprintf("%s / PyTorch %s of process %d", gpuName(d, w.Device), total, w.Pid)
			values := d.counters[name]
			if len(values) == 0 || values[len(values)-1] != want || slices.Min(values) < 0 {
				t.Errorf("%s: %v, want no negative value and %d at the end", name, values, want)
			}
		}
	}
}

// gpuName returns the name of the track that groups the tracks of a device.
func gpuName(d *decoded, device int32) string {
	for name := range d.counters {
		var n int32
		if _, err := fmt.Sscanf(name, "GPU %d", &n); err == nil && n == device {
			for i := range name {
				if name[i] == '/' {
					return name[:i-1]
				}
			}
		}
	}
	return fmt.Sprint("GPU ", device)
}
