package analyze

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/memory"
	xidpkg "github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/format"
)

// nvml adds one sample of a device.
func (tp *tape) nvml(device int32, at int64, metric string, value float64) *format.Row {
	return tp.add(format.Row{Kind: format.KindNVML, Name: metric, StartNs: epoch + at, Device: device, Value: value})
}

// gpus adds two GPUs and a process that has the second one as its first.
func (tp *tape) gpus() {
	for i, uuid := range []string{"GPU-aaaa", "GPU-bbbb"} {
		fact, err := json.Marshal(format.DeviceFact{UUID: uuid, PCIeGenerationMax: 5, PCIeWidthMax: 16, SlowdownCelsius: 87})
		if err != nil {
			tp.t.Fatal(err)
		}
		tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Device: int32(i), Bytes: 140 << 30, StartNs: epoch, Message: string(fact)})
	}
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1,
		Message: `{"exe":"/app/train","devices":[{"ordinal":0,"uuid":"GPU-bbbb","how":"CUDA_VISIBLE_DEVICES"}]}`})
	tp.add(format.Row{Kind: format.KindThread, Name: "main", Pid: 42, Tid: 42, StartNs: epoch, Device: -1})
}

// xid adds an error of the driver.
func (tp *tape) xid(at int64, device, pid int32, code float64, fact format.XidFact) *format.Row {
	text, err := json.Marshal(fact)
	if err != nil {
		tp.t.Fatal(err)
	}
	return tp.add(format.Row{Kind: format.KindXid, Name: format.NameXid, StartNs: epoch + at, Device: device, Pid: pid, Value: code, Message: string(text)})
}

// launched adds a launch in context 0xc1.
func (tp *tape) launched(at, dur int64, kernel string, stream int64, stack int32) *format.Row {
	r := tp.call(format.KindLaunch, "cuLaunchKernel", at, dur)
	r.Kernel, r.Stream, r.Context, r.StackID, r.StackStatus = kernel, stream, 0xc1, stack, format.StackComplete
	return r
}

// synced adds a synchronization in context 0xc1.
func (tp *tape) synced(name string, at, dur, stream int64, result int32) *format.Row {
	r := tp.call(format.KindSync, name, at, dur)
	r.Stream, r.Context, r.Result = stream, 0xc1, result
	return r
}

// crashing is a recording of a program that writes to an illegal address.
func crashing(t testing.TB) *tape {
	tp := newTape(t)
	tp.gpus()
	tp.stack(1, "scatter_add", "train_step", "main", "_start")
	tp.stack(2, "wait_for_gpu", "train_step", "main", "_start")
	tp.xid(-90*second, 0, 7, 63, format.XidFact{PCI: "0000:3b:00.0", Process: "old", Text: "Row Remapper: New row marked for remapping", Sources: []string{"kmsg"}, Before: true})
	for i := range int64(20) {
		tp.launched(second+i*ms, 8*us, "gemm<float>(int)", 7, 1)
	}
	tp.synced("cuStreamSynchronize", 2*second, ms, 7, 0)
	tp.launched(3*second, 8*us, "gemm<float>(int)", 7, 1)
	tp.launched(3*second+ms, 8*us, "scatter<float>(float*, int)", 9, 1)
	tp.launched(3*second+2*ms, 8*us, "copy(float*)", 7, 1).Flags = format.FlagCaptured
	tp.xid(3*second+5*ms, 1, 42, 31, format.XidFact{PCI: "0000:5e:00.0", Process: "train", Text: "Ch 0000000a, MMU Fault: ENGINE GRAPHICS GPC0", Sources: []string{"tracepoint", "kmsg"}})
	at(tp.synced("cuStreamSynchronize", 3*second+4*ms, 3*ms, 7, 700), 2, "wait_for_gpu (train.cc:10)")
	for i := range int64(3) {
		free := tp.free(3*second+10*ms+i*ms, us, 0x1000)
		free.Result, free.Context = 700, 0xc1
	}
	tp.call(format.KindAPI, "cuDevicePrimaryCtxGetState", 3*second+20*ms, us).Result = calls.ResultDeinitialized
	for range 4 {
		tp.call(format.KindAPI, "cuPointerGetAttribute", 1*second, us).Result = 1
		tp.call(format.KindAPI, "cuEventQuery", 1*second, us).Result = calls.ResultNotReady
	}
	oom := at(tp.alloc(1500*ms, 20*us, 0, 200<<30), 1, "scatter_add (train.cc:10)")
	oom.Result = calls.ResultOutOfMemory
	unknown := tp.launched(1600*ms, 0, "gemm<float>(int)", 7, 1)
	unknown.Flags, unknown.Result = format.FlagNoReturn, 1
	tp.xid(4*second, -1, 0, 20034, format.XidFact{PCI: "0000:c1:00.0", Text: "Fatal, Link 12 LTSSM Fault Up", Sources: []string{"kmsg"}}).Name = format.NameSXid
	tp.xid(5*second, 0, 0, 9999, format.XidFact{PCI: "0000:3b:00.0", Text: "new trouble", Sources: []string{"nvml"}})
	return tp
}

func TestReportsOfACrash(t *testing.T) {
	tl := crashing(t).timeline()
	for command, make := range map[string]func(query.Options) (*reportpkg.Report, error){"xid": func(p0 query.Options) (*reportpkg.Report, error) { return xidpkg.Run(tl, p0) }, "errors": func(p0 query.Options) (*reportpkg.Report, error) { return cudaerrors.Run(tl, p0) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		goldens(t, r, command, 110)
	}
}

// goldens compares a report with its files.
func goldens(t *testing.T, r *reportpkg.Report, name string, width int) {
	t.Helper()
	golden(t, name+".table", rendered(t, r, render.Options{Width: width}))
	golden(t, name+".json", rendered(t, r, render.Options{Format: "json"}))
	golden(t, name+".csv", rendered(t, r, render.Options{Format: "csv"}))
}

// cells returns the values of a column of a table.
func cells(t *testing.T, r *reportpkg.Report, table, key string) []string {
	t.Helper()
	for i := range r.Tables {
		if r.Tables[i].Name != table {
			continue
		}
		column := slices.IndexFunc(r.Tables[i].Columns, func(c reportpkg.Column) bool { return c.Key == key })
		var list []string
		for _, row := range r.Tables[i].Rows {
			list = append(list, fmt.Sprint(row.Cells[column]))
		}
		return list
	}
	t.Fatalf("no table %s", table)
	return nil
}

func TestSuspectsAreWhatMayStillHaveBeenRunning(t *testing.T) {
	fails := func(tp *tape) { tp.synced("cuCtxSynchronize", 10*second, ms, 0, 719) }
	for name, c := range map[string]struct {
		tape func(*tape)
		want string
	}{
		"the last one first": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.launched(2*second, us, "b", 7, 0)
		}, "b a"},
		"no more than five": {func(tp *tape) {
			for i, k := range strings.Split("abcdefgh", "") {
				tp.launched(int64(i+1)*second, us, k, 7, 0)
			}
		}, "h g f e d"},
		"out of order in the file": {func(tp *tape) {
			for _, i := range []int64{8, 3, 1, 7, 2, 6, 4, 5} {
				tp.launched(i*second, us, string(rune('a'+i-1)), 7, 0)
			}
		}, "h g f e d"},
		"a stream that was waited for is done": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.launched(second, us, "b", 9, 0)
			tp.synced("cuStreamSynchronize", 2*second, us, 7, 0)
			tp.launched(3*second, us, "c", 7, 0)
		}, "c b"},
		"a wait that failed proves nothing": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.synced("cuStreamSynchronize", 2*second, us, 7, 1)
		}, "a"},
		"a context that was waited for is done": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.launched(second, us, "b", 9, 0)
			tp.synced("cuCtxSynchronize", 2*second, us, 0, 0)
		}, ""},
		"or by name": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			other := tp.synced("cuCtxSynchronize_v2", 2*second, us, 0, 0)
			other.Context, other.Ptr = 0xc2, 0xc1
		}, ""},
		"another one is another": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.synced("cuCtxSynchronize_v2", 2*second, us, 0, 0).Ptr = 0xc2
		}, "a"},
		"launched while another thread waits": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0)
			tp.synced("cuStreamSynchronize", second-ms, second, 7, 0).Tid = 43
		}, "a"},
		"a launch of another context is none": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0).Context = 0xc2
			tp.launched(2*second, us, "b", 7, 0).Context = 0
		}, "b"},
		"nor one of another process, one that failed, one that was captured, one after it": {func(tp *tape) {
			tp.launched(second, us, "a", 7, 0).Pid = 43
			tp.launched(second, us, "b", 7, 0).Result = 1
			tp.launched(second, us, "c", 7, 0).Flags = format.FlagCaptured
			tp.launched(11*second, us, "d", 7, 0)
		}, ""},
		"one whose result is not known is": {func(tp *tape) {
			r := tp.launched(second, 0, "a", 7, 0)
			r.Flags, r.Result = format.FlagNoReturn, 0
			tp.synced("cuStreamSynchronize", 2*second, us, 7, 0).Tid = 43
		}, "a"},
		"until its own thread waited": {func(tp *tape) {
			tp.launched(second, 0, "a", 7, 0).Flags = format.FlagNoReturn
			tp.synced("cuStreamSynchronize", 2*second, us, 7, 0)
		}, ""},
	} {
		tp := newTape(t)
		c.tape(tp)
		fails(tp)
		r, err := cudaerrors.Run(tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(cells(t, r, "suspects", "kernel"), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSeveralFaultsHaveTheirOwnSuspects(t *testing.T) {
	tp := newTape(t)
	tp.launched(second, us, "a", 7, 0)
	tp.synced("cuStreamSynchronize", 2*second, us, 7, 700)
	tp.synced("cuStreamSynchronize", 3*second, us, 7, 700)
	tp.api("cuDevicePrimaryCtxReset_v2", 4*second, 0, 0)
	tp.launched(5*second, us, "b", 7, 0)
	tp.synced("cuStreamSynchronize", 6*second, us, 7, 719)
	r, err := cudaerrors.Run(tp.timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cells(t, r, "asynchronous", "result"), " "); got != "700 719" {
		t.Errorf("faults %s: a context breaks once, until it is reset", got)
	}
	if got := strings.Join(cells(t, r, "suspects", "kernel"), " "); got != "a b a" {
		t.Errorf("suspects %s", got)
	}
	if n, _, _ := r.Number("asynchronous_errors"); n != 2 {
		t.Errorf("%v asynchronous errors", n)
	}
}

func TestErrorClasses(t *testing.T) {
	r, err := cudaerrors.Run(crashing(t).timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"failed_calls": 9, "asynchronous_errors": 1, "out_of_memory": 1, "questions": 4, "no_errors": 5} {
		if got, _, _ := r.Number(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if got := strings.Join(cells(t, r, "errors", "class"), " "); got != "asynchronous asynchronous memory question" {
		t.Errorf("classes %s", got)
	}
	for _, o := range []query.Options{{Filter: query.Filter{Pids: []int32{7}}}, {Filter: query.Filter{Tids: []int32{7}}}} {
		r, err := cudaerrors.Run(crashing(t).timeline(), o)
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := r.Number("failed_calls"); n != 0 || r.NoMatch == nil {
			t.Errorf("%v failed calls of nobody, %v", n, r.NoMatch)
		}
	}
}

func TestEveryResultHasAMeaning(t *testing.T) {
	for code, r := range catalog.CUDAResults {
		if !strings.HasPrefix(r.Name, "CUDA_ERROR_") || r.Meaning == "" {
			t.Errorf("%d: %+v", code, r)
		}
	}
	if len(catalog.CUDAResults) != 101 {
		t.Errorf("%d codes", len(catalog.CUDAResults))
	}
	if catalog.ResultName(12345) != "CUresult 12345" || !strings.Contains(catalog.ResultMeaning(12345), "does not know") {
		t.Error("an unknown code has a meaning")
	}
	if !catalog.IsAsynchronous(700) || catalog.IsAsynchronous(701) || catalog.IsAsynchronous(713) || catalog.IsAsynchronous(720) || catalog.IsAsynchronous(0) {
		t.Error("asynchronous errors")
	}
}

func TestXidCatalogue(t *testing.T) {
	codes := []int64{13, 31, 32, 38, 43, 45, 48, 61, 62, 63, 64, 68, 69, 74, 79, 92, 94, 95, 109, 110, 119, 120, 140, 143, 144, 145, 146, 147, 148, 149, 150, 154}
	for _, code := range codes {
		if _, known := catalog.DescribeXid(code); !known {
			t.Errorf("Xid %d is not in the catalogue", code)
		}
	}
	check := func(what string, code int64, e catalog.XidEntry) {
		if e.Name == "" || e.Meaning == "" || e.Action == "" || len(e.Causes.Names()) == 0 {
			t.Errorf("%s %d is incomplete: %+v", what, code, e)
		}
	}
	for code := range int64(200) {
		if e, known := catalog.DescribeXid(code); known {
			check("Xid", code, e)
		} else if !strings.Contains(e.Meaning, "does not know") {
			t.Errorf("Xid %d is not known, and %s", code, e.Meaning)
		}
	}
	for _, codes := range [][]int64{catalog.SxidHarmless, catalog.SxidFatal, catalog.SxidAlwaysFatal, slices.Collect(maps.Keys(catalog.SXids))} {
		for _, code := range codes {
			e, known := catalog.DescribeSXid(code)
			if !known {
				t.Errorf("SXid %d is not known", code)
			}
			check("SXid", code, e)
		}
	}
	if e, known := catalog.DescribeSXid(11099); known || e.Action == "" {
		t.Error("any SXid of a unit is known")
	}
	if e, _ := catalog.DescribeXid(41); e.Name != "copy engine 2 exception" {
		t.Errorf("Xid 41: %s", e.Name)
	}
}

func TestXidsPassTheFilter(t *testing.T) {
	for name, c := range map[string]struct {
		filter query.Filter
		want   string
	}{
		"all":         {query.Filter{}, "63 31 20034 9999"},
		"a process":   {query.Filter{Pids: []int32{42}}, "31"},
		"a device":    {query.Filter{Devices: []int32{0}}, "63 9999"},
		"from a time": {query.Filter{FromNs: epoch + 1}, "31 20034 9999"},
		"to a time":   {query.Filter{ToNs: epoch + 4*second}, "63 31 20034"},
		"nobody":      {query.Filter{Pids: []int32{1}}, ""},
	} {
		r, err := xidpkg.Run(crashing(t).timeline(), query.Options{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(cells(t, r, "xids", "code"), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if (r.NoMatch != nil) != (c.want == "") {
			t.Errorf("%s: %v", name, r.NoMatch)
		}
	}
}

// reports are those of this file.
func machineReports(tl *timeline.Timeline) map[string]func(query.Options) (*reportpkg.Report, error) {
	return map[string]func(query.Options) (*reportpkg.Report, error){
		"xid": func(p0 query.Options) (*reportpkg.Report, error) { return xidpkg.Run(tl, p0) }, "errors": func(p0 query.Options) (*reportpkg.Report, error) { return cudaerrors.Run(tl, p0) }, "gpu": func(p0 query.Options) (*reportpkg.Report, error) { return gpu.Run(tl, p0) },
		"memory": func(o query.Options) (*reportpkg.Report, error) { return memory.Run(tl, memory.Options{Options: o}) },
		"reconcile": func(o query.Options) (*reportpkg.Report, error) {
			return memory.Run(tl, memory.Options{Options: o, Reconcile: true, At: query.AtEnd})
		},
	}
}

func TestMachineReportsAreSafeAndFit(t *testing.T) {
	tp := hostileTape(t)
	tp.add(format.Row{Kind: format.KindNVML, Name: catalog.MetricOfProcess, Device: 0, Pid: 42, StartNs: epoch + 2, Value: 1e9, Message: hostile})
	tp.add(format.Row{Kind: format.KindNVML, Name: catalog.MetricOfProcess, Device: 0, Pid: 99, StartNs: epoch + 2, Value: 1e9, Message: hostile})
	tp.nvml(0, 2, catalog.MetricMemoryUsed, 3e9)
	tp.xid(3*second, 0, 42, 31, format.XidFact{PCI: hostile, Process: hostile, Text: hostile, Sources: []string{hostile}})
	failed := at(tp.call(format.KindSync, hostile, 4*second, 1), 1, hostile)
	failed.Result = 700
	tl := tp.timeline()
	for name, make := range machineReports(tl) {
		r, err := make(query.Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		for _, f := range []string{"table", "md"} {
			for _, width := range []int{0, 40, 80} {
				for _, c := range string(rendered(t, r, render.Options{Format: f, Width: width})) {
					if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == utf8.RuneError) {
						t.Fatalf("%s as %s: %q", name, f, c)
					}
				}
			}
		}
		if md := string(rendered(t, r, render.Options{Format: "md"})); strings.Contains(md, "<script>") {
			t.Errorf("%s: HTML reaches the Markdown", name)
		}
		if !json.Valid(rendered(t, r, render.Options{Format: "json"})) {
			t.Errorf("%s: not JSON", name)
		}
		if _, err := csv.NewReader(bytes.NewReader(rendered(t, r, render.Options{Format: "csv"}))).ReadAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for tape, tl := range map[string]*timeline.Timeline{"crash": crashing(t).timeline(), "training": training(t).timeline(), "machine": machine(t).timeline(), "surface": surface(t).timeline()} {
		for name, make := range machineReports(tl) {
			r, err := make(query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, width := range []int{80, 100, 132} {
				for line := range strings.Lines(string(rendered(t, r, render.Options{Width: width}))) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
						t.Errorf("%s of %s at %d: a line of %d: %s", name, tape, width, n, line)
					}
				}
			}
		}
	}
}

func TestMachineReportsAreTheSameEveryTime(t *testing.T) {
	for _, tp := range []*tape{crashing(t), machine(t), surface(t), training(t)} {
		rec := tp.record()
		var before map[string]string
		for range 3 {
			tl, err := timeline.Open(rec)
			if err != nil {
				t.Fatal(err)
			}
			now := make(map[string]string)
			for name, report := range machineReports(tl) {
				r, err := report(query.Options{Top: 2})
				if err != nil {
					t.Fatal(err)
				}
				now[name] = string(rendered(t, r, render.Options{Format: "json"}))
				if before != nil && before[name] != now[name] {
					t.Errorf("%s differs:\n%s\n%s", name, before[name], now[name])
				}
			}
			before = now
		}
	}
}

func TestMachineReportsAreExplained(t *testing.T) {
	for _, tl := range []*timeline.Timeline{crashing(t).timeline(), machine(t).timeline()} {
		for name, make := range machineReports(tl) {
			r, err := make(query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if ok, err := Explain(&b, r.Command); !ok || err != nil {
				t.Fatalf("%s: %v %v", name, ok, err)
			}
			var columns []reportpkg.Column
			for _, table := range r.Tables {
				columns = append(columns, table.Columns...)
				for _, row := range table.Rows {
					if len(row.Cells) != len(table.Columns) {
						t.Errorf("%s, %s: %d cells for %d columns", name, table.Name, len(row.Cells), len(table.Columns))
					}
				}
			}
			for _, f := range append(slices.Clone(r.Facts), r.Totals...) {
				columns = append(columns, f.Column)
			}
			for _, c := range columns {
				if c.About == "" || !strings.Contains(b.String(), "  "+c.Key) {
					t.Errorf("%s: %s is not explained", name, c.Key)
				}
			}
		}
	}
}
