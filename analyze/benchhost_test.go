package analyze_test

import (
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// benchHost writes rows of class host of ten threads, as `--host=auto` records them: three waits of 1 ms a
// step, samples at 49 Hz, and counters once a second.
type benchHost struct {
	tw       *trainingWriter
	second   int64 // of the next counters
	sampleNs int64 // of the next samples, from the start of the recording
	rows     []format.Row
}

const benchHostThreads = 10

func newBenchHost(tw *trainingWriter) *benchHost {
	tw.write(format.ClassFact, []format.Row{{
		Kind: format.KindNote, Name: format.NoteHost, Device: -1, StartNs: analyzetest.Epoch,
		Message: `{"mode":"auto","sample_hz":49,"min_wait_ns":1000000}`,
	}})
	return &benchHost{tw: tw}
}

// step adds the rows of a step that begins at ns, from the start of the recording.
func (h *benchHost) step(ns int64) {
	h.rows = h.rows[:0]
	for th := range int32(benchHostThreads) {
		for k := range int64(3) {
			row := h.row(format.KindWait, format.StateSleeping, ns+8*analyzetest.Ms*(k+1), th)
			row.DurNs, row.StackID, row.Message = analyzetest.Ms, 1+th*100+int32(k), `{"reason":"gil","owner_tid":43}`
			row.StackStatus = format.StackInferred
		}
	}
	for ; h.sampleNs < ns+benchStep; h.sampleNs += analyzetest.Second / 49 {
		for th := range int32(benchHostThreads) {
			row := h.row(format.KindCPUSample, "", h.sampleNs, th)
			row.DurNs, row.StackID, row.StackStatus = analyzetest.Second/49, 1+th*100, format.StackComplete
		}
	}
	for ; h.second*analyzetest.Second < ns+benchStep; h.second++ {
		for th := range int32(benchHostThreads) {
			h.row(format.KindHost, format.HostRunning, h.second*analyzetest.Second, th).Value = 0.9e9 * float64(
				h.second,
			)
			h.row(format.KindHost, format.HostRunnable, h.second*analyzetest.Second, th).Value = 1e6 * float64(h.second)
		}
	}
	h.tw.write(format.ClassHost, h.rows)
}

func (h *benchHost) row(kind, name string, ns int64, thread int32) *format.Row {
	h.rows = append(h.rows, format.Row{
		Kind: kind, Name: name, StartNs: analyzetest.Epoch + ns, Pid: 42, Tid: 42 + thread, Device: -1,
	})
	return &h.rows[len(h.rows)-1]
}
