package analyze

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/format"
)

// trainer is a small recording of a caching allocator: two segments, a private pool, a
// block that waits for a stream, an out-of-memory.
func trainer(t testing.TB) *tape {
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
	tp.add(format.Row{Kind: format.KindNote, Name: format.NoteAllocator, Pid: 42, StartNs: epoch, Message: `{"allocator":"torch","version":"2.11.0+cu130"}`})
	var allocated, reserved int64
	event := func(at int64, name string, ptr, bytes int64) *format.Row {
		return tp.add(format.Row{Kind: format.KindAllocator, Name: name, StartNs: epoch + at, Pid: 42, Tid: 42, MemoryKind: format.MemoryTorch, Ptr: ptr, Bytes: bytes,
			StackStatus: format.StackNone, AllocatedBytes: allocated, ReservedBytes: reserved})
	}
	const small, large = int64(0x7f0000000000), int64(0x7f0000200000)
	reserved += 2 * mib
	event(second, format.AllocatorSegmentAlloc, small, 2*mib)
	event(second+1, format.AllocatorAlloc, small, 1000)
	allocated += 1024
	reserved += 20 * mib
	event(2*second, format.AllocatorSegmentAlloc, large, 20*mib).SrcPtr = -3
	event(2*second+1, format.AllocatorAlloc, large, 4*mib).SrcPtr = -3
	allocated += 4 * mib
	event(3*second, format.AllocatorAlloc, small+1024, 512)
	allocated += 512
	event(20*second, format.AllocatorOOM, 0, 1<<40).Value = float64(3 * mib)
	allocated -= 1024
	event(30*second, format.AllocatorFreeRequested, small, 1000)
	allocated -= 512
	event(31*second, format.AllocatorFreeRequested, small+1024, 512)
	event(31*second+1, format.AllocatorFreeCompleted, small+1024, 512)
	return tp
}

func TestAllocatorReport(t *testing.T) {
	r, err := allocator.Run(trainer(t).timeline(), allocator.Options{Moments: 6})
	if err != nil {
		t.Fatal(err)
	}
	goldens(t, r, "allocator", 120)
}

func TestAllocatorReportIsExact(t *testing.T) {
	tp, worlds := torchTape(t, 400, 400, func(w *torchWorld) { w.conf = torchConf{expandable: w.pid == 77} })
	tl := tp.timeline()
	for _, w := range worlds {
		opt := allocator.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{w.pid}, Devices: []int32{w.device}}}}
		for _, s := range w.samples {
			opt.Times = append(opt.Times, epoch+s.atNs)
		}
		slices.Reverse(opt.Times) // their order does not count
		r, err := allocator.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		var want, allocated []string
		var peak int64
		for _, s := range w.samples {
			if text := fmt.Sprint(append([]any{epoch + s.atNs, s.atNs, int64(w.pid), int64(w.device)}, allocator.Cells(s.totals, false)...)); len(want) == 0 || want[len(want)-1] != text {
				want = append(want, text) // a step without an event has no moment of its own
			}
			peak = max(peak, s.totals.Allocated)
		}
		var got []string
		for _, row := range r.Tables[4].Rows {
			got = append(got, fmt.Sprint(row.Cells))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pid %d device %d: %d moments, want %d", w.pid, w.device, len(got), len(want))
		}
		if allocated = cells(t, r, "peaks", "allocated_bytes"); len(allocated) != 2 || allocated[0] < fmt.Sprint(peak) && len(allocated[0]) == len(fmt.Sprint(peak)) {
			t.Errorf("peaks %v, a sample has %d", allocated, peak)
		}
		var events int64
		for _, r := range tp.rows {
			if r.Name == format.AllocatorSnapshot && r.Pid == w.pid && r.Device == w.device {
				events++ // changes nothing, and is not told
			}
		}
		for _, n := range cells(t, r, "events", "events") {
			var v int64
			_, _ = fmt.Sscan(n, &v)
			events += v
		}
		if total := cells(t, r, "allocators", "events"); len(total) != 1 || total[0] != fmt.Sprint(events) {
			t.Errorf("%d events by action, %v in all", events, total)
		}
	}
}

func TestAllocatorReportOfAWindow(t *testing.T) {
	tl := trainer(t).timeline()
	r, err := allocator.Run(tl, allocator.Options{Options: query.Options{Filter: query.Filter{FromNs: epoch + 25*second, ToNs: epoch + 30*second}}, Moments: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(cells(t, r, "moments", "allocated_bytes"), cells(t, r, "peaks", "allocated_bytes"), cells(t, r, "events", "action")); got != "[4194816] [4195840 4195840] [free_requested]" {
		t.Error(got)
	}
	r, err = allocator.Run(tl, allocator.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{7}}}})
	if err != nil || r.NoMatch == nil || r.NoMatch.Filter != "pid" {
		t.Errorf("%+v, %v", r.NoMatch, err)
	}
	r, err = allocator.Run(newTape(t).timeline(), allocator.Options{})
	if err != nil || r.NoMatch != nil || len(r.Tables[0].Rows) != 0 {
		t.Errorf("nothing recorded: %+v, %v", r, err)
	}
}

// A process that ended has no moments afterwards; what it had then is its end.
func TestAllocatorReportOfAnEndedProcess(t *testing.T) {
	tp := trainer(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1, Message: fmt.Sprintf(`{"exit_ns":%d}`, epoch+40*second)})
	r, err := allocator.Run(tp.timeline(), allocator.Options{Moments: 6})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(cells(t, r, "moments", "allocations"), cells(t, r, "allocators", "allocated_bytes"), cells(t, r, "allocators", "ended")); got != "[3 3 2] [4194304] [true]" {
		t.Error(got)
	}
}
