package ship

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/format"
)

// maxSeries bounds the identities of processes with series of their own. Further ones are added up as "other".
const maxSeries = 64

// other is the process of series above maxSeries.
const other = "other"

// Collector makes the metrics of an agent. Each Collect asks the agent. Its methods are safe for concurrent use.
type Collector struct {
	read       func(context.Context) (agent.Metrics, error)
	resultName func(int32) string
	onError    func(error)

	mu    sync.Mutex
	own   map[agent.ProcessIdentity]bool // false: a part of "other" as long as it exists
	descs map[string]*prometheus.Desc
	last  string // the last error, to report each one once
}

// NewCollector returns a collector of the agent that read asks. resultName names CUDA results. onError is called if
// the agent does not answer, once for each reason.
func NewCollector(read func(context.Context) (agent.Metrics, error), resultName func(int32) string,
	onError func(error),
) *Collector {
	c := &Collector{
		read: read, resultName: resultName, onError: onError, own: make(map[agent.ProcessIdentity]bool),
		descs: make(map[string]*prometheus.Desc),
	}
	for i := range Table {
		m := &Table[i]
		c.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// readTimeout bounds asking the agent.
const readTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	m, err := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := output{c, to}
	c.noteError(err)
	if err != nil {
		o.send(&agentUp, 0)
		return
	}
	o.send(&agentUp, 1)
	o.agent(&m)
	o.processes(m.Processes)
	for i := range m.GPUs {
		o.gpu(&m.GPUs[i])
	}
}

// noteError reports a new error.
func (c *Collector) noteError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.last {
		c.onError(err)
	}
	c.last = text
}

// output sends metrics of one scrape.
type output struct {
	collector *Collector
	to        chan<- prometheus.Metric
}

func (o output) metric(m *Metric, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(o.collector.descs[m.Name], m.Kind, value, labels...)
}

func (o output) send(m *Metric, value float64, labels ...string) {
	o.to <- o.metric(m, value, labels...)
}

// agent sends the metrics of the agent itself.
func (o output) agent(m *agent.Metrics) {
	o.send(&agentStart, float64(m.StartNs)/1e9)
	o.send(&callsTotal, float64(m.Calls))
	for class, n := range m.LostCalls {
		o.send(&lostTotal, float64(n), class)
	}
	if m.OverheadPercent >= 0 {
		o.send(&overheadRatio, m.OverheadPercent/100)
	}
	o.send(&ringBytes, float64(m.RingBytes))
	o.send(&captureCount, float64(m.Captures))
	o.send(&captureBytes, float64(m.CaptureBytes))
	o.send(&sealing, float64(m.Sealing))
	o.send(&sealFailures, float64(m.SealFailed))
	for i := range m.Triggers {
		o.trigger(&m.Triggers[i])
	}
}

// trigger sends the number of events of a kind. Captured ones have the newest recording as exemplar.
func (o output) trigger(t *agent.TriggerCount) {
	metric := o.metric(&triggersTotal, float64(t.Count), t.Kind, t.Outcome)
	if t.Outcome == format.TriggerCaptured && t.Newest != "" {
		with, err := prometheus.NewMetricWithExemplars(metric, prometheus.Exemplar{
			Value: 1, Labels: prometheus.Labels{"recording": t.Newest},
		})
		if err == nil { // an ID of more than 128 characters has no exemplar
			metric = with
		}
	}
	o.to <- metric
}

// series are the sums of processes with the same labels.
type series struct {
	id      agent.ProcessIdentity
	running int
	used    int64
	hasUsed bool
	agent.Counters
}

// processes sends the metrics of processes.
func (o output) processes(list []agent.ProcessTotals) {
	for _, s := range o.collector.group(list) {
		id := &s.id
		labels := []string{id.Name, id.Job, id.Attempt, id.Rank, id.Namespace, id.Pod, id.GPUs}
		o.send(&processes, float64(s.running), labels...)
		o.send(&processCalls, float64(s.Calls), labels...)
		o.send(&launches, float64(s.Launches), labels...)
		o.send(&graphLaunches, float64(s.GraphLaunches), labels...)
		o.send(&syncCalls, float64(s.Syncs), labels...)
		o.send(&syncSeconds, float64(s.SyncNs)/1e9, labels...)
		if s.hasUsed {
			o.send(&usedBytes, float64(s.used), labels...)
		}
		for kind, t := range s.Memory {
			l := with(labels, kind)
			o.send(&allocations, float64(t.AllocatedBytes), l...)
			o.send(&frees, float64(t.FreedBytes), l...)
			o.send(&live, float64(t.AllocatedBytes-t.FreedBytes), l...)
		}
		for kind, t := range s.Copies {
			l := with(labels, kind)
			o.send(&copyCalls, float64(t.Calls), l...)
			o.send(&copyBytes, float64(t.Bytes), l...)
		}
		for result, n := range s.Errors {
			o.send(&errorsTotal, float64(n), with(labels, o.errorName(result))...)
		}
	}
}

func (o output) errorName(result int32) string {
	if result < 0 {
		return other
	}
	return o.collector.resultName(result)
}

// group adds up processes with the same labels. An identity that has no series of its own never gets one while it
// exists, so that "other" only increases: the agent adds ended identities to its own "other".
func (c *Collector) group(list []agent.ProcessTotals) map[agent.ProcessIdentity]*series {
	seen := make(map[agent.ProcessIdentity]bool)
	for i := range list {
		seen[list[i].ProcessIdentity] = true
	}
	used := 0
	for id, own := range c.own {
		if !seen[id] {
			delete(c.own, id)
		} else if own {
			used++
		}
	}
	sums := make(map[agent.ProcessIdentity]*series)
	for i := range list {
		p := &list[i]
		id := p.ProcessIdentity
		own, known := c.own[id]
		if !known {
			if own = used < maxSeries; own {
				used++
			}
			c.own[id] = own
		}
		if !own {
			id = agent.ProcessIdentity{Name: other}
		}
		if sums[id] == nil {
			sums[id] = &series{id: id}
		}
		sums[id].add(p)
	}
	return sums
}

// add adds a process.
func (s *series) add(p *agent.ProcessTotals) {
	if p.Pid != 0 {
		s.running++
	}
	for _, bytes := range p.UsedBytes {
		s.used, s.hasUsed = s.used+bytes, true
	}
	s.Counters.Sum(&p.Counters)
}

// gpu sends the metrics of a GPU.
func (o output) gpu(g *agent.GPUMetrics) {
	labels := []string{strconv.Itoa(int(g.Index)), g.UUID, g.Name}
	for i := range samples {
		m := &samples[i]
		if value, ok := g.Samples[m.Sample]; ok {
			o.send(m, value*m.Factor, with(labels, m.Fixed...)...)
		}
	}
	if value, ok := g.Samples["clock_event_reasons"]; ok {
		for _, r := range clockReasons {
			on := 0.0
			if int64(value)&int64(r.bit) != 0 {
				on = 1
			}
			o.send(&throttled, on, with(labels, r.name)...)
		}
	}
	for code, n := range g.Xids {
		o.send(&xidTotal, float64(n), with(labels, strconv.FormatInt(code, 10))...)
	}
}
