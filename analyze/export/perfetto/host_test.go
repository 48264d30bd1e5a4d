package perfetto

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// writeHostTrace writes the trace of a recording and returns its path.
func writeHostTrace(t *testing.T, recording *analyzetest.TestRecording) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := WriteTrace(recording.Timeline(), &out, Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.pftrace")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPerfettoReadsStatesOfThreads compares each wait of the recording with the slices that trace_processor
// reads: all waits are there, with their durations, states, reasons and lines.
func TestPerfettoReadsStatesOfThreads(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.HostRecording(t)
	// a call around a wait, and a call inside of one
	recording.AddSync("cuStreamSynchronize", 690*analyzetest.Ms, 120*analyzetest.Ms, 0x7000, 0)
	recording.AddCall(format.KindAPI, "cuCtxGetCurrent", 1050*analyzetest.Ms, analyzetest.Us)
	results := viewers.QueryPerfetto(
		t,
		writeHostTrace(t, recording),
		viewers.PerfettoErrorsQuery,
		`select s.ts - (select min(ts) from slice) as at, s.ts ts, s.dur dur, s.name name, s.depth depth,
			extract_arg(s.arg_set_id, 'debug.wait_ns') wait_ns, extract_arg(s.arg_set_id, 'debug.reason') reason,
			extract_arg(s.arg_set_id, 'debug.line') line, extract_arg(s.arg_set_id, 'debug.state') state
			from slice s join track t on s.track_id = t.id where t.name = 'thread state' order by s.ts, s.dur`,
		`select s.name name, s.dur dur from slice s join track t on s.track_id = t.id
			where t.name = 'garbage collection' order by s.ts`,
		`select count(*) n, count(distinct c.callsite_id) stacks from slice s join track t on s.track_id = t.id
			join __intrinsic_track_event_callstacks c on s.id = c.slice_id where t.name = 'CPU samples'`,
		`select th.name parent, count(*) n from thread_track t join thread th using (utid) where t.name = 'thread state'
			group by 1`,
		`select s.name name, s.dur dur, s.depth depth from slice s where s.name glob 'cu*' and s.name != 'cuLaunchKernel' order by s.ts`,
	)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	got := make(map[string]int)
	var running, ends float64
	for _, row := range results[1] {
		if row["depth"].(float64) != 0 {
			t.Errorf("overlaps another slice: %v", row)
		}
		ts, dur := row["ts"].(float64), row["dur"].(float64)
		if ts < ends {
			t.Errorf("begins before the one before it has ended: %v", row)
		}
		ends = ts + dur
		if row["wait_ns"] == nil {
			running += dur
			continue
		}
		got[fmt.Sprint(row["name"], " ", int64(dur), " ", row["state"], " ", row["line"])]++
	}
	for want, n := range map[string]int{
		"Sleeping: poll 399000000 S next_batch (train.py:12)":             10,
		"Sleeping: gil 60000000 S log (train.py:20)":                      10,
		"Sleeping: cuda 95000000 S synchronize (train.py:31)":             10,
		"Uninterruptible Sleep: file 20000000 D read_shard (train.py:25)": 10,
		"Runnable 15000000 R <nil>":                                       10,
		"Runnable 1000000 R next_batch (train.py:12)":                     10,
		"Runnable 5000000 R synchronize (train.py:31)":                    10,
		"Sleeping 70000000 S <nil>":                                       1,
	} {
		if got[want] != n {
			t.Errorf("%d slices %q, want %d", got[want], want, n)
		}
		delete(got, want)
	}
	if len(got) > 0 {
		t.Errorf("further slices: %v", got)
	}
	if want := 9.99e9 - 6.02e9; running != want {
		t.Errorf("the thread runs for %.0f ns, want %.0f", running, want)
	}
	for i, want := range map[int]string{
		2: `[{"dur":40000000,"name":"garbage collection, generation 2"},` +
			`{"dur":30000000,"name":"garbage collection, generation 2"},{"dur":10000000,"name":"garbage collection"}]`,
		3: `[{"n":50,"stacks":2}]`,
		4: `[{"n":1,"parent":"python"}]`,
		5: `[{"depth":0,"dur":120000000,"name":"cuStreamSynchronize"},{"depth":0,"dur":1000,"name":"cuCtxGetCurrent"}]`,
	} {
		if got := viewers.EncodeJSON(t, results[i]); got != want {
			t.Errorf("query %d: %s, want %s", i, got, want)
		}
	}
}

// TestPerfettoReadsWakeUps checks that trace_processor reads a flow from each wake-up of a recorded thread to the
// thread that it woke, and none from others.
func TestPerfettoReadsWakeUps(t *testing.T) {
	testclass.Browser(t)
	const ms = analyzetest.Ms
	recording := analyzetest.HostRecording(t)
	recording.AddRow(format.Row{
		Kind: format.KindThread, Name: "pt_data_worker", Pid: 77, Tid: 77, Device: -1, StartNs: analyzetest.Epoch,
	})
	fact := format.WaitFact{Reason: format.ReasonCondition, SystemCall: "futex"}
	for i, waker := range []int32{42, 77, 99} { // 99 is not recorded
		at := int64(i) * analyzetest.Second
		w := recording.AddWait(43, at+20*ms, 30*ms, ms, format.StateSleeping, 0, fact)
		recording.AddWaker(w, waker, waker, fmt.Sprint("waker-", waker), "futex")
	}
	results := viewers.QueryPerfetto(t, writeHostTrace(t, recording), viewers.PerfettoErrorsQuery,
		`select o.name wakes, tt.name waker, i.name woken, i.dur dur, i.ts - o.ts late from flow f
			join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
			join thread_track k on o.track_id = k.id join thread tt using (utid) where k.name = 'wakes up' order by o.ts`,
		`select extract_arg(arg_set_id, 'debug.waker') waker, count(*) n from slice
			where extract_arg(arg_set_id, 'debug.ended_by') = 'thread' and name glob 'Sleeping*' group by 1 order by 1`)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for i, want := range map[int]string{
		1: `[{"dur":1000000,"late":0,"waker":"python","wakes":"wakes up 42/43 logger","woken":"Runnable"},` +
			`{"dur":1000000,"late":0,"waker":"pt_data_worker","wakes":"wakes up 42/43 logger","woken":"Runnable"}]`,
		2: `[{"n":1,"waker":"waker-42"},{"n":1,"waker":"waker-77"},{"n":1,"waker":"waker-99"}]`,
	} {
		if got := viewers.EncodeJSON(t, results[i]); got != want {
			t.Errorf("query %d: %s, want %s", i, got, want)
		}
	}
}

// TestHostileStatesOfThreads checks that rows that no recorder writes do not break the nesting of slices.
func TestHostileStatesOfThreads(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.HostRecording(t)
	recording.Meta.HostRows.Lost = 5
	const ms = analyzetest.Ms
	recording.AddWait(
		42,
		20*ms,
		500*ms,
		700*ms,
		"levitating",
		77777,
		format.WaitFact{Reason: "boredom\x00", OwnerTid: -1},
	)
	recording.AddWait(42, 30*ms, -5, 0, format.StateSleeping, 0, format.WaitFact{}).Message = "{"
	recording.AddWait(43, 30*ms, 1<<62, 0, format.StateSleeping, 0, format.WaitFact{})
	recording.AddPause(42, 2*analyzetest.Second+530*ms, 100*ms, -7, 1<<50)
	recording.AddCPUSample(42, 30*ms, -1, -1)
	results := viewers.QueryPerfetto(t, writeHostTrace(t, recording), viewers.PerfettoErrorsQuery,
		`select count(*) n from slice s join track t on s.track_id = t.id where t.name = 'thread state' and depth > 0`,
		`select count(*) n from slice where name glob 'Running*'`)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for i := 1; i <= 2; i++ { // with lost rows, the time between two waits is unknown
		if n := results[i][0]["n"]; n != 0.0 {
			t.Errorf("query %d: %v slices", i, n)
		}
	}
}

// TestStatesOfThreadsInParts checks that parts of a trace have all waits, and that a limit counts what it omits.
func TestStatesOfThreadsInParts(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.HostRecording(t).Timeline()
	var parts []*bytes.Buffer
	next := func() (io.Writer, error) {
		parts = append(parts, new(bytes.Buffer))
		return parts[len(parts)-1], nil
	}
	first, _ := next()
	if _, err := WriteTrace(tl, first, Options{MaxSlices: 40, Next: next}); err != nil {
		t.Fatal(err)
	}
	waits := 0
	for _, part := range parts {
		for _, s := range decode(t, part.Bytes()).slices {
			if strings.HasPrefix(s.name, "Sleeping: poll") {
				waits++
			}
		}
	}
	if waits < 10 || len(parts) < 3 { // a wait that spans parts is in each of them
		t.Errorf("%d waits in %d parts", waits, len(parts))
	}
	stats, err := WriteTrace(tl, io.Discard, Options{MaxSlices: 40})
	if err != nil || stats.LeftOutHost == 0 {
		t.Errorf("%d slices omitted: %v", stats.LeftOutHost, err)
	}
}
