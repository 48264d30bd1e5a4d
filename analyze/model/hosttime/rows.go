package hosttime

import (
	"encoding/json"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Wait is a time in which a thread was on no processor. All times are Unix ns.
type Wait struct {
	FromNs, ToNs int64
	// QueuedNs is the last part of the wait, in which the thread was in a run queue.
	QueuedNs int64
	Fact     *format.WaitFact // never nil; shared, do not change it
	State    string           // one of the State constants of format
	origin.Thread
	// Waker is the thread that ended the wait, as Fact.EndedBy says. Zero: none, or unknown.
	Waker origin.Thread
	// RanNs is the time that the thread was on processors since its last wait with a row; 0: unknown.
	RanNs      int64
	CPU, Stack int32 // CPU after the wait; Stack 0: unknown
	IsOpen     bool  // it had not ended when the row was written
	IsInferred bool  // Stack is that of another wait in the same place
	// Continues reports that a timer or a signal had cut the wait: it continues the last one that is not runnable.
	Continues bool
}

// CPUSample is a thread that was found on a processor. It represents ForNs of CPU time.
type CPUSample struct {
	AtNs, ForNs int64
	origin.Thread
	CPU, Stack int32
}

// Pause is a garbage collection of an interpreter. Tid is 0 and Generation is -1 if unknown.
type Pause struct {
	FromNs, ToNs int64
	UncertainNs  int64 // of both ends
	origin.Thread
	Stack, Generation int32
}

// Metric is a value of a metric. Tid is 0 for processes and cgroups, and so is Pid for the machine.
type Metric struct {
	AtNs  int64
	Value float64
	Name  string // one of the Host constants of format
	// Cgroup is the path of the cgroup that has the value, if any.
	Cgroup string
	origin.Thread
}

// ThreadState is the activity of a thread at AtNs, which began at SinceNs.
type ThreadState struct {
	AtNs, SinceNs int64
	CPUNs         int64            // CPU time of the thread so far
	Fact          *format.WaitFact // never nil; shared, do not change it
	State         string           // one of the State constants of format
	origin.Thread
	CPU, Stack int32
	IsInferred bool
}

// Rows are the rows of a row group by kind, in the order of the file.
type Rows struct {
	Waits   []Wait
	Samples []CPUSample
	Pauses  []Pause
	Metrics []Metric
	States  []ThreadState
	// Bad is the number of rows with impossible values.
	Bad int64
}

// HasRows reports whether the recording has rows of class host.
func HasRows(t *timeline.Timeline) bool { return len(t.Host) > 0 }

// HasWakers reports whether the recording says who ended waits. An error of reading is one of Of, too.
func HasWakers(t *timeline.Timeline) bool {
	if !HasRows(t) {
		return false
	}
	x, err := indexOf(t)
	return err == nil && x.hasWakers
}

// EachGroup calls yield with the rows of each row group, in the order of the file. The rows are valid until
// yield returns. Rows of one thread and kind are in the order of their ends. It returns the first error of
// reading or of yield.
func EachGroup(t *timeline.Timeline, yield func(*Rows) error) error {
	var r groupReader
	for _, g := range t.Host {
		rows, err := r.read(g)
		if err != nil {
			return t.WrapReadError(err)
		}
		if err := yield(rows); err != nil {
			return err
		}
	}
	return nil
}

// maxSampleNs bounds the time that one CPU sample represents. Recorders sample several times a second.
const maxSampleNs = 10_000_000_000

// groupReader reads row groups. It keeps its memory from one to the next.
type groupReader struct {
	rows Rows

	kind, name, message, status format.Strings
	start, dur                  []int64
	pid, tid, cpu, stack        []int32
	flags, result               []int32
	wakerPid, wakerTid          []int32
	ran                         []int64
	value                       []float64
	facts                       []*format.WaitFact // by index of a message
}

// read returns the rows of a row group. They are valid until the next call.
func (r *groupReader) read(g *format.Group) (*Rows, error) {
	r.kind, r.name = g.StringsInto("kind", r.kind), g.StringsInto("name", r.name)
	r.message, r.status = g.StringsInto("message", r.message), g.StringsInto("stack_status", r.status)
	r.start, r.dur = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur)
	r.pid, r.tid, r.cpu = g.Int32("pid", r.pid), g.Int32("tid", r.tid), g.Int32("cpu", r.cpu)
	r.stack, r.flags, r.result = g.Int32("stack_id", r.stack), g.Int32("flags", r.flags), g.Int32("result", r.result)
	r.value = g.Float64("value", r.value)
	r.wakerPid, r.wakerTid = g.Int32("waker_pid", r.wakerPid), g.Int32("waker_tid", r.wakerTid)
	r.ran = g.Int64("ran_ns", r.ran)
	if err := g.Err(); err != nil {
		return nil, err
	}
	r.facts = append(r.facts[:0], make([]*format.WaitFact, len(r.message.Dict))...)
	rows := &r.rows
	rows.Waits, rows.Samples, rows.Pauses = rows.Waits[:0], rows.Samples[:0], rows.Pauses[:0]
	rows.Metrics, rows.States, rows.Bad = rows.Metrics[:0], rows.States[:0], 0
	for i := range r.start {
		r.add(i)
	}
	return rows, nil
}

// add adds row i.
func (r *groupReader) add(i int) {
	thread := origin.Thread{Pid: r.pid[i], Tid: r.tid[i]}
	at, end := r.start[i], units.EndOfRange(r.start[i], max(0, r.dur[i]))
	if r.isBad(i) {
		r.rows.Bad++
	}
	switch r.kind.At(i) {
	case format.KindWait:
		r.rows.Waits = append(r.rows.Waits, Wait{
			FromNs: at, ToNs: end, QueuedNs: wholeNs(r.value[i], end-at), Fact: r.fact(i), State: r.name.At(i),
			Thread: thread, CPU: r.cpu[i], Stack: r.stack[i], IsOpen: r.flags[i]&format.FlagOpen != 0,
			IsInferred: r.status.At(i) == format.StackInferred, Continues: r.flags[i]&format.FlagContinues != 0,
			Waker: origin.Thread{Pid: r.wakerPid[i], Tid: r.wakerTid[i]}, RanNs: max(0, r.ran[i]),
		})
	case format.KindCPUSample:
		r.rows.Samples = append(
			r.rows.Samples,
			CPUSample{
				AtNs:   at,
				ForNs:  min(max(0, r.dur[i]), maxSampleNs),
				Thread: thread,
				CPU:    r.cpu[i],
				Stack:  r.stack[i],
			},
		)
	case format.KindGC:
		r.rows.Pauses = append(r.rows.Pauses, Pause{
			FromNs: at, ToNs: end, UncertainNs: wholeNs(r.value[i], end-at), Thread: thread, Stack: r.stack[i],
			Generation: r.result[i],
		})
	case format.KindHost:
		r.rows.Metrics = append(r.rows.Metrics,
			Metric{AtNs: at, Value: finite(r.value[i]), Name: r.name.At(i), Cgroup: r.message.At(i), Thread: thread})
	case format.KindThreadState:
		r.rows.States = append(r.rows.States, ThreadState{
			AtNs: at, SinceNs: at - max(0, r.dur[i]), CPUNs: int64(max(0, r.value[i])), Fact: r.fact(i),
			State: r.name.At(i), Thread: thread, CPU: r.cpu[i], Stack: r.stack[i],
			IsInferred: r.status.At(i) == format.StackInferred,
		})
	}
}

// wholeNs returns a value in ns between 0 and most.
func wholeNs(value float64, most int64) int64 {
	if !(value > 0) { // or NaN
		return 0
	}
	return int64(min(value, float64(most)))
}

// finite returns a value, or 0 if it is no number. No counter is as large as the limit.
func finite(value float64) float64 {
	const limit = 1e18
	if !(value >= -limit && value <= limit) {
		return 0
	}
	return value
}

// fact returns the message of row i. A message that is no WaitFact is an empty one.
func (r *groupReader) fact(i int) *format.WaitFact {
	n := r.message.Index[i]
	if r.facts[n] == nil {
		r.facts[n] = new(format.WaitFact)
		text := r.message.Dict[n]
		if text != "" && json.Unmarshal([]byte(text), r.facts[n]) != nil {
			r.facts[n] = &unreadable
		}
	}
	return r.facts[n]
}
