package leaks_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestLeaksOfTensors(t *testing.T) {
	testclass.Unit(t)
	const leak = 3_000_000
	for name, conf := range map[string]analyzetest.TorchConf{
		"segments":            {},
		"expandable segments": {Expandable: true},
	} {
		t.Run(name, func(t *testing.T) {
			recording, w := analyzetest.TorchTrainingRecording(t, conf, leak)
			tl := recording.Timeline()
			r, err := leaks.Run(tl, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]any{
				"verdict":     "growing",
				"site":        "keep (train.py:42)",
				"memory_kind": format.MemoryTorch,
				"live_bytes":  int64(590 * leak),
				"confidence":  "high",
			} {
				if got := analyzetest.CellValue(t, r, 0, key); got != want {
					t.Errorf("%s is %v, want %v: %s", key, got, want, r.Tables[0].Rows[0].Evidence)
				}
			}
			rate := float64(analyzetest.CellValue(t, r, 0, "growth_bytes_per_min").(int64))
			if want := float64(600 * leak); math.Abs(rate-want) > want/20 {
				t.Errorf("grows by %.0f bytes/min, want %.0f", rate, want)
			}
			sum := w.CheckedTotals()
			wantLive := sum.Requested + 64*analyzetest.Mib // of the program's own driver call
			if got := r.Totals[0].Value; got != wantLive {
				t.Errorf("%d bytes live, want %d", got, wantLive)
			}
			if got, _, _ := r.FindNumber("peak_bytes"); got != float64(w.Peak+64*analyzetest.Mib) {
				t.Errorf("peak of %.0f bytes, want %d", got, w.Peak+64*analyzetest.Mib)
			}
			want := units.FormatBytes(sum.Allocated) + " allocated of " + units.FormatBytes(sum.Reserved) + " reserved"
			if got := r.Facts[0].Value; got != want {
				t.Errorf("allocator: %q, want %q", got, want)
			}
			for i := range r.Tables[0].Rows {
				if site := analyzetest.CellValue(t, r, i, "site"); site == "segment" {
					t.Error("memory of segments is counted twice")
				}
			}
			if v, _, _ := r.FindNumber("growing"); v != 1 {
				t.Errorf("%v rows grow", v)
			}
		})
	}
}

// TestSegmentsFromBeforeTheAllocatorsEvents finds such segments by their stacks, or by their size:
// they have as many bytes as the allocator had already reserved.
func TestSegmentsFromBeforeTheAllocatorsEvents(t *testing.T) {
	testclass.Unit(t)
	for _, conf := range []analyzetest.TorchConf{{}, {Expandable: true}} {
		recording, _ := analyzetest.TorchTrainingRecording(t, conf, 3_000_000)
		r := recording.AddRow(
			format.Row{Kind: format.KindStack, StackID: 5, StackStatus: format.StackComplete, Device: -1},
		)
		for _, module := range []string{
			"/lib/libcudart.so.13",
			"/venv/torch/lib/libc10_cuda.so",
			"/venv/torch/lib/libtorch_cuda.so",
		} {
			r.Frames = append(r.Frames, format.Frame{Func: "f", Module: module, Type: "native"})
		}
		analyzetest.SetStackAndSite(recording.AddAlloc(0, 5, 0x6e0000000000, 2*analyzetest.Mib), 5, "at::empty")
		recording.AddAlloc(20, 5, 0x6e0000400000, 20*analyzetest.Mib)
		for _, r := range recording.Rows {
			if r.Kind == format.KindAllocator {
				r.ReservedBytes += 22 * analyzetest.Mib
			}
		}
		got, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Tables[0].Rows {
			if site := analyzetest.CellValue(
				t,
				got,
				i,
				"site",
			); site == "at::empty" || site == timeline.NoStackSite ||
				site == "segment" {
				t.Errorf("%v: segments count as the program's memory", site)
			}
		}
	}
}

func TestAGrowingCacheIsNoLeak(t *testing.T) {
	testclass.Unit(t)
	for _, conf := range []analyzetest.TorchConf{{}, {Expandable: true}} {
		recording, _ := analyzetest.TorchTrainingRecording(t, conf, 0)
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, _ := r.FindNumber("growing"); v != 0 {
			t.Errorf("%s: %v rows grow: %v", conf, v, r.Tables[0].Rows[0].Cells)
		}
	}
}

func TestReportsOfTensorsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 3_000_000)
	tl := recording.Timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(opt query.Options) (*report.Report, error) { return leaks.Run(tl, opt) }, "summary": func(opt query.Options) (*report.Report, error) { return summary.Run(tl, opt) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"table", "json"} {
			analyzetest.CompareGolden(
				t,
				"torch."+command+"."+f,
				analyzetest.RenderReport(t, r, render.Options{Format: f, Width: 120}),
			)
		}
	}
}

func TestFiltersOfTensors(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	r := rand.New(rand.NewPCG(1, 1))
	for i, key := range []caching.AllocatorKey{{Pid: 42, Device: 0}, {Pid: 42, Device: 1}, {Pid: 77, Device: 0}} {
		w := analyzetest.NewTorchAllocator(recording, r, key.Pid, key.Device, analyzetest.TorchConf{})
		for k := range int64(2) {
			w.Now = int64(i+1)*10*analyzetest.Second + k*analyzetest.Second
			b := w.AllocBlock(analyzetest.Mib<<k, analyzetest.TorchSegment{Stream: int64(7 + k)})
			analyzetest.SetStackAndSite(b.Row, 0, string(rune('a'+2*i+int(k)))).Tid = key.Pid
		}
	}
	tl := recording.Timeline()
	for name, c := range map[string]struct {
		f    query.Filter
		want string
	}{
		"none":      {query.Filter{}, "abcdef"},
		"pid":       {query.Filter{Pids: []int32{77}}, "ef"},
		"tid":       {query.Filter{Tids: []int32{42}}, "abcd"},
		"device":    {query.Filter{Devices: []int32{1}}, "cd"},
		"stream":    {query.Filter{Streams: []int64{8}}, "bdf"},
		"min bytes": {query.Filter{MinBytes: 2 * analyzetest.Mib}, "bdf"},
		"from":      {query.Filter{FromNs: analyzetest.Epoch + 20500*analyzetest.Ms}, "def"},
		"to":        {query.Filter{ToNs: analyzetest.Epoch + 15*analyzetest.Second}, "ab"},
	} {
		r, err := leaks.Run(tl, query.Options{Filter: c.f})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range r.Tables[0].Rows {
			got = append(got, analyzetest.CellValue(t, r, i, "site").(string))
		}
		slices.Sort(got)
		if strings.Join(got, "") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
	for _, by := range group.GroupNames() {
		r, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Totals[0].Value; got != 9*analyzetest.Mib {
			t.Errorf("by %s: %d bytes live", by, got)
		}
	}
}

func TestConfidenceInTensors(t *testing.T) {
	testclass.Unit(t)
	lost := func(n float64) func(*analyzetest.TestRecording) {
		return func(recording *analyzetest.TestRecording) {
			recording.AddRow(format.Row{Kind: format.KindLost, Name: "allocator", StartNs: analyzetest.Epoch, Value: n})
		}
	}
	skip := func(every int) func(*analyzetest.TestRecording) {
		return func(recording *analyzetest.TestRecording) {
			n := 0
			recording.Rows = slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
				if r.Kind != format.KindAllocator {
					return false
				}
				n++
				return n%every == every-1
			})
		}
	}
	for name, c := range map[string]struct {
		change func(*analyzetest.TestRecording)
		want   string
	}{
		"whole":     {func(*analyzetest.TestRecording) {}, "high"},
		"few lost":  {lost(1), "medium"},
		"many lost": {lost(100), "low"},
		"lost in the metadata": {func(recording *analyzetest.TestRecording) {
			recording.Meta.Calls = map[string]format.CallCount{"allocator": {Lost: 100}}
		}, "low"},
		"one is missing":   {skip(3000), "medium"},
		"many are missing": {skip(50), "low"},
	} {
		recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 3_000_000)
		c.change(recording)
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := analyzetest.CellValue(t, r, 0, "confidence"); got != c.want {
			t.Errorf("%s: confidence %v, want %s: %s", name, got, c.want, r.Tables[0].Rows[0].Evidence)
		}
		if got := analyzetest.CellValue(t, r, 0, "site"); got != "keep (train.py:42)" {
			t.Errorf("%s: the first row is %v", name, got)
		}
		if disagrees := r.Quality.AllocatorDisagreed > 0; disagrees != (len(r.Notes) > 0) ||
			name == "many are missing" && !disagrees {
			t.Errorf("%s: disagrees %v, notes %v", name, disagrees, r.Notes)
		}
	}
}

func TestAnAllocatorEndsWithItsProcess(t *testing.T) {
	testclass.Unit(t)
	recording, w := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 3_000_000)
	want := w.CheckedTotals()
	recording.AddExit(42, 60*analyzetest.Second)
	tl := recording.Timeline()
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := analyzetest.CellValue(t, r, 0, "verdict"); got != "growing" {
		t.Errorf("verdict %v: %s", got, r.Tables[0].Rows[0].Evidence)
	}
	if got := r.Facts[1].Value; got != want.Reserved {
		t.Errorf("reserved %v at the end, want %d", got, want.Reserved)
	}
	list, err := state.ReadAllocators(tl, 0)
	if err != nil || len(list) != 1 || !list[0].Ended || list[0].AllocatorTotals != want {
		t.Errorf("%v, %+v", err, list)
	}
	if len(list[0].Blocks) != int(want.Allocations) {
		t.Errorf("%d blocks, want %d", len(list[0].Blocks), want.Allocations)
	}
}

// TestAnInterpretersEndIsNoFree records a program whose interpreter frees all memory when it
// exits.
func TestAnInterpretersEndIsNoFree(t *testing.T) {
	testclass.Unit(t)
	recording, w := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 3_000_000)
	want := w.CheckedTotals()
	w.Now += 100 * analyzetest.Ms
	for len(w.Held) > 0 {
		w.FreeBlock(w.Held[0])
	}
	recording.AddExit(42, w.Now+500*analyzetest.Ms)
	r, err := leaks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if analyzetest.CellValue(t, r, 0, "verdict") != "growing" ||
		analyzetest.CellValue(t, r, 0, "live_bytes") != int64(590*3_000_000) {
		t.Error(r.Tables[0].Rows[0])
	}
	// Frees of the last step look like frees by the exit.
	if got := r.Facts[2].Value.(int64); got < want.Allocated || got > want.Allocated+50*analyzetest.Mib {
		t.Errorf("%d bytes allocated at the end, want %d", got, want.Allocated)
	}
}

func TestTensorsInProfiles(t *testing.T) {
	testclass.Unit(t)
	recording, w := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{Expandable: true}, 3_000_000)
	p, _, none, err := pprof.BuildHeapProfile(recording.Timeline(), query.Options{})
	if err != nil || none != nil {
		t.Fatal(err, none)
	}
	var live int64
	for _, s := range p.Sample {
		live += s.Value[3]
	}
	if want := w.CheckedTotals().Requested + 64*analyzetest.Mib; live != want {
		t.Errorf("%d bytes in use, want %d", live, want)
	}
}

// TestLeaksSayThatTheCacheGrows has requests that become longer: no leak, but a cache that grows.
func TestLeaksSayThatTheCacheGrows(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}).RequestLonger(1000)
	r, err := leaks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := string(analyzetest.RenderReport(t, r, render.Options{Width: 200}))
	for _, want := range []string{
		"PyTorch's cache grows by ", "/min; live memory does not: requests in encode_batch (infer.py:33) become longer: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing": 0})
}
