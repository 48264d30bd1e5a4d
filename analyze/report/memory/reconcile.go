package memory

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/state"
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

	earlier int64 // bytes of PyTorch's segments from before the recording, at the nearest sample

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
	if err := c.findEarlierSegments(); err != nil {
		return nil, err
	}
	return c, c.estimateObjectCosts()
}

// findEarlierSegments sets the bytes of PyTorch's segments from before the recording, at the samples.
func (c *reconciliation) findEarlierSegments() error {
	if !slices.ContainsFunc(c.t.Facts.EarlierStates, func(s *caching.EarlierState) bool { return s.Refused == "" }) {
		return nil
	}
	var times []int64
	for _, a := range c.processes {
		times = append(times, a.samples[a.nearest].AtNs)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	return state.VisitAllocatorsAt(c.t, times, func(moment int, l *caching.Allocator, _ bool) {
		a := c.byPair[timeline.PidOnDevice{Device: l.Device, Pid: l.Pid}]
		if a != nil && a.samples[a.nearest].AtNs == times[moment] {
			a.earlier = l.EarlierReservedBytes()
		}
	}, func(int, *caching.Allocator) {})
}

// findProcesses creates an processMemory for each recorded process and device with NVML samples.
func (c *reconciliation) findProcesses() {
	f := &c.t.Facts
	metric, ok := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !ok {
		return
	}
	found := make(map[timeline.PidOnDevice]*processMemory)
	for _, s := range f.ProcessSamples {
		_, recorded := f.Processes[s.Pid]
		key := timeline.PidOnDevice{Device: s.Device, Pid: s.Pid}
		if s.Metric != metric || !recorded || math.IsNaN(s.Value) ||
			len(c.filter.Pids) > 0 && !slices.Contains(c.filter.Pids, s.Pid) {
			continue
		}
		if found[key] == nil {
			ordinal, paired := f.OrdinalOf(s.Pid, s.Device)
			if !paired || len(c.filter.Devices) > 0 && !slices.Contains(c.filter.Devices, ordinal) {
				continue
			}
			found[key] = &processMemory{
				PidOnDevice: key,
				ordinal:     ordinal,
				byLibrary:   make(map[libraryMemoryKind]int64),
			}
		}
		found[key].samples = append(found[key].samples, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	}) {
		a := found[key]
		a.selectSample(c.atNs)
		c.processes = append(c.processes, a)
		c.byPair[timeline.PidOnDevice{Device: a.ordinal, Pid: a.Pid}] = a
	}
}

// selectSample selects the sample nearest to atNs, Unix ns.
func (a *processMemory) selectSample(atNs int64) {
	distance := func(i int) int64 { return max(a.samples[i].AtNs-atNs, atNs-a.samples[i].AtNs) }
	for i := range a.samples {
		if distance(i) < distance(a.nearest) {
			a.nearest = i
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
func (c *reconciliation) findCodeLoads() error {
	for i := range c.t.API.Calls {
		call := &c.t.API.Calls[i]
		if call.Kind != timeline.APICreateContext && call.Kind != timeline.APIRetainPrimary {
			continue
		}
		if a := c.byPair[timeline.PidOnDevice{Device: call.Device, Pid: call.Pid}]; a != nil {
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
	s := &c.t.API
	var name format.Strings
	for _, sp := range c.t.Calls {
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
			return c.t.WrapReadError(err)
		}
		for i, start := range s.Start {
			if !loads[name.Index[i]] {
				continue
			}
			device := c.t.DeviceOfCall(s.Pid[i], s.Context[i], s.Device[i])
			a := c.byPair[timeline.PidOnDevice{Device: device, Pid: s.Pid[i]}]
			if a == nil {
				continue
			}
			// Code loads come by the thousand. One per pair of samples is enough.
			if n := len(a.loadTimes); n == 0 || start < a.loadTimes[n-1] || start > a.loadTimes[n-1]+1_000_000 {
				a.loadTimes = append(a.loadTimes, start, units.EndOfRange(start, s.Dur[i]))
			}
		}
	}
	for _, a := range c.processes {
		slices.Sort(a.loadTimes)
	}
	return nil
}

// onDriverChange processes the next change of a replay.
func (c *reconciliation) onDriverChange(_ *livemem.Set, ch *livemem.Change) {
	o := &c.t.Origins.List[ch.Block.Origin]
	memory := c.t.Origins.MemoryKindOf(ch.Block.Origin)
	a := c.byPair[timeline.PidOnDevice{Device: o.Device, Pid: o.Pid}]
	if a == nil || ch.Kind == livemem.ChangeAllocFailed || livemem.IsHostKind(memory) {
		return
	}
	a.storeSamplesBefore(ch.AtNs)
	a.live += livemem.LiveBytesChange(ch)
	if memory == format.MemoryAsync {
		a.pool++
	}
	if a.next <= a.nearest {
		a.byLibrary[libraryMemoryKind{o.Device, memory, c.t.Stacks.CallingLibrary(o.Stack)}] += livemem.LiveBytesChange(
			ch,
		)
	}
}

// storeSamplesBefore stores the live bytes for the samples before atNs, Unix ns.
func (a *processMemory) storeSamplesBefore(atNs int64) {
	for ; a.next < len(a.samples) && a.samples[a.next].AtNs < atNs; a.next++ {
		a.tracked, a.pooled = append(a.tracked, a.live), append(a.pooled, a.pool)
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
func (a *processMemory) measureLoadGrowth() (m codeLoadGrowth) {
	add := func(fromNs, toNs, grown int64) {
		i, _ := slices.BinarySearch(a.loadTimes, fromNs)
		if i < len(a.loadTimes) && a.loadTimes[i] <= toNs && grown > 0 {
			m.bytes += grown
			m.steps++
		}
	}
	m.fromStart = a.firstContextNs != 0 && a.samples[0].AtNs >= a.firstContextNs
	if m.fromStart && a.pooled[0] == 0 {
		add(a.firstContextNs, a.samples[0].AtNs, units.RoundInt(a.samples[0].Value)-a.tracked[0])
	}
	for i := 1; i <= a.nearest; i++ {
		if a.pooled[i] == a.pooled[i-1] {
			grown := units.RoundInt(
				a.samples[i].Value,
			) - units.RoundInt(
				a.samples[i-1].Value,
			) - (a.tracked[i] - a.tracked[i-1])
			add(a.samples[i-1].AtNs, a.samples[i].AtNs, grown)
		}
	}
	rest := units.RoundInt(a.samples[a.nearest].Value) - a.tracked[a.nearest] - a.earlier
	m.bytes = max(0, min(m.bytes, rest)) // the driver may have freed part of it since
	return m
}

// unusedPoolBytes returns the bytes that pools of the process had reserved but not allocated, by
// the program's last query before untilNs, and the time of the query (Unix ns). It returns false if
// the program made no query.
func (c *reconciliation) unusedPoolBytes(a *processMemory, untilNs int64) (bytes, atNs int64, ok bool) {
	window := query.Window{FromNs: c.t.RecordingWindow().FromNs, ToNs: untilNs}
	for key, p := range c.t.MemoryPools(window, &query.Filter{Pids: []int32{a.Pid}, Devices: []int32{a.ordinal}}) {
		if key.Pid == a.Pid && p.Reserved >= 0 && p.Used >= 0 {
			bytes += max(0, p.Reserved-p.Used)
			atNs, ok = max(atNs, p.AtNs), true
		}
	}
	return bytes, atNs, ok
}
