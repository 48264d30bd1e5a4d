package format

import "math"

// ProbeCost is the overhead of probes: hits times the price of a hit in the recorded program, and unwinding, in percent
// of the time of the thread with the most hits. The recorder measures it with --max-overhead. Since 1.5.
type ProbeCost struct {
	LimitPct float64 `json:"limit_pct"` // of --max-overhead
	Seconds  int64   `json:"seconds"`   // finished seconds since all probes were attached
	// MeanPct is the mean of all seconds. WorstPct is the highest overhead of a second, and OverLimit the number of
	// seconds above the limit. Both are without the first second, in which the price is not known yet.
	MeanPct   float64 `json:"mean_pct"`
	WorstPct  float64 `json:"worst_pct"`
	OverLimit int64   `json:"over_limit"`
	// SecondsPct has the overhead of each second, at most MaxProbeCostSeconds.
	SecondsPct []float64 `json:"seconds_pct,omitempty"`
	// HitNs is the price of a probe hit without unwinding at the end. IsAssumed is set if the time in BPF programs
	// could not be measured, and a high price was assumed.
	HitNs     float64 `json:"hit_ns"`
	IsAssumed bool    `json:"is_assumed,omitempty"`
}

// MaxProbeCostSeconds is the largest number of seconds that ProbeCost lists.
const MaxProbeCostSeconds = 3600

// RoundPct rounds a percentage to hundredths.
func RoundPct(pct float64) float64 { return math.Round(100*pct) / 100 }
