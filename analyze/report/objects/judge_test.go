package objects_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

var event = kinds[2]

// confidence returns the confidence of the first row, and its reasons.
func confidence(t *testing.T, r *report.Report) string {
	t.Helper()
	return analyzetest.ColumnTexts(t, r, "sites", "confidence")[0] + ": " +
		analyzetest.ColumnTexts(t, r, "sites", "confidence_reasons")[0]
}

// TestLostCalls checks that lost calls lower the confidence, and that a rise that they may explain is
// no leak.
func TestLostCalls(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		lost       int64
		verdict    string
		confidence string
	}{
		{0, "growing", "high: []"},
		{3, "growing", "low: [3 calls lost]"},
		{40, "retained", "low: [40 calls lost]"},
	} {
		p := newProgram(t)
		p.leak(event)
		p.Meta.Calls = map[string]format.CallCount{"api": {Seen: 59 + c.lost, Recorded: 59, Lost: c.lost}}
		r := run(t, p, query.Options{})
		checkRows(t, r, "event "+c.verdict+" 59 leak")
		if got := confidence(t, r); got != c.confidence {
			t.Errorf("%d lost: %s", c.lost, got)
		}
	}
}

// TestOlderObjects checks that objects that are older than the recording are counted, and lower the
// confidence if they are many.
func TestOlderObjects(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(event)
	for i := range int64(5) {
		p.destroy(event, 3*second+i*second, 0x10+i)
	}
	r := run(t, p, query.Options{})
	analyzetest.CheckNumbers(t, r, map[string]float64{"older": 5, "growing": 1, "live": 59})
	if got := confidence(t, r); !strings.HasPrefix(got, "medium: [5 destroyed events") {
		t.Error(got)
	}
	if !slices.ContainsFunc(
		r.Notes,
		func(n string) bool { return strings.HasPrefix(n, "5 destroyed events, older") },
	) {
		t.Errorf("notes %q", r.Notes)
	}
}

// TestEndsOfContexts checks that the end of the process, or of its last context, does not hide a leak.
// Contexts that a program renews end their objects.
func TestEndsOfContexts(t *testing.T) {
	testclass.Unit(t)
	last := newProgram(t)
	last.leak(event)
	last.call("cuCtxCreate_v3", 10*ms, 0xc0)
	last.call("cuCtxDestroy_v2", 59_500*ms, 0xc0)
	last.AddExit(42, 59_600*ms)
	checkRows(t, run(t, last, query.Options{}), "event growing 59 leak", "context balanced 0 (no")

	renewed := newProgram(t)
	for at, context := second, int64(0xc1); at < 59*second; at, context = at+second, context+1 {
		renewed.call("cuCtxCreate_v3", at, context)
		for range 10 {
			renewed.create(event, at+ms, 1, "leak")
			renewed.Rows[len(renewed.Rows)-1].Context = context
		}
		renewed.call("cuCtxDestroy_v2", at+500*ms, context)
	}
	r := run(t, renewed, query.Options{})
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing": 0})
	if got := analyzetest.ColumnTexts(t, r, "kinds", "with_context"); !slices.Contains(got, "570") {
		t.Errorf("ended with their context: %q", got)
	}
}

// TestSeveralProcesses checks that a leak of one of several processes is found, and short jobs that
// leave everything to the driver are none.
func TestSeveralProcesses(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(event)
	for pid := int32(50); pid < 70; pid++ {
		begin := int64(pid-50) * 2 * second
		for i := range int64(30) {
			p.create(kinds[3], begin+second+i*10*ms, 2, "pool")
			p.Rows[len(p.Rows)-1].Pid = pid
		}
		p.AddExit(pid, begin+2*second)
	}
	p.AddExit(42, 59_900*ms)
	checkRows(t, run(t, p, query.Options{}), "event growing 59 leak", "stream retained 600 pool")
	r := run(t, p, query.Options{Filter: query.Filter{Pids: []int32{55}}})
	checkRows(t, r, "stream retained 30 pool")
}

// TestLateLeakAndReferences checks that a leak that begins late is found. A release of a reference
// ends the latest one.
func TestLateLeakAndReferences(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	primary := kinds[8]
	for at := 25 * second; at < 60*second; at += second / 2 {
		p.create(event, at, 1, "leak")
	}
	for at := second; at < 60*second; at += second {
		p.create(primary, at, 4, "step")
		p.call(primary.destroy, at+500*ms, 0)
	}
	checkRows(t, run(t, p, query.Options{}), "event growing 70 leak", "primary context balanced 0 step")
}

func TestWindowAndSuppressions(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(event)
	p.steps(kinds[4])
	window := query.Filter{FromNs: analyzetest.Epoch + 10*second, ToNs: analyzetest.Epoch + 40*second}
	r := run(t, p, query.Options{Filter: window})
	rows := siteRows(t, r)
	if rows[0] != "event growing 30 leak" || rows[1] != "module balanced 4 step" {
		t.Errorf("rows in the window: %q", rows)
	}
	r = run(t, p, query.Options{Suppressions: analyzetest.ParseSuppressions(t, "leak:^leak$")})
	checkRows(t, r, "module balanced 4 step")
	analyzetest.CheckNumbers(t, r, map[string]float64{"suppressed": 59, "growing": 0})
}

func TestOptionsThatDoNotExist(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(event)
	var group *report.GroupError
	if _, err := objects.Run(p.Timeline(), query.Options{GroupBy: "size"}); !errors.As(err, &group) {
		t.Errorf("group by size: %v", err)
	}
	if r := run(t, newProgram(t), query.Options{}); r.NoMatch != nil {
		t.Errorf("without calls: %v", r.NoMatch)
	}
	r := run(t, p, query.Options{Filter: query.Filter{Pids: []int32{7}}})
	if r.NoMatch == nil || r.NoMatch.Filter != "pid" {
		t.Errorf("no match: %v", r.NoMatch)
	}
}

// TestClassesThatWereLeftOut checks that a recording without some classes of calls says which objects
// are unknown.
func TestClassesThatWereLeftOut(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(event)
	p.Meta.Classes = []string{format.RecordStream}
	r := run(t, p, query.Options{})
	checkRows(t, r, "event growing 59 leak")
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "graph, module and memory") }) {
		t.Errorf("notes %q", r.Notes)
	}
}
