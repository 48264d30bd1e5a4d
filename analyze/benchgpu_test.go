package analyze_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// benchGPU runs the operations of the training job, and samples its two channels at launches, at most once in
// 50 µs, as `--gpu-time=auto` does.
type benchGPU struct {
	tw       *trainingWriter
	channels [2]benchChannel // kernels and memsets; copies to the device
	samples  []format.Row
}

// benchChannel is a channel of benchGPU.
type benchChannel struct {
	number     int32
	counter    int64   // operations that began by the last sample
	operations []int64 // starts of later operations, Unix ns
	freeNs     int64   // end of the last operation
	timeNs     int64   // start of the work counter
	sampled    int64   // time of the last sample
}

func newBenchGPU(tw *trainingWriter) *benchGPU {
	g := &benchGPU{tw: tw}
	for i := range g.channels {
		g.channels[i].number = int32(i + 1)
		tw.write(format.ClassOf(format.KindChannel), []format.Row{{
			Kind: format.KindChannel, StartNs: analyzetest.Epoch, Pid: 42, Channel: int32(i + 1), Device: -1,
		}})
	}
	return g
}

// run runs the operations of calls, and lets waits return after them.
func (g *benchGPU) run(calls []format.Row) {
	order := make([]*format.Row, 0, len(calls))
	for i := range calls {
		order = append(order, &calls[i])
	}
	slices.SortStableFunc(order, func(a, b *format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	for _, row := range order {
		switch {
		case row.Result != 0:
		case row.Kind == format.KindLaunch:
			g.channels[0].submit(row, 2000+row.Function%64*200)
			g.sample(row.StartNs)
		case row.Kind == format.KindMemset:
			g.channels[0].submit(row, 1500)
		case row.Kind == format.KindMemcpy:
			g.channels[1].submit(row, 1000+row.Bytes/50)
		case strings.HasPrefix(row.Name, "cuStreamSynchronize"):
			row.DurNs = max(row.DurNs, g.channels[0].freeNs-row.StartNs+3000)
		}
	}
	g.tw.write(format.ClassProgress, g.samples)
	g.samples = g.samples[:0]
}

func (c *benchChannel) submit(row *format.Row, ns int64) {
	start := max(c.freeNs+1000, row.StartNs+5000)
	c.operations = append(c.operations, start)
	c.freeNs = start + ns
}

// sample reads the words of all channels.
func (g *benchGPU) sample(ns int64) {
	for i := range g.channels {
		c := &g.channels[i]
		n := 0
		for n < len(c.operations) && c.operations[n] < ns-500 {
			c.timeNs = c.operations[n]
			n++
		}
		if n == 0 || ns-c.sampled < 50*analyzetest.Us {
			continue
		}
		c.counter += int64(n)
		c.operations, c.sampled = append(c.operations[:0], c.operations[n:]...), ns
		g.samples = append(g.samples, format.Row{
			Kind: format.KindProgress, StartNs: ns, Pid: 42, Channel: c.number, Counter: c.counter,
			GPUTimeNs: c.timeNs / 32 * 32, Device: -1,
		})
	}
}
