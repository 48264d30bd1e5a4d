package perfetto

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// capturedGraph adds calls that capture a graph on two streams, add a child graph, launch the
// graph, capture it again and launch it again.
func capturedGraph(recording *analyzetest.TestRecording) {
	at := analyzetest.Second
	call := func(kind, name string, change func(*format.Row)) {
		at += 100 * analyzetest.Us
		r := recording.AddCall(kind, name, at, 20*analyzetest.Us)
		change(r)
	}
	handles := func(stream, ptr, src int64) func(*format.Row) {
		return func(r *format.Row) { r.Stream, r.Ptr, r.SrcPtr = stream, ptr, src }
	}
	work := func(stream int64, kernel string) {
		call(
			format.KindLaunch,
			"cuLaunchKernel",
			func(r *format.Row) { r.Stream, r.Kernel, r.Flags = stream, kernel, format.FlagCaptured },
		)
	}
	call(
		format.KindAPI,
		"cuGraphAddKernelNode_v2",
		func(r *format.Row) { r.Ptr, r.SrcPtr, r.Kernel = 0x11, 0xc1, "child" },
	)
	call(format.KindAPI, "cuStreamBeginCapture_v2", handles(7, 0, 0))
	work(7, "gemm")
	call(format.KindAPI, "cuEventRecord", handles(7, 0xe1, 0))
	call(format.KindAPI, "cuStreamWaitEvent", handles(9, 0xe1, 0))
	work(9, "side")
	call(
		format.KindMemcpy,
		"cuMemcpyAsync",
		func(r *format.Row) { r.Stream, r.CopyKind, r.Flags = 9, "DtoD", format.FlagCaptured },
	)
	work(7, "gemm")
	call(format.KindAPI, "cuStreamEndCapture", handles(7, 0xa1, 0))
	work(9, "after the capture: of no graph")
	call(
		format.KindAPI,
		"cuGraphAddChildGraphNode",
		func(r *format.Row) { r.Ptr, r.SrcPtr, r.Value = 0x12, 0xa1, 0xc1 },
	)
	call(format.KindAPI, "cuGraphInstantiateWithFlags", handles(0, 0xb1, 0xa1))
	run := func(kernels float64) {
		call(format.KindLaunch, "cuGraphLaunch", func(r *format.Row) { r.Stream, r.Ptr, r.Value = 7, 0xb1, kernels })
	}
	run(4)
	call(format.KindAPI, "cuGraphExecUpdate_v2", handles(0, 0xb1, 0xc1))
	run(1)
}

func TestGraphsListTheirNodes(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	capturedGraph(recording)
	tl := recording.Timeline()
	graphs, err := graph.Read(tl)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range graphs[graph.ObjectHandle{Pid: 42, Handle: 0xb1}] {
		got = append(got, v.Text)
	}
	if want := []string{"gemm ×2, side, copy DtoD, child", "child"}; !slices.Equal(got, want) || len(graphs) != 1 {
		t.Errorf("%q, want %q", got, want)
	}
	if v := graphs.VersionAt(42, 0xb1, analyzetest.Epoch); v != nil {
		t.Errorf("a graph has the contents %s before it is created", v.Text)
	}
	d, _ := traced(t, tl, Options{})
	lanes := make(map[string][]string)
	for _, s := range d.slices {
		if _, track, ok := strings.Cut(s.track, " / "); ok {
			lanes[track] = append(lanes[track], s.name)
		}
	}
	want := map[string][]string{
		"captured on stream 7 (put into a graph, not run)": {"gemm", "gemm"},
		"captured on stream 9 (put into a graph, not run)": {"side", "cuMemcpyAsync DtoD", "after the capture: of " +
			"no graph"},
		"stream 7 (order of calls, not GPU time)": {"graph of 4 kernels", "graph of 1 kernel"},
	}
	if fmt.Sprint(lanes) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", lanes, want)
	}
}

// TestGraphsOfNodesOfAnyType checks the contents of a graph whose nodes are added, changed and
// removed.
func TestGraphsOfNodesOfAnyType(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	node := func(name, message, kernel string, ptr, src int64) {
		r := recording.AddAPICall(name, int64(len(recording.Rows)+1)*10, ptr, 0)
		r.Message, r.Kernel, r.SrcPtr = message, kernel, src
	}
	node("cuGraphAddKernelNode", "", "gemm", 0x11, 0xa1)
	node("cuGraphAddNode", "kernel", "relu", 0x12, 0xa1)
	node("cuGraphAddNode_v2", "mem_alloc", "", 0x7000, 0xa1)
	node("cuGraphAddNode_v2", "memcpy", "", 0x13, 0xa1)
	node("cuGraphAddNode", "empty", "", 0x14, 0xa1)
	node("cuGraphAddNode", "conditional", "", 0x15, 0xa1)
	node("cuGraphAddHostNode", "", "", 0x16, 0xa1)
	node("cuGraphInstantiate", "", "", 0xb1, 0xa1)
	node("cuGraphExecKernelNodeSetParams_v2", "", "gemm", 0xb1, 0x11) // the same parameters again
	node("cuGraphExecNodeSetParams", "memcpy", "", 0xb1, 0x13)
	node("cuGraphExecNodeSetParams", "kernel", "gelu", 0xb1, 0x12)
	node("cuGraphKernelNodeSetParams", "", "relu", 0x11, 0)
	node("cuGraphExecUpdate", "", "", 0xb1, 0xa1)
	node("cuGraphDestroyNode", "", "", 0x12, 0)
	node("cuGraphExecUpdate_v2", "", "", 0xb1, 0xa1)
	node("cuGraphNodeSetEnabled", "", "", 0xb1, 0x99)
	node("cuGraphDestroyNode", "", "", 0x99, 0) // a node of an unknown graph
	node("cuGraphExecUpdate_v2", "", "", 0xb1, 0xa1)
	recording.AddCall(format.KindLaunch, "cuGraphLaunch", 1000, 1).Ptr = 0xb1
	graphs, err := graph.Read(recording.Timeline())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range graphs[graph.ObjectHandle{Pid: 42, Handle: 0xb1}] {
		got = append(got, v.Text)
	}
	const rest = "cuMemAllocAsync, copy, conditional, cuLaunchHostFunc"
	want := []string{
		"gemm, relu, " + rest, "gemm, " + rest + ", gelu", "relu ×2, " + rest, "relu, " + rest,
		"relu, " + rest + ", nodes changed since", "relu, " + rest + ", nodes changed since",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestPerfettoShowsAllCallStates checks with trace_processor that calls that succeed, fail, stay
// open or lack a return have the right slices.
func TestPerfettoShowsAllCallStates(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.WorkloadRecording(t)
	capturedGraph(recording)
	path := filepath.Join(t.TempDir(), "run.pftrace")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteTrace(recording.Timeline(), file, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	names := make(map[string]float64)
	var lanes, unknown, waited float64
	for _, r := range recording.Rows {
		if class := format.ClassOf(r.Kind); class != format.ClassMemory && class != format.ClassCall {
			continue
		}
		names[r.Name]++
		if timeline.IsStreamWork(r.Kind) && r.Result == 0 {
			lanes++
		}
		if r.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			unknown++
		} else if r.Kind == format.KindSync && r.Name != "cuStreamQuery" {
			waited += float64(r.DurNs)
		}
	}
	results := viewers.QueryPerfetto(
		t,
		path,
		viewers.PerfettoErrorsQuery,
		`select s.name name, count(*) n from slice s join thread_track t on s.track_id = t.id group by 1`,
		`select count(*) n, sum(s.dur) ns from slice s join thread_track t on s.track_id = t.id join args a using (arg_set_id)
			where a.key in ('debug.duration_unknown', 'debug.abandoned')`,
		`select count(*) n, count(distinct f.slice_out) outs from flow f join slice i on i.id = f.slice_in join track t on t.id = i.track_id where t.name glob '*stream*'`,
		`select s.name name, t.name track, p.pid pid, s.dur ns from slice s join process_track t on s.track_id = t.id join process p using (upid)`,
		`select cast(sum(c.value * c.dur) as int) ns, cast(max(c.value) as int) most from
			(select value, lead(ts, 1, ts) over (order by c.ts, c.id) - ts dur from counter c join process_counter_track t on c.track_id = t.id where t.name = 'threads waiting for the GPU') c`,
		`select f.name name, y.source_file file, y.line_number line from stack_profile_frame f join stack_profile_symbol y using (symbol_set_id) order by 1`,
		`select s.name name, a.display_value holds from slice s join args a using (arg_set_id) where a.key = 'debug.holds' and s.name != 'graph of 3 kernels' order by s.ts`,
		`select count(*) n from slice where dur < 0`,
		`select count(*) n from slice s join track t on s.track_id = t.id where t.name glob 'captured on*'`,
	)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for _, row := range results[1] {
		if name := row["name"].(string); row["n"] != names[name] {
			t.Errorf("%v slices of %s, %v rows", row["n"], name, names[name])
		}
	}
	if len(results[1]) != len(names) {
		t.Errorf("%d names of slices, %d of rows", len(results[1]), len(names))
	}
	for i, want := range map[int]string{
		2: fmt.Sprintf(`[{"n":%v,"ns":0}]`, unknown),
		3: fmt.Sprintf(`[{"n":%v,"outs":%[1]v}]`, lanes),
		4: `[{"name":"cuEventSynchronize has not returned","ns":1000000000,"pid":42,"track":"cuEventSynchronize of thread 42 has not returned"}]`,
		5: fmt.Sprintf(`[{"most":1,"ns":%d}]`, int64(waited)),
		6: `[{"file":"/home/u/model.py","line":12,"name":"forward"},{"file":"/home/u/train.py","line":88,"name":"train; step"}]`,
		7: `[{"holds":"gemm ×2, side, copy DtoD, child","name":"graph of 4 kernels"},{"holds":"child","name":"graph of 1 kernel"}]`,
		8: `[{"n":0}]`,
		9: `[{"n":6}]`,
	} {
		if got := viewers.EncodeJSON(t, results[i]); got != want {
			t.Errorf("query %d: %s, want %s", i, got, want)
		}
	}
}

// inParts writes a trace in parts of at most most slices.
func inParts(t *testing.T, tl *timeline.Timeline, most int64) ([]*bytes.Buffer, *TraceStats) {
	t.Helper()
	list := []*bytes.Buffer{new(bytes.Buffer)}
	stats, err := WriteTrace(tl, list[0], Options{MaxSlices: most, Next: func() (io.Writer, error) {
		list = append(list, new(bytes.Buffer))
		return list[len(list)-1], nil
	}})
	if err != nil || stats.LeftOut != 0 || stats.Parts != len(list) {
		t.Fatal(err, stats, len(list))
	}
	return list, stats
}

// TestTracePartsAreTheWhole checks that all parts together have the events of the whole trace: each
// call once, calls that span several parts with their full duration, and counters without gaps.
func TestTracePartsAreTheWhole(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	for i := range int64(4) { // long calls, during which others begin
		r := recording.AddCall(
			format.KindSync,
			"cuEventSynchronize",
			5*analyzetest.Second+i*10*analyzetest.Second,
			12*analyzetest.Second,
		)
		r.Tid = int32(50 + i)
	}
	tl := recording.Timeline()
	whole, all := traced(t, tl, Options{})
	list, stats := inParts(t, tl, 500)
	if stats.Calls != all.Calls || len(list) < 8 {
		t.Fatalf("%d calls in %d parts, %d in one trace", stats.Calls, len(list), all.Calls)
	}
	type call struct {
		name           string
		startNs, durNs int64
	}
	calls := make(map[call]int)
	counters := make(map[string][]int64)
	continued := 0
	for i, b := range list {
		d := decode(t, b.Bytes())
		own := 0
		for _, s := range d.onThreads() {
			if _, again := calls[call{s.name, s.startNs, s.durNs}]; again && s.notes == 1 { // continued
				continued++
				continue
			}
			calls[call{s.name, s.startNs, s.durNs}]++
			own++
		}
		if own > 500 || own == 0 {
			t.Errorf("part %d has %d calls of its own", i+1, own)
		}
		for name, values := range d.counters {
			if before := counters[name]; len(before) > 0 && values[0] != before[len(before)-1] {
				t.Errorf("part %d: %s begins at %d, ended at %d", i+1, name, values[0], before[len(before)-1])
			}
			counters[name] = append(counters[name], values...)
		}
	}
	if continued < 4 {
		t.Errorf("%d calls are continued", continued)
	}
	for _, s := range whole.onThreads() {
		if calls[call{s.name, s.startNs, s.durNs}]--; calls[call{s.name, s.startNs, s.durNs}] < 0 {
			t.Fatalf("%+v is not in the parts", s)
		}
	}
	for name, values := range whole.counters {
		if slices.Max(values) != slices.Max(counters[name]) ||
			values[len(values)-1] != counters[name][len(counters[name])-1] {
			t.Errorf("%s: the counter's values in the parts differ from those in one trace", name)
		}
	}
	for _, i := range []int{0, len(list) / 2, len(list) - 1} {
		path := filepath.Join(t.TempDir(), "part.pftrace")
		if err := os.WriteFile(path, list[i].Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		results := viewers.QueryPerfetto(
			t,
			path,
			viewers.PerfettoErrorsQuery,
			`select count(*) n from slice where dur < 0`,
		)
		if got := viewers.EncodeJSON(t, results); got != `[[],[{"n":0}]]` {
			t.Errorf("part %d: %s", i+1, got)
		}
	}
	if _, err := WriteTrace(
		tl,
		io.Discard,
		Options{MaxSlices: 500, Next: func() (io.Writer, error) { return nil, io.ErrClosedPipe }},
	); err == nil {
		t.Error("no error although Next returned one")
	}
}
