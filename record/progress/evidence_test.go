//go:build linux

package progress

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// simulation simulates a process and its GPU in steps of 100 µs.
type simulation struct {
	rng         *rand.Rand
	queue       float64
	gpuPerMs    float64 // operations per ms
	callsPerMs  float64
	phaseLeftMs float64
	paused      bool
}

// run returns the calls and completed operations of about 5 ms. The queue has room for 1,023 operations.
func (s *simulation) run(ns int64) (calls, operations int64) {
	for left := float64(ns) / 1e6; left > 0; left -= 0.1 {
		if s.phaseLeftMs -= 0.1; s.phaseLeftMs < 0 {
			s.phaseLeftMs = s.rng.ExpFloat64() * 100
			s.callsPerMs = 5 + s.rng.ExpFloat64()*60
			s.gpuPerMs = 5 + s.rng.ExpFloat64()*40
			s.paused = s.rng.IntN(4) == 0
		}
		done := min(s.queue, s.gpuPerMs*0.1*s.rng.ExpFloat64())
		s.queue -= done
		made := min(1023-s.queue, s.callsPerMs*0.1*s.rng.ExpFloat64())
		if s.paused {
			made = 0
		}
		s.queue += made
		calls, operations = calls+int64(made*10), operations+int64(done*10)
	}
	return calls / 10, operations / 10
}

// windowsUntilRelated returns how many windows pass until words are related, at most most. The words
// are those of channels, or move by themselves. areCounted is true if all launches are counted.
func windowsUntilRelated(seed uint64, areChannels, areCounted bool, most int) int {
	s := simulation{rng: rand.New(rand.NewPCG(seed, 1))}
	var e evidence
	rate := s.rng.ExpFloat64() * 50
	for i := range most {
		ns := windowInterval.Nanoseconds() + s.rng.Int64N(int64(time.Millisecond))
		calls, steps := s.run(ns)
		if !areChannels {
			steps = int64(rate*float64(ns)/1e6*s.rng.ExpFloat64()) + 1
		}
		if e.add(window{ns, calls, steps}); e.isRelated(areCounted) {
			return i
		}
	}
	return most
}

// decodeUntilRelated simulates a steady program that launches some graphs at once, and waits for them:
// the GPU is always busy. It returns how many windows pass until the words are related.
func decodeUntilRelated(seed uint64, most int) int {
	rng := rand.New(rand.NewPCG(seed, 2))
	burst := 4 + rng.Int64N(30)
	operationNs := 200_000 + rng.Int64N(1_500_000)
	var e evidence
	var nowNs, nextBurstNs, nextOperationNs, left int64
	for i := range most {
		untilNs := nowNs + windowInterval.Nanoseconds() + rng.Int64N(int64(time.Millisecond))
		var calls, operations int64
		for nextBurstNs < untilNs || left > 0 && nextOperationNs < untilNs {
			if left == 0 { // the wait returns
				calls, left = calls+burst, burst
				nextOperationNs = nextBurstNs + 100_000
				nextBurstNs += 1 << 60
				continue
			}
			operations++
			left--
			if left == 0 {
				nextBurstNs = nextOperationNs + 50_000 + rng.Int64N(200_000)
			}
			nextOperationNs += operationNs + rng.Int64N(operationNs/50)
		}
		if e.add(window{untilNs - nowNs, calls, operations}); e.isRelated(true) {
			return i
		}
		nowNs = untilNs
	}
	return most
}

// trainingUntilRelated simulates a training that is bound by the GPU: each step launches thousands of
// kernels, as fast as the queue has room, and waits for the last one. It returns how many windows pass
// until the words are related.
func trainingUntilRelated(seed uint64, most int) int {
	rng := rand.New(rand.NewPCG(seed, 4))
	launches, operationNs, callNs := 1500+rng.IntN(3000), 30_000+rng.Int64N(60_000), 8_000+rng.Int64N(10_000)
	const room = 1023
	var called, ended []int64 // times
	atNs := int64(0)
	for atNs < int64(most)*windowInterval.Nanoseconds() {
		first, freeNs := len(ended), atNs
		for i := range launches {
			atNs += callNs + rng.Int64N(callNs)
			if i >= room {
				atNs = max(atNs, ended[first+i-room])
			}
			called = append(called, atNs)
			freeNs = max(freeNs, atNs) + operationNs + rng.Int64N(operationNs)
			ended = append(ended, freeNs)
		}
		atNs = freeNs + 500_000 // the program waits for the step
	}
	var e evidence
	nowNs := int64(0)
	before := func(times []int64, ns int64) int64 {
		n, _ := slices.BinarySearch(times, ns)
		return int64(n)
	}
	for i := range most {
		untilNs := nowNs + windowInterval.Nanoseconds() + rng.Int64N(int64(time.Millisecond/5))
		e.add(window{
			untilNs - nowNs,
			before(called, untilNs) - before(called, nowNs),
			before(ended, untilNs) - before(ended, nowNs),
		})
		if e.isRelated(true) {
			return i
		}
		nowNs = untilNs
	}
	return most
}

// steadyDecoyUntilRelated simulates a program with a steady rate of calls, and words that change by
// themselves at a similar rate. apart is the relative difference of the rates.
func steadyDecoyUntilRelated(seed uint64, most int) (windows int, apart float64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	callsPerMs, stepsPerMs := 0.2+rng.ExpFloat64()*10, 0.2+rng.ExpFloat64()*10
	apart = math.Abs(stepsPerMs/callsPerMs - 1)
	var e evidence
	var calls, steps float64
	for i := range most {
		ns := windowInterval.Nanoseconds() + rng.Int64N(int64(time.Millisecond))
		calls += callsPerMs * float64(ns) / 1e6 * (0.9 + 0.2*rng.Float64())
		steps += stepsPerMs * float64(ns) / 1e6 * rng.ExpFloat64()
		if e.add(window{ns, int64(calls), int64(steps)}); e.isRelated(true) {
			return i, apart
		}
		calls, steps = calls-float64(int64(calls)), steps-float64(int64(steps))
	}
	return most, apart
}

// TestEvidence simulates processes. Words of channels must be recognised within seconds, and others
// never, unless they change at the rate of the calls. The analysis rejects such words: see
// TestForeignWords of package activity.
func TestEvidence(t *testing.T) {
	testclass.Unit(t)
	const indistinct = 0.1
	const processes, most = 100, 6000
	slow, total := 0, 0
	for seed := range uint64(processes) {
		n := windowsUntilRelated(seed, true, true, most)
		total += n
		if n >= 1000 { // 5 s
			slow++
		}
	}
	wrong := 0
	for seed := range uint64(processes) {
		if n := decodeUntilRelated(seed, most); n >= 1000 {
			t.Errorf("bursts of graphs are related after %d windows", n)
		}
		if seed%10 == 0 && trainingUntilRelated(seed, 2000) == 2000 {
			t.Error("the steps of a training are not related after 10 s")
		}
		if n, apart := steadyDecoyUntilRelated(seed, most); n < most && apart > indistinct {
			wrong++
		}
	}
	for seed := range uint64(processes) {
		if windowsUntilRelated(seed, false, seed%2 == 0, most) < most {
			wrong++
		}
	}
	t.Logf("related after %d windows in the mean; %d of %d later than 5 s; %d of %d unrelated words accepted in 30 s",
		total/processes, slow, processes, wrong, 2*processes)
	if wrong > 0 || slow > processes/50 {
		t.Error("the evidence misleads")
	}
}
