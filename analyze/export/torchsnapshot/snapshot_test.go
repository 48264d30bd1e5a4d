package torchsnapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// python runs a Python program with a file as its only argument.
func python(t testing.TB, program, path string) []byte {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		testclass.Missing(t, "python3 is not installed")
	}
	var stderr bytes.Buffer
	cmd := exec.Command("python3", "-c", program, path)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, stderr.String())
	}
	return out
}

// unpickle decodes a pickle with Python, and converts the result to v through JSON.
func unpickle(t testing.TB, data []byte, v any) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.pickle")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	text := python(t, "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)", path)
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

func TestPickle(t *testing.T) {
	testclass.Unit(t)
	numbers := []int64{
		0,
		1,
		255,
		256,
		65535,
		65536,
		math.MaxInt32,
		math.MaxInt32 + 1,
		math.MaxInt64,
		-1,
		math.MinInt32,
		math.MinInt32 - 1,
		math.MinInt64,
	}
	texts := []string{"", "x", strings.Repeat("long", 100), "größer", "broken \xff", "x"}
	var b bytes.Buffer
	p := newPickler(&b)
	p.writeDict(func() {
		p.writeString("numbers")
		p.writeList(func(item func()) {
			for range 3 * maxAppendItems {
				for _, n := range numbers {
					item()
					p.writeInt(n)
				}
			}
		})
		p.writeString("texts")
		p.writeList(func(item func()) {
			for _, s := range texts {
				item()
				p.writeString(s)
			}
		})
		p.writeString("again")
		p.writeList(func(item func()) {
			item()
			p.writeIntPair(1, -2)
			n := p.memoizeLast()
			for range 300 { // memo numbers of more than one byte
				item()
				p.writeList(func(func()) {})
				p.memoizeLast()
			}
			item()
			p.writeMemoReference(n)
			item()
			p.writeMemoReference(n + 300)
		})
		p.writeString("float")
		p.writeFloat(0.25)
		p.writeBoolItem("yes", true)
		p.writeBoolItem("no", false)
	})
	if err := p.finishPickle(); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Numbers []int64
		Texts   []string
		Again   []any
		Float   float64
		Yes, No bool
	}
	unpickle(t, b.Bytes(), &got)
	if len(got.Numbers) != 3*maxAppendItems*len(numbers) ||
		!slices.Equal(got.Numbers[len(got.Numbers)-len(numbers):], numbers) {
		t.Errorf("numbers: %v", got.Numbers[:len(numbers)])
	}
	texts[4] = "broken \ufffd"
	if !slices.Equal(got.Texts, texts) || got.Float != 0.25 || !got.Yes || got.No {
		t.Errorf("%+v", got)
	}
	if n := len(got.Again); n != 303 || fmt.Sprint(got.Again[0], got.Again[n-2], got.Again[n-1]) != "[1 -2] [1 -2] []" {
		t.Errorf("again: %v", got.Again)
	}
}

func TestPicklerReturnsErrors(t *testing.T) {
	testclass.Unit(t)
	p := newPickler(&failingWriter{})
	p.writeString(strings.Repeat("x", 1<<20))
	if err := p.finishPickle(); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

var errDisk = errors.New("disk full")

type failingWriter struct{}

func (*failingWriter) Write([]byte) (int, error) { return 0, errDisk }

// The types below have the fields of a snapshot, as Python reads it.
type torchFrame struct {
	Name, Filename string
	Line           int
}

type torchPickle struct {
	Segments []struct {
		Device, Address, Stream, Total_size, Allocated_size, Active_size, Requested_size int64
		Segment_type                                                                     string
		Segment_pool_id                                                                  []int64
		Is_expandable                                                                    bool
		Frames                                                                           []torchFrame
		Blocks                                                                           []struct {
			Address, Size, Requested_size int64
			State                         string
			Frames                        []torchFrame
		}
	}
	Device_traces [][]struct {
		Action                                   string
		Addr, Device_free, Size, Stream, Time_us int64
		Compile_context, User_metadata           string
		Frames                                   []torchFrame
	}
	Allocator_settings   map[string]any
	External_annotations []any
}

func takeSnapshot(t testing.TB, tl *timeline.Timeline, opt Options) (*Snapshot, []byte) {
	t.Helper()
	s, err := NewSnapshot(tl, opt)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	return s, b.Bytes()
}

// withStacks adds to the tape the stacks to which its events refer.
func withStacks(recording *analyzetest.TestRecording) {
	for id := int32(1); id <= 4; id++ {
		recording.AddRow(
			format.Row{
				Kind:        format.KindStack,
				StackID:     id,
				StackStatus: format.StackComplete,
				Device:      -1,
				Frames: []format.Frame{
					{Func: "record_trace", Module: "/venv/torch/lib/libc10_cuda.so", Type: "native"},
					{Func: "forward", File: "/app/model.py", Line: 10 * id, Type: "python"},
					{Func: "<module>", File: "/app/train.py", Line: 3, Type: "python"},
				},
			},
		)
	}
}

func TestSnapshotMatchesModel(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(4) {
		recording, worlds := analyzetest.TorchAllocatorRecording(t, 200+seed, 500, func(w *analyzetest.TorchAllocator) {
			if w.Patient = true; w.Pid == 42 {
				w.Conf = analyzetest.TorchConf{
					Expandable: seed%2 == 0,
				} // the same setting for all allocators of the process
			}
		})
		withStacks(recording)
		for _, w := range []*analyzetest.TorchAllocator{worlds[0], worlds[2]} {
			recording.AddRow(
				format.Row{
					Kind:    format.KindNote,
					Name:    format.NoteAllocator,
					Pid:     w.Pid,
					Message: fmt.Sprintf(`{"allocator":"torch","conf":%q}`, w.Conf),
				},
			)
		}
		tl := recording.Timeline()
		for _, w := range worlds {
			sample := w.Samples[len(w.Samples)*3/4]
			opt := Options{
				At:     query.MomentGivenTime,
				AtNs:   analyzetest.Epoch + sample.AtNs,
				Filter: query.Filter{Pids: []int32{w.Pid}, Devices: []int32{w.Device}},
			}
			s, data := takeSnapshot(t, tl, opt)
			if s.Totals != sample.Totals || len(s.Missing) != 0 {
				t.Fatalf("totals %+v, want %+v; missing %v", s.Totals, sample.Totals, s.Missing)
			}
			var got torchPickle
			unpickle(t, data, &got)
			list, err := state.ReadAllocators(tl, opt.AtNs)
			if err != nil {
				t.Fatal(err)
			}
			compareSegments(t, &got, analyzetest.FindAllocatorState(list, w))
			compareTrace(t, &got, recording, w, opt.AtNs)
			if conf := got.Allocator_settings["PYTORCH_CUDA_ALLOC_CONF"]; conf != w.Conf.String() {
				t.Errorf("settings %v", got.Allocator_settings)
			}
		}
	}
}

// compareSegments compares the segments and blocks of a snapshot with those of the model.
func compareSegments(t *testing.T, got *torchPickle, want state.AllocatorState) {
	t.Helper()
	var sum caching.AllocatorTotals
	var blocks []state.AllocatorBlock
	for i := range got.Segments {
		g := &got.Segments[i]
		r := want.Ranges[i]
		at := g.Address
		var own caching.AllocatorTotals
		for k := range g.Blocks {
			b := &g.Blocks[k]
			if b.Address != at {
				t.Fatalf("a block at %x, the one before ends at %x", b.Address, at)
			}
			at += b.Size
			if b.State == "inactive" {
				if b.Requested_size != 0 || len(b.Frames) != 0 {
					t.Errorf("gap %+v", b)
				}
				continue
			}
			own.Active += b.Size
			own.Requested += b.Requested_size
			if b.State == "active_allocated" {
				own.Allocated += b.Size
			}
			w := want.Blocks[len(blocks)]
			blocks = append(blocks, state.AllocatorBlock{
				Ptr:       b.Address,
				Bytes:     b.Size,
				Requested: b.Requested_size,
				SinceNs:   w.SinceNs,
				Awaiting:  b.State == "active_pending_free",
				Stream:    g.Stream,
				Pool:      g.Segment_pool_id[1] - g.Segment_pool_id[0],
				StackID:   int32(b.Frames[1].Line / 10),
				Site:      w.Site,
				Tid:       w.Tid,
			})
			if b.Frames[0] != (torchFrame{"record_trace", "??", 0}) ||
				b.Frames[2] != (torchFrame{"<module>", "/app/train.py", 3}) {
				t.Errorf("frames %v", b.Frames)
			}
		}
		if at-g.Address != g.Total_size || g.Address != r.Ptr || g.Total_size != r.Bytes ||
			g.Is_expandable != r.Expandable ||
			g.Stream != r.Stream ||
			(r.StackID != 0) != (len(g.Frames) == 3) {
			t.Fatalf("segment %+v, want %+v", g, r)
		}
		if own.Allocated != g.Allocated_size || own.Active != g.Active_size || own.Requested != g.Requested_size {
			t.Errorf("segment %+v, sum %+v", g, own)
		}
		if small := g.Segment_type == "small"; !r.Expandable && small != (r.Bytes == 2*analyzetest.Mib) {
			t.Errorf("a segment of %d bytes is %s", r.Bytes, g.Segment_type)
		}
		sum.Reserved += g.Total_size
		sum = sum.AddTotals(own)
	}
	if sum.Reserved != want.Reserved || sum.Allocated != want.Allocated || sum.Active != want.Active ||
		sum.Requested != want.Requested ||
		!reflect.DeepEqual(blocks, want.Blocks) {
		t.Errorf("%d blocks, %+v; want %d, %+v", len(blocks), sum, len(want.Blocks), want.AllocatorTotals)
	}
}

// compareTrace compares the trace of a snapshot with the events of the recording.
func compareTrace(
	t *testing.T,
	got *torchPickle,
	recording *analyzetest.TestRecording,
	w *analyzetest.TorchAllocator,
	untilNs int64,
) {
	t.Helper()
	var rows []*format.Row
	for _, r := range recording.Rows {
		if r.Kind == format.KindAllocator && r.Pid == w.Pid && r.Device == w.Device && r.StartNs <= untilNs {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *format.Row) int { return int(a.StartNs - b.StartNs) })
	trace := got.Device_traces[w.Device]
	if len(trace) != len(rows) || len(got.Device_traces) != int(w.Device)+1 {
		t.Fatalf("%d entries, want %d", len(trace), len(rows))
	}
	for i, r := range rows {
		e := trace[i]
		if e.Action != r.Name || e.Addr != r.Ptr || e.Size != r.Bytes || e.Stream != r.Stream ||
			e.Time_us != r.StartNs/1000 ||
			e.Device_free != int64(r.Value) ||
			(r.StackID != 0) != (len(e.Frames) == 3) ||
			e.Compile_context != "N/A" {
			t.Fatalf("entry %d is %+v, want %+v", i, e, r)
		}
	}
}

// TestSnapshotOfARunningProgram removes the first events of a recording. The snapshot's segments
// must not overlap, and its inferred memory must have existed.
func TestSnapshotOfARunningProgram(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(8) {
		recording, worlds := analyzetest.TorchAllocatorRecording(t, 300+seed, 600, func(w *analyzetest.TorchAllocator) {
			w.Conf, w.Patient = analyzetest.TorchConf{Expandable: seed%2 == 0}, true
		})
		w := worlds[2]
		cut := analyzetest.Epoch + w.Samples[200].AtNs
		recording.Rows = slices.DeleteFunc(
			recording.Rows,
			func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < cut },
		)
		tl := recording.Timeline()
		hasState := 0
		for _, sample := range w.Samples[210:] {
			if sample.Blocks == nil || hasState == 3 {
				continue
			}
			hasState++
			_, data := takeSnapshot(
				t,
				tl,
				Options{
					At:     query.MomentGivenTime,
					AtNs:   analyzetest.Epoch + sample.AtNs,
					Filter: query.Filter{Pids: []int32{w.Pid}},
				},
			)
			var got torchPickle
			unpickle(t, data, &got)
			compareOld(t, &got, &sample)
		}
	}
}

func compareOld(t *testing.T, got *torchPickle, want *analyzetest.TorchAllocatorSample) {
	t.Helper()
	var end, reserved int64
	for _, g := range got.Segments {
		if g.Address < end {
			t.Fatalf("segments overlap at %x", g.Address)
		}
		end = g.Address
		for _, b := range g.Blocks {
			if b.Address != end {
				t.Fatalf("a block at %x, the one before ends at %x", b.Address, end)
			}
			end += b.Size
			if w, ok := want.Blocks[b.Address]; b.State != "inactive" &&
				(!ok || w.Requested != b.Requested_size || w.Awaiting != (b.State == "active_pending_free")) {
				t.Errorf("block %+v, want %+v", b, w)
			}
		}
		if end-g.Address != g.Total_size {
			t.Fatalf("segment %+v", g)
		}
		reserved += g.Total_size
	}
	if reserved > want.Totals.Reserved {
		t.Errorf("segments of %d bytes, %d are reserved", reserved, want.Totals.Reserved)
	}
}

func TestSnapshotOptions(t *testing.T) {
	testclass.Unit(t)
	recording, worlds := analyzetest.TorchAllocatorRecording(
		t,
		7,
		400,
		func(w *analyzetest.TorchAllocator) { w.Patient = true },
	)
	tl := recording.Timeline()
	var several *ProcessCountError
	if _, err := NewSnapshot(
		tl,
		Options{},
	); !errors.As(err, &several) || !slices.Equal(several.Pids, []int32{42, 77}) ||
		several.Filtered {
		t.Errorf("two processes: %v", err)
	}
	if _, err := NewSnapshot(
		tl,
		Options{Filter: query.Filter{Pids: []int32{5}}},
	); !errors.As(err, &several) ||
		!several.Filtered {
		t.Errorf("no process: %v", err)
	}
	if _, err := NewSnapshot(
		analyzetest.NewTestRecording(t).Timeline(),
		Options{},
	); !errors.As(err, &several) ||
		len(several.Pids) != 0 {
		t.Errorf("no allocator: %v", err)
	}

	w := worlds[2]
	s, data := takeSnapshot(
		t,
		tl,
		Options{At: query.MomentPeak, Filter: query.Filter{Pids: []int32{w.Pid}}, MaxTraceEntries: 10},
	)
	var got torchPickle
	unpickle(t, data, &got)
	peak := slices.MaxFunc(
		w.Samples,
		func(a, b analyzetest.TorchAllocatorSample) int { return int(a.Totals.Allocated - b.Totals.Allocated) },
	)
	if s.Totals.Allocated < peak.Totals.Allocated || len(got.Device_traces[0]) != 10 || s.TraceEntries != 10 ||
		s.LeftOut == 0 ||
		len(s.Missing) != 1 {
		t.Errorf("%+v, peak %+v", s, peak.Totals)
	}
	if last := got.Device_traces[0][9]; last.Time_us != s.AtNs/1000 || last.Action != "alloc" {
		t.Errorf("the peak is after %+v", last)
	}
	_, data = takeSnapshot(
		t,
		tl,
		Options{At: query.MomentEnd, Filter: query.Filter{Pids: []int32{w.Pid}, MinBytes: analyzetest.Mib}},
	)
	unpickle(t, data, &got)
	for _, e := range got.Device_traces[0] {
		if e.Size < analyzetest.Mib && (e.Action == "alloc" || strings.HasPrefix(e.Action, "free")) {
			t.Errorf("%+v is in the trace", e)
		}
	}
}

// TestSnapshotReadByPyTorch passes a snapshot to all functions of PyTorch's own reader.
func TestSnapshotReadByPyTorch(t *testing.T) {
	testclass.Unit(t)
	viewer := analyzetest.RepositoryPath(t, "build", "tools", "memory_viz", "_memory_viz.py")
	if _, err := os.Stat(viewer); err != nil {
		t.Skip("no _memory_viz.py; scripts/memory_viz.sh gets it, where PyTorch is installed or can be downloaded")
	}
	recording, worlds := analyzetest.TorchAllocatorRecording(
		t,
		9,
		400,
		func(w *analyzetest.TorchAllocator) { w.Patient = true },
	)
	withStacks(recording)
	s, data := takeSnapshot(
		t,
		recording.Timeline(),
		Options{At: query.MomentPeak, Filter: query.Filter{Pids: []int32{42}}},
	)
	path := filepath.Join(t.TempDir(), "snapshot.pickle")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Stats, Trace   string
		Active, Memory int64
	}
	text := python(t, `
import importlib.util, json, pickle, sys
spec = importlib.util.spec_from_file_location("memory_viz", `+fmt.Sprintf("%q", viewer)+`)
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
data = pickle.load(open(sys.argv[1], "rb"))
lines = {f.__name__: f(data, format_flamegraph=str).splitlines() for f in (viz.segments, viz.memory)}
of = lambda name, state: sum(int(line.rsplit(" ", 1)[1]) for line in lines[name] if ";" + state in line)
assert "forward" in "".join(lines["memory"])
for plot in viz.trace_plot(data), viz.trace_plot(data, plot_segments=True), viz.segment_plot(data):
    assert len(plot) > 10000
json.dump({"stats": viz.segsum(data), "trace": viz.trace(data), "active": of("segments", "active"), "memory": of("memory", "active")}, sys.stdout)
`, path)
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Active != s.Totals.Active || got.Memory != s.Totals.Active {
		t.Errorf("segments: %d active bytes, memory: %d; want %+v", got.Active, got.Memory, s.Totals)
	}
	for _, want := range []string{
		fmt.Sprintf("segments: %d\n", s.Segments),
		fmt.Sprintf("total_reserved: %.1fMiB\n", float64(s.Totals.Reserved)/float64(analyzetest.Mib)),
	} {
		if !strings.Contains(got.Stats, want) {
			t.Errorf("stats lack %q:\n%s", want, got.Stats)
		}
	}
	if !strings.Contains(got.Trace, "Device 0 ---") || !strings.Contains(got.Trace, "Device 1 ---") ||
		!strings.Contains(got.Trace, "cudaMalloc(") && worlds[0].Conf.Expandable == false {
		t.Error(got.Trace[:1000])
	}
}

// TestSnapshotUsesSupportedOpcodes decodes a snapshot with the unpickler of the memory_viz viewer,
// which supports few opcodes.
func TestSnapshotUsesSupportedOpcodes(t *testing.T) {
	testclass.Unit(t)
	recording, _ := analyzetest.TorchAllocatorRecording(t, 10, 300, func(w *analyzetest.TorchAllocator) {})
	withStacks(recording)
	_, data := takeSnapshot(
		t,
		recording.Timeline(),
		Options{At: query.MomentEnd, Filter: query.Filter{Pids: []int32{42}}},
	)
	path := filepath.Join(t.TempDir(), "snapshot.pickle")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	known := "APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINUNICODE EMPTY_DICT EMPTY_LIST LONG1 LONG_BINGET " +
		"MARK MEMOIZE NEWFALSE NEWTRUE PROTO SETITEMS SHORT_BINUNICODE STOP TUPLE2"
	used := python(t, "import pickletools, sys; print(*sorted({op.name for op, *_ in "+
		"pickletools.genops(open(sys.argv[1], 'rb'))}))", path)
	for _, name := range strings.Fields(string(used)) {
		if !slices.Contains(strings.Fields(known), name) {
			t.Errorf("%s", name)
		}
	}
}

func TestStretches(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l addressRanges
		truth := make([]int64, 100) // stream by address; 0 if there is no memory
		for range 30 {
			from := r.Int64N(90)
			s := addressRange{from: from, to: from + 1 + r.Int64N(10), stream: 1 + r.Int64N(2)}
			adding := r.IntN(3) > 0
			if adding {
				l.addRange(s)
			} else {
				l.removeRange(s.from, s.to)
			}
			for a := s.from; a < s.to; a++ {
				if !adding {
					truth[a] = 0
				} else if truth[a] == 0 {
					truth[a] = s.stream
				}
			}
			var bytes, want int64
			for _, s := range l {
				bytes += s.bytes()
			}
			for _, stream := range truth {
				want += min(stream, 1)
			}
			if bytes != want {
				t.Fatalf("%v is %d bytes, want %d", l, bytes, want)
			}
			for i, s := range l {
				if s.from >= s.to || i > 0 && (l[i-1].to > s.from || l[i-1].to == s.from && l[i-1].stream == s.stream) {
					t.Fatalf("%v", l)
				}
				for a := s.from; a < s.to; a++ {
					if truth[a] != s.stream {
						t.Fatalf("%v, %v", l, truth)
					}
				}
			}
		}
	}
}
