package ranksteps

import (
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// A rank is late if its kernels of collectives begin later than those of other ranks, because the GPU is not ready for
// them. Their starts are known also while launches are not recorded: the calls of NCCL are always recorded, and tell the
// numbers of the kernels on a stream that runs nothing else.

// arrival is the start of the kernel of a collective on the GPU of a rank.
type arrival struct {
	communicator int64
	sequence     int64
	startNs      int64 // Unix ns on the clock of the host; 0: unknown
	step         int32
}

// maxArrivals bounds the launches of a recording whose starts are read. With more, the starts of some streams are unknown,
// because their launches and kernels differ in number.
const maxArrivals = 1 << 21

// addArrivals sets the arrivals of the processes of a recording. shiftNs is the time on its clock minus that on the clock
// of its host.
func addArrivals(t *timeline.Timeline, survey *collective.Survey, byPid map[int32]*rank, shiftNs int64) error {
	var launches []activity.CountedLaunch
	var of []launchOf
	for _, pid := range slices.Sorted(maps.Keys(byPid)) {
		if k := byPid[pid]; len(k.steps) > 0 {
			launches, of = k.appendLaunches(survey, launches, of)
		}
	}
	starts, err := activity.StartsOfCounted(t, launches)
	if err != nil {
		return err
	}
	type stream struct {
		rank   *rank
		handle int64
	}
	known := make(map[stream]bool) // streams with a channel of their own
	for i, l := range of {
		known[stream{l.rank, launches[i].Stream}] = known[stream{l.rank, launches[i].Stream}] || starts[i].LikelyNs != 0
	}
	for i, l := range of {
		if !known[stream{l.rank, launches[i].Stream}] {
			continue
		}
		l.rank.addArrival(&launches[i], l, starts[i], shiftNs)
	}
	return nil
}

// launchOf says whose launch a launch is, and which collective it runs: the first of its group.
type launchOf struct {
	rank                   *rank
	communicator, sequence int64
}

// appendLaunches appends the launches of the operations of a rank. The operations of a communicator in a group are one
// launch. If groups are unknown, each operation is one. Where that is wrong, the numbers of launches and kernels differ,
// and starts stay unknown.
func (r *rank) appendLaunches(
	survey *collective.Survey,
	launches []activity.CountedLaunch,
	of []launchOf,
) ([]activity.CountedLaunch, []launchOf) {
	type group struct {
		number, stream int64
		communicator   int32
		tid            int32
	}
	open := make(map[group]int) // index of the launch
	for i := range r.operations {
		o := &r.operations[i]
		c := &survey.Communicators[o.Communicator]
		if o.Count == 0 || c.Size < 2 || o.Stream == 0 || len(of) >= maxArrivals {
			continue
		}
		key := group{o.Group, o.Stream, o.Communicator, o.Tid}
		if n, ok := open[key]; ok && o.Group > 0 {
			launches[n].StartNs, launches[n].ReturnNs = o.StartNs, o.StartNs+o.DurNs
			continue
		}
		open[key] = len(launches)
		launches = append(launches, activity.CountedLaunch{
			StartNs: o.StartNs, ReturnNs: o.StartNs + o.DurNs, Stream: o.Stream, Pid: r.pid,
		})
		sequence := o.Sequence
		if !o.Function.IsCollective() || c.Fact.Numbering == format.NumberingRelative {
			sequence = 0
		}
		of = append(of, launchOf{r, c.ID, sequence})
	}
	return launches, of
}

// addArrival adds the start of a launch to its step.
func (r *rank) addArrival(launch *activity.CountedLaunch, of launchOf, start activity.CountedStart, shiftNs int64) {
	step := r.stepAt(launch.StartNs)
	if step < 0 || of.sequence == 0 || of.communicator == 0 {
		return
	}
	a := arrival{of.communicator, of.sequence, 0, int32(step)}
	if start != (activity.CountedStart{}) {
		a.startNs = start.LikelyNs - shiftNs
	}
	r.arrivals = append(r.arrivals, a)
}

// collectiveKey identifies a collective on all ranks.
type collectiveKey struct{ communicator, sequence int64 }

// arrivalsOf are the arrivals of the ranks at a collective.
type arrivalsOf struct {
	lastNs  int64
	unknown bool // that of a rank is not known
}

// setWaits sets the waits of the ranks of a group in collectives, by step: from the start of a kernel until that of the last
// rank. All ranks must be on one host, because their starts are compared. least is the share of the collectives of a step
// whose starts are known on all ranks, from which on its waits are known.
func setWaits(group []*rank, least float64) {
	all := make(map[collectiveKey]*arrivalsOf)
	for _, k := range group {
		for i := range k.arrivals {
			a := &k.arrivals[i]
			key := collectiveKey{a.communicator, a.sequence}
			of := all[key]
			if of == nil {
				of = new(arrivalsOf)
				all[key] = of
			}
			of.lastNs, of.unknown = max(of.lastNs, a.startNs), of.unknown || a.startNs == 0
		}
	}
	if len(all) == 0 {
		return
	}
	for _, k := range group {
		k.waits = k.waitsIn(all, least)
	}
}

// leastKnown is the share of the collectives that steps need at least, if few steps have all.
const leastKnown = 0.5

// waitsIn returns the waits of a rank by step, ns; -1: unknown. Collectives without a known start on a rank count as no wait on
// all ranks. So a late rank seems less late, and no other rank late.
func (r *rank) waitsIn(all map[collectiveKey]*arrivalsOf, least float64) []int64 {
	waits, known, unknown := make([]int64, len(r.steps)), make([]int32, len(r.steps)), make([]int32, len(r.steps))
	for i := range r.arrivals {
		a := &r.arrivals[i]
		of := all[collectiveKey{a.communicator, a.sequence}]
		if of.unknown {
			unknown[a.step]++
			continue
		}
		known[a.step]++
		waits[a.step] += of.lastNs - a.startNs
	}
	for i := range waits {
		if known[i] == 0 || float64(known[i]) < least*float64(known[i]+unknown[i]) {
			waits[i] = -1
		}
	}
	return waits
}
