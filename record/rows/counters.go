//go:build linux

package rows

import "github.com/gpurec/gpurec/format"

// maxSubjects limits the metrics that Counters knows: 8 MiB.
const maxSubjects = 1 << 16

// Sample is one sample of a metric of a thread, process, cgroup or machine. Message is the path of a cgroup.
type Sample struct {
	Pid, Tid      int32
	Name, Message string
	Value         float64
}

// Counters turns samples into rows of kind host. It leaves out rows of values that have not changed. A row
// with the old value precedes the next change, so that a change lies between two rows that follow each
// other. It is not safe for concurrent use.
type Counters struct{ known map[subject]*lastSample }

// subject is a metric of a thread, process, cgroup or machine.
type subject struct {
	pid, tid      int32
	name, message string
}

// lastSample is the last sample of a metric.
type lastSample struct {
	value float64
	ns    int64
	// isWritten says that a row has this sample.
	isWritten bool
}

// NewCounters returns Counters without metrics.
func NewCounters() *Counters { return &Counters{known: make(map[subject]*lastSample)} }

// Append appends the rows of samples that were taken at a time. now is in Unix ns.
func (c *Counters) Append(rows []format.Row, now int64, samples ...Sample) []format.Row {
	for _, s := range samples {
		key := subject{s.Pid, s.Tid, s.Name, s.Message}
		last := c.known[key]
		if last == nil {
			if len(c.known) >= maxSubjects {
				continue
			}
			last = new(lastSample)
			c.known[key] = last
			rows = append(rows, key.row(now, s.Value))
			*last = lastSample{s.Value, now, true}
			continue
		}
		isChanged := last.value != s.Value
		if isChanged {
			if !last.isWritten {
				rows = append(rows, key.row(last.ns, last.value))
			}
			rows = append(rows, key.row(now, s.Value))
		}
		*last = lastSample{s.Value, now, isChanged}
	}
	return rows
}

// Start appends the first row of a counter that began to count at a time: its value was 0 then. It does
// nothing if the counter is known.
func (c *Counters) Start(rows []format.Row, ns int64, s Sample) []format.Row {
	if _, ok := c.known[subject{s.Pid, s.Tid, s.Name, s.Message}]; ok {
		return rows
	}
	s.Value = 0
	return c.Append(rows, ns, s)
}

// End appends the last samples of a process that have no row, and forgets its metrics. The process 0 is the
// machine.
func (c *Counters) End(rows []format.Row, pid int32) []format.Row {
	for key, last := range c.known {
		if key.pid != pid {
			continue
		}
		if !last.isWritten {
			rows = append(rows, key.row(last.ns, last.value))
		}
		delete(c.known, key)
	}
	return rows
}

func (s subject) row(ns int64, value float64) format.Row {
	return format.Row{
		Kind: format.KindHost, StartNs: ns, Device: -1, Pid: s.pid, Tid: s.tid,
		Name: s.name, Message: s.message, Value: value,
	}
}
