package hosttime_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const ms = analyzetest.Ms

// thread of all tests.
var thread = origin.Thread{Pid: 42, Tid: 43}

// hostRow returns a row of class host of the thread; at is ns from the start of the recording.
func hostRow(kind, name string, at, dur int64) format.Row {
	return format.Row{
		Kind: kind, Name: name, StartNs: analyzetest.Epoch + at, DurNs: dur, Pid: thread.Pid, Tid: thread.Tid,
		Device: -1, StackStatus: format.StackComplete,
	}
}

func wait(at, dur int64, stack int32, f format.WaitFact) format.Row {
	r := hostRow(format.KindWait, format.StateSleeping, at, dur)
	message, _ := json.Marshal(f)
	r.Message, r.StackID = string(message), stack
	return r
}

func queued(at, dur int64) format.Row {
	r := wait(at, dur, 1, format.WaitFact{Reason: format.ReasonRunQueue, OwnerPid: 7, OwnerTid: 8, Owner: "other"})
	r.Name, r.Value = format.StateRunnable, float64(dur)
	return r
}

// samplesIn returns CPU samples every 20 ms in a span.
func samplesIn(at, dur int64, stack int32) (rows []format.Row) {
	for ns := at + 10*ms; ns < at+dur; ns += 20 * ms {
		r := hostRow(format.KindCPUSample, "", ns, 20*ms)
		r.StackID = stack
		rows = append(rows, r)
	}
	return rows
}

func counter(name string, at int64, value int64) format.Row {
	r := hostRow(format.KindHost, name, at, 0)
	r.Value = float64(value)
	return r
}

func python(file string, line int32, function string) format.Frame {
	return format.Frame{Func: function, File: file, Line: line, Type: "python"}
}

// TestMeasure checks the parts of a span of 100 ms that begins at 1 s.
func TestMeasure(t *testing.T) {
	testclass.Unit(t)
	const from, length = 1000 * ms, 100 * ms
	pause := hostRow(format.KindGC, "", from+10*ms, 40*ms)
	pause.Result = 2
	throttled := func(at, value int64) format.Row {
		r := counter(format.HostThrottledNs, at, value)
		r.Tid, r.Message = 0, "/pod"
		return r
	}
	queuedSleep := wait(from, 100*ms, 1, format.WaitFact{Reason: format.ReasonSleep})
	queuedSleep.Value = float64(30 * ms)
	inferred := wait(from, 100*ms, 1, format.WaitFact{Reason: format.ReasonLock})
	inferred.StackStatus = format.StackInferred
	for _, test := range []struct {
		name string
		rows []format.Row
		want map[hosttime.Cause]int64 // ms
	}{
		{"nothing recorded", nil, map[hosttime.Cause]int64{hosttime.CauseUnknown: 100}},
		{"samples", samplesIn(from, length, 1), map[hosttime.Cause]int64{hosttime.CauseCPU: 100}},
		{
			"a wait without a row", samplesIn(0, 900*ms, 1),
			map[hosttime.Cause]int64{hosttime.CauseCPU: 30, hosttime.CauseUnknown: 70},
		},
		{
			"a sleep", append(samplesIn(from+60*ms, 40*ms, 1), wait(from-10*ms, 70*ms, 1, format.WaitFact{
				Reason: format.ReasonSleep,
			})),
			map[hosttime.Cause]int64{hosttime.CauseSleep: 60, hosttime.CauseCPU: 40},
		},
		{
			"a queue at the end of a sleep",
			[]format.Row{queuedSleep},
			map[hosttime.Cause]int64{hosttime.CauseSleep: 70, hosttime.CauseRunQueue: 30},
		},
		{"a queue", []format.Row{queued(from, length)}, map[hosttime.Cause]int64{hosttime.CauseRunQueue: 100}},
		{
			"a limit",
			[]format.Row{queued(from, length), throttled(500*ms, 5), throttled(1500*ms, 75*ms+5)},
			map[hosttime.Cause]int64{hosttime.CauseThrottled: 75, hosttime.CauseRunQueue: 25},
		},
		{
			"a collection", append(samplesIn(from, length, 1), pause),
			map[hosttime.Cause]int64{hosttime.CauseGC: 40, hosttime.CauseCPU: 60},
		},
		{
			"the DataLoader",
			[]format.Row{wait(from, length, 2, format.WaitFact{Reason: format.ReasonPoll})},
			map[hosttime.Cause]int64{hosttime.CauseLoader: 100},
		},
		{
			"a queue of another process",
			[]format.Row{wait(from, length, 4, format.WaitFact{Reason: format.ReasonPipe})},
			map[hosttime.Cause]int64{hosttime.CauseQueue: 100},
		},
		{
			"the GIL in a queue of another process",
			[]format.Row{wait(from, length, 4, format.WaitFact{Reason: format.ReasonGIL})},
			map[hosttime.Cause]int64{hosttime.CauseGIL: 100},
		},
		{
			"the GIL in the DataLoader",
			[]format.Row{wait(from, length, 2, format.WaitFact{Reason: format.ReasonGIL})},
			map[hosttime.Cause]int64{hosttime.CauseGIL: 100},
		},
		{
			"a file in the data set",
			[]format.Row{wait(from, length, 3, format.WaitFact{Reason: format.ReasonFile})},
			map[hosttime.Cause]int64{hosttime.CauseFile: 100},
		},
		{"an inferred stack", []format.Row{inferred}, map[hosttime.Cause]int64{hosttime.CauseLock: 100}},
		{
			"an unknown reason",
			[]format.Row{wait(from, length, 1, format.WaitFact{})},
			map[hosttime.Cause]int64{hosttime.CauseWait: 100},
		},
		{
			"short waits", append(
				samplesIn(from, length, 1),
				counter(format.HostRunning, 500*ms, 0),
				counter(format.HostRunning, 1500*ms, 600*ms),
				counter(format.HostRunnable, 500*ms, 0),
				counter(format.HostRunnable, 1500*ms, 100*ms),
			),
			map[hosttime.Cause]int64{hosttime.CauseCPU: 60, hosttime.CauseRunQueue: 10, hosttime.CauseUnknown: 30},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := historyOf(t, test.rows)
			parts := h.Measure(thread.Pid, thread.Tid, analyzetest.Epoch+from, analyzetest.Epoch+from+length)
			sum := int64(0)
			for c := range hosttime.Causes {
				ns := parts.Ns(hosttime.Cause(c))
				sum += ns
				if want := test.want[hosttime.Cause(c)] * ms; ns != want {
					t.Errorf("%s: %v ms, want %v", hosttime.Cause(c), float64(ns)/1e6, want/ms)
				}
			}
			if sum != length {
				t.Errorf("the parts add up to %d ns", sum)
			}
			for _, p := range parts {
				if p.Cause == hosttime.CauseFile && !p.InLoader {
					t.Error("the file is not read by the data loader")
				}
				if (p.Cause == hosttime.CauseLock || p.Cause == hosttime.CauseCPU) && p.CertainNs != 0 {
					t.Errorf("%s: the line is certain", p.Cause)
				}
				if p.CertainNs > p.Ns {
					t.Errorf("%s: %d ns of %d are certain", p.Cause, p.CertainNs, p.Ns)
				}
			}
			if err := h.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// historyOf returns the History of a recording with rows and these stacks: 1 is of the program, 2 is of a
// loader that waits, 3 of a loader that calls the data set, 4 of a queue that another process fills.
func historyOf(t *testing.T, rows []format.Row) *hosttime.History {
	t.Helper()
	const loader = "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
	recording := analyzetest.NewTestRecording(t)
	for id, frames := range [][]format.Frame{
		{python("/app/train.py", 12, "step")},
		{
			python("/usr/lib/python3.11/multiprocessing/connection.py", 900, "wait"),
			python("/usr/lib/python3.11/multiprocessing/queues.py", 99, "get"), python(loader, 1131, "_try_get_data"),
			python("/app/train.py", 7, "main"),
		},
		{python("/app/data.py", 3, "__getitem__"), python(loader, 600, "_next_data"), python("/app/train.py", 7, "main")},
		{
			python("/usr/lib/python3.11/multiprocessing/connection.py", 900, "wait"),
			python("/usr/lib/python3.11/multiprocessing/queues.py", 99, "get"), python("/app/serve.py", 7, "consume"),
		},
	} {
		recording.AddRow(format.Row{
			Kind: format.KindStack, StackID: int32(id + 1), Device: -1, Frames: frames,
			StackStatus: format.StackComplete,
		})
	}
	recording.AddRow(
		format.Row{Kind: format.KindNote, Name: format.NoteHost, Message: `{"mode":"auto","sample_hz":50}`},
	)
	for _, r := range rows {
		recording.AddRow(r)
	}
	h, err := hosttime.Of(recording.Timeline())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestBreakdownOfRunQueues checks that time in run queues without a stack gets the lines in which the spans of its
// group ran.
func TestBreakdownOfRunQueues(t *testing.T) {
	testclass.Unit(t)
	const from, length = 1000 * ms, 300 * ms
	unseen := queued(from+100*ms, 100*ms)
	unseen.StackID = 0
	other := queued(from+1000*ms, 40*ms)
	other.StackID = 0
	rows := append(samplesIn(from, 100*ms, 1), append(samplesIn(from+200*ms, 100*ms, 3), unseen, other)...)
	b := hosttime.NewBreakdown(historyOf(t, rows), func(stack int32) string { return string('a' + rune(stack)) })
	b.Add("a launch", thread, analyzetest.Epoch+from, analyzetest.Epoch+from+length, 1)
	b.Add("another launch", thread, analyzetest.Epoch+from+1000*ms, analyzetest.Epoch+from+1040*ms, 1)
	got := make(map[int32]float64)
	for _, e := range b.Finish() {
		if e.Cause == hosttime.CauseRunQueue {
			got[e.Stack] = e.Ns / float64(ms)
			if e.OwnerName != "other" {
				t.Errorf("at stack %d, %q ran instead, not other", e.Stack, e.OwnerName)
			}
		}
	}
	if want := map[int32]float64{1: 50, 3: 50, 0: 40}; !maps.Equal(got, want) {
		t.Errorf("time in run queues by stack, ms: %v, not %v", got, want)
	}
}

// TestBreakdownOfCollections checks that sampled collections, which are shorter than the time between two readings,
// count in the span with the reading: 5 ms for one in two spans of 3 ms, and nothing in the next span.
func TestBreakdownOfCollections(t *testing.T) {
	testclass.Unit(t)
	const from, length = 1000 * ms, 3 * ms
	pause := hostRow(format.KindGC, "", from-1*ms, 5*ms)
	pause.Value = float64(5 * ms)
	rows := append(samplesIn(from-200*ms, 100*ms, 1), pause)
	b := hosttime.NewBreakdown(historyOf(t, rows), func(stack int32) string { return string('a' + rune(stack)) })
	for _, at := range []int64{from, from + 100*ms, from + 3*ms} {
		b.Add("a launch", thread, analyzetest.Epoch+at, analyzetest.Epoch+at+length, 1)
	}
	got := make(map[hosttime.Cause]float64)
	for _, e := range b.Finish() {
		got[e.Cause] += e.Ns / float64(ms)
	}
	if want := map[hosttime.Cause]float64{hosttime.CauseGC: 5, hosttime.CauseCPU: 4}; !maps.Equal(got, want) {
		t.Errorf("time by cause, ms: %v, not %v", got, want)
	}
}
