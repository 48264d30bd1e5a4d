package memory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
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

var ReconcileColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "recorded process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "GPU, as NVML counts; paired with the process's ordinal by UUID"},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of tracked memory"},
	{Key: "library", Title: "LIBRARY", Unit: report.UnitText, About: "who asked for it"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share in what the driver counts"},
	{Key: "part", Title: "PART", Unit: report.UnitText, About: "nvml: what the driver counts for the process; tracked: memory that calls allocated and did not free until that sample; context and modules; not attributed: the rest; unused in pools is part of the rest and known only as of when the program asked"},
}

// table has the parts of each account.
func (c *reconciliation) table() report.Table {
	table := report.Table{Name: "reconcile", Title: "what the driver counts for each process, and what that is", Columns: ReconcileColumns, Spare: []string{"share_pct", "memory_kind"}}
	for _, a := range c.accounts {
		nvml := units.RoundInt(a.samples[a.chosen].Value)
		row := func(part string, memory, library any, bytes int64, evidence string) {
			table.Add(report.Values{
				"pid":         int64(a.Pid),
				"device":      c.t.DeviceLabel(a.Device),
				"memory_kind": memory,
				"library":     library,
				"bytes":       bytes,
				"share_pct":   units.Percent(bytes, nvml),
				"part":        part,
			}).Evidence = evidence
		}
		at := a.samples[a.chosen].AtNs
		row("nvml", nil, nil, nvml, fmt.Sprintf("NVML's sample at %s, nearest to the moment (%s)", units.Duration(at-c.t.Recording().FromNs), units.Duration(at-c.atNs)))
		for _, place := range slices.SortedFunc(maps.Keys(a.held), func(x, y libraryPlace) int {
			return cmp.Or(cmp.Compare(a.held[y], a.held[x]), strings.Compare(x.memory, y.memory), strings.Compare(x.library, y.library))
		}) {
			if a.held[place] != 0 {
				row("tracked", place.memory, place.library, a.held[place], trackedEvidence(place.memory))
			}
		}
		m := a.making()
		if m.bytes > 0 {
			row("context and modules", nil, nil, m.bytes, m.String())
		}
		rest := nvml - a.tracked[a.chosen] - m.bytes
		row("not attributed", nil, nil, rest, restEvidence(rest, m))
		if unused, askedNs, ok := c.unusedInPools(a, at); ok {
			row("unused in pools", format.MemoryAsync, nil, unused, fmt.Sprintf("part of what is not attributed: reserved minus used, as the program asked at %s", units.Duration(askedNs-c.t.Recording().FromNs)))
		}
	}
	processespkg.AddRanks(c.t, &table)
	return table
}

func trackedEvidence(memory string) string {
	switch memory {
	case format.MemoryManaged:
		return "calls; at most that: its pages may lie in the host's memory"
	case format.MemoryAsync:
		return "calls; it lies in pools, which hold more than that"
	case format.MemoryPhysical:
		return "calls: handles of cuMemCreate that are not released, or mapped"
	}
	return ""
}

func (m making) String() string {
	text := fmt.Sprintf("growth of the driver's count beyond allocations, in %s with calls that make contexts or load code in between", units.Plural(m.steps, "pair")+" of samples")
	if m.fromStart {
		return text + "; the first context was made in the recording"
	}
	return text + "; the context was made before the recording"
}

func restEvidence(rest int64, m making) string {
	switch {
	case rest == 0:
		return ""
	case rest < 0:
		return "more was allocated than the driver counts: managed memory in the host, or a sample that is older than the last allocations"
	case !m.fromStart:
		return "the context, and what was loaded and allocated before the recording, are in it; also rounding to pages and unused memory of pools"
	}
	return "rounding of allocations to pages, unused memory of pools, and what the driver allocates for itself"
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

func (c *reconciliation) totals() []report.Fact {
	var nvml, rest int64
	for _, a := range c.accounts {
		used := units.RoundInt(a.samples[a.chosen].Value)
		nvml += used
		rest += used - a.tracked[a.chosen] - a.making().bytes
	}
	if len(c.accounts) == 0 {
		return report.Facts(reconcileTotalColumns, report.Values{
			"nvml_process_bytes":   nil,
			"attributed_pct":       nil,
			"not_attributed_bytes": nil,
		})
	}
	return report.Facts(reconcileTotalColumns, report.Values{
		"nvml_process_bytes":   nvml,
		"attributed_pct":       100 - units.Percent(max(rest, -rest), nvml),
		"not_attributed_bytes": rest,
	})
}

var DeviceMemoryColumns = []report.Column{
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "GPU, as NVML counts"},
	{Key: "part", Title: "PART", Unit: report.UnitText, About: "total, used and reserved (the driver's and the firmware's own, not in used) of the device; process: recorded or another one; rest: used, but of no process that the driver tells"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes, by NVML's sample nearest to the moment; of processes nearest to that of the device"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when that sample was taken, from the recording's start"},
}

// momentOf is the moment for a device: that of the sample of a process on it, for that is asked for less often.
func (c *reconciliation) momentOf(device int32) int64 {
	for _, a := range c.accounts {
		if a.Device == device {
			return a.samples[a.chosen].AtNs
		}
	}
	return c.atNs
}

// deviceTable has what NVML says of each device at the moment: the processes on it, recorded or not.
func (c *reconciliation) deviceTable() report.Table {
	table := report.Table{Name: "devices", Title: "memory of the devices, as the driver counts it", Columns: DeviceMemoryColumns, Aside: true, Spare: []string{"at_ns"}}
	f := &c.t.Facts
	for _, device := range slices.Sorted(maps.Keys(f.Devices)) {
		used, ok := f.Nearest(catalog.MetricMemoryUsed, device, c.momentOf(device))
		if !ok || len(c.filter.Devices) > 0 && !slices.Contains(c.filter.Devices, device) {
			continue
		}
		c.addDevice(&table, device, used)
	}
	processespkg.AddRanks(c.t, &table)
	return table
}

// addDevice adds the rows of a device; used is the sample of its used memory.
func (c *reconciliation) addDevice(table *report.Table, device int32, used timeline.Sample) {
	f := &c.t.Facts
	label, start := c.t.DeviceLabel(device), c.t.Recording().FromNs
	add := func(part string, bytes, atNs int64, pid, process, recorded any) {
		table.Add(report.Values{
			"device":   label,
			"part":     part,
			"pid":      pid,
			"process":  process,
			"recorded": recorded,
			"bytes":    bytes,
			"at_ns":    atNs - start,
		})
	}
	addSample := func(part string, s timeline.Sample) { add(part, units.RoundInt(s.Value), s.AtNs, nil, nil, nil) }
	if s, ok := f.Nearest(catalog.MetricMemoryTotal, device, used.AtNs); ok {
		addSample("total", s)
	}
	addSample("used", used)
	if s, ok := f.Nearest(catalog.MetricReserved, device, used.AtNs); ok {
		addSample("reserved", s)
	}
	rest := units.RoundInt(used.Value)
	processes := f.ProcessesAt(device, used.AtNs)
	for _, s := range processes {
		name, isRecorded := c.t.ProcessName(s.Pid)
		recorded := "no"
		if isRecorded {
			recorded = "yes"
		}
		bytes := units.RoundInt(s.Value)
		rest -= bytes
		add("process", bytes, s.AtNs, int64(s.Pid), units.Known(name), recorded)
	}
	if len(processes) > 0 {
		add("rest", rest, used.AtNs, nil, nil, nil)
	}
}
