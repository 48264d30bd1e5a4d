package analyze_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPiecesGiveTheResultsOfTheFile feeds recordings in 100 pieces to the replays, and compares what they pass on with
// what they pass on from the file.
func TestPiecesGiveTheResultsOfTheFile(t *testing.T) {
	testclass.Unit(t)
	for name, open := range map[string]func(t *testing.T) *format.Recording{
		"random memory": func(t *testing.T) *format.Recording { return randomMemoryRecording(t).WriteAndOpen() },
		"caching allocator": func(t *testing.T) *format.Recording {
			recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, analyzetest.Mib)
			recording.AddExit(42, 59_980*analyzetest.Ms)
			return recording.WriteAndOpen()
		},
		"expandable segments": func(t *testing.T) *format.Recording {
			recording, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{Expandable: true}, 0)
			return recording.WriteAndOpen()
		},
		"training": openTraining,
		"rank job": openRankJob,
	} {
		t.Run(name, func(t *testing.T) {
			rec := open(t)
			whole := newFedModels(openTimeline(t, rec))
			whole.finish(t)
			pieces := analyzetest.SplitRecording(t, rec, 100)
			if len(pieces) < 50 {
				t.Fatalf("%d pieces", len(pieces))
			}
			fed := newFedModels(openTimeline(t, pieces[0].Rec))
			for i, piece := range pieces {
				if i > 0 {
					if err := fed.t.Extend(piece.Rec); err != nil {
						t.Fatal(err)
					}
				}
				if i < len(pieces)-1 {
					fed.advance(t, piece.LimitNs)
					fed.checkProgress(t, whole, piece.LimitNs)
				}
			}
			fed.finish(t)
			fed.compare(t, whole)
		})
	}
}

// openTraining opens the recording of a training with GPU times.
func openTraining(t *testing.T) *format.Recording {
	path := filepath.Join(t.TempDir(), "training.parquet")
	writeTraining(t, path, 20_000, "-words")
	return analyzetest.OpenRecording(t, path)
}

// openRankJob opens the recording of four ranks with NCCL.
func openRankJob(t *testing.T) *format.Recording {
	return rankjob.Spec{Seed: 1, Ranks: 4, Steps: 30, TensorParallel: 2}.Recording(t).WriteAndOpen()
}

func openTimeline(t *testing.T, rec *format.Recording) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// randomMemoryRecording has nested calls, contexts that end, and lost calls.
func randomMemoryRecording(t *testing.T) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	r := rand.New(rand.NewPCG(5, 5))
	const slowdown = 200_000 // the random program takes a few hundred µs
	analyzetest.AddRandomProgram(recording, r, 3000)
	endNs := int64(0)
	for _, row := range slices.Clone(recording.Rows) {
		row.StartNs = analyzetest.Epoch + (row.StartNs-analyzetest.Epoch)*slowdown
		row.DurNs *= slowdown
		endNs = max(endNs, row.StartNs-analyzetest.Epoch+row.DurNs)
		row.Context = 0x5000 + int64(row.Device)
		if r.IntN(4) == 0 {
			row.Context = 0x6000
		}
		if r.IntN(5) == 0 { // a call of the runtime around it
			outer := recording.AddRow(*row)
			outer.Name, outer.StartNs, outer.DurNs = "cudaMalloc", row.StartNs-1, row.DurNs+2
			row.ParentStartNs = outer.StartNs
		}
		if r.IntN(8) == 0 {
			row.Device = -1
		}
	}
	addContext := func(name string, at, context int64, device int32) {
		call := recording.AddCall(format.KindAPI, name, at, 3)
		call.Ptr, call.Context, call.Device = context, context, device
	}
	for device := range int32(2) {
		addContext("cuDevicePrimaryCtxRetain", 1, 0x5000+int64(device), device)
		addContext("cuDevicePrimaryCtxRelease_v2", endNs+100, 0x5000+int64(device), device)
	}
	for i := range int64(5) {
		addContext("cuCtxCreate_v2", 1+i*endNs/5, 0x6000, 1)
		addContext("cuCtxDestroy_v2", (i+1)*endNs/5-100, 0x6000, 1)
	}
	for i := range int64(100) {
		info := recording.AddCall(format.KindAPI, "cuMemGetInfo_v2", i*endNs/100, 5)
		info.Bytes, info.Value = 1<<30-i<<20, 1<<30
	}
	recording.AddExit(77, endNs-1000)
	for i := range int64(60) {
		recording.AddNVMLSample(0, i*endNs/60, catalog.MetricMemoryUsed, float64(i))
	}
	recording.AddSamplingGaps(
		analyzetest.SamplingGap{From: endNs / 4, To: endNs / 3},
		analyzetest.SamplingGap{From: endNs / 2},
	)
	recording.AddRow(
		format.Row{Kind: format.KindLost, Name: "memory", StartNs: analyzetest.Epoch + 500, DurNs: 50, Value: 9},
	)
	recording.RemoveRows(
		func(row *format.Row) bool { return row.Ptr != 0 && row.Kind != format.KindAPI && r.IntN(30) == 0 },
	)
	slices.SortStableFunc(
		recording.Rows,
		func(a, b *format.Row) int { return int(a.StartNs + a.DurNs - b.StartNs - b.DurNs) },
	)
	return recording
}

// fedModels are replays of one Timeline. They note what they pass on.
type fedModels struct {
	t       *timeline.Timeline
	memory  *timeline.MemoryReplay
	both    *timeline.MemoryReplay
	program *timeline.ProgramReplay
	calls   *calls.CallFeed
	reader  *calls.CallReader
	results map[string][]fedResult // by model, in the order in which they came
}

// fedResult is a change or a call that a model passed on.
type fedResult struct {
	atNs int64
	text string
}

func newFedModels(t *timeline.Timeline) *fedModels {
	m := &fedModels{t: t, results: make(map[string][]fedResult)}
	addDriver := func(model string) func(*livemem.Set, *livemem.Change) {
		return func(_ *livemem.Set, c *livemem.Change) { m.add(model, c.AtNs, m.formatChange(c)) }
	}
	addAllocator := func(model string) caching.ChangeConsumer {
		return func(a *caching.Allocator, c *caching.AllocatorChange) {
			m.add(model, c.AtNs, m.formatAllocatorChange(a, c))
		}
	}
	m.memory = t.NewMemoryReplay(addDriver("memory"))
	m.both = t.NewMemoryAndAllocatorReplay(addDriver("both"), addAllocator("both"))
	m.program = t.NewProgramReplay(func(_ *timeline.ProgramMemory, c *livemem.Change) {
		m.add("program", c.AtNs, m.formatChange(c))
	}, func(c *livemem.Change) { m.add("program", c.AtNs, "driver: "+m.formatChange(c)) }, addAllocator("program"))
	m.reader = calls.NewCallReader(t, new(query.Filter), format.KindLaunch, format.KindMemcpy, format.KindMemset,
		format.KindSync, format.KindAPI)
	m.calls = m.reader.NewFeed(func(c *calls.Call) error { m.add("calls", c.StartNs, m.formatCall(c)); return nil })
	return m
}

func (m *fedModels) add(model string, atNs int64, text string) {
	m.results[model] = append(m.results[model], fedResult{atNs, text})
}

// formatChange describes a change. Whether memory ends with its process, its context or by a free of the teardown is
// known only at the end.
func (m *fedModels) formatChange(c *livemem.Change) string {
	kind := c.Kind
	if kind == livemem.ChangeFreed || kind == livemem.ChangeFreedWithContext {
		kind = livemem.ChangeFreedByExit
	}
	b := c.Block
	return fmt.Sprint(kind, c.AtNs, c.Ptr, c.DurNs, b.Bytes, b.SinceNs, b.Number, m.formatOrigin(b.Origin),
		m.formatOrigin(c.By))
}

func (m *fedModels) formatAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) string {
	b := c.Block
	return fmt.Sprint(
		c.Op,
		c.AtNs,
		a.Pid,
		a.Device,
		c.Ptr,
		c.Bytes,
		c.DeviceFree,
		a.Totals(),
		b.Ptr,
		b.Size,
		b.Requested,
		b.SinceNs,
		b.Pool,
		b.Stream,
		b.State,
		m.formatOrigin(b.Origin),
		m.formatOrigin(c.Origin),
	)
}

func (m *fedModels) formatOrigin(id int32) string {
	if id == origin.NoOrigin {
		return "none"
	}
	o := m.t.Origins.List[id]
	return fmt.Sprint(o.Stream, o.Context, o.Pid, o.Tid, o.Device, o.Stack, m.t.Origins.FunctionOf(id),
		m.t.Origins.SiteOf(id), m.t.Origins.MemoryKindOf(id), m.t.SiteOfOrigin(id))
}

func (m *fedModels) formatCall(c *calls.Call) string {
	names := m.reader.Names.List
	row := *c
	row.Name, row.Site, row.Kernel, row.CopyKind = 0, 0, 0, 0
	return fmt.Sprint(row, names[c.Name], names[c.Site], names[c.Kernel], names[c.CopyKind])
}

func (m *fedModels) advance(t *testing.T, untilNs int64) {
	t.Helper()
	for _, advance := range []func(int64) error{m.memory.Advance, m.both.Advance, m.program.Advance, m.calls.Advance} {
		if err := advance(untilNs); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *fedModels) finish(t *testing.T) {
	t.Helper()
	finishProgram := func() error { _, err := m.program.Finish(); return err }
	for _, finish := range []func() error{m.memory.Finish, m.both.Finish, finishProgram, m.calls.Finish} {
		if err := finish(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkProgress checks that Advance to a time has passed on everything before it, and nothing else.
func (m *fedModels) checkProgress(t *testing.T, whole *fedModels, untilNs int64) {
	t.Helper()
	for model, results := range whole.results {
		limitNs := untilNs
		if model == "program" {
			limitNs -= analyzetest.Second
		}
		want := sort.Search(len(results), func(i int) bool { return results[i].atNs >= limitNs })
		if got := len(m.results[model]); got != want {
			t.Errorf("%s: %d results before %d, want %d", model, got, limitNs, want)
		}
	}
}

// sortWithinInstants sorts results of the same time. The end of a process frees its memory in no certain order.
func sortWithinInstants(results []fedResult) {
	slices.SortStableFunc(results, func(a, b fedResult) int {
		return cmp.Or(cmp.Compare(a.atNs, b.atNs), cmp.Compare(a.text, b.text))
	})
}

func (m *fedModels) compare(t *testing.T, whole *fedModels) {
	t.Helper()
	for model, want := range whole.results {
		got := m.results[model]
		sortWithinInstants(got)
		sortWithinInstants(want)
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%s: change %d of %d\ngot  %s\nwant %s", model, i, len(want), got[i].text, want[i].text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d changes, want %d", model, len(got), len(want))
		}
	}
	if got, want := m.totals(), whole.totals(); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	m.compareFacts(t, whole)
}

// totals returns counts, and the blocks that are live at the end.
func (m *fedModels) totals() map[string]string {
	var blocks []string
	m.program.Memory().EachBlock(func(ptr int64, b livemem.Block) {
		blocks = append(blocks, fmt.Sprint(ptr, b.Bytes, b.SinceNs, m.formatOrigin(b.Origin)))
	})
	slices.Sort(blocks)
	s := &m.t.Scan
	return map[string]string{
		"memory":  fmt.Sprint(m.memory.Live().Counts),
		"both":    fmt.Sprint(m.both.Live().Counts),
		"program": fmt.Sprint(*m.program.Memory().DriverCounts()),
		"blocks":  fmt.Sprint(blocks),
		"scan":    fmt.Sprint(s.Events, s.AllocatorEvents, s.Open, s.Abandoned, s.LastNs, s.Stacks),
		"window":  fmt.Sprint(m.t.RecordingWindow(), m.reader.Window),
	}
}

// compareFacts compares what a Timeline knows besides calls.
func (m *fedModels) compareFacts(t *testing.T, whole *fedModels) {
	t.Helper()
	got, want := m.t, whole.t
	for name, pair := range map[string][2]any{
		"Processes":     {got.Facts.Processes, want.Facts.Processes},
		"Threads":       {got.Facts.Threads, want.Facts.Threads},
		"Devices":       {got.Facts.Devices, want.Facts.Devices},
		"Exits":         {got.Facts.Exits, want.Facts.Exits},
		"Lost":          {got.Facts.Lost, want.Facts.Lost},
		"Notes":         {got.Facts.Notes, want.Facts.Notes},
		"Samples":       {got.Facts.Samples, want.Facts.Samples},
		"Channels":      {got.Facts.Channels, want.Facts.Channels},
		"EarlierStates": {got.Facts.EarlierStates, want.Facts.EarlierStates},
		"Sampling":      {got.Facts.Sampling, want.Facts.Sampling},
		"Events":        {got.Events, want.Events},
		"Free":          {got.Free, want.Free},
		"APICalls":      {got.API.Calls, want.API.Calls},
		"About":         {got.Stacks.About, want.Stacks.About},
		"Weights":       {m.reader.Weights, whole.reader.Weights},
		"Coverage":      {got.SamplingCoverage(), want.SamplingCoverage()},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s differ:\ngot  %.2000v\nwant %.2000v", name, pair[0], pair[1])
		}
	}
	for id := range want.Stacks.Stacks {
		if !slices.Equal(got.Stacks.FramesOf(id), want.Stacks.FramesOf(id)) {
			t.Errorf("stack %d differs", id)
		}
	}
}
