package analyze_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// everyReport runs all reports on a recording. It returns the first error.
func everyReport(rec *format.Recording) error {
	tl, err := timeline.Open(rec)
	if err != nil {
		return err
	}
	for _, by := range []string{"site", "size"} {
		leakReport, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			return err
		}
		summaryReport, err := summary.Run(tl, query.Options{Filter: query.Filter{Devices: []int32{0}}})
		if err != nil {
			return err
		}
		stackReport, err := stacks.Run(tl, query.Options{Sort: "site"})
		if err != nil {
			return err
		}
		ruleReport, err := rules.RunWithOptions(tl, rules.Options{})
		if err != nil {
			return err
		}
		if err := render.WriteReport(io.Discard, ruleReport, render.Options{Width: 80}); err != nil {
			return err
		}
		for _, f := range render.ListFormats() {
			if err := errors.Join(
				render.WriteReport(io.Discard, stackReport, render.Options{Format: f, Width: 80}),
				render.WriteReport(io.Discard, leakReport, render.Options{Format: f, Width: 80}),
				render.WriteReport(io.Discard, summaryReport, render.Options{Format: f}),
			); err != nil {
				return err
			}
		}
	}
	p, _, _, err := pprof.BuildHeapProfile(tl, query.Options{})
	if err != nil {
		return err
	}
	if err := p.Write(io.Discard); err != nil {
		return err
	}
	if _, err := state.ReadMemory(tl, 0); err != nil {
		return err
	}
	if _, err := state.ReadAllocators(tl, 0); err != nil {
		return err
	}
	fragReport, pictures, err := frag.RunWithOptions(tl, frag.Options{Maps: true})
	if err != nil {
		return err
	}
	if _, err := hang.RunWithOptions(tl, hang.Options{}); err != nil {
		return err
	}
	oomReport, err := oom.Run(tl, query.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(
		render.WriteReport(io.Discard, fragReport, render.Options{Width: 80}),
		render.WriteReport(io.Discard, oomReport, render.Options{Width: 80}),
		frag.WriteMapsSVG(io.Discard, pictures, 0),
	); err != nil {
		return err
	}
	for _, make := range callReports(tl) {
		r, err := make(query.Options{Top: 3})
		if err != nil {
			return err
		}
		if err := render.WriteReport(io.Discard, r, render.Options{Width: 80}); err != nil {
			return err
		}
	}
	_, err = perfetto.WriteTrace(tl, io.Discard, perfetto.Options{})
	return err
}

// FuzzAnalyze runs all reports on damaged recordings. They must return an error or a result, and
// must not panic.
func FuzzAnalyze(f *testing.F) {
	recording := analyzetest.NewTestRecording(f)
	recording.AddStack(1, "f", "main")
	analyzetest.SetStackAndSite(recording.AddAlloc(1, 1, 0x1000, 64), 1, "f")
	recording.AddFree(5, 1, 0x1000)
	recording.AddCall(format.KindLaunch, "cuLaunchKernel", 9, 1).Kernel = "k"
	recording.AddMemCreate(10, 0x1010, 64)
	recording.AddMemMap(20, 0x3000, 64, 0x1010)
	recording.AddMemUnmap(30, 0x3000, 64)
	recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 40, 0, 0)
	recording.AddRow(
		format.Row{Kind: format.KindNVML, Name: catalog.MetricMemoryUsed, StartNs: analyzetest.Epoch, Value: 1},
	)
	recording.AddRow(format.Row{Kind: format.KindNote, Name: format.NoteStackInference, Message: `{"checked":1}`})
	for i, name := range []string{
		format.AllocatorSegmentAlloc,
		format.AllocatorAlloc,
		format.AllocatorFreeRequested,
		format.AllocatorFreeCompleted,
		format.AllocatorSegmentMap, format.AllocatorSegmentUnmap, format.AllocatorOOM,
	} {
		recording.AddRow(
			format.Row{
				Kind:          format.KindAllocator,
				Name:          name,
				StartNs:       analyzetest.Epoch + 60 + int64(i),
				Pid:           42,
				MemoryKind:    format.MemoryTorch,
				Ptr:           0x1000,
				Bytes:         2 << 20,
				ReservedBytes: 2 << 20,
			},
		)
	}
	recording.AddMemoryCall(format.KindReserve, "", 70, 0x600000000000, 64<<20).Name = "cuMemAddressReserve"
	recording.AddAlloc(80, 1, 0, 1<<30).Result = calls.ResultOutOfMemory
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			Pid:     42,
			Message: `{"conf":"roundup_power2_divisions:[1:2,>:4]"}`,
		},
	)
	recording.AddExit(42, analyzetest.Second)
	recording.WriteAndOpen()
	data, err := os.ReadFile(recording.Path)
	if err != nil {
		f.Fatal(err)
	}
	// The fuzz input is a list of changes to a valid recording. Small inputs save go test the time
	// of minimizing them.
	f.Add(uint32(0), []byte("PAR2"), uint32(0))
	f.Add(uint32(len(data)/2), []byte{0xff}, uint32(0))
	f.Add(uint32(0), []byte{}, uint32(len(data)/2))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(data)
		copy(data[int(at)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
		path := filepath.Join(t.TempDir(), "f.parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := format.Open(path)
		if err != nil {
			return
		}
		defer rec.Close()
		_ = everyReport(rec) // an error is a valid outcome
	})
}

// FuzzNotes sets the text of facts, which is mostly JSON, to any bytes.
func FuzzNotes(f *testing.F) {
	kinds := []string{
		format.KindNote,
		format.KindProcess,
		format.KindDevice,
		format.KindXid,
		format.KindModule,
		format.KindThread,
	}
	f.Add(
		uint8(0),
		format.NoteAllocator,
		`{"conf":"roundup_power2_divisions:[256:1,>:-4],max_split_size_mb:9999999999"}`,
	)
	f.Add(uint8(0), format.NoteStackInference, `{"class":"launch","inferred":-1,"checked":1,"wrong":5}`)
	f.Add(uint8(0), format.NoteSampling, `{"class":"launch","what":"stacks","recorded":false,"overhead_pct":5.3}`)
	f.Add(uint8(1), "python3", `{"exe":"/x","exit_ns":-1,"devices":[{"ordinal":-1,"device":9}]}`)
	f.Add(uint8(2), "", `{"uuid":"GPU-0","memory_bytes":-1}`)
	f.Add(uint8(3), "31", `{"text":"x","pci":"0000:00:06"}`)
	f.Fuzz(func(t *testing.T, kind uint8, name, message string) {
		recording := analyzetest.NewTestRecording(t)
		recording.AddAlloc(1, 1, 0x1000, 64)
		recording.AddRow(
			format.Row{
				Kind:          format.KindAllocator,
				Name:          format.AllocatorAlloc,
				StartNs:       analyzetest.Epoch + 60,
				Pid:           42,
				MemoryKind:    format.MemoryTorch,
				Ptr:           0x1000,
				Bytes:         3 << 20,
				ReservedBytes: 2 << 20,
			},
		)
		recording.AddCall(format.KindLaunch, "cuLaunchKernel", 9, 1).Kernel = name
		recording.AddRow(
			format.Row{
				Kind:    kinds[int(kind)%len(kinds)],
				Name:    name,
				Message: message,
				Pid:     42,
				StartNs: analyzetest.Epoch + 5,
				Value:   31,
			},
		)
		if err := everyReport(recording.WriteAndOpen()); err != nil {
			t.Errorf("%q %q: %v", name, message, err)
		}
	})
}

// FuzzExpressions parses any text as the values of command line flags.
func FuzzExpressions(f *testing.F) {
	for _, text := range []string{
		"12s",
		"2026-11-20T10:00:00Z",
		"1790000000000000000",
		"0x55d0",
		"step=a(b|c)*",
		"second",
		"torch",
		"-9223372036854775808ns",
	} {
		f.Add(text)
	}
	window := query.Window{FromNs: analyzetest.Epoch, ToNs: analyzetest.Epoch + 60*analyzetest.Second}
	f.Fuzz(func(t *testing.T, text string) {
		if ns, err := query.ParseTime(text, window); err == nil {
			query.FormatOffset(ns, window)
		}
		if _, err := query.ParseStream(text); err == nil && text == "" {
			t.Error("an empty text is parsed as a stream")
		}
		_, _ = diff.ParseDivisor(text) // any result is valid if the parser returns
		_, _ = query.ParseFrameRules([]string{text})
	})
}

// TestRowsOfAnyValue checks that reports do not panic on valid files with arbitrary numbers.
func TestRowsOfAnyValue(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		wild := func() int64 {
			v := []int64{
				0,
				1,
				-1,
				math.MaxInt64,
				math.MinInt64,
				analyzetest.Epoch,
				analyzetest.Epoch + 60*analyzetest.Second,
				0x1000,
				r.Int64(),
				-r.Int64(),
			}
			return v[r.IntN(len(v))]
		}
		recording := analyzetest.NewTestRecording(t)
		recording.Meta.StartNs, recording.Meta.EndNs, recording.Meta.ClockOffsetNs = wild(), wild(), wild()
		kinds := []string{
			format.KindAlloc,
			format.KindFree,
			format.KindMap,
			format.KindUnmap,
			format.KindRetain,
			format.KindBorrow,
			format.KindReturn,
			format.KindAPI,
			format.KindLaunch,
			format.KindSync,
			format.KindStack,
			format.KindNVML,
			format.KindXid,
			format.KindProcess,
			format.KindLost,
			format.KindDevice,
			"of a later version",
		}
		memories := []string{
			"",
			format.MemoryDevice,
			format.MemoryPhysical,
			format.MemoryArray,
			format.MemoryIPC,
			format.MemoryExternal,
			format.MemoryRegistered,
			"of a later version",
		}
		callNames := slices.Concat(
			[]string{"", "memory", catalog.MetricMemoryUsed, analyzetest.HostileName, "cuGraphLaunch"},
			slices.Sorted(maps.Keys(timeline.APIKindsByFunction)),
		)
		for range 600 {
			row := recording.AddRow(format.Row{
				Kind:          kinds[r.IntN(len(kinds))],
				StartNs:       wild(),
				DurNs:         wild(),
				Pid:           int32(wild()),
				Tid:           int32(wild()),
				Device:        int32(wild()),
				Stream:        wild(),
				ParentStartNs: wild(),
				Result:        int32(r.IntN(3)),
				Flags:         int32(wild()),
				Ptr:           wild(),
				Bytes:         wild(),
				StackID:       int32(r.IntN(4)),
				Value: math.Float64frombits(
					r.Uint64(),
				),
				Name:       callNames[r.IntN(len(callNames))],
				Site:       []string{"", "x"}[r.IntN(2)],
				Context:    wild(),
				SrcPtr:     wild(),
				MemoryKind: memories[r.IntN(len(memories))],
				Kernel:     []string{"", "k<a<b<c<d,e>>>>", analyzetest.HostileName}[r.IntN(3)],
				Message:    []string{"", "{", `{"exit_ns":1790000000000000000}`, `{"exit_ns":-5}`, "null"}[r.IntN(5)],
			})
			if row.Kind == format.KindStack {
				row.Frames = make([]format.Frame, r.IntN(3))
				for i := range row.Frames {
					row.Frames[i] = format.Frame{
						Addr: wild(),
						Line: int32(wild()),
						Type: "native",
						Func: []string{"", analyzetest.HostileName}[r.IntN(2)],
					}
				}
			}
		}
		rec := recording.WriteAndOpen()
		if err := everyReport(rec); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		tl, err := timeline.Open(rec)
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CheckReplay(t, tl)
	}
}
