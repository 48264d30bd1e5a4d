package changepoint

import (
	"cmp"
	"math"
	"slices"
)

// Kind says what a change of the level means.
type Kind uint8

// Kinds of changes.
const (
	Step      Kind = iota // the level differs from then on, or until the next change
	Recurring             // part of a pattern that repeats
)

// Change is a change of the level. Times are Unix ns.
type Change struct {
	Kind Kind
	// BeforeNs is the time of the last sample with the old level, AfterNs that of the first sample with the
	// new one. The change was between them.
	BeforeNs, AfterNs int64
	From, To          float64 // medians of the level before and after
	// LogChance is the natural logarithm of a bound of the chance that a series of noise without any change
	// has such a change anywhere.
	LogChance float64
	// Before and After are the numbers of samples, or of parts with samples, of the two levels.
	Before, After int
	at            int // index of the first part of the new level
}

// Drift is a movement of the level from the beginning to the end of a series.
type Drift struct{ From, To float64 }

// Options are options of Find.
type Options struct {
	Limits
	// WarmUpEndNs is the end of the warm-up, Unix ns. Earlier samples are not searched, except for a second
	// half that has the level of what follows.
	WarmUpEndNs int64
	// RampNs is the longest time that a change may take. A slower movement is a drift.
	RampNs int64
	// MinLevelNs is the shortest time that a level lasts.
	MinLevelNs int64
	// MaxParts is the number of parts into which the series is divided at most; 0 means the constant
	// MaxParts.
	MaxParts int
}

// Result is the result of Find.
type Result struct {
	Changes []Change // in order of time
	Drift   *Drift   // nil without a drift
	// WarmUp has the median of the first half of the warm-up, and that of the samples after it, if they
	// differ. It is nil otherwise.
	WarmUp *Drift
	// PeriodNs is the length of a pattern that repeats, in ns; 0 without one.
	PeriodNs int64
	// Noise is the standard deviation of the noise, in units of the values.
	Noise float64
	// IsTooShort reports that the series has too few samples to find a change.
	IsTooShort bool
}

// MaxFalseAlarms bounds the chance that Find reports a change in a series of noise, if samples are
// independent apart from the dependence that Find measures.
const MaxFalseAlarms = 1e-3

// MinSamples is the number of samples that a series needs.
const MinSamples = 12

// finder finds the changes of the parts of a series.
type finder struct {
	Options
	series *Series // all samples
	parts  *Series
	ranks  *rankSums // of parts
	trend  float64   // slope that was subtracted from the parts, per second
	noise  noise
	tests  float64 // logarithm of the number of compared splits
}

// Find finds the changes of the level of a series. Its time grows with n log n of at most MaxParts parts.
func Find(s *Series, opt Options) *Result {
	opt.MaxParts = cmp.Or(opt.MaxParts, MaxParts)
	r := new(Result)
	isFlat := s.isFlat(&opt.Limits)
	s, r.WarmUp = s.withoutWarmUp(&opt, isFlat)
	r.IsTooShort = len(s.AtNs) < MinSamples
	if r.IsTooShort || isFlat {
		return r
	}
	parts := s.divide(opt.MaxParts)
	if len(parts.AtNs) < MinSamples || parts.isFlat(&opt.Limits) {
		return r
	}
	f := &finder{Options: opt, series: s, parts: parts}
	f.removePattern(r)
	f.removeTrend()
	f.estimateNoise()
	r.Noise = f.noise.scale
	r.Changes = f.describe(f.validate(f.search()))
	f.markRecurring(r)
	r.Drift = f.findDrift(r.Changes)
	return r
}

// withoutWarmUp returns the samples after the warm-up, and how the warm-up differs from them. The second half of
// the warm-up stays if it has the level of what follows.
func (s *Series) withoutWarmUp(opt *Options, isFlat bool) (*Series, *Drift) {
	end, _ := slices.BinarySearch(s.AtNs, opt.WarmUpEndNs)
	rest, half := &Series{AtNs: s.AtNs[end:], Values: s.Values[end:]}, (end+1)/2
	if end < 2 || len(rest.AtNs) == 0 || isFlat {
		return rest, nil
	}
	d := &Drift{From: s.median(0, half), To: rest.median(0, len(rest.AtNs))}
	if isLikeRest(s, opt, half, end) {
		rest = &Series{AtNs: s.AtNs[half:], Values: s.Values[half:]}
	}
	if !opt.matters(d.From, d.To) {
		return rest, nil
	}
	return rest, d
}

// isLikeRest reports whether the second half of a warm-up already has the level of the samples after it.
func isLikeRest(s *Series, opt *Options, half, end int) bool {
	n := min(end-half, len(s.AtNs)-end, minLevel)
	return n == minLevel && !opt.matters(s.median(half, end), s.median(end, end+n)) &&
		!opt.matters(s.median(half, half+n), s.median(end, end+n))
}

// removePattern subtracts a pattern that repeats from the parts, so that the pattern itself is no change.
func (f *finder) removePattern(r *Result) {
	const minDependence, maxRest = 3, 0.7
	with := estimateNoise(f.parts.Values)
	if with.dependence < minDependence {
		return
	}
	period := findPeriod(f.parts)
	if period == 0 {
		return
	}
	rest := f.parts.withoutPattern(period)
	if estimateNoise(rest.Values).scale <= maxRest*with.scale {
		r.PeriodNs, f.parts = int64(period), rest
	}
}

// removeTrend subtracts a steady slope from the parts. The slope is the median of those between values an
// eighth of the series apart, so that a few changes do not move it.
func (f *finder) removeTrend() {
	all := interval{0, len(f.parts.AtNs)}
	f.trend = f.slope(all, len(f.parts.AtNs)/8)
	if f.trend == 0 {
		return
	}
	flat := &Series{AtNs: f.parts.AtNs, Values: slices.Clone(f.parts.Values)}
	for i := range flat.Values {
		flat.Values[i] -= f.trendAt(flat.AtNs[i])
	}
	f.parts = flat
}

// trendAt returns what removeTrend subtracts at a time.
func (f *finder) trendAt(ns int64) float64 { return f.trend * float64(ns-f.parts.AtNs[0]) / 1e9 }

// estimateNoise computes the noise around the levels of the most significant changes. More changes than
// these are no exception, but noise.
func (f *finder) estimateNoise() {
	most := 1 + min(2, len(f.parts.AtNs)/120)
	f.ranks = newRankSums(f.parts.Values)
	f.noise = noise{scale: f.localScale(), dependence: 1}
	found := f.candidates()
	slices.SortStableFunc(found, func(a, b split) int { return cmp.Compare(a.logChance, b.logChance) })
	var places []int
	for len(found) > 0 && len(places) < most {
		at := found[0].at
		places = append(places, at)
		found = slices.DeleteFunc(found, func(s split) bool { return s.from < at && at < s.to })
	}
	slices.Sort(places)
	values := slices.Clone(f.parts.Values)
	from := 0
	for _, to := range append(places, len(values)) {
		level := f.parts.median(from, to)
		for i := range values[from:to] {
			values[from+i] -= level
		}
		from = to
	}
	f.noise = estimateNoise(values)
}

// interval is an interval of parts that is searched for a change.
type interval struct{ from, to int }

// seededIntervals returns the intervals of seeded binary segmentation with a decay of √½: layers of shorter
// and shorter intervals. Each one overlaps its neighbors by half.
func seededIntervals(n int) (list []interval) {
	for layer := 0; ; layer++ {
		scale := math.Pow(2, float64(layer)/2)
		length := int(math.Ceil(float64(n) / scale))
		if length < 2*minLevel {
			return list
		}
		count := 2*int(math.Ceil(scale)) - 1
		for i := range count {
			from := 0
			if count > 1 {
				from = (n - length) * i / (count - 1)
			}
			list = append(list, interval{from, from + length})
		}
	}
}

// candidates returns the significant splits of all intervals.
func (f *finder) candidates() (found []split) {
	intervals := seededIntervals(len(f.parts.AtNs))
	count := 0
	for _, v := range intervals {
		count += v.to - v.from
	}
	f.tests = math.Log(float64(max(1, count)))
	for _, v := range intervals {
		if s, ok := f.ranks.best(v.from, v.to); ok && f.isChange(&s) {
			found = append(found, s)
		}
	}
	return found
}

// search returns significant splits in order of time: those of the narrowest intervals.
func (f *finder) search() (list []split) {
	found := f.candidates()
	slices.SortStableFunc(found, func(a, b split) int {
		return cmp.Or(cmp.Compare(a.to-a.from, b.to-b.from), cmp.Compare(a.logChance, b.logChance))
	})
	for len(found) > 0 {
		narrowest := found[0]
		list = append(list, narrowest)
		found = slices.DeleteFunc(found, func(s split) bool { return s.from < narrowest.at && narrowest.at < s.to })
	}
	slices.SortFunc(list, func(a, b split) int { return cmp.Compare(a.at, b.at) })
	return list
}

// weigh computes the levels of a split, and the chance of its rank sum. The dependence of values does not
// count if the noise is much smaller than the difference: it cannot make one.
func (f *finder) weigh(s *split) {
	const manyScales = 8
	s.before, s.after = f.parts.median(s.from, s.at), f.parts.median(s.at, s.to)
	dependence := f.noise.dependence
	if math.Abs(s.after-s.before) >= manyScales*f.noise.scale {
		dependence = 1
	}
	s.logChance = logChanceOf(f.parts.Values, s, dependence)
}

// isChange weighs a split, and reports whether it is significant, large enough, sudden and clear.
func (f *finder) isChange(s *split) bool {
	const minDistance = 2.5 // even levels of minLevel samples without a common value are farther apart
	if s.z < minDistance {
		return false
	}
	f.weigh(s)
	atNs := f.parts.AtNs
	return s.logChance+f.tests <= math.Log(MaxFalseAlarms) &&
		min(atNs[s.at]-atNs[s.from], atNs[s.to-1]-atNs[s.at]) >= f.MinLevelNs &&
		f.isLarge(s.before, s.after) && f.isSudden(s) && f.isClear(s)
}

// isLarge reports whether the difference of two levels matters, and exceeds the noise. It must be larger if
// values depend on each other, or if they are too few to tell.
func (f *finder) isLarge(from, to float64) bool {
	const minScales, minScalesOfFew, minScalesOfDependent, few = 1.5, 2.5, 3, 128
	least := minScales
	switch {
	case f.noise.dependence > 1:
		least = minScalesOfDependent
	case len(f.parts.AtNs) < few:
		least = minScalesOfFew
	}
	return f.matters(from, to) && math.Abs(to-from) >= least*f.noise.scale
}

// isClear reports whether the values stay on their side: runs of values that are nearer to the other level
// are at most a tenth of the values. Single values may be outliers.
func (f *finder) isClear(s *split) bool {
	const minRun, most = 3, 10
	away, run := 0, 0
	for i := s.from; i < s.to; i++ {
		v := f.parts.Values[i]
		isBefore := math.Abs(v-s.before) < math.Abs(v-s.after)
		if i == s.at {
			run = 0
		}
		if isBefore == (i < s.at) {
			run = 0
			continue
		}
		if run++; run == minRun {
			away += minRun
		} else if run > minRun {
			away++
		}
	}
	return away*most <= s.to-s.from
}

// isSudden reports whether at least half of a difference of levels arises within RampNs at the split. The
// slopes on both sides are no part of it.
func (f *finder) isSudden(s *split) bool {
	const least, most, minShare = 4, 24, 0.5
	difference := s.after - s.before
	ratio := f.noise.scale / math.Abs(difference)
	length := min(most, max(least, int(36*ratio*ratio)))
	left, right := s.at, s.at
	for left-length > s.from && f.parts.AtNs[s.at]-f.parts.AtNs[left-1] < f.RampNs/2 {
		left--
	}
	for right+length < s.to && f.parts.AtNs[right]-f.parts.AtNs[s.at-1] < f.RampNs/2 {
		right++
	}
	before, after := interval{max(s.from, left-length), left}, interval{right, min(s.to, right+length)}
	steep := f.slopeNear(max(s.from, left-4*length), left) + f.slopeNear(right, min(s.to, right+4*length))
	apart := float64(f.middleNs(after)-f.middleNs(before)) / 1e9
	jump := f.parts.median(after.from, after.to) - f.parts.median(before.from, before.to) - steep/2*apart
	return jump/difference >= minShare
}

// middleNs returns the time in the middle of an interval, Unix ns.
func (f *finder) middleNs(v interval) int64 {
	first := f.parts.AtNs[v.from]
	return first + (f.parts.AtNs[v.to-1]-first)/2
}

// slopeNear returns the slope of the parts from..to.
func (f *finder) slopeNear(from, to int) float64 { return f.slope(interval{from, to}, (to-from)/2) }

// slope returns the median slope per second of values that lie some parts apart in an interval. It is 0 if
// fewer than nine of ten slopes have its sign, or without enough parts.
func (f *finder) slope(v interval, apart int) float64 {
	if apart < 2 {
		return 0
	}
	var slopes []float64
	for i := v.from; i+apart < v.to; i++ {
		ns := f.parts.AtNs[i+apart] - f.parts.AtNs[i]
		slopes = append(slopes, (f.parts.Values[i+apart]-f.parts.Values[i])/(float64(max(1, ns))/1e9))
	}
	same, slope := 0, medianOf(slopes)
	for _, s := range slopes {
		if s*slope > 0 {
			same++
		}
	}
	const minShare = 0.8
	if float64(same) < minShare*float64(len(slopes)) {
		return 0
	}
	return slope
}

// validate moves each split to the best place between its neighbors, and removes those that are no change
// there, the least significant first. A split is significant between its neighbors or in its own interval,
// which excludes levels that are too short to be found.
func (f *finder) validate(list []split) []split {
	for {
		worst := -1
		wide := make([]split, len(list))
		for i := range list {
			s := &list[i]
			from, to := 0, len(f.parts.AtNs)
			if i > 0 {
				from = list[i-1].at
			}
			if i+1 < len(list) {
				to = list[i+1].at
			}
			s.at = f.moveSplit(from, s.at, to)
			wide[i] = f.ranks.splitAt(from, s.at, to)
			if f.isChange(&wide[i]) {
				continue
			}
			inner := interval{max(from, s.from), min(to, s.to)}
			if narrow, ok := f.splitWithin(inner, s.at); ok && f.isLarge(wide[i].before, wide[i].after) &&
				f.isChange(&narrow) {
				wide[i].logChance = narrow.logChance
			} else if worst < 0 || wide[i].logChance > wide[worst].logChance {
				worst = i
			}
		}
		if worst < 0 {
			return wide
		}
		list = slices.Delete(list, worst, worst+1)
	}
}

// splitWithin returns the split of an interval at a place. It returns false if a level is too short.
func (f *finder) splitWithin(v interval, at int) (split, bool) {
	if at-v.from < minLevel || v.to-at < minLevel {
		return split{}, false
	}
	return f.ranks.splitAt(v.from, at, v.to), true
}

// moveSplit returns the place with the least sum of distances from the medians of both sides.
func (f *finder) moveSplit(from, at, to int) int {
	before, after := f.parts.median(from, at), f.parts.median(at, to)
	return bestPlace(f.parts.Values[from:to], before, after, minLevel) + from
}

// bestPlace returns the first index of the new level with the least sum of absolute distances. Both levels
// have at least `least` values, if there are enough.
func bestPlace(values []float64, before, after float64, least int) int {
	n := len(values)
	if n <= 2*least {
		return n / 2
	}
	cost := 0.0 // difference from the cost at place 0
	best, bestCost := n/2, math.Inf(1)
	for i, v := range values {
		if i >= least && i <= n-least && cost < bestCost {
			best, bestCost = i, cost
		}
		cost += math.Abs(v-before) - math.Abs(v-after)
	}
	return best
}

// describe returns the changes at some splits.
func (f *finder) describe(list []split) (changes []Change) {
	for i := range list {
		s := &list[i]
		c := Change{
			From: s.before, To: s.after, LogChance: s.logChance + f.tests,
			Before: s.at - s.from, After: s.to - s.at, at: s.at,
		}
		f.locate(&c, s)
		trend := f.trendAt(c.BeforeNs)
		c.From, c.To = c.From+trend, c.To+trend
		changes = append(changes, c)
	}
	return changes
}

// locate finds the last sample of the old level and the first sample of the new one.
func (f *finder) locate(c *Change, s *split) {
	const margin = 2 // parts
	all := f.series
	fromNs, toNs := f.parts.AtNs[max(s.from, s.at-margin)], f.parts.AtNs[min(s.to-1, s.at+margin)]
	from, _ := slices.BinarySearch(all.AtNs, fromNs)
	to, _ := slices.BinarySearch(all.AtNs, toNs+1)
	shift := f.trendAt(f.parts.AtNs[s.at])
	oldLevel, newLevel := c.From+shift, c.To+shift
	at := min(max(1, from+bestPlace(all.Values[from:to], oldLevel, newLevel, 1)), len(all.AtNs)-1)
	// Values that are nearer to the middle than to the levels are part of the change.
	const ramp = 0.25
	near, d := max(ramp*math.Abs(c.To-c.From), 2*f.noise.scale), math.Abs(c.To-c.From)
	near = min(near, d/2)
	before, after := at-1, at
	for before > 0 && math.Abs(all.Values[before]-oldLevel) > near && all.AtNs[at]-all.AtNs[before] < f.RampNs {
		before--
	}
	for after < len(all.AtNs)-1 && math.Abs(all.Values[after]-newLevel) > near &&
		all.AtNs[after]-all.AtNs[at-1] < f.RampNs {
		after++
	}
	c.BeforeNs, c.AfterNs = all.AtNs[before], all.AtNs[after]
}
