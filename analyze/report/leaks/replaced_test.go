package leaks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// replacingProgram is a program that had 600 blocks before the recording, and makes 400 steps.
type replacingProgram struct {
	recording *analyzetest.TestRecording
	r         *rand.Rand
	old       []state.AllocatorBlock // blocks from before that are not freed
	now, next int64
}

const replacedBlocks, replacingSteps = 600, 400

// newReplacingProgram returns a program whose blocks from before have sizes of a function.
func newReplacingProgram(t *testing.T, size func(*rand.Rand) int64) *replacingProgram {
	p := &replacingProgram{recording: analyzetest.NewTestRecording(t), r: rand.New(rand.NewPCG(1, 2))}
	p.recording.AddLibraryStack(1, "/lib/libtorch.so", "f")
	s := state.AllocatorState{Pid: 42, Ranges: []state.AllocatorRange{{Ptr: 0x7f0000000000, Bytes: 1 << 30}}}
	at := int64(0x7f0000000000)
	for range replacedBlocks {
		bytes := size(p.r)
		s.Blocks = append(s.Blocks, state.AllocatorBlock{Ptr: at, Bytes: bytes, Requested: bytes})
		s.Allocated += bytes
		at += bytes
	}
	s.Reserved, p.old, p.next, p.now = 1<<30, s.Blocks, at, analyzetest.Second
	p.recording.Rows = append(p.recording.Rows, analyzetest.EarlierRows(&s, analyzetest.Epoch+1)...)
	return p
}

func (p *replacingProgram) event(name string, ptr, bytes int64) *format.Row {
	p.now += analyzetest.Us
	return p.recording.AddRow(format.Row{
		Kind: format.KindAllocator, Name: name, MemoryKind: format.MemoryTorch, StartNs: analyzetest.Epoch + p.now,
		Pid: 42, Tid: 42, Ptr: ptr, Bytes: bytes, AllocatedBytes: -1, ReservedBytes: -1,
	})
}

// alloc allocates a block at a line that keeps it.
func (p *replacingProgram) alloc(site string, bytes int64) {
	r := p.event(format.AllocatorAlloc, p.next, bytes)
	r.StackID, r.Site = 1, site
	p.next += bytes
}

// drop frees a block from before the recording, if there is one.
func (p *replacingProgram) drop(i int) {
	if i >= len(p.old) {
		return
	}
	b := p.old[i]
	p.old = slices.Delete(p.old, i, i+1)
	p.event(format.AllocatorFreeRequested, b.Ptr, b.Requested)
	p.event(format.AllocatorFreeCompleted, b.Ptr, b.Requested)
}

// TestReplacedBlocks tells lines that leak from lines that replace blocks from before the recording.
func TestReplacedBlocks(t *testing.T) {
	testclass.Unit(t)
	const kib = 1 << 10
	same := func(*rand.Rand) int64 { return 96 * kib }
	mixed := func(r *rand.Rand) int64 { return []int64{64, 96, 128, 160}[r.IntN(4)] * kib }
	random := func(r *rand.Rand) int64 { return (20 + r.Int64N(800)) * kib }
	for name, c := range map[string]struct {
		size func(*rand.Rand) int64
		step func(p *replacingProgram, i int)
		want string // growing lines with their confidence
	}{
		"a leak": {same, func(p *replacingProgram, _ int) { p.alloc("leak", 96*kib) }, "[leak high]"},
		"the last inputs": {same, func(p *replacingProgram, _ int) {
			p.alloc("input", 96*kib)
			p.drop(0)
		}, "[]"},
		"the last inputs, freed first": {same, func(p *replacingProgram, _ int) {
			p.drop(0)
			p.alloc("input", 96*kib)
		}, "[]"},
		"inputs of random sizes": {random, func(p *replacingProgram, _ int) {
			p.alloc("input", random(p.r))
			p.drop(0)
		}, "[]"},
		"a random input": {same, func(p *replacingProgram, _ int) {
			p.alloc("input", 96*kib)
			p.drop(p.r.IntN(len(p.old)))
		}, "[]"},
		"two lines with inputs": {same, func(p *replacingProgram, i int) {
			p.alloc([]string{"input", "other"}[i%2], 96*kib)
			p.drop(0)
		}, "[]"},
		"many inputs at once": {same, func(p *replacingProgram, i int) {
			p.alloc("input", 96*kib)
			for range 80 {
				if i%80 == 79 {
					p.drop(0)
				}
			}
		}, "[]"},
		"a slow leak among inputs": {same, func(p *replacingProgram, i int) {
			p.alloc("input", 96*kib)
			p.drop(0)
			if i%4 == 0 {
				p.alloc("leak", 96*kib)
			}
		}, "[leak high]"},
		"a leak among inputs of other sizes": {mixed, func(p *replacingProgram, i int) {
			p.alloc("input", mixed(p.r))
			p.drop(0)
			if i%2 == 0 {
				p.alloc("leak", 96*kib)
			}
		}, "[leak high]"},
		"a leak like the inputs": {same, func(p *replacingProgram, _ int) {
			p.alloc("input", 96*kib)
			p.alloc("leak", 96*kib)
			p.drop(0)
		}, "[input medium leak medium]"},
		"a leak after a cache was emptied": {same, func(p *replacingProgram, i int) {
			for range replacedBlocks {
				if i == 60 {
					p.drop(0)
				}
			}
			p.alloc("leak", 96*kib)
		}, "[leak medium]"},
		"a leak of other sizes": {same, func(p *replacingProgram, _ int) {
			p.alloc("leak", 200*kib)
			p.drop(0)
		}, "[leak high]"},
	} {
		p := newReplacingProgram(t, c.size)
		for i := range replacingSteps {
			p.now = analyzetest.Second + int64(i)*58*analyzetest.Second/replacingSteps
			c.step(p, i)
		}
		r, err := leaks.Run(p.recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var growing []string
		verdicts, sites := analyzetest.ColumnTexts(
			t,
			r,
			"leaks",
			"verdict",
		), analyzetest.ColumnTexts(
			t,
			r,
			"leaks",
			"site",
		)
		for i, confidence := range analyzetest.ColumnTexts(t, r, "leaks", "confidence") {
			if verdicts[i] == "growing" {
				growing = append(growing, sites[i]+" "+confidence)
			}
		}
		slices.Sort(growing)
		if got := fmt.Sprint(growing); got != c.want {
			t.Errorf("%s: growing %s, want %s", name, got, c.want)
			for i := range r.Tables[0].Rows {
				t.Log(verdicts[i], sites[i], r.Tables[0].Rows[i].Evidence)
			}
		}
	}
}
