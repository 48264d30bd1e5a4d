package idle

import "github.com/gpurec/gpurec/analyze/stats"

// The window of a device is divided into cells of equal length. Slices are printed, parts are drawn, and
// phases are built from parts.
const (
	// Slices is the number of slices of a window.
	Slices       = 20
	cellsOfSlice = 200
	numCells     = Slices * cellsOfSlice
	cellsOfPart  = 20
)

// cell sums up the states of a device in a part of its window.
type cell struct {
	Time
	// shortestNs and longestNs are sums of the bounds of durations: of the main stream, and of all operations.
	shortestNs, longestNs float64
	waitNs                float64 // time of host threads in calls that wait for the GPU
	depthNs               float64 // sum of the times that operations waited in the queue
}

// delays are times from a call to the start of its operation.
type delays struct{ stats.Durations }

// spread calls yield with each cell that a span of time overlaps, and the length of the overlap.
func (d *Device) spread(fromNs, toNs int64, yield func(c *cell, ns float64)) {
	fromNs, toNs = max(fromNs, d.Window.FromNs), min(toNs, d.Window.ToNs)
	if toNs <= fromNs {
		return
	}
	cellNs := d.cellNs()
	first := min(numCells-1, int(float64(fromNs-d.Window.FromNs)/cellNs))
	for i := first; i < numCells; i++ {
		low := max(float64(fromNs-d.Window.FromNs), float64(i)*cellNs)
		high := min(float64(toNs-d.Window.FromNs), float64(i+1)*cellNs)
		if high <= low {
			return
		}
		yield(&d.cells[i], high-low)
	}
}

// cellNs returns the length of a cell.
func (d *Device) cellNs() float64 { return max(1, float64(d.Window.DurNs())/numCells) }

// addOperation adds the queue time and the bounds of the duration of an operation.
func (d *Device) addOperation(at *placed) {
	d.spread(at.call.callNs, at.startNs, func(c *cell, ns float64) { c.depthNs += ns })
	if at.startNs >= d.Window.FromNs && at.startNs < d.Window.ToNs {
		slice := min(Slices-1, int(float64(at.startNs-d.Window.FromNs)/d.cellNs())/cellsOfSlice)
		d.startDelays[slice].Add(at.startNs - at.call.callNs)
	}
	if at.class == classNone {
		return
	}
	lengthNs := float64(max(1, at.endNs-at.startNs))
	isMain := at.call.stream == d.MainStream
	d.spread(at.startNs, at.endNs, func(c *cell, ns float64) {
		c.longestNs += ns * at.longestNs / lengthNs
		if isMain && at.class != classCopy {
			c.shortestNs += ns * at.shortestNs / lengthNs
		}
	})
}

// sum returns the times of the cells from one index up to another.
func (d *Device) sum(from, to int) (sum Time) {
	var shortestNs, longestNs float64
	for i := from; i < to; i++ {
		c := &d.cells[i]
		sum.Add(c.Time)
		shortestNs += c.shortestNs
		longestNs += c.longestNs
	}
	if sum.UnrecordedNs == 0 {
		sum.Idle.MaxNs = max(0, min(sum.Idle.MaxNs, sum.SpanNs-shortestNs))
		sum.Idle.MinNs = min(sum.SpanNs, max(sum.Idle.MinNs, sum.SpanNs-longestNs))
	}
	sum.Idle.ProbableNs = max(sum.Idle.MinNs, min(sum.Idle.MaxNs, sum.Idle.ProbableNs))
	sum.Idle.MaxNs = max(sum.Idle.MaxNs, sum.Idle.ProbableNs)
	return sum
}

// waitNs returns how long host threads waited for the GPU.
func (d *Device) waitNs(from, to int) (ns float64) {
	for i := from; i < to; i++ {
		ns += d.cells[i].waitNs
	}
	return ns
}

// depths returns the average number of operations in the queue in each cell of a range.
func (d *Device) depths(from, to int) (list []float64) {
	for i := from; i < to; i++ {
		list = append(list, d.cells[i].depthNs/d.cellNs())
	}
	return list
}
