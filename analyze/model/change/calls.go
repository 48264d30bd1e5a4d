package change

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Calls has the launches of each process over time, and what a process did for the first time when.
type Calls struct {
	*Counts
	Seen *query.SeenCallers
	// Kernels, Stacks and Threads have the time of the first call, Unix ns.
	Kernels map[KernelOf]int64
	Stacks  map[StackOf]int64
	Threads map[origin.Thread]int64

	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	launches map[[2]int32]*Launches // by process and device

	kind, kernel                   format.Strings
	start, context, stream, parent []int64
	pid, tid, device, stack, flags []int32
	// kernelFirst has the first launches of a process in the current row group, by entry of the dictionary.
	kernelFirst    []int64
	kernelFirstPid int32
	lastLaunches   *Launches
	lastThread     firstCall[origin.Thread]
	recentStacks   [256]firstCall[StackOf] // by the low bits of the stack
}

// KernelOf is a kernel of a process.
type KernelOf struct {
	Pid  int32
	Name string
}

// StackOf is a call stack of a process.
type StackOf struct{ Pid, Stack int32 }

// firstCall is a key whose first call is noted.
type firstCall[K comparable] struct {
	key K
	ns  int64
}

// launchParts is the number of parts of the window in which launches are counted.
const launchParts = 1024

// maxFirstCalls bounds the kernels and stacks with a known first call.
const maxFirstCalls = 1 << 18

// ReadCalls reads the calls of a recording that pass a filter. It returns errors of reading the recording.
func ReadCalls(t *timeline.Timeline, f *query.Filter) (*Calls, error) {
	c := NewCalls(t, f)
	for _, span := range slices.Concat(t.Calls, t.Memory) {
		if err := c.AddGroup(span.Group); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	return c, nil
}

// NewCalls returns empty Calls. AddGroup adds the calls of a row group.
func NewCalls(t *timeline.Timeline, f *query.Filter) *Calls {
	w := f.NarrowWindow(t.RecordingWindow())
	return &Calls{
		Counts: NewCounts(w, launchParts), Seen: query.NewSeenCallers(), t: t, filter: f, window: w,
		Kernels: make(map[KernelOf]int64), Stacks: make(map[StackOf]int64), Threads: make(map[origin.Thread]int64),
		launches: make(map[[2]int32]*Launches),
	}
}

// List returns the launches by process and device.
func (c *Calls) List() (list []Launches) {
	for _, l := range c.launches {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Launches) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}

// AddGroup adds the calls of a row group that pass the filter. Row groups may come in any order. It returns errors
// of reading the group.
func (c *Calls) AddGroup(g *format.Group) error {
	c.kind, c.kernel = g.StringsInto("kind", c.kind), g.StringsInto("kernel", c.kernel)
	c.start, c.parent = g.Int64("start_ns", c.start), c.t.DriverParents(g.Int64("parent_start_ns", c.parent))
	c.context, c.stream = g.Int64("context", c.context), g.Int64("stream", c.stream)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.stack, c.flags = g.Int32("stack_id", c.stack), g.Int32("flags", c.flags)
	if err := g.Err(); err != nil {
		return err
	}
	isLaunch := make([]bool, len(c.kind.Dict))
	for i, kind := range c.kind.Dict {
		isLaunch[i] = kind == format.KindLaunch
	}
	c.kernelFirst = make([]int64, len(c.kernel.Dict))
	for i, start := range c.start {
		if start < c.window.FromNs || start > c.window.ToNs || c.parent[i] != 0 {
			continue
		}
		device := c.t.DeviceOfCall(c.pid[i], c.context[i], c.device[i])
		if c.filter.SelectsCallers() {
			c.Seen.AddCaller(c.pid[i], c.tid[i], device, c.stream[i])
			if !c.filter.PassesCaller(c.pid[i], c.tid[i], device, c.stream[i]) {
				continue
			}
		}
		c.addCaller(i, start)
		if isLaunch[c.kind.Index[i]] && c.flags[i]&format.FlagCaptured == 0 {
			c.addLaunch(i, start, device)
		}
	}
	return nil
}

// addCaller notes the first call of a thread and of a stack.
func (c *Calls) addCaller(i int, start int64) {
	c.lastThread.note(c.Threads, origin.Thread{Pid: c.pid[i], Tid: c.tid[i]}, start)
	if stack := c.stack[i]; stack != 0 {
		c.recentStacks[stack&255].note(c.Stacks, StackOf{c.pid[i], stack}, start)
	}
}

// note notes a call of a key. Most calls have the key of the call before.
func (f *firstCall[K]) note(times map[K]int64, key K, ns int64) {
	if f.key == key && f.ns != 0 && f.ns <= ns {
		return
	}
	setFirst(times, key, ns)
	f.key, f.ns = key, times[key]
}

// addLaunch counts a launch.
func (c *Calls) addLaunch(i int, start int64, device int32) {
	pid := c.pid[i]
	c.Counts.Add(pid, start)
	l := c.lastLaunches
	if l == nil || pid != l.Pid || device != l.Device {
		if l = c.launches[[2]int32{pid, device}]; l == nil {
			l = &Launches{Pid: pid, Device: device, FirstNs: start, LastNs: start}
			c.launches[[2]int32{pid, device}] = l
		}
		c.lastLaunches = l
	}
	l.FirstNs, l.LastNs = min(l.FirstNs, start), max(l.LastNs, start)
	if pid != c.kernelFirstPid {
		clear(c.kernelFirst)
		c.kernelFirstPid = pid
	}
	k := c.kernel.Index[i]
	if first := c.kernelFirst[k]; first == 0 || start < first {
		c.kernelFirst[k] = start
		if name := c.kernel.Dict[k]; name != "" {
			setFirst(c.Kernels, KernelOf{pid, name}, start)
		}
	}
}

// setFirst sets the time of a key if it is earlier than the known one.
func setFirst[K comparable](times map[K]int64, key K, ns int64) {
	known, ok := times[key]
	if ok && known <= ns || !ok && len(times) >= maxFirstCalls {
		return
	}
	times[key] = ns
}
