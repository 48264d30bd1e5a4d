package memory

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Objects of the driver, such as executable graphs, take device memory that no call allocates. NVML counts
// it for the process. The memory per object is the slope of this memory over the number of live objects.

// ObjectCost is an estimate of the device memory that an object of a kind takes in a process.
type ObjectCost struct {
	Kind objects.Kind
	// With are kinds whose number moves with this one, so that the estimate includes their objects.
	With  []objects.Kind
	Bytes float64 // device memory per object
	Error float64 // 95 % of estimates are at most this far from the truth, bytes
	// Live is the number of live objects at the sample, and Samples the number of NVML samples behind
	// the estimate.
	Live    int64
	Samples int
}

// Limits of the estimates.
const (
	// minCostSamples is the smallest number of samples.
	minCostSamples = 12
	// minCostRange is the smallest difference between the most and the fewest objects. For contexts, it
	// is minContextRange, because each takes hundreds of MiB.
	minCostRange, minContextRange = 10, 3
	// sameMovement is the correlation above which an estimate cannot separate two kinds.
	sameMovement = 0.98
	// driverGranuleBytes is the size in which the driver takes device memory for its own use.
	driverGranuleBytes = 2 << 20
)

// costKinds are the kinds that take device memory, the most expensive first. Graphs and linkers are host
// memory, and the memory of imports belongs to others.
var costKinds = []objects.Kind{
	objects.KindContext, objects.KindGraphExec, objects.KindModule, objects.KindLibrary, objects.KindStream,
	objects.KindMemoryPool, objects.KindGreenContext, objects.KindTexture, objects.KindSurface, objects.KindEvent,
}

// isLoaded reports whether the memory of the kind's objects is part of "context and modules".
func isLoaded(kind objects.Kind) bool {
	return kind == objects.KindModule || kind == objects.KindLibrary || kind == objects.KindContext
}

// objectCount has the numbers of live objects of a kind at the samples of a process.
type objectCount struct {
	live int64
	at   []float64
}

// EstimateObjectCosts estimates the device memory per object from NVML's samples of the recorded
// processes that the filter selects: for each kind, the estimate with the smallest relative error. It
// returns errors of reading the recording.
func EstimateObjectCosts(t *timeline.Timeline, f *query.Filter) (map[objects.Kind]ObjectCost, error) {
	if len(quality.MissingClasses(t, NeededCallClasses)) > 0 {
		return nil, nil // the memory of allocations is unknown
	}
	c, err := reconcileWithNVML(t.NewView(), f.NarrowWindow(t.RecordingWindow()).ToNs, f)
	if err != nil {
		return nil, err
	}
	best := make(map[objects.Kind]ObjectCost)
	for _, a := range c.processes {
		for _, cost := range a.costs {
			if old, ok := best[cost.Kind]; !ok || cost.Error/cost.Bytes < old.Error/old.Bytes {
				best[cost.Kind] = cost
			}
		}
	}
	return best, nil
}

// estimateObjectCosts replays objects and sets the costs of each process.
func (r *reconciliation) estimateObjectCosts() error {
	t := r.t.NewView()
	if _, err := objects.Read(t, func(ch *objects.Change) {
		o := &t.Origins.List[ch.Object.Origin]
		if a := r.byPair[timeline.PidOnDevice{Device: o.Device, Pid: o.Pid}]; a != nil {
			a.addObjectChange(ch)
		}
	}); err != nil {
		return err
	}
	for _, a := range r.processes {
		for kind := range a.objects {
			a.objects[kind].storeSamples(len(a.samples))
		}
		a.costs = append(a.estimateCosts(false), a.estimateCosts(true)...)
	}
	return nil
}

// addObjectChange counts a created or ended object.
func (p *processMemory) addObjectChange(ch *objects.Change) {
	count := &p.objects[ch.Object.Kind]
	n := len(count.at)
	for n < len(p.samples) && p.samples[n].AtNs < ch.AtNs {
		n++
	}
	count.storeSamples(n)
	if ch.Kind == objects.ChangeCreated {
		count.live++
	} else {
		count.live--
	}
}

// storeSamples stores the number of live objects for the samples up to n.
func (o *objectCount) storeSamples(n int) {
	for len(o.at) < n {
		o.at = append(o.at, float64(o.live))
	}
}

// costData are the samples of a process for one fit: memory that no allocation explains, and the numbers
// of objects. Steps between samples with other causes of growth are taken out.
type costData struct {
	memory []float64
	counts [objects.NumKinds][]float64
}

// collectCostData sums up the steps between samples without changes of pools, and unless loaded is set,
// without calls that load code or create contexts.
func (p *processMemory) collectCostData(loaded bool) (d costData) {
	add := func(memory float64, counts func(kind int) float64) {
		d.memory = append(d.memory, memory)
		for kind := range d.counts {
			d.counts[kind] = append(d.counts[kind], counts(kind))
		}
	}
	add(0, func(int) float64 { return 0 })
	for i := 1; i < len(p.samples); i++ {
		k, _ := slices.BinarySearch(p.loadTimes, p.samples[i-1].AtNs)
		loads := k < len(p.loadTimes) && p.loadTimes[k] <= p.samples[i].AtNs
		if p.pooled[i] != p.pooled[i-1] || loads && !loaded {
			continue
		}
		last := len(d.memory) - 1
		grown := p.samples[i].Value - p.samples[i-1].Value - float64(p.tracked[i]-p.tracked[i-1])
		add(d.memory[last]+grown, func(kind int) float64 {
			return d.counts[kind][last] + p.objects[kind].at[i] - p.objects[kind].at[i-1]
		})
	}
	return d
}

// estimateCosts returns the estimates with a small error: those of contexts and code, or of the other kinds.
func (p *processMemory) estimateCosts(loaded bool) (list []ObjectCost) {
	d := p.collectCostData(loaded)
	if len(d.memory) < minCostSamples {
		return nil
	}
	for _, kind := range costKinds {
		if isLoaded(kind) != loaded || !hasRange(kind, d.counts[kind]) {
			continue
		}
		same := slices.IndexFunc(list, func(c ObjectCost) bool {
			return math.Abs(stats.Correlation(d.counts[c.Kind], d.counts[kind])) > sameMovement
		})
		if same >= 0 {
			list[same].With = append(list[same].With, kind)
			continue
		}
		list = append(list, ObjectCost{
			Kind: kind, Live: int64(p.objects[kind].at[p.nearest]), Samples: len(d.memory),
		})
	}
	return slices.DeleteFunc(d.fit(list), func(c ObjectCost) bool { return c.Bytes < 2*c.Error })
}

// hasRange reports whether the number of objects changes enough for an estimate.
func hasRange(kind objects.Kind, counts []float64) bool {
	least := float64(minCostRange)
	if kind.IsContext() {
		least = minContextRange
	}
	return slices.Max(counts)-slices.Min(counts) >= least
}

// fit sets the bytes and errors of all costs together. It returns nil without a fit. The error is the
// largest of two standard errors, half of the difference between the halves of the recording, and what
// one granule of the driver may change.
func (d *costData) fit(list []ObjectCost) []ObjectCost {
	if len(list) == 0 {
		return nil
	}
	slopes := func(from, to int) ([]float64, []float64, bool) {
		var x [][]float64
		for _, c := range list {
			x = append(x, d.counts[c.Kind][from:to])
		}
		return stats.FitLinear(d.memory[from:to], x)
	}
	n := len(d.memory)
	bytes, standardErrors, ok := slopes(0, n)
	if !ok {
		return nil
	}
	first, _, firstOK := slopes(0, n/2)
	second, _, secondOK := slopes(n/2, n)
	for i := range list {
		counts := d.counts[list[i].Kind]
		list[i].Bytes = bytes[i]
		list[i].Error = max(2*standardErrors[i], driverGranuleBytes/(slices.Max(counts)-slices.Min(counts)))
		if firstOK && secondOK {
			list[i].Error = max(list[i].Error, math.Abs(first[i]-second[i])/2)
		}
	}
	return list
}

// objectBytes returns the estimated memory of all live objects of a cost at the sample, at most rest.
func (o *ObjectCost) objectBytes(rest int64) int64 {
	return max(0, min(rest, units.RoundInt(o.Bytes*float64(o.Live))))
}

// String returns the estimate as a phrase.
func (o *ObjectCost) String() string {
	text := fmt.Sprintf("estimate: %s %s of %s ± %s each", units.FormatCount(o.Live), o.Kind.Plural(),
		units.FormatBytes(units.RoundInt(o.Bytes)), units.FormatBytes(units.RoundInt(o.Error)))
	if len(o.With) > 0 {
		text += ", with their " + o.withText()
	}
	return text + fmt.Sprintf(", from %d samples; it assumes that nothing else grows with them", o.Samples)
}

// withText returns the names of the kinds that the estimate includes.
func (o *ObjectCost) withText() string {
	var names []string
	for _, kind := range o.With {
		names = append(names, kind.Plural())
	}
	return strings.Join(names, " and ")
}

// costsBesideLoads returns the costs of objects that are not part of "context and modules".
func (p *processMemory) costsBesideLoads() []ObjectCost {
	return slices.DeleteFunc(slices.Clone(p.costs), func(c ObjectCost) bool { return isLoaded(c.Kind) })
}
