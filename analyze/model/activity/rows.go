package activity

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Label is a kernel with a grid, a graph, or a size of copies and fills. A kernel that several call sites
// launch has a label for each, because their data differ.
type Label struct {
	Kernel string
	Grid   [3]int32
	Site   string // call site of kernels and graphs; "" for call sites that share a label
	Graph  int64  // handle of the graph; else 0
	// Bytes is the size of copies and fills, rounded down to three binary digits; else 0.
	Bytes int64
}

// labelTable numbers labels.
type labelTable struct {
	mu      sync.Mutex
	list    []Label
	numbers map[labelID]int32
	kernels origin.StringNumbers
	sites   origin.StringNumbers
	bySite  int32           // labels with a call site
	siteOf  map[int32]int32 // number of the call site plus 1, by stack
}

type labelID struct {
	kernel int32
	grid   [3]int32
	site   int32 // number of the call site plus 1; 0: any
	graph  int64
	bytes  int64
	pid    int32 // of a graph
}

// maxListedLabels bounds the labels. Further grids of a kernel share one label. maxSiteLabels bounds the
// labels with a call site. Further call sites share the label of the kernel and grid.
const maxListedLabels, maxSiteLabels = 1 << 16, maxLabels / 2

func (l *labelTable) numberOf(id labelID) int32 {
	n, ok := l.numbers[id]
	if ok {
		return n
	}
	if l.numbers == nil {
		l.numbers = make(map[labelID]int32)
	}
	if id.site != 0 {
		if l.bySite >= maxSiteLabels {
			id.site = 0
			return l.numberOf(id)
		}
		l.bySite++
	}
	if len(l.list) >= maxListedLabels {
		if id.grid == [3]int32{-1} {
			return -1
		}
		return l.numberOf(labelID{kernel: id.kernel, grid: [3]int32{-1}})
	}
	n = int32(len(l.list))
	l.numbers[id] = n
	site := ""
	if id.site > 0 {
		site = l.sites.List[id.site-1]
	}
	l.list = append(l.list, Label{l.kernels.List[id.kernel], id.grid, site, id.graph, id.bytes})
	return n
}

// networkKernels begin the names of kernels that run operations of NCCL, and of RCCL.
var networkKernels = [...]string{"nccl", "rccl", "mscclKernel"}

// IsNetworkKernel reports whether a kernel runs an operation of NCCL or RCCL, by its name.
func IsNetworkKernel(name string) bool {
	return slices.ContainsFunc(networkKernels[:], func(p string) bool { return strings.HasPrefix(name, p) })
}

// isNetwork reports whether a label is that of such a kernel. The label of too many kernels is none.
func (l *labelTable) isNetwork(label int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return label >= 0 && IsNetworkKernel(l.list[label].Kernel)
}

// siteNumber returns the number of the call site of a stack plus 1.
func (l *labelTable) siteNumber(t *timeline.Timeline, stack int32) int32 {
	if n := l.siteOf[stack]; n != 0 {
		return n
	}
	if l.siteOf == nil {
		l.siteOf = make(map[int32]int32)
	}
	n := l.sites.NumberOf(t.SiteOfStack(stack)) + 1
	l.siteOf[stack] = n
	return n
}

// recentLabel is an entry of callRows.recent.
type recentLabel struct {
	kernel, stack int32
	grid          [3]int32
	number        int32
	known         bool
}

// callRows reads the calls with an effect on channels from row groups. It is not safe for
// concurrent use.
type callRows struct {
	t      *timeline.Timeline
	labels *labelTable
	timing *eventTiming
	// contexts are those of processes with one context, by pid.
	contexts map[int32]int64
	peers    timeline.PeerCopies

	kind, name, kernel, copyKind    format.Strings
	start, dur, context, stream     []int64
	ptr, src, parent, bytes         []int64
	pid, tid, device, result, flags []int32
	stack                           []int32
	grid                            [3][]int32
	ops                             []functionOp         // by name and copy_kind
	isContextArgument               []bool               // by name: ptr is the context
	recent                          [1 << 12]recentLabel // cache of labels, by a hash
	sizes                           map[int64]int32      // cache of labels of sizes
}

// readGroup returns the calls of a row group in the order of their start.
func (r *callRows) readGroup(g *format.Group, calls []Call) ([]Call, error) {
	r.kind, r.name = g.StringsInto("kind", r.kind), g.StringsInto("name", r.name)
	r.copyKind = g.StringsInto("copy_kind", r.copyKind)
	if !r.findOps() {
		return calls, g.Err()
	}
	r.kernel = g.StringsInto("kernel", r.kernel)
	r.start, r.dur = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur)
	r.context, r.stream = g.Int64("context", r.context), g.Int64("stream", r.stream)
	r.ptr, r.parent = g.Int64("ptr", r.ptr), r.t.DriverParents(g.Int64("parent_start_ns", r.parent))
	r.src = g.Int64("src_ptr", r.src)
	r.pid, r.tid, r.device = g.Int32("pid", r.pid), g.Int32("tid", r.tid), g.Int32("device", r.device)
	r.result, r.flags = g.Int32("result", r.result), g.Int32("flags", r.flags)
	r.bytes, r.stack = g.Int64("bytes", r.bytes), g.Int32("stack_id", r.stack)
	for i, axis := range []string{"x", "y", "z"} {
		r.grid[i] = g.Int32("grid_"+axis, r.grid[i])
	}
	if g.Err() != nil {
		return calls, g.Err()
	}
	calls = slices.Grow(calls, r.countKnown())
	r.labels.mu.Lock() // replays of several goroutines share the labels
	defer r.labels.mu.Unlock()
	kernels := r.labels.kernels.NumbersOf(r.kernel.Dict)
	for i := range r.start {
		op := r.ops[r.opIndex(i)]
		if !op.known || r.parent[i] != 0 || r.result[i] != 0 ||
			r.flags[i]&(format.FlagCaptured|format.FlagAbandoned) != 0 || op.op == OpCopyOnDevice && r.isPeerCopy(i) {
			continue
		}
		calls = calls[:len(calls)+1]
		r.setCall(&calls[len(calls)-1], i, op, kernels)
	}
	timeline.SortNearlySorted(calls, (*Call).startsBefore)
	return calls, nil
}

// isPeerCopy reports whether row i is a copy between two devices. It is on the channel of a copy engine, which
// is unknown.
func (r *callRows) isPeerCopy(i int) bool { return r.peers.Has(r.pid[i], r.ptr[i], r.src[i]) }

// findOps sets ops. It reports whether the row group has a known function.
func (r *callRows) findOps() (any bool) {
	kinds := len(r.kind.Dict) * len(r.copyKind.Dict)
	r.ops = slices.Grow(r.ops[:0], len(r.name.Dict)*kinds)[:len(r.name.Dict)*kinds]
	r.isContextArgument = r.isContextArgument[:0]
	for n, name := range r.name.Dict {
		for k, kind := range r.kind.Dict {
			for c, copyKind := range r.copyKind.Dict {
				op := opOf(kind, name, copyKind)
				r.ops[(n*len(r.kind.Dict)+k)*len(r.copyKind.Dict)+c] = op
				any = any || op.known
			}
		}
		base := catalog.BaseFunctionName(name)
		r.isContextArgument = append(r.isContextArgument, base == "cuCtxSynchronize_v2" || base == "cuCtxDestroy" ||
			base == "cuCtxDestroy_v2")
	}
	return any
}

// countKnown returns the number of rows with a known function.
func (r *callRows) countKnown() (n int) {
	for i := range r.start {
		if r.ops[r.opIndex(i)].known {
			n++
		}
	}
	return n
}

func (r *callRows) opIndex(i int) int {
	return (int(r.name.Index[i])*len(r.kind.Dict)+int(r.kind.Index[i]))*len(r.copyKind.Dict) + int(r.copyKind.Index[i])
}

// setCall sets the call of row i.
func (r *callRows) setCall(c *Call, i int, op functionOp, kernels []int32) {
	*c = Call{
		StartNs: r.start[i],
		EndNs:   units.EndOfRange(r.start[i], r.dur[i]),
		Context: r.context[i],
		Stream:  r.stream[i],
		Event:   r.ptr[i],
		Pid:     r.pid[i],
		Tid:     r.tid[i],
		Label:   -1,
		Op:      op.op,
		Hold:    op.hold,
		Waits:   op.waits,
		Stack:   r.stack[i],

		StartsEarly: r.flags[i]&format.FlagEarlyStart != 0,
		Device:      r.t.DeviceOfCall(r.pid[i], r.context[i], r.device[i]),
	}
	if r.flags[i]&timeline.NoResultFlags != 0 {
		c.EndNs = UnknownNs
	}
	if c.Context == 0 {
		c.Context = r.contexts[c.Pid]
	}
	if c.Stream == 0 {
		c.Stream = LegacyStream
		if r.flags[i]&format.FlagPerThreadStream != 0 {
			c.Stream = PerThreadStream
		}
	}
	if r.isContextArgument[r.name.Index[i]] && r.ptr[i] != 0 {
		c.Context = r.ptr[i]
	}
	switch c.Op {
	case OpRecordEvent:
		r.timing.setOp(c)
	case OpKernel:
		grid := [3]int32{r.grid[0][i], r.grid[1][i], r.grid[2][i]}
		c.Label = r.kernelLabel(kernels[r.kernel.Index[i]], grid, c.Stack)
		c.Blocks = int64(grid[0]) * int64(grid[1]) * int64(grid[2])
	case OpFill, OpCopyOnDevice, OpCopyToDevice, OpCopyToHost:
		c.Label = r.sizeLabel(RoundSize(r.bytes[i]))
		if c.Op == OpCopyToDevice {
			c.Place = placeOf(r.bytes[i])
		}
	case OpGraph:
		c.Label = r.labels.numberOf(labelID{
			kernel: r.labels.kernels.NumberOf(""), graph: r.ptr[i], pid: c.Pid,
			site: r.labels.siteNumber(r.t, c.Stack),
		})
	}
}

// sizeLabel returns the number of a size of copies and fills.
func (r *callRows) sizeLabel(bytes int64) int32 {
	n, ok := r.sizes[bytes]
	if !ok {
		n = r.labels.numberOf(labelID{kernel: r.labels.kernels.NumberOf(""), bytes: bytes})
		if r.sizes == nil {
			r.sizes = make(map[int64]int32)
		}
		r.sizes[bytes] = n
	}
	return n
}

// kernelLabel returns the number of a kernel with a grid that a stack launches. Most launches repeat recent
// ones.
func (r *callRows) kernelLabel(kernel int32, grid [3]int32, stack int32) int32 {
	mixed := uint32(kernel)*0x9e3779b1 ^ uint32(grid[0]+grid[1]<<8+grid[2]<<16)*0x85ebca6b ^ uint32(stack)*0xc2b2ae35
	recent := &r.recent[mixed>>20]
	if !recent.known || recent.kernel != kernel || recent.grid != grid || recent.stack != stack {
		id := labelID{kernel: kernel, grid: grid, site: r.labels.siteNumber(r.t, stack)}
		*recent = recentLabel{kernel, stack, grid, r.labels.numberOf(id), true}
	}
	return recent.number
}

// RoundSize rounds a size down to three binary digits, so that few labels have all sizes.
func RoundSize(bytes int64) int64 {
	shift := max(0, bits.Len64(uint64(max(0, bytes)))-3)
	return max(0, bytes) >> shift << shift
}

func (c *Call) startsBefore(o *Call) bool {
	if c.StartNs != o.StartNs {
		return c.StartNs < o.StartNs
	}
	return cmp.Or(cmp.Compare(c.Pid, o.Pid), cmp.Compare(c.Tid, o.Tid), cmp.Compare(c.EndNs, o.EndNs)) < 0
}
