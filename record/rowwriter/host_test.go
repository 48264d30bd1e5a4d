//go:build linux

package rowwriter

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/stack"
)

// TestHostRowsHaveStacks checks that rows of class host get the number of their stack, equal stacks
// once, and are recorded or lost.
func TestHostRowsHaveStacks(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	writer, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Writer{
		writer: writer, onFailure: func(error) {}, host: newHostQueue(), stacks: stack.NewTable(nil),
		counters: &callCounters{clock: clock.New()}, threads: make(map[int32]*knownThread),
	}
	wait := func(line int32) format.Row {
		return format.Row{
			Kind: format.KindWait, Pid: 7, Tid: 8, Name: format.StateSleeping, Frames: []format.Frame{
				{Func: "do_nanosleep", Type: format.FrameKernel, Module: "kernel"},
				{Func: "clock_nanosleep", Module: "/lib/libc.so.6", Type: "native"},
				{Func: "load", File: "train.py", Line: line, Type: "python"},
			},
		}
	}
	batches := maxWaitingHostBatches + 3
	for i := range batches {
		s.SendHost(
			[]format.Row{wait(12), wait(13), {Kind: format.KindHost, Name: format.HostSwitches, Value: float64(i)}},
		)
	}
	s.writeWaitingHost()
	counts := s.host.counts()
	if counts.Recorded != 3*maxWaitingHostBatches || counts.Lost != 9 {
		t.Errorf("counts %+v of %d rows", counts, 3*batches)
	}
	if err := s.writer.Finish(format.Meta{HostRows: counts}); err != nil {
		t.Fatal(err)
	}
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	stacks, sites := 0, make(map[string]int)
	for _, g := range rec.Groups() {
		switch g.Class() {
		case format.ClassStack:
			stacks += g.NumRows()
		case format.ClassHost:
			site := g.Strings("site")
			for i := range g.NumRows() {
				sites[site.At(i)]++
			}
		}
		if err := g.Err(); err != nil {
			t.Fatal(err)
		}
	}
	n := maxWaitingHostBatches
	if stacks != 2 || sites["load (train.py:12)"] != n || sites["load (train.py:13)"] != n || sites[""] != n {
		t.Errorf("%d stacks, sites %v", stacks, sites)
	}
}
