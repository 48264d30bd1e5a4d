package allocator

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestAllocatorReport(t *testing.T) {
	testclass.Unit(t)
	r, err := RunWithOptions(analyzetest.SmallAllocatorRecording(t).Timeline(), Options{Moments: 6})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "allocator", 120)
}

func TestAllocatorReportIsExact(t *testing.T) {
	testclass.Unit(t)
	recording, worlds := analyzetest.TorchAllocatorRecording(
		t,
		400,
		400,
		func(w *analyzetest.TorchAllocator) { w.Conf = analyzetest.TorchConf{Expandable: w.Pid == 77} },
	)
	tl := recording.Timeline()
	for _, w := range worlds {
		opt := Options{Options: query.Options{Filter: query.Filter{Pids: []int32{w.Pid}, Devices: []int32{w.Device}}}}
		for _, s := range w.Samples {
			opt.Times = append(opt.Times, analyzetest.Epoch+s.AtNs)
		}
		slices.Reverse(opt.Times) // the order of times has no effect
		r, err := RunWithOptions(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		var want, allocated []string
		var peak int64
		for _, s := range w.Samples {
			var row report.Table
			row.Columns = momentColumns
			row.Add(
				report.JoinValues(
					report.Values{
						"at_ns":     analyzetest.Epoch + s.AtNs,
						"offset_ns": s.AtNs,
						"pid":       int64(w.Pid),
						"device":    int64(w.Device),
					},
					memoryTotalsValues(s.Totals, false),
				),
			)
			if text := fmt.Sprint(row.Rows[0].Cells); len(want) == 0 || want[len(want)-1] != text {
				want = append(want, text) // a step without an event has no time of its own
			}
			peak = max(peak, s.Totals.Allocated)
		}
		var got []string
		for _, row := range r.Tables[4].Rows {
			got = append(got, fmt.Sprint(row.Cells))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pid %d device %d: %d moments, want %d", w.Pid, w.Device, len(got), len(want))
		}
		if allocated = analyzetest.ColumnTexts(
			t,
			r,
			"peaks",
			"allocated_bytes",
		); len(allocated) != 2 ||
			allocated[0] < fmt.Sprint(peak) && len(allocated[0]) == len(fmt.Sprint(peak)) {
			t.Errorf("peaks %v, a sample has %d", allocated, peak)
		}
		var events int64
		for _, r := range recording.Rows {
			if r.Name == format.AllocatorSnapshot && r.Pid == w.Pid && r.Device == w.Device {
				events++ // changes no total and is not an event of the report
			}
		}
		for _, n := range analyzetest.ColumnTexts(t, r, "events", "events") {
			var v int64
			_, _ = fmt.Sscan(n, &v)
			events += v
		}
		if total := analyzetest.ColumnTexts(
			t,
			r,
			"allocators",
			"events",
		); len(total) != 1 ||
			total[0] != fmt.Sprint(events) {
			t.Errorf("%d events by action, %v in all", events, total)
		}
	}
}

func TestAllocatorReportOfAWindow(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.SmallAllocatorRecording(t).Timeline()
	r, err := RunWithOptions(
		tl,
		Options{
			Options: query.Options{
				Filter: query.Filter{
					FromNs: analyzetest.Epoch + 25*analyzetest.Second,
					ToNs:   analyzetest.Epoch + 30*analyzetest.Second,
				},
			},
			Moments: 1,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(
		analyzetest.ColumnTexts(t, r, "moments", "allocated_bytes"),
		analyzetest.ColumnTexts(t, r, "peaks", "allocated_bytes"),
		analyzetest.ColumnTexts(t, r, "events", "action"),
	); got != "[4194816] [4195840 4195840] [free_requested]" {
		t.Error(got)
	}
	r, err = RunWithOptions(tl, Options{Options: query.Options{Filter: query.Filter{Pids: []int32{7}}}})
	if err != nil || r.NoMatch == nil || r.NoMatch.Filter != "pid" {
		t.Errorf("%+v, %v", r.NoMatch, err)
	}
	r, err = RunWithOptions(analyzetest.NewTestRecording(t).Timeline(), Options{})
	if err != nil || r.NoMatch != nil || len(r.Tables[0].Rows) != 0 {
		t.Errorf("nothing recorded: %+v, %v", r, err)
	}
}

// TestAllocatorReportOfAnEndedProcess checks that the last totals of a process that ended are those of
// its end.
func TestAllocatorReportOfAnEndedProcess(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SmallAllocatorRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Name:    "train",
			Pid:     42,
			StartNs: analyzetest.Epoch,
			Device:  -1,
			Message: fmt.Sprintf(`{"exit_ns":%d}`, analyzetest.Epoch+40*analyzetest.Second),
		},
	)
	r, err := RunWithOptions(recording.Timeline(), Options{Moments: 6})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(
		analyzetest.ColumnTexts(t, r, "moments", "allocations"),
		analyzetest.ColumnTexts(t, r, "allocators", "allocated_bytes"),
		analyzetest.ColumnTexts(t, r, "allocators", "ended"),
	); got != "[3 3 2] [4194304] [true]" {
		t.Error(got)
	}
}
