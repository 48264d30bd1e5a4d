package activity

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// countedJob is a simulated rank: in each step it launches some kernels of NCCL on a stream, makes another stream wait for
// them, and waits for that stream. Another rank is late, so kernels last longer than a step of the host.
type countedJob struct {
	steps, perStep int
	extra          float64 // chance of an operation that is no launch, by launch
	ahead          bool    // the host waits for the step before, not for its own
	readNs         int64   // between two reads of the word

	launches []CountedLaunch
	starts   []int64 // of launches
	calls    []Call
	begun    []countedSample // operations of the channel, with their starts
}

const (
	countedStreamHandle = 77
	countedMainHandle   = 78
	countedOffsetNs     = 5_000_000 // of the GPU's clock
)

// run simulates the job.
func (j *countedJob) run(r *rand.Rand) {
	now, end, counter := int64(1_000_000_000), int64(0), int64(500)
	ends := make([]int64, 0, j.steps)
	event := func(op Op, stream, event, endNs int64) {
		now += 2000
		j.calls = append(j.calls, Call{
			StartNs: now,
			EndNs:   max(endNs, now+1000),
			Stream:  stream,
			Event:   event,
			Pid:     1,
			Tid:     1,
			Op:      op,
			Hold:    HoldEvent,
			Label:   -1,
		})
		now = max(now+1000, endNs)
	}
	for step := range j.steps {
		now += 500_000 + r.Int64N(1_000_000)
		for range j.perStep {
			now += 20_000 + r.Int64N(100_000)
			if r.Float64() < j.extra {
				counter++
				begin := max(now, end)
				j.begun, end = append(j.begun, countedSample{counter, begin}), begin+10_000
			}
			counter++
			begin := max(now+8000, end)
			j.launches = append(
				j.launches,
				CountedLaunch{StartNs: now, ReturnNs: now + 5000, Stream: countedStreamHandle, Pid: 1},
			)
			j.starts, j.begun = append(j.starts, begin), append(j.begun, countedSample{counter, begin})
			end = begin + 200_000 + r.Int64N(2_000_000)
			now += 6000
		}
		id := int64(10 + step%2)
		event(OpMarkEvent, countedStreamHandle, id, 0)
		event(OpHoldStream, countedMainHandle, id, 0)
		event(OpMarkEvent, countedMainHandle, 20+id, 0)
		ends = append(ends, end)
		switch {
		case !j.ahead:
			event(OpWaitStream, countedMainHandle, 0, end+5000)
		case step > 0:
			event(OpWaitEvent, countedMainHandle, 20+int64(10+(step-1)%2), ends[step-1]+5000)
		}
	}
}

// read replays the job. The word shows the last operation that has begun.
func (j *countedJob) read(r *rand.Rand) Source {
	return func(to Consumer) error {
		at, call, last := int64(1_000_000_000), 0, -1
		for i := 0; i < len(j.begun); {
			for i < len(j.begun) && j.begun[i].gpuNs <= at {
				last = i
				i++
			}
			for ; call < len(j.calls) && j.calls[call].StartNs <= at; call++ {
				to.AddCall(&j.calls[call])
			}
			if last >= 0 {
				to.AddSample(&Sample{
					SeenNs:    at,
					Counter:   j.begun[last].counter,
					GPUTimeNs: j.begun[last].gpuNs - countedOffsetNs,
					Channel:   3,
				})
			}
			at += j.readNs/2 + r.Int64N(j.readNs)
		}
		for ; call < len(j.calls); call++ {
			to.AddCall(&j.calls[call])
		}
		return nil
	}
}

// compute returns the starts that the reader finds.
func (j *countedJob) compute(r *rand.Rand) []CountedStart {
	reader := newCountedReader(j.launches, []Channel{{Number: 3, Pid: 1, Device: -1, ToNs: UnknownNs}})
	reader.isCounted = func(int32) bool { return true }
	_ = j.read(r)(reader)
	starts := make([]CountedStart, len(j.launches))
	for _, s := range reader.streams {
		reader.setStarts(s, starts)
	}
	return starts
}

// TestStartsOfCountedLaunches compares the starts of launches without rows with those of simulated jobs.
func TestStartsOfCountedLaunches(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a seed that repeats
		j := &countedJob{
			steps:   100 + r.IntN(100),
			perStep: 1 + r.IntN(5),
			ahead:   seed%2 == 1,
			readNs:  200_000 + r.Int64N(1_000_000),
		}
		if seed%3 == 0 {
			j.extra = 0.002
		}
		j.run(r)
		known, wrong := 0, 0
		for i, got := range j.compute(r) {
			if got == (CountedStart{}) {
				continue
			}
			known++
			if j.starts[i] < got.LoNs || j.starts[i] > got.HiNs {
				wrong++
			}
		}
		all, shares := float64(len(j.starts)), 0.8
		if j.ahead {
			shares = 0 // nothing tells the offset if a kernel always begins when the one before ends
		}
		if share := float64(known) / all; share < shares {
			t.Errorf("seed %d: only %.2f of the starts are known", seed, share)
		}
		if wrong > 0 {
			t.Errorf("seed %d: %d of %d intervals lack the start", seed, wrong, known)
		}
	}
}

// TestChannelsOfOtherWorkHaveNoStarts gives a stream a channel that runs other operations, too.
func TestChannelsOfOtherWorkHaveNoStarts(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 3)) //nolint:gosec // a seed that repeats
	j := &countedJob{steps: 100, perStep: 3, extra: 0.3, readNs: 500_000}
	j.run(r)
	for i, got := range j.compute(r) {
		if got != (CountedStart{}) {
			t.Fatalf("launch %d: %v, want no start", i, got)
		}
	}
}
