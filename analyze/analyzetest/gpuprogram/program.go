package gpuprogram

import (
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
)

// Plan describes a random program and its recorder.
type Plan struct {
	Operations int // operations of each process
	Processes  int
	Threads    int     // per process
	Streams    int     // per process, besides the legacy default stream
	Shared     bool    // every second stream shares the channel of the stream before it
	Brief      bool    // streams with few operations share the channels of others; only with one thread
	OneThread  bool    // each stream belongs to one thread
	Ordered    bool    // threads that share a stream call it one after the other
	Kernels    int     // different kernels
	MeanNs     float64 // scale of the durations of kernels
	PaceNs     int64   // scale of the time between calls
	Idle       float64 // share of actions before which the thread works on the CPU
	Waits      float64 // share of actions that wait
	Early      float64 // share of kernels that may begin before the one before them has ended
	Parts      int     // operations that a launch of a graph adds, if not one
	Extra      float64 // share of fills and copies with one more operation
	Short      float64 // share of copies to the device that run on the channel of their stream
	AnyPlace   bool    // the calls of these copies do not say where they run
	Fills      bool    // kernels and graphs fill the GPU: one of another stream is taken from its queue, and waits
	EndWords   bool    // progress words belong to the ends of all operations, as on no known GPU

	Untimed   bool    // events have no timing, and the recorder does not know that
	Events    float64 // share of actions that record an event, in addition to 4 %
	HalfTimed bool    // every second event has timing, and the recorder does not know which ones
	Misled    bool    // the recorder believes that all events of unknown timing probably have timing
	Hidden    float64 // share of kernels after which the stream runs an operation without a call, on any channel
	NoWaits   bool    // waits are not recorded
	Full      bool    // a poller with a core of its own; else 1 kHz, and reads at launches
	Lost      bool    // windows in which calls are lost
	Sampled   bool    // windows in which launches are not recorded
	NoReturns bool    // launches whose return is not recorded
	TornShare float64 // share of samples that are torn
}

// Truth has the times of an operation on the simulated GPU.
type Truth struct {
	StartNs, EndNs int64
	Channel        int32
	Number         int64 // counter of the channel when the operation began
}

// Program is a recording of a simulated program, with the truth.
type Program struct {
	Plan
	Calls    []activity.Call // sorted by start
	Samples  []activity.Sample
	Channels []activity.Channel
	Gaps     []activity.Window
	Truth    []Truth // by Call.ID
	EndNs    int64   // end of the recording

	random *rand.Rand
	torn   map[tornSample]bool
	// counters are the counters of the samples of a channel; set by IsNearTorn
	counters map[int32][]int64
	gpus     []*gpuChannel
	filledNs int64 // end of the last kernel, if kernels fill the GPU
}

type tornSample struct {
	channel int32
	counter int64
}

// graphGapNs is how much longer the gap before the launch of a graph with several operations is.
const graphGapNs = 4000

// gpuChannel is a channel of the simulated GPU.
type gpuChannel struct {
	number       int32
	pid, device  int32
	base         int64      // counter before the first operation
	words        []int64    // times of the progress word: starts, or ends of copies
	shown        []int64    // when each operation became visible in the progress word
	operations   [][2]int64 // start and end of every operation
	freeNs       int64
	lastKernelOf *simStream // stream of the last operation, if that is a kernel
	launches     []int64
	fromNs, toNs int64
}

type simStream struct {
	handle   int64
	process  *simProcess
	channel  *gpuChannel
	endNs    int64 // end of its last operation
	doneNs   int64 // when waits see that end. The progress word is visible before.
	returnNs int64 // return of its last call
}

type simProcess struct {
	pid        int32
	device     int32
	streams    []*simStream
	legacy     *simStream
	engines    [2]engines      // of streams, and of the legacy default stream
	events     map[int64]int64 // end of the record
	handles    int64
	kernelMean []float64
	left       int
}

// engines are the channels of copy engines.
type engines struct{ toDevice, toHost *gpuChannel }

func (g *Program) newEngines(p *simProcess) engines {
	return engines{g.newChannel(p.pid, p.device, startNs), g.newChannel(p.pid, p.device, startNs)}
}

// enginesOf returns the channels that run the copies of a stream. Those of the legacy default stream begin with
// its first copy.
func (g *Program) enginesOf(s *simStream) engines {
	p := s.process
	if s.handle != activity.LegacyStream {
		return p.engines[0]
	}
	if p.engines[1].toHost == nil {
		p.engines[1] = g.newEngines(p)
	}
	return p.engines[1]
}

// runsCopies reports whether a channel is that of a copy engine.
func (c *gpuChannel) runsCopies(p *simProcess) bool {
	return slices.ContainsFunc(p.engines[:], func(e engines) bool { return c == e.toDevice || c == e.toHost })
}

type simThread struct {
	tid      int32
	process  *simProcess
	nowNs    int64
	submitNs int64 // when the next action reaches the driver
	streams  []*simStream
	on       *simStream // stream of the next action
	burst    int        // launches left in a burst, on burstOn
	burstOn  *simStream
}

const startNs = int64(1_790_000_000_000_000_000)

// Run simulates a program and its recorder. The same seed and plan give the same Program.
func Run(seed uint64, p Plan) *Program {
	g := &Program{Plan: p, random: rand.New(rand.NewPCG(seed, 7)), torn: make(map[tornSample]bool)}
	var threads []*simThread
	for i := range p.Processes {
		threads = append(threads, g.newProcess(int32(100+i))...)
	}
	for {
		var next *simThread
		for _, t := range threads {
			if t.process.left > 0 && (next == nil || t.submitNs < next.submitNs) {
				next = t
			}
		}
		if next == nil {
			break
		}
		if g.Ordered && next.on.returnNs > next.nowNs { // the stream's lock is taken
			next.nowNs = max(next.on.returnNs+g.random.Int64N(2000), next.submitNs)
			next.submitNs = next.nowNs + 300 + g.random.Int64N(1500)
			continue
		}
		g.act(next)
		g.EndNs = max(g.EndNs, next.nowNs)
	}
	for _, t := range threads { // the program waits at its end
		g.waitContext(t)
	}
	for _, t := range threads {
		g.EndNs = max(g.EndNs, t.nowNs)
	}
	g.EndNs += 2_000_000
	g.makeGaps()
	g.poll()
	g.loseCalls()
	slices.SortStableFunc(g.Calls, func(a, b activity.Call) int { return int(a.StartNs - b.StartNs) })
	slices.SortStableFunc(g.Samples, func(a, b activity.Sample) int { return int(a.SeenNs - b.SeenNs) })
	return g
}

func (g *Program) newChannel(pid, device int32, ns int64) *gpuChannel {
	c := &gpuChannel{
		number: int32(len(g.gpus) + 1), pid: pid, device: device, base: g.random.Int64N(10_000),
		fromNs: ns, toNs: activity.UnknownNs,
	}
	g.gpus = append(g.gpus, c)
	return c
}

func (g *Program) newProcess(pid int32) (threads []*simThread) {
	p := &simProcess{pid: pid, events: make(map[int64]int64), handles: 0x7000, left: g.Operations}
	p.legacy = &simStream{handle: activity.LegacyStream, process: p, channel: g.newChannel(pid, 0, startNs)}
	p.engines[0] = g.newEngines(p)
	for range g.Kernels {
		p.kernelMean = append(p.kernelMean, g.MeanNs*(0.2+4*g.random.Float64()*g.random.Float64()))
	}
	for i := range g.Streams {
		p.addStream(g, g.Shared && i%2 == 1, startNs)
	}
	for i := range g.Threads {
		t := &simThread{tid: pid*10 + int32(i), process: p, nowNs: startNs + 1e6 + g.random.Int64N(1e5)}
		t.streams = append(t.streams, p.streams...)
		if g.OneThread {
			t.streams = nil
			for k, s := range p.streams {
				if k%g.Threads == i {
					t.streams = append(t.streams, s)
				}
			}
		}
		if i == 0 || !g.OneThread {
			t.streams = append(t.streams, p.legacy)
		}
		g.prepare(t)
		threads = append(threads, t)
	}
	return threads
}

// addStream creates a stream, on the channel of the stream before it or on a new one.
func (p *simProcess) addStream(g *Program, share bool, ns int64) {
	s := &simStream{handle: p.handles, process: p}
	p.handles += 0x100
	if share {
		s.channel = p.streams[len(p.streams)-1].channel
	} else {
		s.channel = g.newChannel(p.pid, p.device, ns)
	}
	p.streams = append(p.streams, s)
}

// prepare draws the stream of the next action of a thread, and when it reaches the driver.
func (g *Program) prepare(t *simThread) {
	t.on = t.streams[g.random.IntN(len(t.streams))]
	if t.burst > 0 {
		t.on = t.burstOn
	}
	if t.burst == 0 && g.random.Float64() < g.Idle {
		t.nowNs += g.random.Int64N(300_000)
	}
	t.nowNs += 500 + g.random.Int64N(4000+2*g.PaceNs)
	t.submitNs = t.nowNs + 300 + g.random.Int64N(1500)
	if g.random.Float64() < 0.0005 { // descheduled inside of the call
		mostNs := int64(3_000_000)
		if g.NoReturns {
			mostNs = 1_900_000
		}
		t.submitNs += g.random.Int64N(mostNs)
	}
}

// IsNearTorn reports whether a torn sample is near an operation: one of the 50 samples before its end, or of
// the two after it. A torn sample can shift the numbers until a wait shows it. The recorder reads
// twice, so torn samples are rare.
func (g *Program) IsNearTorn(t Truth) bool {
	if len(g.torn) == 0 {
		return false
	}
	if g.counters == nil {
		g.counters = make(map[int32][]int64)
		for _, s := range g.Samples {
			g.counters[s.Channel] = append(g.counters[s.Channel], s.Counter)
		}
	}
	counters := g.counters[t.Channel]
	i, _ := slices.BinarySearch(counters, t.Number)
	for _, c := range counters[max(0, i-50):min(len(counters), i+2)] {
		if g.torn[tornSample{t.Channel, c}] {
			return true
		}
	}
	return false
}

// BusyNs returns how long a channel ran operations, ns.
func (g *Program) BusyNs(channel int32) (ns int64) {
	operations := slices.Clone(g.gpus[channel-1].operations)
	slices.SortFunc(operations, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	doneNs := int64(0)
	for _, w := range operations {
		ns += max(0, w[1]-max(w[0], doneNs))
		doneNs = max(doneNs, w[1])
	}
	return ns
}
