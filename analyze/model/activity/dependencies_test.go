package activity_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// followedProgram has two streams. The host waits for the main one only, which waits for the side stream by an event.
// The side stream's kernels begin long after their calls, so pauses say nothing about their numbers.
type followedProgram struct {
	calls   []activity.Call
	samples []activity.Sample
	starts  map[int64]int64 // of operations, by Call.ID
	counts  map[int32]int64 // of operations, by channel
}

// Streams and channels of a followedProgram.
const (
	mainStream, sideStream   = 0x100, 0x200
	mainChannel, sideChannel = 1, 2
	startNs                  = 1_790_000_000_000_000_000
)

// call adds a call of 2 µs. A kernel begins delayNs after its call.
func (p *followedProgram) call(atNs int64, op activity.Op, stream, event, delayNs int64) {
	c := activity.Call{
		StartNs: atNs,
		EndNs:   atNs + 2000,
		Context: 1,
		Stream:  stream,
		Event:   event,
		ID:      int64(len(p.calls)),
		Pid:     1,
		Tid:     1,
		Label:   -1,
		Op:      op,
	}
	if op == activity.OpHoldStream {
		c.Hold = activity.HoldEvent
	}
	p.calls = append(p.calls, c)
	if op != activity.OpKernel {
		return
	}
	channel := int32(mainChannel)
	if stream == sideStream {
		channel = sideChannel
	}
	p.counts[channel]++
	p.starts[c.ID] = atNs + delayNs
	const gpuOffsetNs, seenNs = 1_000_000_000, 300
	p.samples = append(p.samples, activity.Sample{
		SeenNs:    atNs + delayNs + seenNs,
		Counter:   p.counts[channel],
		GPUTimeNs: atNs + delayNs - gpuOffsetNs,
		Channel:   channel,
	})
}

// step adds a step. The host waits for the main stream at its end.
func (p *followedProgram) step(atNs int64) {
	p.call(atNs, activity.OpKernel, mainStream, 0, 100_000)
	p.call(atNs+10_000, activity.OpMarkEvent, mainStream, 7, 0)
	p.call(atNs+20_000, activity.OpHoldStream, sideStream, 7, 0)
	p.call(atNs+30_000, activity.OpKernel, sideStream, 0, 1_200_000)
	p.call(atNs+40_000, activity.OpMarkEvent, sideStream, 8, 0)
	p.call(atNs+50_000, activity.OpHoldStream, mainStream, 8, 0)
	p.call(atNs+60_000, activity.OpKernel, mainStream, 0, 2_500_000)
	p.call(atNs+70_000, activity.OpWaitStream, mainStream, 0, 0)
	p.calls[len(p.calls)-1].EndNs = atNs + 3_000_000
}

// replay gives calls and samples in the order of time.
func (p *followedProgram) replay(to activity.Consumer) error {
	s := 0
	for i := range p.calls {
		for ; s < len(p.samples) && p.samples[s].SeenNs < p.calls[i].StartNs; s++ {
			to.AddSample(&p.samples[s])
		}
		c := p.calls[i]
		to.AddCall(&c)
	}
	for ; s < len(p.samples); s++ {
		to.AddSample(&p.samples[s])
	}
	return nil
}

// TestStreamThatOnlyAnotherOneWaitsFor measures the operations of a stream that no wait of the host names.
func TestStreamThatOnlyAnotherOneWaitsFor(t *testing.T) {
	testclass.Unit(t)
	const steps, stepNs = 200, 5_000_000
	p := &followedProgram{starts: make(map[int64]int64), counts: make(map[int32]int64)}
	for i := range int64(steps) {
		p.step(startNs + i*stepNs)
	}
	slices.SortFunc(p.samples, func(a, b activity.Sample) int { return cmp.Compare(a.SeenNs, b.SeenNs) })
	measured, bounded := 0, 0
	channels := []activity.Channel{
		{Number: mainChannel, Pid: 1, FromNs: startNs - stepNs, ToNs: activity.UnknownNs},
		{Number: sideChannel, Pid: 1, FromNs: startNs - stepNs, ToNs: activity.UnknownNs},
	}
	_, err := activity.Compute(p.replay, channels, activity.Options{
		EndNs: startNs + steps*stepNs,
		OnOperation: func(w *activity.Operation) {
			if w.Channel != sideChannel {
				return
			}
			if w.StartQuality == activity.Measured {
				measured++
			}
			if w.EndQuality >= activity.Bounded && w.End.HiNs <= w.Call.StartNs+2_600_000 {
				bounded++
			}
			if start := p.starts[w.Call.ID]; w.StartQuality >= activity.Bounded && !contains(w.Start, start) {
				t.Errorf("start %+v, want %d", w.Start, start)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if least := steps * 9 / 10; measured < least || bounded < least {
		t.Errorf(
			"of %d operations of the side stream, %d are measured and %d end before the main stream continues, want %d",
			steps,
			measured,
			bounded,
			least,
		)
	}
}
