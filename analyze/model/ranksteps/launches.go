package ranksteps

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// addByLaunches finds the steps of the ranks of recording i, which has no calls of NCCL: by launches that repeat. Only
// ranks of this recording that launch the same kernels and keep pace with each other have steps.
func (r *Reader) addByLaunches(t *timeline.Timeline, i int, byPid map[int32]*rank) error {
	if len(byPid) < 2 {
		return nil
	}
	found, err := steps.Find(steps.NewReader(t, &r.opt.Filter), steps.Options{})
	if err != nil {
		return err
	}
	for _, p := range found.Processes {
		if k := byPid[p.Pid]; k != nil {
			k.starts = startsOf(p.Steps)
		}
	}
	if err := readHostCalls(t, byPid); err != nil {
		return err
	}
	if err := readCollectiveWaits(t, byPid); err != nil {
		return err
	}
	mixes, err := kernelMixes(t, byPid)
	if err != nil {
		return err
	}
	groups := make(map[uint64][]*rank)
	for pid, k := range byPid {
		if len(k.starts) > leastMarks {
			groups[mixes[pid]] = append(groups[mixes[pid]], k)
		}
	}
	for mix, group := range groups {
		if cutToCommonTime(group) {
			for _, k := range group {
				k.useLaunches(mix + uint64(i)<<32)
			}
		}
	}
	for _, k := range byPid {
		k.calls = nil
	}
	return nil
}

// startsOf returns the begins of the complete steps of a process and the end of the last one, Unix ns.
func startsOf(list []steps.Step) (starts []int64) {
	for len(list) > 0 && list[0].IsCut {
		list = list[1:]
	}
	for len(list) > 0 && list[len(list)-1].IsCut {
		list = list[:len(list)-1]
	}
	for i := range list {
		starts = append(starts, list[i].BeginNs)
	}
	if len(list) > 0 {
		starts = append(starts, list[len(list)-1].EndNs)
	}
	return starts
}

const (
	// paceSteps and paceShare bound the steps by which ranks that wait for each other differ in the same time: one at
	// each end, and few pauses. Ranks that do not wait for each other drift apart.
	paceSteps = 2
	paceShare = 0.01
)

// cutToCommonTime cuts the steps of ranks to the time that all have. It returns false if the ranks do not keep pace, or
// have too few steps.
func cutToCommonTime(group []*rank) bool {
	fromNs, toNs := int64(math.MinInt64), int64(math.MaxInt64)
	for _, k := range group {
		fromNs, toNs = max(fromNs, k.starts[0]), min(toNs, k.starts[len(k.starts)-1])
	}
	fewest, most := math.MaxInt, 0
	for _, k := range group {
		half := (k.starts[len(k.starts)-1] - k.starts[0]) / int64(2*len(k.starts))
		from := sort.Search(len(k.starts), func(i int) bool { return k.starts[i] >= fromNs-half })
		to := sort.Search(len(k.starts), func(i int) bool { return k.starts[i] > toNs+half })
		k.starts = k.starts[from:max(from, to)]
		fewest, most = min(fewest, len(k.starts)), max(most, len(k.starts))
	}
	return len(group) > 1 && fewest > leastMarks && float64(most-fewest) <= max(paceSteps, paceShare*float64(most))
}

// useLaunches makes the steps that launches begin the steps of a rank.
func (r *rank) useLaunches(mix uint64) {
	r.steps, r.mix, r.out.ByLaunches = make([]stepSum, len(r.starts)-1), mix, true
	r.sequences = make([]int64, len(r.starts))
	for i := range r.sequences {
		r.sequences[i] = int64(i)
	}
	r.addCalls()
}

// kernelMixes returns, by process, a hash of the kernels that it launches in its steps. Counts do not matter: they can
// depend on the data.
func kernelMixes(t *timeline.Timeline, byPid map[int32]*rank) (map[int32]uint64, error) {
	type use struct {
		pid  int32
		name string
	}
	counts := make(map[use]int)
	for _, s := range t.Calls {
		if err := eachLaunch(s.Group, func(pid int32, kernel string, n int) {
			if byPid[pid] != nil {
				counts[use{pid, kernel}] += n
			}
		}); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	names := make(map[int32][]string)
	for u, n := range counts {
		if float64(n) >= usualShare*float64(len(byPid[u.pid].starts)) {
			names[u.pid] = append(names[u.pid], u.name)
		}
	}
	mixes := make(map[int32]uint64)
	for pid, list := range names {
		slices.Sort(list)
		h := fnv.New64a()
		for _, name := range list {
			fmt.Fprintln(h, name)
		}
		mixes[pid] = h.Sum64()
	}
	return mixes, nil
}

// eachLaunch calls yield with the number of launches of each kernel by each process in a row group.
func eachLaunch(g *format.Group, yield func(pid int32, kernel string, n int)) error {
	kind, kernel, pids := g.Strings("kind"), g.Strings("kernel"), g.Int32("pid", nil)
	if err := g.Err(); err != nil {
		return err
	}
	counts := make(map[int32][]int)
	for i, pid := range pids {
		if kind.At(i) != format.KindLaunch {
			continue
		}
		if counts[pid] == nil {
			counts[pid] = make([]int, len(kernel.Dict))
		}
		counts[pid][kernel.Index[i]]++
	}
	for _, pid := range slices.Sorted(maps.Keys(counts)) {
		for name, n := range counts[pid] {
			if n > 0 {
				yield(pid, kernel.Dict[name], n)
			}
		}
	}
	return nil
}
