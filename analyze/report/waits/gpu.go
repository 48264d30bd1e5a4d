package waits

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/symbolize"
)

// maxGPUWaits bounds the waits whose operations are found. Later waits have none.
const maxGPUWaits = 1 << 18

// gpuWait is a wait for a stream or a context, with the last kernel before it.
type gpuWait struct {
	startNs, endNs int64
	site           waitSite
	thread         origin.Thread
	operation      lastOperation
	callNs         int64             // start of the call of the operation; 0: none was queued since the wait before
	nameNs         int64             // probable busy time by that operation alone
	busy           activity.Interval // time in which the operation still ran or waited in the queue, ns
}

// lastOperation identifies an operation by its kind and label.
type lastOperation struct {
	label int32
	op    activity.Op
}

// waitQueue identifies the operations that a wait waits for: those of a stream, or of all streams on a device.
type waitQueue struct {
	stream      int64 // 0 for the default streams
	pid, device int32
	all         bool // all streams of the device
}

// gpuWaits finds the operations that waits waited for.
type gpuWaits struct {
	maxCalls int64 // query.Options.MaxTimedCalls
	activity *activity.Activity
	queues   map[waitQueue][]*gpuWait // in order of start
	count    int
}

// add notes a wait that returned. Waits for events are left out.
func (g *gpuWaits) add(c *calls.Call, name string) {
	queue := waitQueue{stream: c.Stream, pid: c.Pid, device: c.Device}
	switch {
	case !c.HasDuration() || g.count >= maxGPUWaits:
		return
	case waitTargetKind(name) == "context":
		queue.all, queue.stream = true, 0
	case waitTargetKind(name) != "stream":
		return
	}
	g.count++
	g.queues[queue] = append(g.queues[queue], &gpuWait{
		startNs: c.StartNs, endNs: c.EndNs, site: waitSite{c.Name, c.Site}, thread: c.Thread(),
	})
}

// read finds the operations of the waits. With more calls than maxCalls, it finds those of the first waits.
func (g *gpuWaits) read(t *timeline.Timeline, sc *Scan) (err error) {
	if g.activity, err = activity.OfPart(t, sc.Window, g.maxCalls); err != nil {
		return err
	}
	return g.activity.EachOperation(func(w *activity.Operation) {
		if w.Call.Op == activity.OpRecordEvent { // of little time, after the operation that matters
			return
		}
		stream := activity.RecordedHandle(w.Call.Stream)
		g.addOperation(w, g.firstWait(waitQueue{stream: stream, pid: w.Call.Pid, device: w.Call.Device}, w),
			g.firstWait(waitQueue{pid: w.Call.Pid, device: w.Call.Device, all: true}, w))
	})
}

// firstWait returns the first wait of a queue after the call of an operation, or nil. Later waits find it done.
func (g *gpuWaits) firstWait(queue waitQueue, w *activity.Operation) *gpuWait {
	list := g.queues[queue]
	at, _ := slices.BinarySearchFunc(list, w.Call.StartNs, func(a *gpuWait, ns int64) int {
		return cmp.Compare(a.startNs, ns)
	})
	if at == len(list) {
		return nil
	}
	return list[at]
}

// addOperation adds an operation to the first wait for its stream, and to the first wait for its device. If one of them
// returned before the other began, the operation was done by then.
func (g *gpuWaits) addOperation(w *activity.Operation, stream, device *gpuWait) {
	end, quality := w.ProbableEnd()
	for _, waits := range [2][2]*gpuWait{{stream, device}, {device, stream}} {
		wait, other := waits[0], waits[1]
		if wait == nil || other != nil && other.endNs <= wait.startNs {
			continue
		}
		if quality == activity.Unknown {
			end = activity.Interval{LoNs: w.Call.StartNs, HiNs: wait.endNs}
		}
		wait.noteOperation(w, activity.Interval{LoNs: wait.clip(end.LoNs), HiNs: wait.clip(end.HiNs)})
	}
}

// noteOperation notes an operation that ends after a part of the wait. The wait ends after all operations. It is named
// after the kernel that ends last, and after another operation only without a kernel.
func (w *gpuWait) noteOperation(operation *activity.Operation, busy activity.Interval) {
	op := operation.Call.Op
	isKernel, hasKernel := isKernelOp(op), w.callNs != 0 && isKernelOp(w.operation.op)
	endNs := busy.MiddleNs()
	endsLast := endNs > w.nameNs || endNs == w.nameNs && operation.Call.StartNs > w.callNs
	if w.callNs == 0 || isKernel && !hasKernel || isKernel == hasKernel && endsLast {
		w.callNs, w.operation, w.nameNs = operation.Call.StartNs, lastOperation{operation.Call.Label, op}, endNs
	}
	w.busy = activity.Interval{LoNs: max(w.busy.LoNs, busy.LoNs), HiNs: max(w.busy.HiNs, busy.HiNs)}
}

// isKernelOp reports whether an operation is a kernel or a graph.
func isKernelOp(op activity.Op) bool { return op == activity.OpKernel || op == activity.OpGraph }

// clip returns how long the wait had lasted at ns.
func (w *gpuWait) clip(ns int64) int64 { return max(0, min(ns, w.endNs)-w.startNs) }

// gpuSums sums up waits.
type gpuSums struct {
	waits  int64 // waits with a known operation
	busy   activity.Interval
	waitNs map[lastOperation]int64 // time waited by operation
}

// sumWaits returns the sums of the waits by call site.
func (g *gpuWaits) sumWaits() map[waitSite]*gpuSums {
	sums := make(map[waitSite]*gpuSums)
	for _, list := range g.queues {
		for _, w := range list {
			if w.callNs == 0 {
				continue
			}
			s := sums[w.site]
			if s == nil {
				s = &gpuSums{waitNs: make(map[lastOperation]int64)}
				sums[w.site] = s
			}
			s.waits++
			s.busy.LoNs += w.busy.LoNs
			s.busy.HiNs += w.busy.HiNs
			s.waitNs[w.operation] += w.endNs - w.startNs
		}
	}
	return sums
}

// find returns the wait of a call, or nil.
func (g *gpuWaits) find(c *calls.Call, name string) *gpuWait {
	queue := waitQueue{stream: c.Stream, pid: c.Pid, device: c.Device}
	if waitTargetKind(name) == "context" {
		queue.all, queue.stream = true, 0
	}
	list := g.queues[queue]
	at, _ := slices.BinarySearchFunc(
		list,
		c.StartNs,
		func(a *gpuWait, ns int64) int { return cmp.Compare(a.startNs, ns) },
	)
	for _, w := range list[at:] {
		if w.startNs > c.StartNs {
			return nil
		}
		if w.thread == c.Thread() && w.callNs != 0 {
			return w
		}
	}
	return nil
}

// nameOf returns the name of an operation.
func (g *gpuWaits) nameOf(w lastOperation) string {
	if w.op != activity.OpKernel && w.op != activity.OpGraph {
		return w.op.String()
	}
	if w.label < 0 {
		return catalog.UnknownKernelName
	}
	l := &g.activity.Labels[w.label]
	if w.op == activity.OpGraph {
		return fmt.Sprintf("graph 0x%x", uint64(l.Graph))
	}
	return cmp.Or(symbolize.ShortKernel(l.Kernel), catalog.UnknownKernelName)
}

// mainOperation returns the name of the operation for which the waits waited longest, and the number of other names.
func (g *gpuWaits) mainOperation(s *gpuSums) string {
	byName := make(map[string]int64)
	for w, ns := range s.waitNs {
		byName[g.nameOf(w)] += ns
	}
	best := ""
	for name, ns := range byName {
		if best == "" || ns > byName[best] || ns == byName[best] && name < best {
			best = name
		}
	}
	if len(byName) == 1 {
		return best
	}
	return fmt.Sprintf("%s and %d more", best, len(byName)-1)
}
