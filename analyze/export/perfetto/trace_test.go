package perfetto

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"google.golang.org/protobuf/encoding/protowire"
)

// fields decodes the fields of a message. Varint and fixed64 fields have their value as 8 bytes.
func fields(t *testing.T, b []byte) map[protowire.Number][]any {
	t.Helper()
	m := make(map[protowire.Number][]any)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			m[num], b = append(m[num], v), b[n:]
		case protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			m[num], b = append(m[num], v), b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			m[num], b = append(m[num], v), b[n:]
		default:
			t.Fatalf("field %d has type %d", num, typ)
		}
	}
	return m
}

func number(m map[protowire.Number][]any, field protowire.Number) uint64 {
	if v, ok := m[field]; ok {
		return v[len(v)-1].(uint64)
	}
	return 0
}

func text(m map[protowire.Number][]any, field protowire.Number) string {
	if v, ok := m[field]; ok {
		return string(v[len(v)-1].([]byte))
	}
	return ""
}

// slice is a slice, an instant or a counter value of a decoded trace.
type slice struct {
	track, name string
	startNs     int64
	durNs       int64
	depth       int
	stack       int // frames
	notes       int
	instant     bool
}

type decoded struct {
	slices   []slice
	counters map[string][]int64
}

// decode decodes a trace as trace_processor does. It fails if the trace is malformed: unknown
// tracks, unknown interned numbers, slice ends without a begin, or packets out of order.
func decode(t *testing.T, b []byte) *decoded {
	t.Helper()
	d := &decoded{counters: make(map[string][]int64)}
	tracks := make(map[uint64]string)
	counters := make(map[uint64]bool)
	interned := make(map[protowire.Number]map[uint64]map[protowire.Number][]any)
	open := make(map[uint64][]int)
	var last, clock uint64
	lookup := func(table protowire.Number, id uint64) map[protowire.Number][]any {
		v, ok := interned[table][id]
		if !ok {
			t.Fatalf("entry %d of table %d is used before it is introduced", id, table)
		}
		return v
	}
	for i, p := range fields(t, b)[fieldTracePacket] {
		m := fields(t, p.([]byte))
		if number(m, fieldSequenceID) != packetSequenceID {
			t.Fatalf("packet %d has no sequence", i)
		}
		if i == 0 &&
			(number(m, fieldSequenceFlags) != sequenceFlagStateCleared || m[fieldClockSnapshot] == nil || m[fieldTracePacketDefaults] == nil) {
			t.Fatal("the first packet does not open the sequence")
		}
		if i == 0 { // the clock snapshot: later times are differences
			for _, c := range fields(t, m[fieldClockSnapshot][0].([]byte))[1] {
				if c := fields(t, c.([]byte)); number(c, 1) == clockIDDelta && number(c, 3) == 1 {
					clock = number(c, 2)
				}
			}
		}
		clock += number(m, fieldTimestamp)
		for _, raw := range m[fieldInternedData] {
			for table, entries := range fields(t, raw.([]byte)) {
				for _, e := range entries {
					entry := fields(t, e.([]byte))
					if interned[table] == nil {
						interned[table] = make(map[uint64]map[protowire.Number][]any)
					}
					interned[table][number(entry, 1)] = entry
				}
			}
		}
		if raw, ok := m[fieldTrackDescriptor]; ok {
			td := fields(t, raw[0].([]byte))
			if parent := number(td, 5); parent != 0 && tracks[parent] == "" {
				t.Fatalf("track %q has an unknown parent", text(td, 2))
			}
			name := text(td, 2)
			if parent := number(td, 5); parent != 0 {
				name = tracks[parent] + " / " + name
			}
			if raw, ok := td[fieldTrackProcess]; ok {
				name = fmt.Sprintf("process %d", number(fields(t, raw[0].([]byte)), 1))
			}
			if raw, ok := td[fieldTrackThread]; ok {
				th := fields(t, raw[0].([]byte))
				name = fmt.Sprintf("thread %d %d", number(th, 1), number(th, 2))
			}
			tracks[number(td, 1)] = name
			counters[number(td, 1)] = td[fieldTrackCounter] != nil
		}
		raw, ok := m[fieldTrackEvent]
		if !ok {
			continue
		}
		e := fields(t, raw[0].([]byte))
		ts, track := clock, number(e, fieldTrackUUID)
		if ts < last {
			t.Errorf("packet %d at %d comes after one at %d", i, ts, last)
		}
		last = ts
		if tracks[track] == "" {
			t.Fatalf("event on unknown track %d", track)
		}
		switch number(e, fieldEventType) {
		case eventTypeCounter:
			if !counters[track] {
				t.Fatalf("counter on track %q", tracks[track])
			}
			d.counters[tracks[track]] = append(d.counters[tracks[track]], int64(number(e, fieldCounterValue)))
		case eventTypeSliceBegin, eventTypeInstant:
			s := slice{
				track:   tracks[track],
				startNs: int64(ts),
				name:    text(e, fieldName),
				depth:   len(open[track]),
				instant: number(e, fieldEventType) == eventTypeInstant,
			}
			if s.name == "" {
				s.name = text(lookup(fieldEventNames, number(e, fieldNameIID)), 2)
			}
			for _, c := range e[fieldCategoryIIDs] {
				lookup(fieldEventCategories, c.(uint64))
			}
			for _, a := range e[fieldDebugAnnotations] {
				note := fields(t, a.([]byte))
				lookup(fieldAnnotationNames, number(note, 1))
				if id, ok := note[fieldAnnotationStringIID]; ok {
					lookup(fieldAnnotationValues, id[0].(uint64))
				}
				s.notes++
			}
			if id, ok := e[fieldCallstackIID]; ok {
				for _, f := range lookup(fieldCallstacks, id[0].(uint64))[2] {
					frame := lookup(fieldFrames, f.(uint64))
					lookup(fieldFunctionNames, number(frame, 2))
					lookup(fieldMappings, number(frame, 3))
					s.stack++
				}
			}
			d.slices = append(d.slices, s)
			if !s.instant {
				open[track] = append(open[track], len(d.slices)-1)
			}
		case eventTypeSliceEnd:
			stack := open[track]
			if len(stack) == 0 {
				t.Fatalf("an end without a slice on %q", tracks[track])
			}
			s := &d.slices[stack[len(stack)-1]]
			s.durNs = int64(ts) - s.startNs
			open[track] = stack[:len(stack)-1]
		}
	}
	for track, stack := range open {
		if len(stack) > 0 {
			t.Errorf("%d slices on %q have no end", len(stack), tracks[track])
		}
	}
	return d
}

func traced(t *testing.T, tl *timeline.Timeline, opt Options) (*decoded, *TraceStats) {
	t.Helper()
	var b bytes.Buffer
	stats, err := WriteTrace(tl, &b, opt)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, b.Bytes()), stats
}

// onThreads returns the slices of calls on thread tracks, and the instants of calls with an unknown
// duration.
func (d *decoded) onThreads() (list []slice) {
	for _, s := range d.slices {
		if strings.HasPrefix(s.track, "thread ") {
			list = append(list, s)
		}
	}
	return list
}

func TestTraceHoldsEveryCall(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	tl := recording.Timeline()
	d, stats := traced(t, tl, Options{})
	calls := make(map[string]int)
	lanes := 0
	for _, r := range recording.Rows {
		if c := format.ClassOf(r.Kind); c == format.ClassMemory || c == format.ClassCall {
			calls[r.Name]++
			if timeline.IsStreamWork(r.Kind) {
				lanes++
			}
		}
	}
	got := make(map[string]int)
	for _, s := range d.onThreads() {
		got[s.name]++
	}
	if fmt.Sprint(got) != fmt.Sprint(calls) {
		t.Errorf("slices %v, rows %v", got, calls)
	}
	// The trace also has an Xid, a failed allocation, and the open call a second time.
	if others := len(d.slices) - len(d.onThreads()); others != lanes+3 {
		t.Errorf("%d instants, want %d", others, lanes+3)
	}
	if stats.Calls != int64(len(d.onThreads())) || stats.LeftOut != 0 {
		t.Errorf("stats %+v", stats)
	}
	levels := memory.NewLevelScan(tl, &query.Filter{})
	if _, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) { levels.OnDriverChange(c) }); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Max(d.counters["GPU 0 NVIDIA H200 / live memory"]), levels.Total[0].Peak; got != want {
		t.Errorf("counter's peak %d, ledger's %d", got, want)
	}
	if n := len(d.counters["GPU 0 NVIDIA H200 / NVML utilization_pct"]); n != 6 {
		t.Errorf("%d samples", n)
	}
}

func TestTraceOfRandomProgramsIsWellFormed(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 2))
		recording := analyzetest.NewTestRecording(t)
		analyzetest.AddRandomProgram(recording, r, 500)
		for _, row := range slices.Clone(recording.Rows) {
			switch r.IntN(10) {
			case 0: // a call inside of another
				in := *row
				in.ParentStartNs, in.StartNs, in.DurNs = row.StartNs, row.StartNs+row.DurNs/4, row.DurNs/2
				in.Kind, in.Name = format.KindAPI, "inner"
				recording.AddRow(in)
			case 1: // clocks that disagree
				in := *row
				in.StartNs, in.DurNs, in.Kind, in.Name = row.StartNs+1, row.DurNs+5, format.KindSync, "longer than its parent"
				recording.AddRow(in)
			case 2:
				row.Flags = format.FlagOpen
			case 3:
				row.Flags = format.FlagAbandoned
			case 4:
				row.Flags, row.DurNs = format.FlagNoReturn, 0
			}
		}
		recording.AddExit(77, 20*analyzetest.Us)
		tl := recording.Timeline()
		d, _ := traced(t, tl, Options{})
		if len(d.onThreads()) != len(recording.Rows)-1 {
			t.Errorf("seed %d: %d slices of %d calls", seed, len(d.onThreads()), len(recording.Rows)-1)
		}
		for _, s := range d.slices {
			if s.durNs < 0 {
				t.Fatalf("negative duration: %+v", s)
			}
		}
		unknown := 0
		for _, row := range recording.Rows {
			if row.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
				unknown++
			}
		}
		if n := len(
			slices.DeleteFunc(d.onThreads(), func(s slice) bool { return !s.instant }),
		); n != unknown ||
			n == 0 {
			t.Errorf("seed %d: %d instants for %d calls with an unknown duration", seed, n, unknown)
		}
		levels := memory.NewLevelScan(tl, &query.Filter{})
		if _, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) { levels.OnDriverChange(c) }); err != nil {
			t.Fatal(err)
		}
		for device, total := range levels.Total {
			name := fmt.Sprintf("GPU %d / live memory", device)
			values := d.counters[name]
			if slices.Max(values) != total.Peak || values[len(values)-1] != total.Live {
				t.Errorf(
					"seed %d: %s: max %d last %d, ledger %+v",
					seed,
					name,
					slices.Max(values),
					values[len(values)-1],
					total,
				)
			}
		}
	}
}

func TestTraceEndsAtMaxSlices(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TrainingRecording(t).Timeline()
	d, stats := traced(t, tl, Options{MaxSlices: 100})
	all, whole := traced(t, tl, Options{})
	// The Xid, the failed allocation, the second slice of the open call and the note are no calls.
	if n := len(d.slices) - 4; n > 100 {
		t.Errorf("%d slices and instants", n)
	}
	if stats.Calls+stats.LeftOut != whole.Calls || stats.LeftOutNs <= analyzetest.Epoch {
		t.Errorf("stats %+v, want %d calls together", stats, whole.Calls)
	}
	const live = "GPU 0 NVIDIA H200 / live memory"
	if !slices.Equal(d.counters[live], all.counters[live]) {
		t.Error("counters end at MaxSlices too")
	}
	if !slices.ContainsFunc(d.slices, func(s slice) bool { return s.track == "gpurec" && s.instant }) {
		t.Error("the trace has no instant about the calls that were left out")
	}
}

func TestTraceOfAWindow(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	f := query.Filter{
		FromNs: analyzetest.Epoch + 10*analyzetest.Second,
		ToNs:   analyzetest.Epoch + 11*analyzetest.Second,
	}
	d, _ := traced(t, recording.Timeline(), Options{Filter: f})
	offset := recording.Meta.ClockOffsetNs
	for _, s := range d.onThreads() {
		if start := s.startNs + offset; start > f.ToNs || start+s.durNs < f.FromNs {
			t.Fatalf("%+v is outside", s)
		}
	}
	want := 0
	for _, r := range recording.Rows {
		if c := format.ClassOf(
			r.Kind,
		); (c == format.ClassMemory || c == format.ClassCall) && r.StartNs <= f.ToNs &&
			r.StartNs+r.DurNs >= f.FromNs {
			want++
		}
	}
	if n := len(d.onThreads()); n != want || want == 0 {
		t.Errorf("%d slices, want %d", n, want)
	}
}

func TestTraceShowsLosses(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindLost,
			Name:    "launch",
			StartNs: analyzetest.Epoch + 5*analyzetest.Second,
			DurNs:   100 * analyzetest.Ms,
			Value:   1204,
			Device:  -1,
		},
	)
	d, _ := traced(t, recording.Timeline(), Options{})
	for _, want := range []string{"1,204 launch calls lost", "allocation failed: 200.0 GiB", "Xid 31: MMU fault"} {
		if !slices.ContainsFunc(d.slices, func(s slice) bool { return s.name == want }) {
			t.Errorf("no %q", want)
		}
	}
	open := d.slices[slices.IndexFunc(d.slices, func(s slice) bool { return s.name == "cuStreamSynchronize" && s.durNs == 100*analyzetest.Ms })]
	if open.notes == 0 {
		t.Error("the open call is not marked")
	}
}

func TestTraceIsDeterministic(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddExit(42, 59*analyzetest.Second)
	var first []byte
	for range 3 {
		var b bytes.Buffer
		if _, err := WriteTrace(recording.Timeline(), &b, Options{}); err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, b.Bytes()) {
			t.Fatal("two runs differ")
		}
		first = b.Bytes()
	}
}
