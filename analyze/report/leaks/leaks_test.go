package leaks_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// verdicts runs leaks and returns the verdicts by call site.
func verdicts(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) map[string]string {
	t.Helper()
	r, err := leaks.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	verdicts := analyzetest.ColumnTexts(t, r, "leaks", "verdict")
	for i, label := range labels(t, r) {
		got[label] = verdicts[i]
	}
	return got
}

// labels returns the names of the groups, in the order of the rows.
func labels(t *testing.T, r *report.Report) []string {
	return analyzetest.ColumnTexts(t, r, "leaks", r.Tables[0].Keys[0])
}

func TestVerdicts(t *testing.T) {
	testclass.Unit(t)
	const base = int64(0x7f0000000000)
	// steps calls do for each step of 100 ms, from 1 s until end.
	steps := func(end int64, do func(i, at int64)) {
		for i := int64(0); analyzetest.Second+i*100*analyzetest.Ms < end; i++ {
			do(i, analyzetest.Second+i*100*analyzetest.Ms)
		}
	}
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string
	}{
		"a block of 1 MiB leaks every step": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
		}, "growing"},
		"every second block leaks": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
				if i%2 == 0 {
					recording.AddFree(ns+analyzetest.Ms, analyzetest.Us, base+i*analyzetest.Mib)
				}
			})
		}, "growing"},
		"a leak under a large sawtooth": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base, 1<<30), 1, "x")
				analyzetest.SetStackAndSite(recording.AddAlloc(ns+analyzetest.Ms, analyzetest.Us, base+(1<<40)+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
				recording.AddFree(ns+90*analyzetest.Ms, analyzetest.Us, base)
			})
		}, "growing"},
		"a leak of one block every four seconds": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				if i%40 == 0 {
					analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, 32*analyzetest.Mib), 1, "x")
				}
			})
		}, "growing"},
		"a leak seen for three seconds": {func(recording *analyzetest.TestRecording) {
			recording.Meta.EndNs = analyzetest.Epoch + 4*analyzetest.Second
			steps(4*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
		}, "growing"},
		"a leak until the process ends": {func(recording *analyzetest.TestRecording) {
			steps(30*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
			recording.AddExit(42, 30*analyzetest.Second)
		}, "growing"},
		"a leak in a process that ends before another": {func(recording *analyzetest.TestRecording) {
			steps(30*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base, 64), 1, "y").Pid = 77
				recording.AddFree(ns+analyzetest.Us, analyzetest.Us, base).Pid = 77
			})
			recording.AddExit(42, 30*analyzetest.Second)
			recording.AddRow(format.Row{Kind: format.KindProcess, Pid: 77, StartNs: analyzetest.Epoch})
		}, "growing"},
		"a leak of 8 bytes a step is too small": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, 8), 1, "x")
			})
		}, "retained"},
		"weights at the start": {func(recording *analyzetest.TestRecording) {
			for i := range int64(50) {
				analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second+i*20*analyzetest.Ms, analyzetest.Us, base+i<<30, 1<<30), 1, "x")
			}
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, 0x1000, 64), 1, "y")
				recording.AddFree(ns+analyzetest.Us, analyzetest.Us, 0x1000)
			})
		}, "startup"},
		"weights at the start, never freed before the end": {func(recording *analyzetest.TestRecording) {
			analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second, analyzetest.Us, base, 1<<30), 1, "x")
			recording.AddExit(42, 60*analyzetest.Second)
		}, "startup"},
		"balanced churn": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(_, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base, 64*analyzetest.Mib), 1, "x")
				recording.AddFree(ns+50*analyzetest.Ms, analyzetest.Us, base)
			})
		}, "churn"},
		"balanced churn with the last one live": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
				if i > 0 {
					recording.AddFree(ns+50*analyzetest.Ms, analyzetest.Us, base+(i-1)*analyzetest.Mib)
				}
			})
		}, "churn"},
		"a sawtooth of two periods": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
				if i%250 == 249 {
					for k := i - 249; k <= i; k++ {
						recording.AddFree(ns+analyzetest.Ms+(k%250)*analyzetest.Us, analyzetest.Us, base+k*analyzetest.Mib)
					}
				}
			})
		}, "retained"},
		"a cache that fills for 20 of 60 seconds": {func(recording *analyzetest.TestRecording) {
			steps(20*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
		}, "retained"},
		"a cache that fills for 40 of 60 seconds": {func(recording *analyzetest.TestRecording) {
			steps(40*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
			})
		}, "retained"},
		"a ring that fills and then frees the oldest": {func(recording *analyzetest.TestRecording) {
			steps(60*analyzetest.Second, func(i, ns int64) {
				analyzetest.SetStackAndSite(recording.AddAlloc(ns, analyzetest.Us, base+i*analyzetest.Mib, analyzetest.Mib), 1, "x")
				if i >= 100 {
					recording.AddFree(ns+analyzetest.Ms, analyzetest.Us, base+(i-100)*analyzetest.Mib)
				}
			})
		}, "retained"},
		"one block late": {func(recording *analyzetest.TestRecording) {
			analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second, analyzetest.Us, base, 8), 1, "y")
			analyzetest.SetStackAndSite(recording.AddAlloc(50*analyzetest.Second, analyzetest.Us, base+analyzetest.Mib, analyzetest.Mib), 1, "x")
		}, "retained"},
		"one block, and then the process ends": {func(recording *analyzetest.TestRecording) {
			analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second, analyzetest.Us, base, 8), 1, "y")
			analyzetest.SetStackAndSite(recording.AddAlloc(30*analyzetest.Second, analyzetest.Us, base+analyzetest.Mib, analyzetest.Mib), 1, "x")
			recording.AddExit(42, 60*analyzetest.Second)
		}, "exit leak"},
	} {
		t.Run(name, func(t *testing.T) {
			recording := analyzetest.NewTestRecording(t)
			c.tape(recording)
			if got := verdicts(t, recording, query.Options{})["x"]; got != c.want {
				r, err := leaks.Run(openTimeline(t, recording), query.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Errorf("got %q, want %q: %s", got, c.want, r.Tables[0].Rows[0].Evidence)
			}
		})
	}
}

// openTimeline opens the recording of a tape that was written before.
func openTimeline(t *testing.T, recording *analyzetest.TestRecording) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Open(analyzetest.OpenRecording(t, recording.Path))
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func TestReportsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(opt query.Options) (*report.Report, error) { return leaks.Run(tl, opt) }, "summary": func(opt query.Options) (*report.Report, error) { return summary.Run(tl, opt) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range render.ListFormats() {
			analyzetest.CompareGolden(t, command+"."+f, analyzetest.RenderReport(t, r, render.Options{Format: f}))
		}
		analyzetest.CompareGolden(t, command+".narrow.table", analyzetest.RenderReport(t, r, render.Options{Width: 80}))
	}
	for _, by := range group.GroupNames() {
		if slices.Contains(timeline.IdentityGroups, by) || slices.Contains(stack.OperatorGroups, by) {
			continue // this training has no such memory
		}
		r, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CompareGolden(t, "leaks."+by+".csv", analyzetest.RenderReport(t, r, render.Options{Format: "csv"}))
	}
}

func TestReportsAreTheSameEveryTime(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddExit(42, 60*analyzetest.Second)
	var first []byte
	for range 5 {
		tl := recording.Timeline()
		leakReport, err := leaks.Run(tl, query.Options{GroupBy: "size"})
		if err != nil {
			t.Fatal(err)
		}
		summaryReport, err := summary.Run(tl, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := append(
			analyzetest.RenderReport(t, leakReport, render.Options{Format: "json"}),
			analyzetest.RenderReport(t, summaryReport, render.Options{Format: "json"})...)
		if first != nil && !bytes.Equal(first, got) {
			t.Fatal("two runs differ")
		}
		first = got
	}
}

func TestLeaksGroupsAddUp(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	var want []report.Fact
	for _, by := range group.GroupNames() {
		r, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		sums := slices.Clone(r.Totals[:5]) // live bytes, blocks, allocs, failed, peak
		if want != nil && fmt.Sprint(sums) != fmt.Sprint(want) {
			t.Errorf("by %s: %v, want %v", by, sums, want)
		}
		want = sums
		var live int64
		table := &r.Tables[0]
		for i := range table.Rows {
			live += table.Cell(&table.Rows[i], "live_bytes").(int64)
		}
		if live != want[0].Value {
			t.Errorf("by %s: rows sum up to %d, total says %v", by, live, want[0].Value)
		}
	}
}

func TestFilters(t *testing.T) {
	testclass.Unit(t)
	const base = int64(0x7f0000000000)
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(8) {
		r := analyzetest.SetStackAndSite(
			recording.AddAlloc(
				analyzetest.Second*(i+1),
				analyzetest.Us,
				base+i*analyzetest.Mib,
				analyzetest.Mib<<(i%2),
			),
			1,
			fmt.Sprint("site", i),
		)
		r.Pid, r.Tid, r.Device, r.Stream = 42+int32(i/4), 100+int32(i), int32(i%2), i%4
	}
	tl := recording.Timeline()
	for name, c := range map[string]struct {
		f    query.Filter
		want []string
	}{
		"pid":       {query.Filter{Pids: []int32{43}}, []string{"site4", "site5", "site6", "site7"}},
		"tid":       {query.Filter{Tids: []int32{101, 106}}, []string{"site1", "site6"}},
		"device":    {query.Filter{Devices: []int32{1}, Pids: []int32{42}}, []string{"site1", "site3"}},
		"stream":    {query.Filter{Streams: []int64{3}}, []string{"site3", "site7"}},
		"min bytes": {query.Filter{MinBytes: 2 * analyzetest.Mib, Pids: []int32{42}}, []string{"site1", "site3"}},
		"from":      {query.Filter{FromNs: analyzetest.Epoch + 7*analyzetest.Second}, []string{"site6", "site7"}},
		"to":        {query.Filter{ToNs: analyzetest.Epoch + 2*analyzetest.Second + analyzetest.Us}, []string{"site0", "site1"}},
	} {
		r, err := leaks.Run(tl, query.Options{Filter: c.f})
		if err != nil {
			t.Fatal(err)
		}
		got := labels(t, r)
		slices.Sort(got)
		if !slices.Equal(got, c.want) || r.NoMatch != nil {
			t.Errorf("%s: got %v, want %v (no match: %v)", name, got, c.want, r.NoMatch)
		}
	}
	for want, f := range map[string]query.Filter{
		"no row matches --pid 7; the recording has pids 42, 43":              {Pids: []int32{7}},
		"no row matches --stream 0x64; the recording has streams 0, 1, 2, 3": {Streams: []int64{100}},
		"no row matches all filters; use fewer filters":                      {Pids: []int32{42}, Tids: []int32{107}},
	} {
		for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(opt query.Options) (*report.Report, error) { return leaks.Run(tl, opt) }, "summary": func(opt query.Options) (*report.Report, error) { return summary.Run(tl, opt) }} {
			r, err := make(query.Options{Filter: f})
			if err != nil {
				t.Fatal(err)
			}
			if r.NoMatch == nil || r.NoMatch.Error() != want {
				t.Errorf("%s: got %v, want %q", command, r.NoMatch, want)
			}
		}
	}
}

func TestConfidenceFallsWithWhatIsMissing(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(*analyzetest.TestRecording)
		want   string
	}{
		"whole": {func(*analyzetest.TestRecording) {}, "high"},
		"few lost": {func(recording *analyzetest.TestRecording) {
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "memory", StartNs: analyzetest.Epoch, Value: 1})
		}, "medium"},
		"many lost": {func(recording *analyzetest.TestRecording) {
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "memory", StartNs: analyzetest.Epoch, Value: 500})
		}, "low"},
		"other calls lost": {func(recording *analyzetest.TestRecording) {
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch, Value: 500})
		}, "high"},
		"lost in the metadata": {func(recording *analyzetest.TestRecording) {
			recording.Meta.Calls = map[string]format.CallCount{"memory": {Lost: 500}}
		}, "low"},
		"unmatched frees": {func(recording *analyzetest.TestRecording) {
			for i := range int64(200) {
				recording.AddFree(40*analyzetest.Second+i, 0, 0x5000+i)
			}
		}, "medium"},
		"an alloc with unknown pointer": {func(recording *analyzetest.TestRecording) {
			recording.AddAlloc(50*analyzetest.Second, analyzetest.Second, 0, 64).Flags = format.FlagOpen
		}, "medium"},
	} {
		recording := analyzetest.TrainingRecording(t)
		c.change(recording)
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := analyzetest.ColumnTexts(t, r, "leaks", "confidence")[0]; got != c.want {
			t.Errorf("%s: confidence %v, want %s: %s", name, got, c.want, r.Tables[0].Rows[0].Evidence)
		}
	}
}

func TestAFolderOfSegmentsIsATruncatedRecording(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	w, err := format.Create(recording.Path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recording.Rows {
		if err := w.Write(format.ClassOf(r.Kind), []format.Row{*r}); err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			if err := w.Rotate(recording.Meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Rotate(recording.Meta), w.Flush()); err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Open(analyzetest.OpenRecording(t, w.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Quality.TruncatedTail || analyzetest.ColumnTexts(t, r, "leaks", "confidence")[0] != "medium" {
		t.Errorf("truncated %v, %s", r.Quality.TruncatedTail, r.Tables[0].Rows[0].Evidence)
	}
	if v, _, _ := r.FindNumber("growing"); v != 1 {
		t.Errorf("growing = %v", v)
	}
}

func TestOptionsThatCannotBeFollowed(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	var groupError *report.GroupError
	if _, err := leaks.Run(tl, query.Options{GroupBy: "colour"}); !errors.As(err, &groupError) {
		t.Errorf("group by colour: %v", err)
	}
	var sort *report.SortError
	if _, err := leaks.Run(
		tl,
		query.Options{Sort: "colour"},
	); !errors.As(err, &sort) ||
		!strings.Contains(err.Error(), "live_bytes") {
		t.Errorf("sort by colour: %v", err)
	}
	r, err := leaks.Run(tl, query.Options{Sort: "allocs", Top: 2})
	if err != nil {
		t.Fatal(err)
	}
	table := &r.Tables[0]
	allocs := func(row int) int64 { return table.Cell(&table.Rows[row], "allocs").(int64) }
	if len(table.Rows) != 2 || table.OmittedRows != 3 || allocs(0) < allocs(1) {
		t.Errorf("sort by allocs: %+v", table)
	}
}

// TestGrowthAfterAMissingBeginning checks that what is missing before the warm-up ends does not lower
// the confidence in growth after it.
func TestGrowthAfterAMissingBeginning(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		completeNs int64
		confidence string
	}{
		{analyzetest.Epoch + 2*analyzetest.Second, report.ConfidenceHigh},
		{analyzetest.Epoch + 30*analyzetest.Second, report.ConfidenceMedium},
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.Meta.Late = &format.Late{Processes: 1, CompleteNs: test.completeNs}
		for i := range int64(590) {
			at := analyzetest.Second + i*100*analyzetest.Ms
			site := "leak"
			if i == 0 {
				site = "weights" // live at the end, but not growing
			}
			row := recording.AddAlloc(at, analyzetest.Us, 0x7f0000000000+i*analyzetest.Mib, analyzetest.Mib)
			analyzetest.SetStackAndSite(row, int32(1+min(i, 1)), site)
		}
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		verdicts := analyzetest.ColumnTexts(t, r, "leaks", "verdict")
		levels := analyzetest.ColumnTexts(t, r, "leaks", "confidence")
		want := []string{test.confidence, report.ConfidenceMedium}
		if len(verdicts) != 2 || verdicts[0] != "growing" || !slices.Equal(levels, want) {
			t.Errorf("complete from %d: verdicts %q, confidence %q, want %q", test.completeNs, verdicts, levels, want)
		}
	}
}
