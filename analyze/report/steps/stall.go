package steps

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
)

// stalls finds the GPU operation that was running while the host waited in a slow step. The recorder reads
// the counter of a channel all the time. So the start of that operation is known, and the next known start
// is much later. This is an estimate: the recorder may have read no counter for a while.
type stalls struct {
	last, measured map[int32]*startedOperation // latest operations with a known and with a measured start, by channel
}

// startedOperation is the latest operation of a channel with a known start.
type startedOperation struct {
	slowOperation
	owner *processScan
	// next are the operations after it without a known start, and calledNs the latest return of their calls.
	next     [maxNext]gpuKey
	count    int
	calledNs int64
}

// maxNext bounds the operations without a known start after an operation with an estimated duration.
const maxNext = 6

// addNext adds an operation without a known start, or the call of the next operation with one.
func (w *startedOperation) addNext(next *activity.Operation) {
	const unknownReturnNs = 20_000
	if w.count < maxNext {
		w.next[w.count] = gpuKey{next.Call.Op, next.Call.Label}
	}
	w.count++
	calledNs := next.Call.EndNs
	if calledNs == activity.UnknownNs {
		calledNs = next.Call.StartNs + unknownReturnNs
	}
	w.calledNs = max(w.calledNs, calledNs)
}

// estimate adds the operation to those with the longest durations, if only its end is unknown: the operations
// after it were in the queue, and too short for a sample of their start.
func (w *startedOperation) estimate(toNs int64) {
	const submitNs = 20_000
	fromNs := max(w.fromNs, w.calledNs+submitNs)
	if w.count < 2 || w.count > maxNext || toNs <= fromNs {
		return
	}
	e := w.slowOperation
	e.toNs, e.atLeastNs, e.next, e.nextCount = toNs, toNs-fromNs, w.next, w.count-1
	if k := w.owner.gpu.operations[w.key]; k != nil {
		k.addLongest(e)
	}
}

// add adds an operation in a step. Operations of a channel must come in the order of their calls.
func (st *stalls) add(s *processScan, w *activity.Operation, step int) {
	const maxWidthNs = 2_000_000
	if w.Call.Op == activity.OpCopyToDevice || w.Call.Op == activity.OpCopyToHost {
		return // nothing shows when a copy ended: the next one may begin much later
	}
	if st.last == nil {
		st.last, st.measured = make(map[int32]*startedOperation), make(map[int32]*startedOperation)
	}
	started := startedOperation{owner: s, slowOperation: slowOperation{
		key: gpuKey{w.Call.Op, w.Call.Label}, step: step, stack: w.Call.Stack, fromNs: w.Start.HiNs,
	}}
	measured := st.measured[w.Channel]
	if measured != nil {
		measured.addNext(w)
	}
	if w.StartQuality == activity.Measured {
		if measured != nil {
			measured.estimate(w.Start.LoNs)
			*measured = started
		} else {
			first := started
			st.measured[w.Channel] = &first
		}
	}
	if w.StartQuality < activity.Estimated || w.Start.WidthNs() > maxWidthNs {
		return
	}
	last := st.last[w.Channel]
	if last == nil {
		st.last[w.Channel] = &started
		return
	}
	toNs := w.Start.LoNs
	if w.Call.StartNs >= s.Steps[last.step].EndNs {
		toNs = min(toNs, s.Steps[last.step].EndNs)
	}
	last.end(toNs)
	*last = started
}

// finish ends the last operation of each channel with its step.
func (st *stalls) finish() {
	for _, w := range st.last {
		w.end(w.owner.Steps[w.step].EndNs)
	}
}

// end gives an operation to the outlier that launched it, if no other operation of it took as long.
func (w *startedOperation) end(toNs int64) {
	o := w.owner.outlierOf[w.step]
	if o == nil {
		return
	}
	w.toNs, w.atLeastNs = toNs, toNs-w.fromNs
	if o.stall == nil || o.stall.isShorter(w.slowOperation) {
		stall := w.slowOperation
		o.stall = &stall
	}
}

// explainByStall returns the operation that the GPU stayed in while the host waited, if it explains half of
// the extra time.
func (sc *scan) explainByStall(s *processScan, o *outlier, excessNs int64) (finding, bool) {
	if o.stall == nil {
		return finding{}, false
	}
	w := o.stall
	w.typicalNs = s.medianNs() // no operation of a typical step takes longer
	if k := s.gpu.operations[w.key]; k != nil {
		if ns, ok := k.typicalNs(sc.activity.MeanOf(s.Pid, w.key.op, w.key.label)); ok {
			w.typicalNs = min(w.typicalNs, ns)
		}
	}
	if w.excessNs() < excessNs/2 {
		return finding{}, false
	}
	return sc.describeKernel(o, w, w.excessNs(), qualityEstimated), true
}
