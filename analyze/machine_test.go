package analyze_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestReportsOfACrash(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.CrashingRecording(t).Timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"xid": func(opt query.Options) (*report.Report, error) { return xid.Run(tl, opt) }, "errors": func(opt query.Options) (*report.Report, error) { return cudaerrors.Run(tl, opt) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CompareGoldenReports(t, r, command, 110)
	}
}

func TestSuspectsMayStillHaveBeenRunning(t *testing.T) {
	testclass.Unit(t)
	fails := func(recording *analyzetest.TestRecording) {
		recording.AddSync("cuCtxSynchronize", 10*analyzetest.Second, analyzetest.Ms, 0, 719)
	}
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string
	}{
		"newest launch first": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddLaunch(2*analyzetest.Second, analyzetest.Us, "b", 7, 0)
		}, "b a"},
		"at most five launches": {func(recording *analyzetest.TestRecording) {
			for i, k := range strings.Split("abcdefgh", "") {
				recording.AddLaunch(int64(i+1)*analyzetest.Second, analyzetest.Us, k, 7, 0)
			}
		}, "h g f e d"},
		"launches out of order in the file": {func(recording *analyzetest.TestRecording) {
			for _, i := range []int64{8, 3, 1, 7, 2, 6, 4, 5} {
				recording.AddLaunch(i*analyzetest.Second, analyzetest.Us, string(rune('a'+i-1)), 7, 0)
			}
		}, "h g f e d"},
		"launches before a stream synchronization": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "b", 9, 0)
			recording.AddSync("cuStreamSynchronize", 2*analyzetest.Second, analyzetest.Us, 7, 0)
			recording.AddLaunch(3*analyzetest.Second, analyzetest.Us, "c", 7, 0)
		}, "c b"},
		"launches before a failed synchronization": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddSync("cuStreamSynchronize", 2*analyzetest.Second, analyzetest.Us, 7, 1)
		}, "a"},
		"launches before a context synchronization": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "b", 9, 0)
			recording.AddSync("cuCtxSynchronize", 2*analyzetest.Second, analyzetest.Us, 0, 0)
		}, ""},
		"synchronization of a context by handle": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			other := recording.AddSync("cuCtxSynchronize_v2", 2*analyzetest.Second, analyzetest.Us, 0, 0)
			other.Context, other.Ptr = 0xc2, 0xc1
		}, ""},
		"synchronization of another context": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddSync("cuCtxSynchronize_v2", 2*analyzetest.Second, analyzetest.Us, 0, 0).Ptr = 0xc2
		}, "a"},
		"launch while another thread synchronizes": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
			recording.AddSync("cuStreamSynchronize", analyzetest.Second-analyzetest.Ms, analyzetest.Second, 7, 0).Tid = 43
		}, "a"},
		"launch in another context": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0).Context = 0xc2
			recording.AddLaunch(2*analyzetest.Second, analyzetest.Us, "b", 7, 0).Context = 0
		}, "b"},
		"launches of another process, failed, captured or later launches": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0).Pid = 43
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "b", 7, 0).Result = 1
			recording.AddLaunch(analyzetest.Second, analyzetest.Us, "c", 7, 0).Flags = format.FlagCaptured
			recording.AddLaunch(11*analyzetest.Second, analyzetest.Us, "d", 7, 0)
		}, ""},
		"launch with unknown result": {func(recording *analyzetest.TestRecording) {
			r := recording.AddLaunch(analyzetest.Second, 0, "a", 7, 0)
			r.Flags, r.Result = format.FlagNoReturn, 0
			recording.AddSync("cuStreamSynchronize", 2*analyzetest.Second, analyzetest.Us, 7, 0).Tid = 43
		}, "a"},
		"launch with unknown result, before a synchronization of its thread": {func(recording *analyzetest.TestRecording) {
			recording.AddLaunch(analyzetest.Second, 0, "a", 7, 0).Flags = format.FlagNoReturn
			recording.AddSync("cuStreamSynchronize", 2*analyzetest.Second, analyzetest.Us, 7, 0)
		}, ""},
	} {
		recording := analyzetest.NewTestRecording(t)
		c.tape(recording)
		fails(recording)
		r, err := cudaerrors.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(analyzetest.ColumnTexts(t, r, "suspects", "kernel"), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSeveralFaultsHaveTheirOwnSuspects(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddLaunch(analyzetest.Second, analyzetest.Us, "a", 7, 0)
	recording.AddSync("cuStreamSynchronize", 2*analyzetest.Second, analyzetest.Us, 7, 700)
	recording.AddSync("cuStreamSynchronize", 3*analyzetest.Second, analyzetest.Us, 7, 700)
	recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 4*analyzetest.Second, 0, 0)
	recording.AddLaunch(5*analyzetest.Second, analyzetest.Us, "b", 7, 0)
	recording.AddSync("cuStreamSynchronize", 6*analyzetest.Second, analyzetest.Us, 7, 719)
	r, err := cudaerrors.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(analyzetest.ColumnTexts(t, r, "asynchronous", "result"), " "); got != "700 719" {
		t.Errorf("faults %s: want one for each context until its reset", got)
	}
	if got := strings.Join(analyzetest.ColumnTexts(t, r, "suspects", "kernel"), " "); got != "a b a" {
		t.Errorf("suspects %s", got)
	}
	if n, _, _ := r.FindNumber("asynchronous_errors"); n != 2 {
		t.Errorf("%v asynchronous errors", n)
	}
}

func TestErrorClasses(t *testing.T) {
	testclass.Unit(t)
	r, err := cudaerrors.Run(analyzetest.CrashingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"failed_calls":        9,
		"asynchronous_errors": 1,
		"out_of_memory":       1,
		"questions":           4,
		"no_errors":           5,
	} {
		if got, _, _ := r.FindNumber(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if got := strings.Join(analyzetest.ColumnTexts(t, r, "errors", "class"), " "); got != "asynchronous asynchronous "+
		"memory question" {
		t.Errorf("classes %s", got)
	}
	for _, o := range []query.Options{
		{Filter: query.Filter{Pids: []int32{7}}},
		{Filter: query.Filter{Tids: []int32{7}}},
	} {
		r, err := cudaerrors.Run(analyzetest.CrashingRecording(t).Timeline(), o)
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := r.FindNumber("failed_calls"); n != 0 || r.NoMatch == nil {
			t.Errorf("%v failed calls of an unknown process, %v", n, r.NoMatch)
		}
	}
}

func TestEveryResultHasAMeaning(t *testing.T) {
	testclass.Unit(t)
	for code, r := range catalog.CUDAResults {
		if !strings.HasPrefix(r.Name, "CUDA_ERROR_") || r.Meaning == "" {
			t.Errorf("%d: %+v", code, r)
		}
	}
	if len(catalog.CUDAResults) != 101 {
		t.Errorf("%d codes", len(catalog.CUDAResults))
	}
	if catalog.ResultName(12345) != "CUresult 12345" ||
		!strings.Contains(catalog.ResultMeaning(12345), "does not know") {
		t.Error("an unknown code has a meaning")
	}
	if !catalog.IsAsynchronousError(700) || catalog.IsAsynchronousError(701) || catalog.IsAsynchronousError(713) ||
		catalog.IsAsynchronousError(720) ||
		catalog.IsAsynchronousError(0) {
		t.Error("asynchronous errors")
	}
}

func TestXidCatalogue(t *testing.T) {
	testclass.Unit(t)
	codes := []int64{
		13,
		31,
		32,
		38,
		43,
		45,
		48,
		61,
		62,
		63,
		64,
		68,
		69,
		74,
		79,
		92,
		94,
		95,
		109,
		110,
		119,
		120,
		140,
		143,
		144,
		145,
		146,
		147,
		148,
		149,
		150,
		154,
	}
	for _, code := range codes {
		if _, known := catalog.DescribeXid(code); !known {
			t.Errorf("Xid %d is not in the catalog", code)
		}
	}
	check := func(kind string, code int64, e catalog.XidEntry) {
		if e.Name == "" || e.Meaning == "" || e.Action == "" || len(e.Causes.Names()) == 0 {
			t.Errorf("%s %d is incomplete: %+v", kind, code, e)
		}
	}
	for code := range int64(200) {
		if e, known := catalog.DescribeXid(code); known {
			check("Xid", code, e)
		} else if !strings.Contains(e.Meaning, "does not know") {
			t.Errorf("Xid %d is unknown, but has the meaning %s", code, e.Meaning)
		}
	}
	for _, codes := range [][]int64{
		catalog.HarmlessSXids,
		catalog.LinkFatalSXids,
		catalog.AlwaysFatalSXids,
		slices.Collect(maps.Keys(catalog.SXidEntries)),
	} {
		for _, code := range codes {
			e, known := catalog.DescribeSXid(code)
			if !known {
				t.Errorf("SXid %d is not in the catalog", code)
			}
			check("SXid", code, e)
		}
	}
	if e, known := catalog.DescribeSXid(11099); known || e.Action == "" {
		t.Error("an unlisted SXid of a unit is known")
	}
	if e, _ := catalog.DescribeXid(41); e.Name != "copy engine 2 exception" {
		t.Errorf("Xid 41: %s", e.Name)
	}
}

func TestXidsPassTheFilter(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		filter query.Filter
		want   string
	}{
		"all":             {query.Filter{}, "63 31 20034 9999"},
		"a process":       {query.Filter{Pids: []int32{42}}, "31"},
		"a device":        {query.Filter{Devices: []int32{0}}, "63 9999"},
		"from a time":     {query.Filter{FromNs: analyzetest.Epoch + 1}, "31 20034 9999"},
		"to a time":       {query.Filter{ToNs: analyzetest.Epoch + 4*analyzetest.Second}, "63 31 20034"},
		"another process": {query.Filter{Pids: []int32{1}}, ""},
	} {
		r, err := xid.Run(analyzetest.CrashingRecording(t).Timeline(), query.Options{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(analyzetest.ColumnTexts(t, r, "xids", "code"), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if (r.NoMatch != nil) != (c.want == "") {
			t.Errorf("%s: %v", name, r.NoMatch)
		}
	}
}

// machineReports returns the reports about GPUs and errors.
func machineReports(tl *timeline.Timeline) map[string]func(query.Options) (*report.Report, error) {
	return map[string]func(query.Options) (*report.Report, error){
		"xid":    func(opt query.Options) (*report.Report, error) { return xid.Run(tl, opt) },
		"errors": func(opt query.Options) (*report.Report, error) { return cudaerrors.Run(tl, opt) },
		"gpu":    func(opt query.Options) (*report.Report, error) { return gpu.Run(tl, opt) },
		"memory": func(o query.Options) (*report.Report, error) {
			return memory.RunWithOptions(tl, memory.Options{Options: o})
		},
		"reconcile": func(o query.Options) (*report.Report, error) {
			return memory.RunWithOptions(tl, memory.Options{Options: o, Reconcile: true, At: query.MomentEnd})
		},
	}
}

func TestMachineReportsAreSafeAndFit(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.HostileRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNVML,
			Name:    catalog.MetricProcessMemory,
			Device:  0,
			Pid:     42,
			StartNs: analyzetest.Epoch + 2,
			Value:   1e9,
			Message: analyzetest.HostileName,
		},
	)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNVML,
			Name:    catalog.MetricProcessMemory,
			Device:  0,
			Pid:     99,
			StartNs: analyzetest.Epoch + 2,
			Value:   1e9,
			Message: analyzetest.HostileName,
		},
	)
	recording.AddNVMLSample(0, 2, catalog.MetricMemoryUsed, 3e9)
	recording.AddXid(
		3*analyzetest.Second,
		0,
		42,
		31,
		format.XidFact{
			PCI:     analyzetest.HostileName,
			Process: analyzetest.HostileName,
			Text:    analyzetest.HostileName,
			Sources: []string{analyzetest.HostileName},
		},
	)
	failed := analyzetest.SetStackAndSite(
		recording.AddCall(format.KindSync, analyzetest.HostileName, 4*analyzetest.Second, 1),
		1,
		analyzetest.HostileName,
	)
	failed.Result = 700
	tl := recording.Timeline()
	for name, make := range machineReports(tl) {
		r, err := make(query.Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		for _, f := range []string{"table", "md"} {
			for _, width := range []int{0, 40, 80} {
				for _, c := range string(analyzetest.RenderReport(t, r, render.Options{Format: f, Width: width})) {
					if c != '\n' &&
						(unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == utf8.RuneError) {
						t.Fatalf("%s as %s: %q", name, f, c)
					}
				}
			}
		}
		if md := string(
			analyzetest.RenderReport(t, r, render.Options{Format: "md"}),
		); strings.Contains(
			md,
			"<script>",
		) {
			t.Errorf("%s: the Markdown has unescaped HTML", name)
		}
		if !json.Valid(analyzetest.RenderReport(t, r, render.Options{Format: "json"})) {
			t.Errorf("%s: not JSON", name)
		}
		if _, err := csv.NewReader(bytes.NewReader(analyzetest.RenderReport(t, r, render.Options{Format: "csv"}))).
			ReadAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for tape, tl := range map[string]*timeline.Timeline{
		"crash":    analyzetest.CrashingRecording(t).Timeline(),
		"training": analyzetest.TrainingRecording(t).Timeline(),
		"machine":  analyzetest.TwoGPURecording(t).Timeline(),
		"surface":  analyzetest.AllMemoryKindsRecording(t).Timeline(),
	} {
		for name, make := range machineReports(tl) {
			r, err := make(query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, width := range []int{80, 100, 132} {
				for line := range strings.Lines(string(analyzetest.RenderReport(t, r, render.Options{Width: width}))) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
						t.Errorf("%s of %s at %d: a line of %d characters: %s", name, tape, width, n, line)
					}
				}
			}
		}
	}
}

func TestMachineReportsAreTheSameEveryTime(t *testing.T) {
	testclass.Unit(t)
	for _, recording := range []*analyzetest.TestRecording{
		analyzetest.CrashingRecording(t),
		analyzetest.TwoGPURecording(t),
		analyzetest.AllMemoryKindsRecording(t),
		analyzetest.TrainingRecording(t),
	} {
		rec := recording.WriteAndOpen()
		var before map[string]string
		for range 3 {
			tl, err := timeline.Open(rec)
			if err != nil {
				t.Fatal(err)
			}
			now := make(map[string]string)
			for name, runReport := range machineReports(tl) {
				r, err := runReport(query.Options{Top: 2})
				if err != nil {
					t.Fatal(err)
				}
				now[name] = string(analyzetest.RenderReport(t, r, render.Options{Format: "json"}))
				if before != nil && before[name] != now[name] {
					t.Errorf("%s differs:\n%s\n%s", name, before[name], now[name])
				}
			}
			before = now
		}
	}
}
