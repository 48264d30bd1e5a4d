package analyzetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// TorchTrainingRecording returns a recording of 60 s of a training loop on PyTorch's allocator. It
// has weights, activations that come and go, and a cache that fills in the first seconds. With leak
// > 0, a list keeps that many bytes in each step of 100 ms. The driver's calls are recorded too;
// one of them is not the allocator's.
func TorchTrainingRecording(t testing.TB, conf TorchConf, leak int64) (*TestRecording, *TorchAllocator) {
	recording := NewTestRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Name:    "python3",
			Pid:     42,
			StartNs: Epoch,
			Device:  -1,
			Message: `{"exe":"/usr/bin/python3"}`,
		},
	)
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: Epoch})
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			Pid:     42,
			Message: `{"allocator":"torch","conf":"` + conf.String() + `"` + conf.EventSource() + `}`,
		},
	)
	for i, f := range []string{"load", "forward", "cache", "keep"} {
		recording.AddStack(int32(i+1), f, "main", "_start")
	}
	w := NewTorchAllocator(recording, rand.New(rand.NewPCG(1, 1)), 42, 0, conf)
	w.Driver, w.Capacity = true, 4000*Mib
	get := func(bytes int64, stack int32, site string) *TorchBlock {
		b := w.AllocBlock(bytes, TorchSegment{Stream: 7})
		SetStackAndSite(b.Row, stack, site)
		w.Peak = max(w.Peak, w.requested)
		return b
	}
	for range 20 {
		get(50*Mib, 1, "load (train.py:10)")
	}
	w.Now += 3 * Us
	own := SetStackAndSite(recording.AddAlloc(w.Now, Us, 0x6f0000000000, 64*Mib), 1, "load (train.py:12)")
	own.Stream = 7
	for step := range int64(590) {
		w.Now = Second + step*100*Ms
		a := []*TorchBlock{get(40*Mib+step%7*Mib, 2, "forward (model.py:20)"), get(300_000, 2, "forward (model.py:20)")}
		if step < 100 {
			get(2*Mib, 3, "cache (cache.py:5)")
		}
		if leak > 0 {
			get(leak, 4, "keep (train.py:42)")
		}
		w.Now += 50 * Ms
		for _, b := range a {
			w.FreeBlock(b)
		}
		if step == 300 {
			w.emptyCache()
		}
	}
	return recording, w
}

// CellValue returns a value in a report's first table.
func CellValue(t testing.TB, r *report.Report, row int, key string) any {
	t.Helper()
	i := slices.IndexFunc(r.Tables[0].Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 || row >= len(r.Tables[0].Rows) {
		t.Fatalf("no %s of row %d", key, row)
	}
	return r.Tables[0].Rows[row].Cells[i]
}

// ReportedTrainingRecording is a TorchTrainingRecording in which the recording has only the
// allocator's reported statistics.
func ReportedTrainingRecording(t *testing.T, conf TorchConf, leak int64) (*TestRecording, *TorchAllocator) {
	conf.Reports = true
	return TorchTrainingRecording(t, conf, leak)
}
