package trigger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second = int64(time.Second)

// watch returns the events of rows. Each element of batches is shown at its second.
func watch(kinds []Kind, batches ...[]format.Row) (events []Event) {
	severe := func(code int64) bool { return code == 79 }
	r := NewRows(kinds, DefaultThresholds, severe, func(e Event) { events = append(events, e) })
	for i, rows := range batches {
		if len(rows) > 0 {
			r.WatchRows(format.ClassOf(rows[0].Kind), rows)
		}
		r.WatchTime(int64(i) * second)
	}
	return events
}

func alloc(atNs int64, tid int32, bytes int64, result int32) format.Row {
	return format.Row{
		Kind: format.KindAlloc, Name: "cuMemAlloc_v2", StartNs: atNs, Pid: 7, Tid: tid, Bytes: bytes, Result: result,
	}
}

func metrics(name string, values ...float64) (rows []format.Row) {
	for i, v := range values {
		rows = append(rows, format.Row{
			Kind: format.KindNVML, Name: name, StartNs: second * (1 + 20*int64(i)), Device: 1, Value: v,
		})
	}
	return rows
}

// TestRows has a table of rows and of the events that they fire, with near misses.
func TestRows(t *testing.T) {
	testclass.Unit(t)
	none := []format.Row(nil)
	sync := func(context int64, result int32) format.Row {
		return format.Row{Kind: format.KindSync, Name: "cuCtxSynchronize", Pid: 7, Context: context, Result: result}
	}
	xid := func(name string, code float64, message string) []format.Row {
		return []format.Row{{Kind: format.KindXid, Name: name, Value: code, Message: message}}
	}
	exit := func(message string) []format.Row {
		return []format.Row{{Kind: format.KindProcess, Name: "train", Pid: 7, Message: message}}
	}
	for name, c := range map[string]struct {
		batches [][]format.Row
		want    string // kinds of events
	}{
		"no error":                 {[][]format.Row{{alloc(1, 1, 100, 0), alloc(2, 1, 100, 0)}}, ""},
		"failed allocation":        {[][]format.Row{{alloc(1, 1, 100, 2)}, none, none}, "oom"},
		"failed twice":             {[][]format.Row{{alloc(1, 1, 100, 2), alloc(2, 1, 100, 2)}, none, none}, "oom"},
		"retried with success":     {[][]format.Row{{alloc(1, 1, 100, 2), alloc(second/2, 1, 100, 0)}, none, none}, ""},
		"another size":             {[][]format.Row{{alloc(1, 1, 100, 2), alloc(second/2, 1, 99, 0)}, none, none}, "oom"},
		"another thread":           {[][]format.Row{{alloc(1, 1, 100, 2), alloc(second/2, 2, 100, 0)}, none, none}, "oom"},
		"retried too late":         {[][]format.Row{{alloc(1, 1, 100, 2), alloc(2*second, 1, 100, 0)}, none, none}, "oom"},
		"another error":            {[][]format.Row{{alloc(1, 1, 100, 1)}, none, none}, ""},
		"error of a context":       {[][]format.Row{{sync(1, 700), sync(1, 700), sync(1, 719)}}, "sticky"},
		"two contexts":             {[][]format.Row{{sync(1, 719), sync(2, 719)}}, "sticky sticky"},
		"sticky by an allocation":  {[][]format.Row{{alloc(1, 1, 100, 700)}, none, none}, "sticky"},
		"error that is not sticky": {[][]format.Row{{sync(1, 999), sync(1, 600)}}, ""},
		"xid":                      {[][]format.Row{xid("xid", 79, `{"pci":"1"}`)}, "xid"},
		"xid before":               {[][]format.Row{xid("xid", 79, `{"pci":"1","before":true}`)}, ""},
		"harmless xid":             {[][]format.Row{xid("xid", 63, `{"pci":"1"}`)}, ""},
		"fatal sxid":               {[][]format.Row{xid("sxid", 20034, `{"text":"Fatal, Link 30"}`)}, "xid"},
		"sxid":                     {[][]format.Row{xid("sxid", 20034, `{"text":"Non-fatal, Link 30"}`)}, ""},
		"torch":                    {[][]format.Row{{{Kind: format.KindAllocator, Name: format.AllocatorOOM}}}, "oom"},
		"torch retries": {[][]format.Row{
			{{Kind: format.KindAllocator, Name: format.AllocatorSegmentFree}}, none, none,
		}, ""},
		"killed":                 {[][]format.Row{exit(`{"exit_ns":5,"exit_signal":9}`)}, "exit"},
		"terminated":             {[][]format.Row{exit(`{"exit_ns":5,"exit_signal":15}`)}, ""},
		"status 1":               {[][]format.Row{exit(`{"exit_ns":5,"exit_code":1}`)}, ""},
		"throttled":              {[][]format.Row{metrics("clock_event_reasons", 8, 64, 8, 72, 8)}, "throttle"},
		"throttled with a pause": {[][]format.Row{metrics("clock_event_reasons", 8, 8, 8, 4, 8, 8)}, ""},
		"power cap":              {[][]format.Row{metrics("clock_event_reasons", 4, 4, 4, 4, 4, 4)}, ""},
		"idle": {[][]format.Row{
			metrics("memory_used_bytes", 2<<30), metrics("gpu_utilization_percent", make([]float64, 40)...),
		}, "idle"},
		"idle without memory": {[][]format.Row{metrics("gpu_utilization_percent", make([]float64, 40)...)}, ""},
		"idle by utilization, busy by GPM": {[][]format.Row{
			metrics("memory_used_bytes", 2<<30), metrics("gpm_sm_active_percent", 50),
			metrics("gpu_utilization_percent", make([]float64, 40)...),
		}, ""},
	} {
		var got []string
		for _, e := range watch(Kinds, c.batches...) {
			got = append(got, string(e.Kind))
			if e.Evidence == "" {
				t.Errorf("%s: no evidence: %+v", name, e)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: events %q, want %q", name, got, c.want)
		}
		if others := watch([]Kind{Manual}, c.batches...); len(others) > 0 {
			t.Errorf("%s: fired without being asked for: %+v", name, others)
		}
	}
}

func TestRowsAllocateNothingForSuccess(t *testing.T) {
	testclass.Unit(t)
	r := NewRows(Kinds, DefaultThresholds, func(int64) bool { return false }, func(Event) {})
	calls, memory := make([]format.Row, 4096), make([]format.Row, 4096)
	if n := testing.AllocsPerRun(10, func() {
		r.WatchRows(format.ClassCall, calls)
		r.WatchRows(format.ClassMemory, memory)
		r.WatchRows(format.ClassAllocator, memory)
		r.WatchTime(1)
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

func TestHangs(t *testing.T) {
	testclass.Unit(t)
	h := NewHangs(time.Minute)
	call := OpenCall{Pid: 7, Tid: 8, Name: "cuStreamSynchronize", StartNs: 10 * second}
	other := OpenCall{Pid: 7, Tid: 9, Name: "cuCtxSynchronize", StartNs: 12 * second}
	if e := h.Update([]OpenCall{call, other}, 69*second); len(e) > 0 {
		t.Errorf("too early: %+v", e)
	}
	e := h.Update([]OpenCall{call, other}, 75*second)
	if len(e) != 1 || e[0].FromNs != 10*second || !strings.Contains(e[0].Evidence, "1m5s; 1 more") {
		t.Errorf("%+v", e)
	}
	if e := h.Update([]OpenCall{call, other}, 80*second); len(e) > 0 {
		t.Errorf("fired again: %+v", e)
	}
	if e := h.Update([]OpenCall{other}, 81*second); len(e) > 0 {
		t.Errorf("fired for a call of the same hang: %+v", e)
	}
	call.StartNs = 100 * second
	if e := h.Update([]OpenCall{call}, 161*second); len(e) != 1 {
		t.Errorf("the next hang: %+v", e)
	}
}

func TestLosses(t *testing.T) {
	testclass.Unit(t)
	l := NewLosses(time.Minute, 0)
	for i, c := range []struct {
		recorded, lost, atNs int64
		want                 bool
	}{{1000, 100, 59 * second, false}, {1000, 9, 60 * second, false}, {2000, 20, 120 * second, true}, {3000, 20, 180 * second, false}} {
		if e := l.Update(c.recorded, c.lost, c.atNs); (e != nil) != c.want {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

// TestPolicy plays events at seconds, and compares their outcomes.
func TestPolicy(t *testing.T) {
	testclass.Unit(t)
	type step struct {
		at           int64
		kind         Kind
		job, subject string
		want         string
	}
	const captured, merged, limited = format.TriggerCaptured, format.TriggerMerged, format.TriggerLimited
	for name, steps := range map[string][]step{
		"merges while pending": {
			{0, OOM, "a", "1", captured}, {5, Exit, "a", "", merged}, {6, OOM, "a", "1", merged}, {7, OOM, "b", "2", captured},
		},
		"at most one in ten minutes": {
			{0, OOM, "a", "1", captured},
			{100, OOM, "a", "1", limited},
			{101, OOM, "a", "2", captured},
			{700, OOM, "a", "1", captured},
		},
		"three at once, six an hour": {
			{0, Exit, "a", "", captured},
			{1, Exit, "b", "", captured},
			{2, Exit, "c", "", captured},
			{3, Exit, "d", "", limited},
			{602, Exit, "d", "", captured},
			{603, Exit, "e", "", limited},
		},
		"first errors pass": {
			{0, Exit, "a", "", captured},
			{1, Exit, "b", "", captured},
			{2, Exit, "c", "", captured},
			{100, Xid, "a", "79", captured},
			{200, OOM, "a", "1", captured},
			{300, Sticky, "a", "1", captured},
			{301, Manual, "z", "", captured},
			{302, Manual, "z", "", captured},
			{400, Xid, "a", "31", limited},
		},
		"losses are noted": {{0, Loss, "-", "", format.TriggerNoted}, {60, Loss, "-", "", limited}},
	} {
		p := NewPolicy(nil, 0)
		ids := make(map[string]bool)
		for i, s := range steps {
			now := s.at*second + 1e18
			p.Due(now)
			got, pending := p.Decide(Event{Kind: s.kind, AtNs: now, Subject: s.subject, Evidence: "x"}, s.job, now)
			if got.Outcome != s.want || (pending != nil) != (s.want == captured) ||
				(s.want == limited) != (got.Detail != "") {
				t.Errorf("%s, step %d: %+v, want %s", name, i, got, s.want)
			}
			if pending != nil && ids[got.ID] {
				t.Errorf("%s: ID %s is not unique", name, got.ID)
			}
			ids[got.ID] = true
		}
		sum := int64(0)
		for _, n := range p.Counts() {
			sum += n
		}
		if sum != int64(len(steps)) {
			t.Errorf("%s: counts %v of %d events", name, p.Counts(), len(steps))
		}
	}
}

func TestMergedEventsExtendACapture(t *testing.T) {
	testclass.Unit(t)
	p := NewPolicy(map[Kind]Window{Exit: {Before: time.Second, After: time.Hour}}, 0)
	_, first := p.Decide(Event{Kind: Sticky, AtNs: 1000 * second}, "a", 1000*second)
	if first.EndNs != 1010*second || first.Trigger.FromNs() != 880*second {
		t.Fatalf("%+v", first)
	}
	p.Decide(Event{Kind: OOM, AtNs: 1005 * second}, "a", 1005*second)
	if first.EndNs != 1015*second || first.Trigger.FromNs() != 405*second {
		t.Errorf("after an oom: %+v", first)
	}
	p.Decide(Event{Kind: Exit, AtNs: 1006 * second}, "a", 1006*second)
	if first.EndNs != 1300*second || len(first.Trigger.Merged) != 2 {
		t.Errorf("at most five minutes: %+v", first)
	}
	if due := p.Due(1299 * second); len(due) > 0 {
		t.Errorf("due: %+v", due)
	}
	if due := p.Due(1300 * second); !slices.Equal(due, []*Pending{first}) {
		t.Errorf("due: %+v", due)
	}
	_, next := p.Decide(Event{Kind: Exit, AtNs: 1400 * second, Window: &Window{}}, "a", 1400*second)
	if p.Cancel(next, format.TriggerQuota); p.Counts()[format.TriggerQuota] != 1 || len(p.Due(1<<62)) > 0 {
		t.Errorf("canceled: %v", p.Counts())
	}
}

func TestParseKinds(t *testing.T) {
	testclass.Unit(t)
	if kinds, err := ParseKinds([]string{"xid", "oom", "xid"}); err != nil || fmt.Sprint(kinds) != "[oom xid]" {
		t.Error(kinds, err)
	}
	if kinds, err := ParseKinds([]string{"all"}); err != nil || len(kinds) != len(Kinds) {
		t.Error(kinds, err)
	}
	if _, err := ParseKinds([]string{"ooms"}); err == nil || !strings.Contains(err.Error(), "triggers are oom, xid") {
		t.Error(err)
	}
}

// TestEventsOfAProcessAreMerged checks that the events of one process share a capture, although its job is unknown at
// the first of them.
func TestEventsOfAProcessAreMerged(t *testing.T) {
	testclass.Unit(t)
	p := NewPolicy(nil, 0)
	first, pending := p.Decide(Event{Kind: Sticky, AtNs: second, Pid: 7, Subject: "7 1"}, UnknownJob, second)
	if pending == nil {
		t.Fatalf("%+v", first)
	}
	decide := func(pid int32, job, want string) {
		t.Helper()
		e := Event{Kind: Xid, AtNs: second, Pid: pid, Subject: job}
		if got, _ := p.Decide(e, job, 2*second); got.Outcome != want {
			t.Errorf("%+v", got)
		}
	}
	decide(7, "train", format.TriggerMerged)
	decide(8, "eval", format.TriggerCaptured)
}
