package memory

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// processMemory compares the memory of one process on one device by NVML with the recorded
// allocations. Part of the difference is the CUDA context and loaded code: growth around calls that
// create contexts or load code. The rest is not attributed.
type processMemory struct {
	timeline.PidOnDevice       // Device is the NVML index
	ordinal              int32 // CUDA ordinal of the device in the process
	samples              []facts.ProcessSample
	tracked              []int64 // live bytes of recorded allocations at each sample
	pooled               []int64 // number of changes of pool memory before each sample
	nearest              int     // index of the sample nearest to the reported time
	loadTimes            []int64 // times of context creations and code loads, Unix ns
	firstContextNs       int64   // time of the first context creation, Unix ns; 0: not recorded

	// earlier has the bytes of PyTorch's segments from before the recording at the nearest sample, by memory kind. They
	// are part of tracked.
	earlier map[string]int64

	live, pool int64 // live bytes and number of pool changes at the current point of the replay
	next       int   // index of the next sample
	byLibrary  map[libraryMemoryKind]int64

	objects [objects.NumKinds]objectCount // live objects of the driver
	costs   []ObjectCost                  // their estimated device memory
}

// reconciliation compares all recorded processes with NVML.
type reconciliation struct {
	t         *timeline.Timeline
	atNs      int64
	filter    *query.Filter
	processes []*processMemory
	byPair    map[timeline.PidOnDevice]*processMemory // here Device is the CUDA ordinal in the process
}

// reconcileWithNVML compares all recorded processes with the NVML samples nearest to atNs, Unix ns.
func reconcileWithNVML(t *timeline.Timeline, atNs int64, f *query.Filter) (*reconciliation, error) {
	c := &reconciliation{t: t, atNs: atNs, filter: f, byPair: make(map[timeline.PidOnDevice]*processMemory)}
	c.findProcesses()
	if len(c.processes) == 0 {
		return c, nil
	}
	if err := c.findCodeLoads(); err != nil {
		return nil, err
	}
	if _, err := t.ReplayMemory(c.onDriverChange); err != nil {
		return nil, err
	}
	for _, a := range c.processes {
		a.storeSamplesBefore(math.MaxInt64)
	}
	return c, c.estimateObjectCosts()
}

// findProcesses creates an processMemory for each recorded process and device with NVML samples.
func (r *reconciliation) findProcesses() {
	f := &r.t.Facts
	metric, ok := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !ok {
		return
	}
	found := make(map[timeline.PidOnDevice]*processMemory)
	for _, s := range f.ProcessSamples {
		_, recorded := f.Processes[s.Pid]
		key := timeline.PidOnDevice{Device: s.Device, Pid: s.Pid}
		if s.Metric != metric || !recorded || math.IsNaN(s.Value) ||
			len(r.filter.Pids) > 0 && !slices.Contains(r.filter.Pids, s.Pid) {
			continue
		}
		if found[key] == nil {
			ordinal, paired := f.OrdinalOf(s.Pid, s.Device)
			if !paired || len(r.filter.Devices) > 0 && !slices.Contains(r.filter.Devices, ordinal) {
				continue
			}
			found[key] = &processMemory{
				PidOnDevice: key,
				ordinal:     ordinal,
				byLibrary:   make(map[libraryMemoryKind]int64),
				earlier:     make(map[string]int64),
			}
		}
		found[key].samples = append(found[key].samples, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	}) {
		a := found[key]
		a.selectSample(r.atNs)
		r.processes = append(r.processes, a)
		r.byPair[timeline.PidOnDevice{Device: a.ordinal, Pid: a.Pid}] = a
	}
}

// selectSample selects the sample nearest to atNs, Unix ns.
func (p *processMemory) selectSample(atNs int64) {
	distance := func(i int) int64 { return max(p.samples[i].AtNs-atNs, atNs-p.samples[i].AtNs) }
	for i := range p.samples {
		if distance(i) < distance(p.nearest) {
			p.nearest = i
		}
	}
}

// loadsCode reports whether a call may load code to the GPU. Since CUDA 12.2 the driver loads
// lazily by default: it loads each function when the program requests it, not the whole module.
func loadsCode(name string) bool {
	for _, prefix := range []string{
		"cuModuleLoad",
		"cuLibraryLoad",
		"cuModuleGetFunction",
		"cuLibraryGetKernel",
		"cuKernelGetFunction",
		"cuLinkComplete",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// contextCreationStepNs splits the duration of calls that create a context, because such a call may
// be longer than the time between two samples.
const contextCreationStepNs = 100_000_000

// findCodeLoads collects the times of context creations and code loads.
func (r *reconciliation) findCodeLoads() error {
	for i := range r.t.API.Calls {
		call := &r.t.API.Calls[i]
		if call.Kind != timeline.APICreateContext && call.Kind != timeline.APIRetainPrimary {
			continue
		}
		if a := r.byPair[timeline.PidOnDevice{Device: call.Device, Pid: call.Pid}]; a != nil {
			a.loadTimes = append(a.loadTimes, call.StartNs, call.EndNs)
			end := min(call.EndNs, call.StartNs+1000*contextCreationStepNs)
			for at := call.StartNs + contextCreationStepNs; at < end; at += contextCreationStepNs {
				a.loadTimes = append(a.loadTimes, at)
			}
			if a.firstContextNs == 0 || call.StartNs < a.firstContextNs {
				a.firstContextNs = call.StartNs
			}
		}
	}
	s := &r.t.API
	var name format.Strings
	for _, sp := range r.t.Calls {
		g := sp.Group
		name = g.StringsInto("name", name)
		var loads []bool
		for _, n := range name.Dict {
			loads = append(loads, loadsCode(n))
		}
		if !slices.Contains(loads, true) {
			continue
		}
		s.Pid, s.Device, s.Context = g.Int32("pid", s.Pid), g.Int32("device", s.Device), g.Int64("context", s.Context)
		s.Start, s.Dur = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur)
		if err := g.Err(); err != nil {
			return r.t.WrapReadError(err)
		}
		for i, start := range s.Start {
			if !loads[name.Index[i]] {
				continue
			}
			device := r.t.DeviceOfCall(s.Pid[i], s.Context[i], s.Device[i])
			a := r.byPair[timeline.PidOnDevice{Device: device, Pid: s.Pid[i]}]
			if a == nil {
				continue
			}
			// Code loads come by the thousand. One per pair of samples is enough.
			if n := len(a.loadTimes); n == 0 || start < a.loadTimes[n-1] || start > a.loadTimes[n-1]+1_000_000 {
				a.loadTimes = append(a.loadTimes, start, units.EndOfRange(start, s.Dur[i]))
			}
		}
	}
	for _, a := range r.processes {
		slices.Sort(a.loadTimes)
	}
	return nil
}

// onDriverChange processes the next change of a replay.
func (r *reconciliation) onDriverChange(_ *livemem.Set, ch *livemem.Change) {
	o := &r.t.Origins.List[ch.Block.Origin]
	memory := r.t.Origins.MemoryKindOf(ch.Block.Origin)
	a := r.byPair[timeline.PidOnDevice{Device: o.Device, Pid: o.Pid}]
	if a == nil || ch.Kind == livemem.ChangeAllocFailed || livemem.IsHostKind(memory) {
		return
	}
	a.storeSamplesBefore(ch.AtNs)
	a.live += livemem.LiveBytesChange(ch)
	if memory == format.MemoryAsync {
		a.pool++
	}
	switch {
	case a.next > a.nearest:
	case ch.Block.IsEarlier():
		a.earlier[memory] += livemem.LiveBytesChange(ch)
	default:
		a.byLibrary[libraryMemoryKind{o.Device, memory, r.t.Stacks.CallingLibrary(o.Stack)}] += livemem.LiveBytesChange(
			ch,
		)
	}
}

// storeSamplesBefore stores the live bytes for the samples before atNs, Unix ns.
func (p *processMemory) storeSamplesBefore(atNs int64) {
	for ; p.next < len(p.samples) && p.samples[p.next].AtNs < atNs; p.next++ {
		p.tracked, p.pooled = append(p.tracked, p.live), append(p.pooled, p.pool)
	}
}

// codeLoadGrowth is the growth of a process that context creations and code loads explain.
type codeLoadGrowth struct {
	bytes, steps int64 // growth, and the number of pairs of samples with growth
	fromStart    bool  // the first context creation is in the recording
}

// measureLoadGrowth returns the growth by context creations and code loads. Between each pair of
// samples with such a call, it adds the growth by NVML minus the growth of recorded allocations. It
// skips pairs with changes of pool memory, because the pool may have grown too.
func (p *processMemory) measureLoadGrowth() (m codeLoadGrowth) {
	add := func(fromNs, toNs, grown int64) {
		i, _ := slices.BinarySearch(p.loadTimes, fromNs)
		if i < len(p.loadTimes) && p.loadTimes[i] <= toNs && grown > 0 {
			m.bytes += grown
			m.steps++
		}
	}
	m.fromStart = p.firstContextNs != 0 && p.samples[0].AtNs >= p.firstContextNs
	if m.fromStart && p.pooled[0] == 0 {
		add(p.firstContextNs, p.samples[0].AtNs, units.RoundInt(p.samples[0].Value)-p.tracked[0])
	}
	for i := 1; i <= p.nearest; i++ {
		if p.pooled[i] == p.pooled[i-1] {
			grown := units.RoundInt(
				p.samples[i].Value,
			) - units.RoundInt(
				p.samples[i-1].Value,
			) - (p.tracked[i] - p.tracked[i-1])
			add(p.samples[i-1].AtNs, p.samples[i].AtNs, grown)
		}
	}
	rest := units.RoundInt(p.samples[p.nearest].Value) - p.tracked[p.nearest]
	m.bytes = max(0, min(m.bytes, rest)) // the driver may have freed part of it since
	return m
}

// unusedPoolBytes returns the bytes that pools of the process had reserved but not allocated, by
// the program's last query before untilNs, and the time of the query (Unix ns). It returns false if
// the program made no query.
func (r *reconciliation) unusedPoolBytes(a *processMemory, untilNs int64) (bytes, atNs int64, ok bool) {
	window := query.Window{FromNs: r.t.RecordingWindow().FromNs, ToNs: untilNs}
	for key, p := range r.t.MemoryPools(window, &query.Filter{Pids: []int32{a.Pid}, Devices: []int32{a.ordinal}}) {
		if key.Pid == a.Pid && p.ReservedBytes >= 0 && p.UsedBytes >= 0 {
			bytes += max(0, p.ReservedBytes-p.UsedBytes)
			atNs, ok = max(atNs, p.AtNs), true
		}
	}
	return bytes, atNs, ok
}
