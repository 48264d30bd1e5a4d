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
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// account compares the memory that the driver counts for one process on one device with the memory
// that recorded calls explain. Part of the rest is the context and the code of modules, where the
// process grew around calls that make them. What remains is not attributed.
type account struct {
	timeline.PidOnDevice       // Device is the NVML index
	ordinal              int32 // of the device in the process
	samples              []facts.ProcessSample
	tracked              []int64 // live bytes by recorded calls, at each sample
	pooled               []int64 // number of changes of pool memory until each sample
	chosen               int     // index of the sample nearest to the moment
	made                 []int64 // times at which contexts were made or code was loaded, Unix ns
	firstMade            int64   // when the first context was made, Unix ns; 0: not recorded

	live, pool int64 // live bytes and pool changes at the current change of the replay
	next       int   // index of the next sample
	held       map[libraryPlace]int64
}

// reconciliation holds the accounts of all recorded processes.
type reconciliation struct {
	t        *timeline.Timeline
	atNs     int64
	filter   *query.Filter
	accounts []*account
	byPair   map[timeline.PidOnDevice]*account // Device is the ordinal in the process
}

// reconcile fills the accounts, for the samples nearest to atNs, Unix ns.
func reconcile(t *timeline.Timeline, atNs int64, f *query.Filter) (*reconciliation, error) {
	c := &reconciliation{t: t, atNs: atNs, filter: f, byPair: make(map[timeline.PidOnDevice]*account)}
	c.open()
	if len(c.accounts) == 0 {
		return c, nil
	}
	if err := c.findMaking(); err != nil {
		return nil, err
	}
	if _, err := t.Replay(c.consume); err != nil {
		return nil, err
	}
	for _, a := range c.accounts {
		a.pass(math.MaxInt64)
	}
	return c, nil
}

// open creates an account for each recorded process and device with samples.
func (c *reconciliation) open() {
	f := &c.t.Facts
	metric, ok := f.Metrics.Ids[catalog.MetricOfProcess]
	if !ok {
		return
	}
	found := make(map[timeline.PidOnDevice]*account)
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
			found[key] = &account{PidOnDevice: key, ordinal: ordinal, held: make(map[libraryPlace]int64)}
		}
		found[key].samples = append(found[key].samples, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), func(a, b timeline.PidOnDevice) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	}) {
		a := found[key]
		a.choose(c.atNs)
		c.accounts = append(c.accounts, a)
		c.byPair[timeline.PidOnDevice{Device: a.ordinal, Pid: a.Pid}] = a
	}
}

// choose finds the sample nearest to atNs.
func (a *account) choose(atNs int64) {
	distance := func(i int) int64 { return max(a.samples[i].AtNs-atNs, atNs-a.samples[i].AtNs) }
	for i := range a.samples {
		if distance(i) < distance(a.chosen) {
			a.chosen = i
		}
	}
}

// makesCode reports whether a call may load code to the GPU. With lazy loading, the default since
// CUDA 12.2, the driver loads each function when the program asks for it, not the whole module.
func makesCode(name string) bool {
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

// contextStepNs splits calls that make a context: these may last longer than the time between two
// samples.
const contextStepNs = 100_000_000

// findMaking finds the times at which contexts were made and code was loaded.
func (c *reconciliation) findMaking() error {
	for i := range c.t.API.Calls {
		call := &c.t.API.Calls[i]
		if call.Kind != timeline.APICreateContext && call.Kind != timeline.APIRetainPrimary {
			continue
		}
		if a := c.byPair[timeline.PidOnDevice{Device: call.Device, Pid: call.Pid}]; a != nil {
			a.made = append(a.made, call.StartNs, call.EndNs)
			end := min(call.EndNs, call.StartNs+1000*contextStepNs)
			for at := call.StartNs + contextStepNs; at < end; at += contextStepNs {
				a.made = append(a.made, at)
			}
			if a.firstMade == 0 || call.StartNs < a.firstMade {
				a.firstMade = call.StartNs
			}
		}
	}
	s := &c.t.API
	var name format.Strings
	for _, sp := range c.t.Calls {
		g := sp.Group
		name = g.StringsInto("name", name)
		var makes []bool
		for _, n := range name.Dict {
			makes = append(makes, makesCode(n))
		}
		if !slices.Contains(makes, true) {
			continue
		}
		s.Pid, s.Device, s.Context = g.Int32("pid", s.Pid), g.Int32("device", s.Device), g.Int64("context", s.Context)
		s.Start, s.Dur = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur)
		if err := g.Err(); err != nil {
			return c.t.Wrap(err)
		}
		for i, start := range s.Start {
			if !makes[name.Index[i]] {
				continue
			}
			device := c.t.DeviceOf(s.Pid[i], s.Context[i], s.Device[i])
			a := c.byPair[timeline.PidOnDevice{Device: device, Pid: s.Pid[i]}]
			if a == nil {
				continue
			}
			// Thousands come at a time: what counts is whether there is one between two samples.
			if n := len(a.made); n == 0 || start < a.made[n-1] || start > a.made[n-1]+1_000_000 {
				a.made = append(a.made, start, units.EndOf(start, s.Dur[i]))
			}
		}
	}
	for _, a := range c.accounts {
		slices.Sort(a.made)
	}
	return nil
}

// consume takes the next change of a replay.
func (c *reconciliation) consume(_ *livemem.Set, ch *livemem.Change) {
	o := &c.t.Origins.List[ch.Block.Origin]
	memory := c.t.Origins.Memory(ch.Block.Origin)
	a := c.byPair[timeline.PidOnDevice{Device: o.Device, Pid: o.Pid}]
	if a == nil || ch.Kind == livemem.AllocFailed || livemem.IsHost(memory) {
		return
	}
	a.pass(ch.AtNs)
	a.live += livemem.SignedBytes(ch)
	if memory == format.MemoryAsync {
		a.pool++
	}
	if a.next <= a.chosen {
		a.held[libraryPlace{o.Device, memory, c.t.Stacks.LibraryOf(o.Stack)}] += livemem.SignedBytes(ch)
	}
}

// pass sets the live bytes of the samples before atNs.
func (a *account) pass(atNs int64) {
	for ; a.next < len(a.samples) && a.samples[a.next].AtNs < atNs; a.next++ {
		a.tracked, a.pooled = append(a.tracked, a.live), append(a.pooled, a.pool)
	}
}

// making is the growth of a process that contexts and code explain: bytes, and the number of pairs
// of samples with such growth.
type making struct {
	bytes, steps int64
	fromStart    bool // the first context was made in the recording
}

// making adds up the growth of the driver's count beyond the bytes that calls allocated, between
// samples around calls that make a context or load code. Samples with changes of pool memory in
// between do not count: pools may have grown too.
func (a *account) making() (m making) {
	add := func(fromNs, toNs, grown int64) {
		i, _ := slices.BinarySearch(a.made, fromNs)
		if i < len(a.made) && a.made[i] <= toNs && grown > 0 {
			m.bytes += grown
			m.steps++
		}
	}
	m.fromStart = a.firstMade != 0 && a.samples[0].AtNs >= a.firstMade
	if m.fromStart && a.pooled[0] == 0 {
		add(a.firstMade, a.samples[0].AtNs, units.RoundInt(a.samples[0].Value)-a.tracked[0])
	}
	for i := 1; i <= a.chosen; i++ {
		if a.pooled[i] == a.pooled[i-1] {
			grown := units.RoundInt(
				a.samples[i].Value,
			) - units.RoundInt(
				a.samples[i-1].Value,
			) - (a.tracked[i] - a.tracked[i-1])
			add(a.samples[i-1].AtNs, a.samples[i].AtNs, grown)
		}
	}
	rest := units.RoundInt(a.samples[a.chosen].Value) - a.tracked[a.chosen]
	m.bytes = max(0, min(m.bytes, rest)) // some of it may have been freed since
	return m
}

// unusedInPools returns the bytes that pools of the process had reserved and did not use, when the
// program last asked before untilNs, and when that was. It returns false if the program did not ask.
func (c *reconciliation) unusedInPools(a *account, untilNs int64) (bytes, atNs int64, ok bool) {
	window := query.Window{FromNs: c.t.Recording().FromNs, ToNs: untilNs}
	for key, p := range c.t.Pools(window, &query.Filter{Pids: []int32{a.Pid}, Devices: []int32{a.ordinal}}) {
		if key.Pid == a.Pid && p.Reserved >= 0 && p.Used >= 0 {
			bytes += max(0, p.Reserved-p.Used)
			atNs, ok = max(atNs, p.AtNs), true
		}
	}
	return bytes, atNs, ok
}
