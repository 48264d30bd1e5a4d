//go:build linux

package overhead

// LoopFactor is the price of a probe's exception in a program, as a multiple of its price in a loop.
// A loop does not show the cache and branch predictor misses that an exception causes. Measured on
// an H200: 0.56 µs in a loop, 0.7 µs in gpt_train, 1.3 µs in gpt_decode, 1.4 µs in mlp_small.
const LoopFactor = 2.3

// AssumedProgramNs is the price of a BPF program where run times cannot be read. It is high, so that the limit holds:
// on an H200, 170 to 1563 ns were measured as the mean of a recording.
const AssumedProgramNs = 1600

// Price is the duration of a probe hit without unwinding.
type Price struct {
	loopNs      float64 // exception in a loop, without a BPF program
	exceptionNs float64 // exception in the recorded program
	programNs   float64 // BPF program
	ns, runs    int64   // of BPF programs at the last call of Measure
	unwindNs    int64   // time spent on unwinding at the last call of Measure
}

// NewPrice returns the Price for an exception that takes loopNs in a loop.
func NewPrice(loopNs float64) Price {
	return Price{loopNs: loopNs, exceptionNs: LoopFactor * loopNs, programNs: AssumedProgramNs}
}

// HitNs returns the duration of a probe hit in ns.
func (p *Price) HitNs() float64 { return p.exceptionNs + p.programNs }

// Skip starts a new measurement of programs. The arguments are those of Measure.
func (p *Price) Skip(ns, runs, unwindNs int64) { p.ns, p.runs, p.unwindNs = ns, runs, unwindNs }

// Measure updates the price of a program from the time since Skip, in which all runs were measured.
// ns is the total run time of BPF programs since loading, and runs the number of runs. unwindNs is
// the part of ns that was unwinding.
func (p *Price) Measure(ns, runs, unwindNs int64) {
	if d := runs - p.runs; d >= minMeasuredRuns {
		p.programNs = max(0, float64(ns-p.ns-(unwindNs-p.unwindNs))/float64(d))
	}
	p.Skip(ns, runs, unwindNs)
}

// minMeasuredRuns is the number of runs below which a measurement is too uncertain.
const minMeasuredRuns = 50

// Correct sets the price of an exception so that a hit takes hitNs, as the program's own pace shows.
func (p *Price) Correct(hitNs float64) {
	p.exceptionNs = min(maxLoopFactor*p.loopNs, max(p.loopNs, hitNs-p.programNs))
}

// maxLoopFactor bounds the price of an exception, as a multiple of its price in a loop.
const maxLoopFactor = 4
