package pprof

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var gpuProfileColumns = []report.Column{
	launchProfileColumns[0],
	{
		Key:   "gpu_time",
		Title: "",
		Unit:  report.UnitNs,
		About: "estimated time of the launches on the GPU: their number x the mean of the kernel, grid and call " +
			"site. " +
			"Launches of unknown GPU time count as 0. A comment of the profile has the error",
	},
}

// NoGPUTimesError says that a recording has no GPU times.
type NoGPUTimesError struct{}

// Error says how to record GPU times.
func (NoGPUTimesError) Error() string {
	return "the recording has no GPU times: record with --gpu-time"
}

// gpuOperation identifies launches with one GPU time: a grid, or a graph.
type gpuOperation struct {
	graph int64 // handle
	grid  [3]int32
}

// compare orders operations.
func (w *gpuOperation) compare(o *gpuOperation) int {
	return cmp.Or(cmp.Compare(w.graph, o.graph), slices.Compare(w.grid[:], o.grid[:]))
}

// gpuTimes has the GPU times of launches, and sums up those of the profile.
type gpuTimes struct {
	t     *timeline.Timeline
	times *activity.SiteTimes
	sum   activity.TimeSum

	ptr  []int64
	grid [3][]int32
}

// read computes the GPU times. It returns a NoGPUTimesError if the recording has none.
func (g *gpuTimes) read(t *timeline.Timeline, w query.Window) (err error) {
	g.t = t
	if g.times, err = activity.TimesOf(t, w); err == nil && g.times == nil {
		return NoGPUTimesError{}
	}
	return err
}

// readColumns reads the columns of a row group.
func (g *gpuTimes) readColumns(group *format.Group) {
	g.ptr = group.Int64("ptr", g.ptr)
	for i, axis := range []string{"x", "y", "z"} {
		g.grid[i] = group.Int32("grid_"+axis, g.grid[i])
	}
}

// operationOfRow returns the operation of row i.
func (g *gpuTimes) operationOfRow(i int, isGraph bool) gpuOperation {
	if isGraph {
		return gpuOperation{graph: g.ptr[i]}
	}
	return gpuOperation{grid: [3]int32{g.grid[0][i], g.grid[1][i], g.grid[2][i]}}
}

// addTime returns the GPU time of a sample, ns, and adds it to the sum.
func (g *gpuTimes) addTime(k *callSampleKey, v *callSampleValue, kernel string) int64 {
	launches := float64(v.weight) / sampling.LaunchWeightUnit
	var e activity.Estimate
	if site := g.t.SiteOfStack(k.stack); k.graph {
		e = g.times.OfGraph(k.pid, k.operation.graph, site)
	} else {
		e = g.times.OfKernel(k.pid, kernel, k.operation.grid, site)
	}
	g.sum.Add(e, launches)
	return units.RoundInt(launches * e.MeanNs)
}

// comment describes the sum of the GPU times.
func (g *gpuTimes) comment(w query.Window) string {
	return "GPU time: " + gputime.Sentence(&g.sum, w, "kernels and graphs", "launches")
}
