package steps

import (
	model "github.com/gpurec/gpurec/analyze/model/steps"
)

// placeKind is the kind of time in a step.
type placeKind uint8

const (
	placeOutside placeKind = iota // outside CUDA, between two calls
	placeCall                     // in a call that does not wait for the GPU
	placeWait                     // in a call that waits for the GPU
)

// placeKey identifies a place in a step: a function at a call site, or the way between two call
// sites.
type placeKey struct {
	kind     placeKind
	from, to int32 // call sites; the same for calls
	name     int32 // function; -1 outside of calls
}

// maxPlaces bounds the places of a process. The time of further places is left out.
const maxPlaces = 1 << 14

// account has the times of the open step of a process. A list has the places and labels in use, so
// that a step costs no memory.
type account struct {
	step  int // index of the open step
	begun bool
	endNs int64 // latest return, Unix ns; 0: no call yet
	phase int32
	site  int32

	numbers    map[placeKey]int32
	keys       []placeKey
	ns         []int64 // by place
	calls      []int32
	operations []int32 // calls that add work, or the way to them
	used       []int32
	byLabel    []int32
	labelsIn   []int32
	byPhase    []int32 // launches
}

// add adds time at a place before or in a call.
func (a *account) add(key placeKey, ns int64, c *model.Call) {
	n, ok := a.numbers[key]
	if !ok {
		if len(a.keys) >= maxPlaces {
			return
		}
		if a.numbers == nil {
			a.numbers = make(map[placeKey]int32)
		}
		n = int32(len(a.keys))
		a.numbers[key] = n
		a.keys, a.ns, a.calls, a.operations = append(
			a.keys,
			key,
		), append(
			a.ns,
			0,
		), append(
			a.calls,
			0,
		), append(
			a.operations,
			0,
		)
	}
	if a.calls[n] == 0 {
		a.used = append(a.used, n)
	}
	a.ns[n] += ns
	a.calls[n]++
	if c.IsOperation() {
		a.operations[n]++
	}
}

// leave notes a call outside of complete steps.
func (a *account) leave(c *model.Call, phase, site int32) {
	a.endNs, a.phase, a.site = max(a.endNs, c.EndNs), phase, site
}

// countLabel counts a launch.
func (a *account) countLabel(label int32) {
	if label < 0 {
		return
	}
	for int(label) >= len(a.byLabel) {
		a.byLabel = append(a.byLabel, 0)
	}
	if a.byLabel[label] == 0 {
		a.labelsIn = append(a.labelsIn, label)
	}
	a.byLabel[label]++
}

// countPhase counts a launch of a phase.
func (a *account) countPhase(phase int32) {
	for int(phase) >= len(a.byPhase) {
		a.byPhase = append(a.byPhase, 0)
	}
	a.byPhase[phase]++
}

// reset empties the account for the next step.
func (a *account) reset() {
	for _, n := range a.used {
		a.ns[n], a.calls[n], a.operations[n] = 0, 0, 0
	}
	for _, label := range a.labelsIn {
		a.byLabel[label] = 0
	}
	clear(a.byPhase)
	a.used, a.labelsIn, a.begun = a.used[:0], a.labelsIn[:0], false
}

// placeTime is the time of a step at a place.
type placeTime struct {
	place             int32
	calls, operations int32
	ns                int64
}

// labelCount has the launches of a kernel in a step.
type labelCount struct{ label, count int32 }

func (a *account) copyPlaces() (list []placeTime) {
	for _, n := range a.used {
		list = append(list, placeTime{n, a.calls[n], a.operations[n], a.ns[n]})
	}
	return list
}

func (a *account) copyLabels() (list []labelCount) {
	for _, label := range a.labelsIn {
		list = append(list, labelCount{label, a.byLabel[label]})
	}
	return list
}

// typicalStep sums up the steps that are no outliers.
type typicalStep struct {
	steps  int64
	ns     []int64 // by place
	calls  []int64
	labels []int64 // launches by label
	phases []int64 // launches by phase
}

func (t *typicalStep) add(a *account) {
	t.steps++
	for len(t.ns) < len(a.keys) {
		t.ns, t.calls = append(t.ns, 0), append(t.calls, 0)
	}
	for _, n := range a.used {
		t.ns[n] += a.ns[n]
		t.calls[n] += int64(a.calls[n])
	}
	for len(t.phases) < len(a.byPhase) {
		t.phases = append(t.phases, 0)
	}
	for phase, n := range a.byPhase {
		t.phases[phase] += int64(n)
	}
	for len(t.labels) < len(a.byLabel) {
		t.labels = append(t.labels, 0)
	}
	for _, label := range a.labelsIn {
		t.labels[label] += int64(a.byLabel[label])
	}
}

// meanNs returns the mean time of a step at a place, ns.
func (t *typicalStep) meanNs(place int32) int64 {
	if int(place) >= len(t.ns) || t.steps == 0 {
		return 0
	}
	return t.ns[place] / t.steps
}

// meanCalls returns the mean number of calls of a step at a place.
func (t *typicalStep) meanCalls(place int32) float64 {
	if int(place) >= len(t.calls) || t.steps == 0 {
		return 0
	}
	return float64(t.calls[place]) / float64(t.steps)
}

// meanLaunches returns the mean number of launches of a kernel in a step.
func (t *typicalStep) meanLaunches(label int32) float64 {
	if int(label) >= len(t.labels) || t.steps == 0 {
		return 0
	}
	return float64(t.labels[label]) / float64(t.steps)
}

// extraPhase returns the phase with the most launches above the mean of a step, or -1.
func (t *typicalStep) extraPhase(launches []int32) int32 {
	best, most := int32(-1), 0.5
	for phase, n := range launches {
		extra := float64(n)
		if phase < len(t.phases) && t.steps > 0 {
			extra -= float64(t.phases[phase]) / float64(t.steps)
		}
		if extra > most {
			best, most = int32(phase), extra
		}
	}
	return best
}

// siteNumbers numbers call sites, with a cache by call.
type siteNumbers struct {
	byCall map[siteKey]int32
	byName map[string]int32
	list   []string
}

type siteKey struct{ stack, label, name int32 }

// siteOf returns the number of the call site of a call.
func (sc *scan) siteOf(c *model.Call) int32 {
	s := &sc.sites
	key := siteKey{c.Stack, c.Label, c.Name}
	n, ok := s.byCall[key]
	if ok {
		return n
	}
	if s.byCall == nil {
		s.byCall, s.byName = make(map[siteKey]int32), make(map[string]int32)
	}
	name := sc.found.SiteOf(c)
	n, ok = s.byName[name]
	if !ok {
		n = int32(len(s.list))
		s.byName[name] = n
		s.list = append(s.list, name)
	}
	if len(s.byCall) < 1<<16 {
		s.byCall[key] = n
	}
	return n
}
