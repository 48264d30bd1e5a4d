package activity

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// Duration is the estimated mean duration of operations with the same kernel and grid, or graph.
type Duration struct {
	Pid         int32
	Op          Op
	Label       int32 // as in Call
	Operations  int64 // recorded operations
	Alone       int64 // operations whose own duration is measured, in the whole recording
	MeanNs      float64
	ErrorNs     float64 // standard error of MeanNs
	IsEstimated bool    // false: nothing is known about the duration
	// IsLimited reports that no equation has the label. MeanNs is the middle of its bounds then, and
	// ErrorNs a quarter of their distance.
	IsLimited bool
	// IsShared reports that the duration is unknown because kernels of other streams filled the GPU at the same time.
	IsShared bool
}

// TotalNs returns the estimated duration of all recorded operations, and its standard error.
func (d *Duration) TotalNs() (total, standardError float64) {
	return float64(d.Operations) * d.MeanNs, float64(d.Operations) * d.ErrorNs
}

// solver estimates the durations of a process from its equations, by non-negative least squares
// with weights. The variance of an equation is a multiple of the squared durations, plus a multiple
// of the number of operations. Both factors are fitted to the residuals.
type solver struct {
	set       *equationSet
	equations []equation
	used      []int32 // labels with equations
	columns   []int32 // column of each label; -1: none
	x         []float64
	weights   []float64
	variances []float64 // of x
}

// solve returns the durations of all labels, the largest total first.
func (e *equationSet) solve(pid int32, o *overlaps) []Duration {
	list := e.durations(pid, e.list)
	if alone, shared := e.splitShared(o); len(shared) > 0 {
		own := e.durations(pid, alone)
		for i, s := range e.compareShared(alone, shared, own) {
			list[i].applyShared(&own[i], &s)
		}
	}
	slices.SortStableFunc(list, func(a, b Duration) int {
		x, _ := a.TotalNs()
		y, _ := b.TotalNs()
		return cmp.Compare(y, x)
	})
	return list
}

// durations returns the durations of all labels that follow from equations, by index of the label.
func (e *equationSet) durations(pid int32, equations []equation) []Duration {
	s := solver{set: e, equations: equations}
	s.selectLabels()
	if len(s.used) > 0 {
		s.fit()
	}
	return s.durations(pid)
}

func (s *solver) selectLabels() {
	s.columns = make([]int32, len(s.set.keys))
	for i := range s.columns {
		s.columns[i] = -1
	}
	for i := range s.equations {
		eq := &s.equations[i]
		for _, t := range eq.terms {
			if s.columns[t.label] < 0 {
				s.columns[t.label] = int32(len(s.used))
				s.used = append(s.used, t.label)
			}
		}
	}
	s.x = make([]float64, len(s.used))
	s.weights = make([]float64, len(s.equations))
	for i := range s.equations {
		s.weights[i] = 1 / float64(s.equations[i].operations)
	}
}

// valueOf returns the sum of durations that an equation states.
func (eq *equation) valueOf() float64 { return eq.sumNs - float64(eq.operations)*gapMeanNs }

func (s *solver) residual(eq *equation) float64 {
	r := eq.valueOf()
	for _, t := range eq.terms {
		r -= float64(t.count) * s.x[s.columns[t.label]]
	}
	return r
}

// fit solves for the durations, then for the weights, in turn.
func (s *solver) fit() {
	const rounds = 4
	for round := range rounds {
		matrix, right := s.normalEquations(func(i int, eq *equation) (float64, float64) {
			return s.weights[i], s.weights[i] * eq.valueOf()
		}, true)
		stats.SolveNonNegative(matrix, right, s.x)
		if round < rounds-1 {
			s.reweight()
		}
		if round == rounds-1 {
			s.estimateErrors(matrix)
		}
	}
}

// normalEquations sums up the products of all pairs of terms with weights, and the right side. The
// prior of event records makes the matrix regular where no equation separates them from others.
func (s *solver) normalEquations(
	weigh func(int, *equation) (weight, right float64),
	prior bool,
) (matrix [][]float64, right []float64) {
	n := len(s.used)
	matrix, right = make([][]float64, n), make([]float64, n)
	for i := range matrix {
		matrix[i] = make([]float64, n)
	}
	for i := range s.equations {
		eq := &s.equations[i]
		w, y := weigh(i, eq)
		for _, a := range eq.terms {
			column := s.columns[a.label]
			right[column] += float64(a.count) * y
			for _, b := range eq.terms {
				matrix[column][s.columns[b.label]] += w * float64(a.count) * float64(b.count)
			}
		}
	}
	if prior {
		for i, label := range s.used {
			matrix[i][i] *= 1 + 1e-9
			if mean, weight := priorOf(s.set.keys[label]); weight > 0 {
				matrix[i][i] += weight
				right[i] += weight * mean
			}
		}
	}
	return matrix, right
}

// priorOf returns the prior mean of a label, and the inverse of its variance. 0 means no prior.
func priorOf(key labelKey) (meanNs, weight float64) {
	switch {
	case key.op == OpRecordEvent:
		return eventMeanNs, 1 / float64(eventErrorNs*eventErrorNs)
	}
	return 0, 0
}

// reweight fits the variance of equations to the residuals, and sets the weights. An equation with a
// residual of more than four standard deviations counts less.
func (s *solver) reweight() {
	matrix, right := [][]float64{{1e-9, 0}, {0, 1e-9}}, []float64{0, 0}
	bases := make([][2]float64, len(s.equations))
	looseSum, loose := 0.0, 0.0
	for i := range s.equations {
		eq := &s.equations[i]
		if eq.isLoose {
			looseSum, loose = looseSum+s.residual(eq)*s.residual(eq), loose+1
			continue
		}
		for _, t := range eq.terms {
			x := s.x[s.columns[t.label]]
			bases[i][0] += float64(t.count) * x * x
			bases[i][1] += float64(t.count) * 1e4
		}
		r := s.residual(eq)
		scale := 1 / (bases[i][0]*bases[i][0] + bases[i][1]*bases[i][1])
		r2 := min(r*r, 100*(bases[i][0]+bases[i][1]))
		for a := range 2 {
			right[a] += scale * bases[i][a] * r2
			for b := range 2 {
				matrix[a][b] += scale * bases[i][a] * bases[i][b]
			}
		}
	}
	factors := []float64{0.01, 1}
	stats.SolveNonNegative(matrix, right, factors)
	for i := range s.equations {
		variance := factors[0]*bases[i][0] + factors[1]*bases[i][1] + 2500
		if s.equations[i].isLoose {
			variance += looseSum / loose
		}
		s.weights[i] = 1 / variance
		if r := math.Abs(s.residual(&s.equations[i])); r > 4*math.Sqrt(variance) {
			s.weights[i] *= 4 * math.Sqrt(variance) / r
		}
	}
}

// estimateErrors sets the variances of the durations. It takes the larger one of two estimates:
// from the weights and from the residuals. Few equations can have small residuals by chance.
func (s *solver) estimateErrors(matrix [][]float64) {
	inverse := stats.InvertPositive(matrix)
	if inverse == nil {
		return
	}
	middle, _ := s.normalEquations(func(i int, eq *equation) (float64, float64) {
		r := s.residual(eq) * s.weights[i]
		return r * r, 0
	}, false)
	for i, label := range s.used {
		_, weight := priorOf(s.set.keys[label])
		middle[i][i] += weight
	}
	fromResiduals := multiply(multiply(inverse, middle), inverse)
	s.variances = make([]float64, len(inverse))
	for i := range inverse {
		s.variances[i] = max(inverse[i][i], fromResiduals[i][i])
	}
}

func multiply(a, b [][]float64) [][]float64 {
	product := make([][]float64, len(a))
	for i := range a {
		product[i] = make([]float64, len(b))
		for k, v := range a[i] {
			if v == 0 {
				continue
			}
			for j, w := range b[k] {
				product[i][j] += v * w
			}
		}
	}
	return product
}

// errorFactor is how many times larger errors are than the residuals of equations show. Kernels with one
// label differ by what ran before them. On an H200, the means of CUPTI are within two such errors for
// 149 of 156 kernels (full), and for 94 of 123 (auto).
const errorFactor = 1.5

// applyLimits uses the times that operations took at most. Their mean bounds the mean duration: an estimate far above
// it is wrong, because few operations waited in the queue, for another reason than the operation before them. An
// estimate with a larger error says less than that bound. Without an estimate, kernels are assumed to take
// about equally long: some of many are followed at once by the next operation, so the lowest limits are close.
// The limits of copies are all about as close, so the lowest ones are those of short copies. An estimate that stays
// needs an error below its value, or one that comes mostly from gaps: equations may have two kernels only together.
func (d *Duration) applyLimits(l *limits) {
	const few, share = 5, 50
	isClose := d.IsEstimated && d.ErrorNs < max(d.MeanNs, 2*gapErrorNs)
	if len(l.list) < few {
		d.IsEstimated = isClose
		return
	}
	most := l.meanNs()
	switch {
	case !d.IsEstimated || d.MeanNs-2*d.ErrorNs > 2*most:
		if !isCopy(d.Op) {
			slices.Sort(l.list)
			most = max(shortestNs, float64(l.list[len(l.list)/share]))
		}
	case d.ErrorNs <= (most-shortestNs)/4:
		d.IsEstimated = isClose
		return
	}
	d.MeanNs, d.ErrorNs = (shortestNs+most)/2, (most-shortestNs)/4
	d.IsEstimated, d.IsLimited = true, true
}

// labelUse has sums over the equations of a label.
type labelUse struct {
	alone, operations, graphs float64 // equations with this label only, its operations, and gaps before graphs
	ownNs, allNs              float64 // its time in equations with other labels, and the time of these
}

// usesOfLabels returns the uses of all labels, by column.
func (s *solver) usesOfLabels() []labelUse {
	uses := make([]labelUse, len(s.used))
	for i := range s.equations {
		eq := &s.equations[i]
		for _, t := range eq.terms {
			column := s.columns[t.label]
			u := &uses[column]
			u.operations, u.graphs = u.operations+float64(t.count), u.graphs+float64(eq.graphs)
			if len(eq.terms) == 1 {
				u.alone++
			} else {
				u.ownNs, u.allNs = u.ownNs+float64(t.count)*s.x[column], u.allNs+eq.valueOf()
			}
		}
	}
	return uses
}

// isHidden reports whether a label has few times of its own, and a negligible part of the times of others. What is left
// of these times after all others is then mostly their errors.
func (u *labelUse) isHidden() bool {
	const few, negligible = 5, 0.01
	return u.alone < few && u.ownNs < negligible*u.allNs
}

// gapErrorNs returns the error of a duration by the gaps after the operations.
func (u *labelUse) gapErrorNs() float64 {
	return gapErrorNs + min(1, u.graphs/max(1, u.operations))*(graphGapErrorNs-gapErrorNs)
}

func (s *solver) durations(pid int32) []Duration {
	var list []Duration
	uses := s.usesOfLabels()
	for label, key := range s.set.keys {
		d := Duration{
			Pid:        pid,
			Op:         key.op,
			Label:      key.label,
			Operations: s.set.operations[label],
			Alone:      s.set.alone[label],
		}
		_, prior := priorOf(key)
		if column := s.columns[label]; column >= 0 && s.variances != nil && (prior > 0 || !uses[column].isHidden()) {
			d.MeanNs, d.IsEstimated = s.x[column], true
			systematicNs := uses[column].gapErrorNs()
			if isCopy(key.op) {
				systematicNs = copyErrorNs
			}
			d.ErrorNs = errorFactor * math.Sqrt(s.variances[column]+systematicNs*systematicNs)
		}
		d.applyLimits(&s.set.limits[label])
		list = append(list, d)
	}
	return list
}
