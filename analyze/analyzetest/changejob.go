package analyzetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// ChangeFaults are the faults of a ChangeJob, with the titles of the series that must change.
var ChangeFaults = map[string][]string{
	"clock":         {"SM clock"},
	"step time":     {"step time", "launch rate"},
	"launch rate":   {"launch rate"},
	"memory":        {"driver memory", "memory used"},
	"temperature":   {"temperature"},
	"pcie":          {"PCIe received"},
	"nvlink errors": {"NVLink replays"},
}

// QuietJobs are the kinds of a ChangeJob without a fault.
var QuietJobs = []string{"noise", "warm-up", "checkpoints", "epochs", "plateau", "gaps", "outliers"}

// ChangeJob is a simulated training on GPU 1 of two, whose values have noise, and one fault or none.
type ChangeJob struct {
	Fault string // a key of ChangeFaults, or ""
	Quiet string // one of QuietJobs
	// AtNs is the time of the fault, and EndNs that of the end of the job, from the start of the recording.
	AtNs, EndNs int64
	size        float64 // of the fault, 0 to 1
	noise       float64 // standard deviation of durations
	stepNs      float64
	r           *rand.Rand
}

// NewChangeJob returns the job of a seed. All of its times and sizes are random.
func NewChangeJob(seed uint64, fault, quiet string) *ChangeJob {
	r := rand.New(rand.NewPCG(seed, uint64(len(fault))<<8|uint64(len(quiet))))
	j := &ChangeJob{
		Fault: fault, Quiet: quiet, r: r, size: r.Float64(), noise: 0.01 + 0.04*r.Float64(),
		EndNs: int64(60+r.IntN(40)) * Second, stepNs: float64(Ms) * (60 + 200*r.Float64()),
	}
	j.AtNs = j.EndNs/4 + int64(r.Float64()*0.55*float64(j.EndNs))
	return j
}

// Recording returns the recording of the job.
func (j *ChangeJob) Recording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.Meta.EndNs = Epoch + j.EndNs
	recording.AddTwoGPUs()
	recording.AddStack(1, "train_step", "main", "_start")
	recording.AddStack(2, "load_weights", "main", "_start")
	recording.AddStack(3, "evaluate", "main", "_start")
	recording.AddCall(format.KindAPI, "cuInit", 0, Ms)
	for i := range int64(16) {
		SetStackAndSite(
			recording.AddAlloc(100*Ms+i*20*Ms, 100*Us, 0x7f0000000000+i<<30, 1<<30),
			2,
			"load_weights (train.cc:10)",
		)
	}
	j.addSteps(recording)
	j.addSamples(recording)
	return recording
}

// isFaulty reports whether the job has a fault at a time.
func (j *ChangeJob) isFaulty(fault string, at int64) bool { return j.Fault == fault && at >= j.AtNs }

// inEpoch reports whether the job evaluates its model at a time, as part of a pattern.
func (j *ChangeJob) inEpoch(at int64) bool {
	period := 5 + 5*j.size
	return j.Quiet == "epochs" && math.Mod(float64(at)/1e9, period) < (0.15+0.3*j.noise/0.05)*period
}

// slowdown returns the factor of the duration of a step.
func (j *ChangeJob) slowdown(step int, at int64) float64 {
	factor := 1 + j.noise*j.r.NormFloat64()
	switch {
	case j.isFaulty("step time", at):
		factor *= 1.12 + 0.9*j.size
	case j.isFaulty("clock", at):
		factor /= j.clockShare()
	case j.Quiet == "warm-up" && at < j.EndNs/10:
		factor *= 2.5
	case j.Quiet == "checkpoints" && step%(10+int(20*j.size)) == 9:
		factor *= 3
	case j.Quiet == "outliers" && j.r.IntN(80) == 0:
		factor *= 4
	case j.inEpoch(at):
		factor *= 0.5
	}
	return max(0.2, factor)
}

func (j *ChangeJob) clockShare() float64 { return 0.9 - 0.35*j.size }

// addSteps adds the calls of all steps, and the memory of the fault.
func (j *ChangeJob) addSteps(recording *TestRecording) {
	isGrown := false
	for at, step := Second, 0; at < j.EndNs-Second; step++ {
		ns := j.stepNs * j.slowdown(step, at)
		launches := int64(10)
		if j.isFaulty("launch rate", at) {
			launches = int64(math.Round(8 - 4*j.size))
		}
		if j.isFaulty("memory", at) && !isGrown {
			isGrown = true
			bytes := int64(2+10*j.size) << 30
			SetStackAndSite(recording.AddAlloc(at, 100*Us, 0x6f0000000000, bytes), 3, "evaluate (train.cc:10)")
		}
		for i := range launches {
			start := at + int64(ns*0.8*float64(i)/float64(launches))
			SetStackAndSite(recording.AddFullLaunch(start, fmt.Sprintf("gemm_%d", i)), 1, "train_step (train.cc:10)")
		}
		SetStackAndSite(
			recording.AddSync("cuStreamSynchronize", at+int64(ns*0.85), int64(ns*0.14), 7, 0),
			1,
			"train_step (train.cc:10)",
		)
		at += int64(ns)
	}
}

// addSamples adds NVML samples as the recorder takes them: some metrics ten times a second, others every
// second or every ten seconds.
func (j *ChangeJob) addSamples(recording *TestRecording) {
	for k := int64(0); k*100*Ms < j.EndNs; k++ {
		at := k*100*Ms + int64(j.r.IntN(20))*Ms
		if j.Quiet == "gaps" && at%(17*Second) < 4*Second && at > 17*Second {
			continue
		}
		clock, power := j.clockAndPower(at)
		j.sample(recording, at, "sm_clock_mhz", clock)
		j.sample(recording, at, catalog.MetricPower, power)
		j.sample(recording, at, catalog.MetricMemoryUsed, j.memoryUsed(at))
		j.sample(recording, at, catalog.MetricClockEventReasons, j.reasons(at))
		if k%5 == 0 {
			j.sample(recording, at, "gpm_pcie_rx_mebibytes_per_second", j.pcie(at))
			j.sample(recording, at, catalog.MetricSMActive, 85+4*j.r.NormFloat64())
		}
		if k%10 == 0 {
			j.sample(recording, at, catalog.MetricTemperature, j.temperature(at))
		}
		if k%100 == 0 {
			j.sample(recording, at, "nvlink_replay_errors", j.errors(at, 0))
			if n := j.errors(at, 1); n > 0 {
				j.sample(recording, at, "nvlink3_replay_errors", n)
			}
		}
	}
	at := j.EndNs - Ms // the recorder reads all metrics once more at the end
	j.sample(recording, at, "nvlink_replay_errors", j.errors(at, 0))
	if n := j.errors(at, 1); n > 0 {
		j.sample(recording, at, "nvlink3_replay_errors", n)
	}
}

func (j *ChangeJob) sample(recording *TestRecording, at int64, metric string, value float64) {
	recording.AddNVMLSample(1, at, metric, value)
	if metric == catalog.MetricPower { // the other GPU begins work of another program
		other := 75_000.0
		if at > j.EndNs/2 {
			other = 600_000
		}
		recording.AddNVMLSample(0, at, metric, other)
	}
}

// clockAndPower returns the SM clock in MHz, and the power in mW.
func (j *ChangeJob) clockAndPower(at int64) (clock, power float64) {
	clock, power = 1980-15*float64(j.r.IntN(3)), 620_000*(1+0.03*j.r.NormFloat64())
	switch {
	case at < Second:
		return 345, 90_000
	case j.isFaulty("clock", at):
		clock = math.Round(1980*j.clockShare()/15)*15 - 15*float64(j.r.IntN(3))
	case j.Quiet == "warm-up" && at < j.EndNs/12:
		clock, power = clock*0.7, power*0.5
	case j.inEpoch(at):
		clock, power = clock*0.9, power*0.6
	}
	return clock, power
}

// reasons returns the reasons for the clocks.
func (j *ChangeJob) reasons(at int64) float64 {
	if j.isFaulty("clock", at) {
		return 4
	}
	return 0
}

func (j *ChangeJob) memoryUsed(at int64) float64 {
	used := float64(17 << 30)
	if j.isFaulty("memory", at) {
		used += float64(int64(2+10*j.size) << 30)
	}
	return used
}

// pcie returns the data that the GPU received, in MiB/s.
func (j *ChangeJob) pcie(at int64) float64 {
	rate := 4000 * (1 + 2*j.noise*j.r.NormFloat64())
	if j.isFaulty("pcie", at) {
		rate *= 0.6 - 0.5*j.size
	}
	return max(0, rate)
}

// temperature returns the temperature in degrees: it rises to a plateau after the start.
func (j *ChangeJob) temperature(at int64) float64 {
	v := 68.0
	if j.Quiet == "plateau" {
		v = 45 + 30*(1-math.Exp(-float64(at)/1e9/(8+12*j.size)))
	}
	if j.isFaulty("temperature", at) {
		v += (8 + 15*j.size) * min(1, float64(at-j.AtNs)/float64(3*Second))
	}
	return math.Round(v + 0.4*j.r.NormFloat64())
}

// errors returns the errors of all NVLinks, or of link 3 with which 1.
func (j *ChangeJob) errors(at int64, which int) float64 {
	before, rate := 3.0, 2+40*j.size
	if which == 1 {
		before = 0
	}
	if !j.isFaulty("nvlink errors", at) {
		return before
	}
	return before + math.Floor(rate*float64(at-j.AtNs)/1e9)
}
