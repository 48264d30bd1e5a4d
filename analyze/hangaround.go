package analyze

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// pollUse is what is known of queries that are only counted, for all processes together.
type pollUse struct {
	rows []pollRow
	// perSec is how many a second there were in the later half of the silent time, by whom of the processes they can be, and which of its
	// threads: the one that was last seen.
	perSec   float64
	by       map[int32]bool
	suspects map[int32]*threadLife
}

// pollRow is one function that is counted.
type pollRow struct {
	name          string
	total         float64 // in the window
	before, since float64 // a second, before the silent time and in the later half of it
	overTime      [pollParts]float64
	silentForNs   int64
}

// pollParts is in how many parts of the window queries are told of.
const pollParts = 40

// polls reads the counts of queries and who can have made them: processes that are silent, and in no call.
func (s *hangScan) polls() (*pollUse, error) {
	p := &pollUse{by: make(map[int32]bool), suspects: make(map[int32]*threadLife)}
	silentFrom := s.Window.FromNs
	for pid, life := range s.processes {
		if exitNs := s.T.Facts.Processes[pid].ExitNs; exitNs > 0 && exitNs <= s.endNs {
			continue
		}
		silentFrom = max(silentFrom, life.lastNs)
		inCall := slices.ContainsFunc(life.threads, func(l *threadLife) bool { return len(l.open) > 0 })
		if s.endNs-life.lastNs-s.T.GapNs(life.lastNs, s.endNs) < s.longNs || inCall {
			continue
		}
		p.by[pid] = true
		p.suspects[pid] = slices.MaxFunc(life.threads, func(a, b *threadLife) int {
			return cmp.Or(cmp.Compare(a.lastNs, b.lastNs), cmp.Compare(b.Tid, a.Tid))
		})
	}
	err := s.readCounts(p, silentFrom)
	for i := range p.rows {
		p.perSec += p.rows[i].since
	}
	if s.endNs-silentFrom < s.longNs || p.perSec < pollsPerSecond {
		clear(p.by)
	}
	return p, err
}

// readCounts reads the rows of counts.
func (s *hangScan) readCounts(p *pollUse, silentFrom int64) error {
	index := make(map[string]int)
	for _, g := range s.T.Rec.Groups() {
		if g.Class() != format.ClassSample || !slices.Contains(g.Kinds(), format.KindCount) {
			continue
		}
		kind, name := g.Strings("kind"), g.Strings("name")
		start, dur, value := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Float64("value", nil)
		if err := g.Err(); err != nil {
			return s.T.Wrap(err)
		}
		for i, at := range start {
			if kind.At(i) != format.KindCount || !(value[i] > 0) || math.IsInf(value[i], 0) || !strings.HasSuffix(catalog.BaseName(name.At(i)), "Query") {
				continue
			}
			k, ok := index[name.At(i)]
			if !ok {
				k = len(p.rows)
				index[name.At(i)] = k
				p.rows = append(p.rows, pollRow{name: name.At(i), silentForNs: s.endNs - silentFrom})
			}
			p.rows[k].add(s.Window, at, units.EndOf(at, dur[i]), value[i], silentFrom)
		}
	}
	for i := range p.rows {
		r := &p.rows[i]
		r.before /= max(1e-9, float64(silentFrom-s.Window.FromNs)/1e9)
		r.since /= max(1e-9, float64(r.silentForNs)/2e9)
	}
	slices.SortFunc(p.rows, func(a, b pollRow) int {
		return cmp.Or(cmp.Compare(b.since, a.since), cmp.Compare(b.total, a.total), strings.Compare(a.name, b.name))
	})
	return nil
}

// add spreads the calls of an interval evenly over it.
func (r *pollRow) add(w query.Window, fromNs, toNs int64, calls float64, silentFrom int64) {
	share := func(from, to int64) float64 {
		if toNs <= fromNs {
			if fromNs >= from && fromNs < to {
				return calls
			}
			return 0
		}
		return calls * max(0, float64(min(to, toNs))-float64(max(from, fromNs))) / (float64(toNs) - float64(fromNs))
	}
	r.total += share(w.FromNs, w.ToNs)
	r.before += share(w.FromNs, silentFrom)
	r.since += share(w.ToNs-(w.ToNs-silentFrom)/2, w.ToNs) // who stopped asking does not poll
	step := float64(w.DurNs()) / pollParts
	for i := range r.overTime {
		from := w.FromNs + int64(float64(i)*step)
		r.overTime[i] += share(from, w.FromNs+int64(float64(i+1)*step))
	}
}

// gpuSilence is what a process's GPU did while the process did nothing.
type gpuSilence struct {
	device  int32
	busyPct any // float64: share of the time in which a kernel ran; nil: not known
	smPct   any // float64: SMs active
	meaning string
}

// utilizationLagNs is how long after its work a GPU may still be said to be busy: NVML's sampling period.
const utilizationLagNs = 1_000_000_000

// askGPU looks what the GPU of a silent process did, and what that means.
func (s *hangScan) askGPU(p *processState) {
	call := p.waitingIn
	if call == nil {
		call = p.life.lastLaunch()
	}
	if call == nil {
		return
	}
	d := s.of(call)
	device, ok := s.T.Facts.NVMLDevice(p.life.pid, s.T.DeviceOf(p.life.pid, d.context, d.device))
	if !ok {
		return
	}
	from := s.endNs - p.silentNs
	p.gpu = gpuSilence{device: device, busyPct: s.mean(catalog.MetricGPUBusy, device, from), smPct: s.mean(catalog.MetricSMActive, device, from)}
	busy, ok := p.gpu.busyPct.(float64)
	if !ok {
		if busy, ok = p.gpu.smPct.(float64); !ok {
			return
		}
	}
	p.gpu.meaning = fmt.Sprintf("GPU %d was busy %.0f %% of the silent time", device, busy)
	if sm, ok := p.gpu.smPct.(float64); ok && p.gpu.busyPct != nil {
		p.gpu.meaning += fmt.Sprintf(" (SMs active %.0f %%)", sm)
	}
	p.gpu.meaning += s.reading(p, busy)
}

// reading says what it means that a GPU was that busy.
func (s *hangScan) reading(p *processState, busy float64) string {
	kernel := s.lastKernel(p.life)
	switch {
	case busy >= gpuBusyPct && strings.Contains(strings.ToLower(kernel), "nccl"):
		return fmt.Sprintf(": the last kernel, %s, is a collective; those spin while a peer is missing", kernel)
	case busy >= gpuBusyPct && p.waitingIn != nil:
		return ": a kernel does not end, or somebody else uses the GPU"
	case busy >= gpuBusyPct:
		return ": it still works on what it was given, or for somebody else"
	case busy >= gpuIdlePct:
		return ": there is work, of this process or another"
	case p.waitingIn != nil:
		return ": no kernel runs; what is waited for is not the GPU's work, but a host function, an event, a value in memory or a peer that does not come"
	}
	return ": neither the process nor its GPU does anything; look at the CPU: data loading, locks, network"
}

// mean is the average of a metric over the silent time, nil without samples. The first second counts only if there is no other.
func (s *hangScan) mean(metric string, device int32, from int64) any {
	id, ok := s.T.Facts.Metrics.Ids[metric]
	if !ok {
		return nil
	}
	for _, begin := range []int64{units.EndOf(from, utilizationLagNs), from} {
		var of metricpkg.Series
		for _, sample := range s.T.Facts.Samples {
			if sample.Metric == id && sample.Device == device && sample.AtNs > begin && sample.AtNs <= s.endNs && !math.IsNaN(sample.Value) && !math.IsInf(sample.Value, 0) {
				of.AtNs, of.Values = append(of.AtNs, sample.AtNs), append(of.Values, sample.Value)
			}
		}
		if len(of.Values) > 0 {
			of.Weigh()
			return of.Mean()
		}
	}
	return nil
}

// troubleNs is how long before the last progress errors may have led to it.
const troubleNs = 10_000_000_000

// trouble says which Xids and errors a process had shortly before it made no progress any more, or since.
func (s *hangScan) trouble(p *processState) (list []string) {
	from := p.life.lastNs - troubleNs
	for i := range s.T.Facts.Xids {
		x := &s.T.Facts.Xids[i]
		ofDevice := x.Device >= 0 && x.Pid == 0 && p.gpu.meaning != "" && x.Device == p.gpu.device
		if x.Before || x.AtNs < from || x.AtNs > s.endNs || x.Pid != p.life.pid && !ofDevice {
			continue
		}
		e, _ := x.Describe()
		list = append(list, fmt.Sprintf("%s %d (%s) %s before", x.Kind(), x.Code, e.Name, units.Duration(s.endNs-x.AtNs)))
	}
	if c := &p.life.lastError; p.life.errors > 0 && c.endNs >= from {
		d := s.of(c)
		list = append(list, fmt.Sprintf("%s returned %d %s %s before", d.name, d.result, catalog.ResultName(d.result), units.Duration(s.endNs-c.endNs)))
	}
	return list
}

// kernelOf names what a launch launches.
func (s *hangScan) kernelOf(c *callRef) string {
	d := s.of(c)
	if d.kernel == "" {
		return d.name
	}
	return symbolize.ShortKernel(d.kernel)
}

// waitsFor says what a call waits for, as far as it tells.
func (s *hangScan) waitsFor(c *callRef) string {
	d := s.of(c)
	switch name := catalog.BaseName(d.name); {
	case name == "cuEventSynchronize":
		text := fmt.Sprintf("event 0x%x", uint64(d.ptr))
		if stream, atNs, ok := s.recordedOn(c.pid, d.ptr, c.startNs); ok {
			text += fmt.Sprintf(", recorded on stream %s %s before", query.StreamName(stream), units.Duration(c.startNs-atNs))
		}
		return text
	case strings.HasPrefix(name, "cuCtxSynchronize"):
		return "all streams of the context"
	case d.kind == format.KindSync:
		return "stream " + query.StreamName(d.stream)
	case d.kind == format.KindMemcpy || d.kind == format.KindMemset:
		return "a copy or fill on stream " + query.StreamName(d.stream)
	case d.kind == format.KindLaunch:
		return "room in the queue of stream " + query.StreamName(d.stream)
	}
	return ""
}
