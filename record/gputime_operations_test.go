//go:build linux && cgo

package record

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/simtest"
)

// operationReview compares the computed times of operations with the ledger. Times are Unix ns on the clock of
// the recording.
type operationReview struct {
	t          *testing.T
	run        *gpuRun
	offsetNs   int64             // recording's clock minus CLOCK_MONOTONIC
	ledgerToNs int64             // recording's clock minus the ledger's CLOCK_REALTIME
	callNs     map[int32][]int64 // starts of calls with operations by thread, CLOCK_MONOTONIC
	operations map[ledgerCallKey][]*simtest.Operation

	result *activity.Result
	counts activity.OperationCounts
	tried  int64 // operations with a channel
	// seen counts operations that began after the recorder had found their channel.
	seen, seenMeasured int64
	launchNs           []int64                 // starts of launches with a channel, Unix ns
	seenCalls          []numberedCall          // of seen
	streamOf           map[ledgerCallKey]int32 // streams of the recorded calls, as indices of result.Streams
	lateNs             int64                   // see lateness
	stalls             []activity.Interval     // see stallsOf
	stalled            int                     // values that miss the truth by a stall
	wrong              []string
	// tornStreams has the streams with an operation on a channel with a torn row. Its time bounds the operations after
	// it on the stream, which may run on other channels.
	tornStreams map[int32]bool
	wrongByTorn int // wrong values of streams in tornStreams
	widthsNs    []int64
}

// ledgerCallKey identifies a call that submitted operations.
type ledgerCallKey struct {
	tid    int32
	callNs int64
}

// reviewOperations computes the activity of a recording of operations, and compares it with the ledger.
func reviewOperations(t *testing.T, run *gpuRun) *operationReview {
	t.Helper()
	clock := run.ledger.Clocks[0]
	offsetNs := run.result.Meta.ClockOffsetNs
	v := &operationReview{
		t: t, run: run, offsetNs: offsetNs,
		ledgerToNs: offsetNs - clock.RealMinusMonotonicNs,
		callNs:     make(map[int32][]int64), operations: make(map[ledgerCallKey][]*simtest.Operation),
		streamOf: make(map[ledgerCallKey]int32), tornStreams: make(map[int32]bool),
	}
	for i := range run.ledger.Operations {
		w := &run.ledger.Operations[i]
		key := ledgerCallKey{w.Tid, w.CallNs}
		if v.operations[key] == nil {
			v.callNs[w.Tid] = append(v.callNs[w.Tid], w.CallNs)
		}
		v.operations[key] = append(v.operations[key], w)
	}
	for _, list := range v.callNs {
		slices.Sort(list)
	}
	v.lateNs = min(v.lateness().seenNs, mostLateNs())
	v.stalls = v.stallsOf(run.ledger.Operations)
	rec, err := format.Open(run.result.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	recording, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	computed, err := activity.Of(recording, query.Window{FromNs: 0, ToNs: activity.UnknownNs})
	if err != nil {
		t.Fatal(err)
	}
	v.result = computed.Result
	if err := computed.EachOperation(v.checkOperation); err != nil {
		t.Fatal(err)
	}
	v.checkBusy()
	v.log()
	return v
}

// kindsOfOps are the kinds of operations in the ledger.
var kindsOfOps = map[activity.Op]string{
	activity.OpKernel: "kernel", activity.OpGraph: "graph", activity.OpFill: "set", activity.OpRecordEvent: "event",
	activity.OpCopyOnDevice: "copy-on-device", activity.OpCopyToDevice: "copy-in", activity.OpCopyToHost: "copy-out",
}

// lastOperationOf returns the last operation of a call in the ledger. Its words are those of the call.
func (review *operationReview) lastOperationOf(w *activity.Operation) *simtest.Operation {
	startNs := w.Call.StartNs - review.offsetNs
	starts := review.callNs[w.Call.Tid]
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > startNs })
	if i == len(starts) || w.Call.EndNs != activity.UnknownNs && starts[i] > w.Call.EndNs-review.offsetNs {
		return nil
	}
	key := ledgerCallKey{w.Call.Tid, starts[i]}
	if _, isMatched := review.streamOf[key]; isMatched {
		return nil
	}
	review.streamOf[key] = w.Stream
	list := review.operations[key]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Kind == kindsOfOps[w.Call.Op] {
			return list[i]
		}
	}
	return nil
}

func (review *operationReview) checkOperation(w *activity.Operation) {
	truth := review.lastOperationOf(w)
	if truth == nil && review.run.stuckNs > 0 && w.Call.StartNs-review.offsetNs > review.run.stuckNs {
		if w.StartQuality >= activity.Bounded && w.Start.LoNs < review.run.result.Meta.EndNs &&
			w.Start.HiNs < activity.UnknownNs {
			review.wrong = append(review.wrong, fmt.Sprintf("%+v waits behind an operation that never ends", w))
		}
		return
	}
	if truth == nil && w.Call.AnyTiming && max(w.StartQuality, w.EndQuality, w.DurationQuality) == activity.Unknown {
		return // the record of an event without timing
	}
	if truth == nil {
		review.wrong = append(review.wrong, fmt.Sprintf("%+v has no call in the ledger", w))
		return
	}
	startNs, endNs := truth.StartNs+review.ledgerToNs, truth.EndNs+review.ledgerToNs
	review.count(w, truth)
	ok := review.isRight(w, truth)
	if whole := review.wholeGraph(w, truth); !ok && whole != nil {
		ok = review.isRight(w, whole)
	}
	if review.run.torn[w.Channel] {
		review.tornStreams[w.Stream] = true
	}
	if !ok && review.tornStreams[w.Stream] {
		review.wrongByTorn++
	} else if !ok {
		review.wrong = append(
			review.wrong,
			fmt.Sprintf("%+v, truth: counter %d, start %+d, end %+d ns", *w, truth.Counter,
				startNs-w.Start.LoNs, endNs-w.End.LoNs),
		)
	}
}

// isRight reports whether all values of an operation agree with the ledger.
func (review *operationReview) isRight(w *activity.Operation, truth *simtest.Operation) bool {
	startNs, endNs := truth.StartNs+review.ledgerToNs, truth.EndNs+review.ledgerToNs
	ok := true
	if w.StartQuality == activity.Measured {
		ok = w.Number == truth.Counter && uint64(review.run.channels[w.Channel].Ptr) == truth.Slot
	}
	var startLateNs, endLateNs int64
	if w.EndQuality >= activity.Bounded {
		endLateNs = review.stalledNs(w.End, endNs)
		ok = ok && review.contains(w.End, endNs+endLateNs)
	}
	if w.StartQuality >= activity.Bounded {
		startLateNs = review.stalledNs(w.Start, startNs)
		ok = ok && review.contains(w.Start, startNs+startLateNs)
	}
	if w.DurationQuality >= activity.Bounded {
		duration := activity.Interval{
			LoNs: w.Duration.LoNs - endLateNs,
			HiNs: w.Duration.HiNs + review.lateNs + startLateNs,
		}
		ok = ok && review.contains(duration, endNs-startNs)
	}
	return ok
}

// wholeGraph returns the launch of a graph with several operations, from the first to the last one; nil: there is
// one operation. The model may have learned their number.
func (review *operationReview) wholeGraph(w *activity.Operation, last *simtest.Operation) *simtest.Operation {
	if w.Call.Op != activity.OpGraph {
		return nil
	}
	for _, first := range review.operations[ledgerCallKey{last.Tid, last.CallNs}] {
		if first.Kind == last.Kind && first != last {
			whole := *last
			whole.StartNs, whole.Counter = first.StartNs, first.Counter
			return &whole
		}
	}
	return nil
}

// contains reports whether an interval contains a time, apart from late words.
func (review *operationReview) contains(i activity.Interval, ns int64) bool {
	return i.LoNs-review.lateNs <= ns && ns <= i.HiNs
}

// stalledNs returns by how much an interval is later than a time, Unix ns, because words were late all the time between
// the two: the recorder saw the old words until then. It is 0 if the interval contains the time, or words were not
// late.
func (review *operationReview) stalledNs(i activity.Interval, ns int64) int64 {
	if review.contains(i, ns) || ns > i.LoNs {
		return 0
	}
	k := sort.Search(len(review.stalls), func(k int) bool { return review.stalls[k].HiNs+review.lateNs >= i.LoNs })
	if k == len(review.stalls) || review.stalls[k].LoNs-review.lateNs > ns {
		return 0
	}
	review.stalled++
	return i.LoNs - ns
}

// stallsOf returns the times in which a word should have been written, and was not yet, in order and without overlaps.
// The thread that plays the GPU had lost its processor.
func (review *operationReview) stallsOf(operations []simtest.Operation) (stalls []activity.Interval) {
	const stallNs = 5000
	var all []activity.Interval
	for i := range operations {
		if w := &operations[i]; w.WrittenNs-w.WordNs >= stallNs {
			all = append(
				all,
				activity.Interval{LoNs: w.WordNs + review.ledgerToNs, HiNs: w.WrittenNs + review.ledgerToNs},
			)
		}
	}
	slices.SortFunc(all, func(a, b activity.Interval) int { return cmp.Compare(a.LoNs, b.LoNs) })
	for _, i := range all {
		if n := len(stalls); n > 0 && i.LoNs <= stalls[n-1].HiNs {
			stalls[n-1].HiNs = max(stalls[n-1].HiNs, i.HiNs)
			continue
		}
		stalls = append(stalls, i)
	}
	return stalls
}

// lateness is by how much words were later than the analysis assumes, in ns. It assumes that some words
// become visible within 1 µs in each short time. On a busy machine, the thread that plays the GPU writes them
// later. On one CPU, it also takes turns with the recorder.
type lateness struct{ writtenNs, seenNs int64 }

func (review *operationReview) lateness() (late lateness) {
	const windowNs, assumedNs, enoughRows = 250_000_000, 1000, 20
	operations := review.run.operations()
	least, rows := make(map[int64]lateness), make(map[int64]int)
	for i := range review.run.rows {
		r := &review.run.rows[i]
		w := operations[operationIdentity{r.Pid, uint64(review.run.channels[r.Channel].Ptr), r.Counter, r.GPUTimeNs}]
		if w == nil {
			continue
		}
		window := w.WordNs / windowNs
		delay := lateness{w.WrittenNs - w.WordNs, r.StartNs - w.WordNs - review.ledgerToNs}
		if rows[window]++; rows[window] > 1 {
			known := least[window]
			delay = lateness{min(known.writtenNs, delay.writtenNs), min(known.seenNs, delay.seenNs)}
		}
		least[window] = delay
	}
	for window, delay := range least {
		if rows[window] >= enoughRows {
			late.writtenNs = max(late.writtenNs, delay.writtenNs-assumedNs)
			late.seenNs = max(late.seenNs, delay.seenNs-assumedNs)
		}
	}
	return late
}

// mostLateNs is the largest tolerated lateness.
func mostLateNs() int64 {
	if runtime.NumCPU() == 1 {
		return 200_000
	}
	return 20_000
}

func (review *operationReview) count(w *activity.Operation, truth *simtest.Operation) {
	review.tried++
	late := truth.StartNs+review.ledgerToNs > review.run.channels[w.Channel].StartNs
	if late {
		review.seen++
		review.seenCalls = append(review.seenCalls, numberedCall{w.Call.StartNs, w.Number > 0, truth})
	}
	if w.Call.Op == activity.OpKernel {
		review.launchNs = append(review.launchNs, w.Call.StartNs)
	}
	isCopy := w.Call.Op == activity.OpCopyToDevice || w.Call.Op == activity.OpCopyToHost
	switch {
	case w.StartQuality == activity.Measured, isCopy && w.EndQuality == activity.Measured:
		review.counts.Measured++
		if late {
			review.seenMeasured++
		}
	case w.StartQuality == activity.Bounded:
		review.counts.Bounded++
		review.widthsNs = append(review.widthsNs, w.Start.WidthNs())
	case w.StartQuality == activity.Estimated:
		review.counts.Estimated++
	default:
		review.counts.Unknown++
	}
}

// checkBusy compares the busy times of channels with the ledger.
func (review *operationReview) checkBusy() {
	operations := make(map[operationIdentity]ledgerChannel)
	for i := range review.run.ledger.Operations {
		w := &review.run.ledger.Operations[i]
		operations[operationIdentity{w.Pid, w.Slot, w.Counter, w.GPUNs}] = ledgerChannel{w.Pid, w.Channel}
	}
	of := make(map[int32]ledgerChannel)
	for i := range review.run.rows {
		r := &review.run.rows[i]
		if key, ok := operations[operationIdentity{r.Pid, uint64(review.run.channels[r.Channel].Ptr), r.Counter, r.GPUTimeNs}]; ok {
			of[r.Channel] = key
		}
	}
	for i := range review.result.Channels {
		c := &review.result.Channels[i]
		if len(c.Streams) == 0 {
			continue
		}
		busyNs := review.busyNs(c, of[c.Number])
		busy := c.Busy
		busy.LoNs -= c.Operations * review.lateNs
		endsNever := review.run.stuckNs > 0 && busyNs > time.Hour.Nanoseconds()
		if !review.contains(busy, busyNs) && !review.run.torn[c.Number] && !endsNever {
			review.wrong = append(review.wrong, fmt.Sprintf("busy time %d of %+v", busyNs, *c))
		}
	}
}

// busyNs returns the busy time of a channel in the ledger, as ChannelActivity.Busy defines it: an earlier stream may
// have had the handle of one of the streams.
func (review *operationReview) busyNs(c *activity.ChannelActivity, of ledgerChannel) (ns int64) {
	for i := range review.run.ledger.Operations {
		w := &review.run.ledger.Operations[i]
		if w.Pid != of.pid || w.Channel != of.channel {
			continue
		}
		stream, isRecorded := review.streamOf[ledgerCallKey{w.Tid, w.CallNs}]
		if isRecorded && slices.Contains(c.Streams, stream) || w.EndNs+review.ledgerToNs > c.FromNs {
			ns += w.EndNs - w.StartNs
		}
	}
	return ns
}

func (review *operationReview) log() {
	calls, paired := int64(len(review.operations)), 0
	for _, c := range review.result.Channels {
		if len(c.Streams) > 0 {
			paired++
		}
		if c.Device != 0 {
			review.t.Errorf("channel %d is on device %d", c.Number, c.Device)
		}
		review.t.Logf(
			"channel %d device %d at %#x: %d streams, first counter %d, %+v",
			c.Number,
			c.Device,
			review.run.channels[c.Number].Ptr,
			len(c.Streams),
			c.FirstCounter,
			c.ChannelCounts,
		)
	}
	share := func(n, of int64) float64 { return 100 * float64(n) / float64(max(1, of)) }
	slices.Sort(review.widthsNs)
	width := int64(0)
	if len(review.widthsNs) > 0 {
		width = review.widthsNs[len(review.widthsNs)/2]
	}
	review.t.Logf(
		"%d calls: %.1f %% have a channel, %.1f %% measured, %.1f %% bounded (median %d µs), %.1f %% estimated, "+
			"%.1f %% unknown; measured of operations after their channel was found: %.1f %%; %d of %d channels paired; %d wrong, %d of streams with a torn row; words up to %d ns late, "+
			"and %d values hidden by longer stalls",
		calls,
		share(review.tried, calls),
		share(review.counts.Measured, calls),
		share(review.counts.Bounded, calls),
		width/1000,
		share(
			review.counts.Estimated,
			calls,
		),
		share(review.counts.Unknown, calls),
		share(review.seenMeasured, review.seen),
		paired,
		len(review.result.Channels),
		len(review.wrong),
		review.wrongByTorn,
		review.lateNs,
		review.stalled,
	)
	for i, text := range review.wrong {
		if i == 5 {
			break
		}
		review.t.Log("wrong:", text)
	}
}

// TestComputedOperationsEqualTheLedger records operations, computes their times from the recording, and compares
// each value with the ledger.
func TestComputedOperationsEqualTheLedger(t *testing.T) {
	testclass.Lab(t, "lab")
	simtest.LoadSimulatedNVML(t, simcudaDir)
	threads := []string{"--streams", "4", "--threads", "2", "--share-streams", "--plain-graphs"}
	for _, c := range []struct {
		name   string
		rate   progress.Rate
		args   []string
		paired float64 // least share of operations with a channel
		// ofSeen is the least share of measured operations among those that a row shows.
		ofSeen float64
	}{
		{"threads", progress.RateAuto, threads, 0.95, 0.85},
		{"threads", progress.RateFull, threads, 0.95, 0.85},
		{
			"shared channels", progress.RateFull, []string{"--streams", "20", "--plain-graphs", "--works", "250000"}, 0.8, 0.8,
		},
		{"graphs with copies", progress.RateFull, []string{"--streams", "3", "--pageable", "1"}, 0.5, 0.05},
	} {
		t.Run(c.name+", "+c.rate.String(), func(t *testing.T) {
			run := recordOperationsWith(t, func(opt *Options) {
				opt.GPUTime, opt.KeepReturns, opt.NVMLInterval = c.rate, c.rate == progress.RateFull, time.Second
			}, "kernel_us=10-200,tear_ns=0", append([]string{"--works", "100000"}, c.args...)...)
			seen := run.check() * float64(len(run.ledger.Operations))
			v := reviewOperations(t, run)
			if len(v.wrong) > 0 {
				t.Errorf("%d operations are wrong", len(v.wrong))
			}
			if len(run.torn) > len(run.channels)/3 {
				t.Errorf("%d of %d channels have torn rows", len(run.torn), len(run.channels))
			}
			if share := float64(v.tried) / float64(len(v.operations)); share < c.paired {
				t.Errorf("%.1f %% of operations have a channel, want %.0f %%", 100*share, 100*c.paired)
			}
			if share := float64(v.counts.Measured) / max(1, seen); share < c.ofSeen {
				t.Errorf("%.1f %% of the operations with a row are measured, want %.0f %%", 100*share, 100*c.ofSeen)
			}
		})
	}
}
