package memory

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// The driver counts all memory of a process on a device; the calls that were recorded say what most of it is. What is left is
// the context and the code of modules where the recording saw the process grow by them, and otherwise not attributed.

// account is what the driver counts for one process on one device, and what calls explain of it.
type account struct {
	timeline.PidOnDevice       // device is the NVML index
	ordinal              int32 // of the device in the process
	samples              []timeline.ProcessSample
	tracked              []int64 // live at each sample, as the calls say
	pooled               []int64 // changes of pool memory until each sample
	chosen               int     // sample nearest to the moment
	made                 []int64 // when contexts were made and code was loaded
	firstMade            int64   // when the first context was made; 0: not seen

	live, pool int64 // at the moment that the replay has reached
	next       int   // sample that it comes to next
	held       map[libraryPlace]int64
}

// reconciliation is the report of all accounts.
type reconciliation struct {
	t        *timeline.Timeline
	atNs     int64
	filter   *query.Filter
	accounts []*account
	byPair   map[timeline.PidOnDevice]*account // device is the ordinal
}

// reconcile compares with the samples nearest to a moment.
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

// open makes an account for every recorded process that NVML saw on a device.
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
		if s.Metric != metric || !recorded || math.IsNaN(s.Value) || len(c.filter.Pids) > 0 && !slices.Contains(c.filter.Pids, s.Pid) {
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

// choose takes the sample nearest to a moment.
func (a *account) choose(atNs int64) {
	distance := func(i int) int64 { return max(a.samples[i].AtNs-atNs, atNs-a.samples[i].AtNs) }
	for i := range a.samples {
		if distance(i) < distance(a.chosen) {
			a.chosen = i
		}
	}
}

// makesCode are calls after which the driver may have brought code to the GPU: with lazy loading, its default since CUDA 12.2,
// not the module is loaded, but each function when it is asked for.
func makesCode(name string) bool {
	for _, prefix := range []string{"cuModuleLoad", "cuLibraryLoad", "cuModuleGetFunction", "cuLibraryGetKernel", "cuKernelGetFunction", "cuLinkComplete"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// contextStepNs divides the making of a context, which may take longer than from one sample to the next.
const contextStepNs = 100_000_000

// findMaking notes when contexts were made and code was loaded.
func (c *reconciliation) findMaking() error {
	for i := range c.t.API.Calls {
		call := &c.t.API.Calls[i]
		if call.Kind != timeline.APICreateContext && call.Kind != timeline.APIRetainPrimary {
			continue
		}
		if a := c.byPair[timeline.PidOnDevice{Device: call.Device, Pid: call.Pid}]; a != nil {
			a.made = append(a.made, call.StartNs, call.EndNs)
			for at := call.StartNs + contextStepNs; at < call.EndNs && at < call.StartNs+1000*contextStepNs; at += contextStepNs {
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
			a := c.byPair[timeline.PidOnDevice{Device: c.t.DeviceOf(s.Pid[i], s.Context[i], s.Device[i]), Pid: s.Pid[i]}]
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

func (c *reconciliation) consume(_ *ledger.Ledger, ch *ledger.Change) {
	o := &c.t.Origins.List[ch.Block.Origin]
	memory := c.t.Origins.Memory(ch.Block.Origin)
	a := c.byPair[timeline.PidOnDevice{Device: o.Device, Pid: o.Pid}]
	if a == nil || ch.Kind == ledger.AllocFailed || ledger.IsHost(memory) {
		return
	}
	a.pass(ch.AtNs)
	a.live += ledger.Signed(ch)
	if memory == format.MemoryAsync {
		a.pool++
	}
	if a.next <= a.chosen {
		a.held[libraryPlace{o.Device, memory, c.t.Stacks.LibraryOf(o.Stack)}] += ledger.Signed(ch)
	}
}

// pass notes what was live at the samples before a moment.
func (a *account) pass(atNs int64) {
	for ; a.next < len(a.samples) && a.samples[a.next].AtNs < atNs; a.next++ {
		a.tracked, a.pooled = append(a.tracked, a.live), append(a.pooled, a.pool)
	}
}

// making is the growth of a process that contexts and code explain, and from how many pairs of samples that is known.
type making struct {
	bytes, steps int64
	fromStart    bool // the first context was made in the recording
}

// making adds up by how much the driver's count grew beyond what was allocated, between samples around calls that make a
// context or load code. Where pools were used in between it is not known whose the growth is.
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
			grown := units.RoundInt(a.samples[i].Value) - units.RoundInt(a.samples[i-1].Value) - (a.tracked[i] - a.tracked[i-1])
			add(a.samples[i-1].AtNs, a.samples[i].AtNs, grown)
		}
	}
	rest := units.RoundInt(a.samples[a.chosen].Value) - a.tracked[a.chosen]
	m.bytes = max(0, min(m.bytes, rest)) // what was given back since is not there any more
	return m
}

// unusedInPools is what pools of the process held and did not use when the program last asked until a moment.
func (c *reconciliation) unusedInPools(a *account, untilNs int64) (bytes, atNs int64, ok bool) {
	for key, p := range c.t.Pools(query.Window{FromNs: c.t.Recording().FromNs, ToNs: untilNs}, &query.Filter{Pids: []int32{a.Pid}, Devices: []int32{a.ordinal}}) {
		if key.Pid == a.Pid && p.Reserved >= 0 && p.Used >= 0 {
			bytes += max(0, p.Reserved-p.Used)
			atNs, ok = max(atNs, p.AtNs), true
		}
	}
	return bytes, atNs, ok
}
