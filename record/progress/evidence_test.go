//go:build linux

package progress

import (
	"math/rand/v2"
	"testing"
	"time"
)

// simulation simulates a process and its GPU in steps of 100 µs.
type simulation struct {
	rng         *rand.Rand
	queue       float64
	gpuPerMs    float64 // works per ms
	callsPerMs  float64
	phaseLeftMs float64
	paused      bool
}

// run returns the calls and completed works of about 5 ms. The queue has room for 1,023 works.
func (s *simulation) run(ns int64) (calls, works int64) {
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
		calls, works = calls+int64(made*10), works+int64(done*10)
	}
	return calls / 10, works / 10
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
		if e.add(ns, calls, steps); e.isRelated(areCounted) {
			return i
		}
	}
	return most
}

// TestEvidence simulates processes. Words of channels must be recognised within seconds, and others
// never.
func TestEvidence(t *testing.T) {
	const processes, most = 300, 6000
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
		if windowsUntilRelated(seed, false, seed%2 == 0, most) < most {
			wrong++
		}
	}
	t.Logf("related after %d windows in the mean; %d of %d later than 5 s; %d of %d unrelated words accepted in 30 s",
		total/processes, slow, processes, wrong, processes)
	if wrong > 0 || slow > processes/50 {
		t.Error("the evidence misleads")
	}
}
