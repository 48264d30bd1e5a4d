package hang

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

// pollCounts is what is known of queries that are only counted, for all processes together.
type pollCounts struct {
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

// ReadPolls reads the counts of queries and who can have made them: processes that are silent, and in no call.
func (s *Scan) ReadPolls() (*pollCounts, error) {
	p := &pollCounts{by: make(map[int32]bool), suspects: make(map[int32]*threadLife)}
	silentFrom := s.Window.FromNs
	for pid, life := range s.Processes {
		if exitNs := s.T.Facts.Processes[pid].ExitNs; exitNs > 0 && exitNs <= s.EndNs {
			continue
		}
		silentFrom = max(silentFrom, life.lastNs)
		inCall := slices.ContainsFunc(life.threads, func(l *threadLife) bool { return len(l.open) > 0 })
		if s.EndNs-life.lastNs-s.T.GapNs(life.lastNs, s.EndNs) < s.longNs || inCall {
			continue
		}
		p.by[pid] = true
		p.suspects[pid] = slices.MaxFunc(life.threads, func(a, b *threadLife) int {
			return cmp.Or(cmp.Compare(a.LastNs, b.LastNs), cmp.Compare(b.Tid, a.Tid))
		})
	}
	err := s.readCounts(p, silentFrom)
	for i := range p.rows {
		p.perSec += p.rows[i].since
	}
	if s.EndNs-silentFrom < s.longNs || p.perSec < pollsPerSecond {
		clear(p.by)
	}
	return p, err
}

// readCounts reads the rows of counts.
func (s *Scan) readCounts(p *pollCounts, silentFrom int64) error {
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
				p.rows = append(p.rows, pollRow{name: name.At(i), silentForNs: s.EndNs - silentFrom})
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
func (s *Scan) askGPU(p *ProcessVerdict) {
	call := p.waitingIn
	if call == nil {
		call = p.Life.lastLaunch()
	}
	if call == nil {
		return
	}
	d := s.Details(call)
	device, ok := s.T.Facts.NVMLDevice(p.Life.Pid, s.T.DeviceOf(p.Life.Pid, d.context, d.device))
	if !ok {
		return
	}
	from := s.EndNs - p.SilentNs
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
func (s *Scan) reading(p *ProcessVerdict, busy float64) string {
	kernel := s.lastKernel(p.Life)
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
func (s *Scan) mean(metric string, device int32, from int64) any {
	id, ok := s.T.Facts.Metrics.Ids[metric]
	if !ok {
		return nil
	}
	for _, begin := range []int64{units.EndOf(from, utilizationLagNs), from} {
		var of metricpkg.Series
		for _, sample := range s.T.Facts.Samples {
			if sample.Metric == id && sample.Device == device && sample.AtNs > begin && sample.AtNs <= s.EndNs && !math.IsNaN(sample.Value) && !math.IsInf(sample.Value, 0) {
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
func (s *Scan) trouble(p *ProcessVerdict) (list []string) {
	from := p.Life.lastNs - troubleNs
	for i := range s.T.Facts.Xids {
		x := &s.T.Facts.Xids[i]
		ofDevice := x.Device >= 0 && x.Pid == 0 && p.gpu.meaning != "" && x.Device == p.gpu.device
		if x.Before || x.AtNs < from || x.AtNs > s.EndNs || x.Pid != p.Life.Pid && !ofDevice {
			continue
		}
		e, _ := x.Describe()
		list = append(list, fmt.Sprintf("%s %d (%s) %s before", x.Kind(), x.Code, e.Name, units.Duration(s.EndNs-x.AtNs)))
	}
	if c := &p.Life.lastError; p.Life.errors > 0 && c.endNs >= from {
		d := s.Details(c)
		list = append(list, fmt.Sprintf("%s returned %d %s %s before", d.name, d.result, catalog.ResultName(d.result), units.Duration(s.EndNs-c.endNs)))
	}
	return list
}

// kernelOf names what a launch launches.
func (s *Scan) kernelOf(c *callRef) string {
	d := s.Details(c)
	if d.kernel == "" {
		return d.name
	}
	return symbolize.ShortKernel(d.kernel)
}

// waits.waitsFor says what a call waits for, as far as it tells.
func (s *Scan) waitsFor(c *callRef) string {
	d := s.Details(c)
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
