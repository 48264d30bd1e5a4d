package analyze

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"google.golang.org/protobuf/encoding/protowire"
)

// fields splits a message into its fields, varints and fixed as their 8 bytes' value.
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

// slice is a slice or instant of a decoded trace; counters have a value.
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

// decode reads a trace as trace_processor does, and fails on everything that is not
// well formed: unknown tracks, numbers that were not introduced, ends without a
// beginning, packets out of order.
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
	for i, p := range fields(t, b)[perfetto.FieldTracePacket] {
		m := fields(t, p.([]byte))
		if number(m, perfetto.FieldSequenceID) != perfetto.SequenceID {
			t.Fatalf("packet %d has no sequence", i)
		}
		if i == 0 && (number(m, perfetto.FieldSequenceFlags) != perfetto.SequenceCleared || m[perfetto.FieldClockSnapshot] == nil || m[perfetto.FieldTracePacketDefaults] == nil) {
			t.Fatal("the first packet does not open the sequence")
		}
		if i == 0 { // times are differences from here on
			for _, c := range fields(t, m[perfetto.FieldClockSnapshot][0].([]byte))[1] {
				if c := fields(t, c.([]byte)); number(c, 1) == perfetto.ClockDelta && number(c, 3) == 1 {
					clock = number(c, 2)
				}
			}
		}
		clock += number(m, perfetto.FieldTimestamp)
		for _, raw := range m[perfetto.FieldInternedData] {
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
		if raw, ok := m[perfetto.FieldTrackDescriptor]; ok {
			td := fields(t, raw[0].([]byte))
			if parent := number(td, 5); parent != 0 && tracks[parent] == "" {
				t.Fatalf("track %q has an unknown parent", text(td, 2))
			}
			name := text(td, 2)
			if parent := number(td, 5); parent != 0 {
				name = tracks[parent] + " / " + name
			}
			if raw, ok := td[perfetto.TrackProcess]; ok {
				name = fmt.Sprintf("process %d", number(fields(t, raw[0].([]byte)), 1))
			}
			if raw, ok := td[perfetto.TrackThread]; ok {
				th := fields(t, raw[0].([]byte))
				name = fmt.Sprintf("thread %d %d", number(th, 1), number(th, 2))
			}
			tracks[number(td, 1)] = name
			counters[number(td, 1)] = td[perfetto.TrackCounter] != nil
		}
		raw, ok := m[perfetto.FieldTrackEvent]
		if !ok {
			continue
		}
		e := fields(t, raw[0].([]byte))
		ts, track := clock, number(e, perfetto.FieldTrackUUID)
		if ts < last {
			t.Errorf("packet %d at %d comes after one at %d", i, ts, last)
		}
		last = ts
		if tracks[track] == "" {
			t.Fatalf("event on unknown track %d", track)
		}
		switch number(e, perfetto.FieldType) {
		case perfetto.EventCounter:
			if !counters[track] {
				t.Fatalf("counter on track %q", tracks[track])
			}
			d.counters[tracks[track]] = append(d.counters[tracks[track]], int64(number(e, perfetto.FieldCounterValue)))
		case perfetto.EventSliceBegin, perfetto.EventInstant:
			s := slice{track: tracks[track], startNs: int64(ts), name: text(lookup(perfetto.FieldEventNames, number(e, perfetto.FieldNameIID)), 2),
				depth: len(open[track]), instant: number(e, perfetto.FieldType) == perfetto.EventInstant}
			for _, c := range e[perfetto.FieldCategoryIIDs] {
				lookup(perfetto.FieldEventCategories, c.(uint64))
			}
			for _, a := range e[perfetto.FieldDebugAnnotations] {
				note := fields(t, a.([]byte))
				lookup(perfetto.FieldAnnotationNames, number(note, 1))
				if id, ok := note[perfetto.AnnotationStringIID]; ok {
					lookup(perfetto.FieldAnnotationValues, id[0].(uint64))
				}
				s.notes++
			}
			if id, ok := e[perfetto.FieldCallstackIID]; ok {
				for _, f := range lookup(perfetto.FieldCallstacks, id[0].(uint64))[2] {
					frame := lookup(perfetto.FieldFrames, f.(uint64))
					lookup(perfetto.FieldFunctionNames, number(frame, 2))
					lookup(perfetto.FieldMappings, number(frame, 3))
					s.stack++
				}
			}
			d.slices = append(d.slices, s)
			if !s.instant {
				open[track] = append(open[track], len(d.slices)-1)
			}
		case perfetto.EventSliceEnd:
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

func traced(t *testing.T, tl *timeline.Timeline, opt perfetto.Options) (*decoded, *perfetto.Stats) {
	t.Helper()
	var b bytes.Buffer
	stats, err := perfetto.Write(tl, &b, opt)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, b.Bytes()), stats
}

// onThreads returns the slices of API calls, and instants where their duration is not known.
func (d *decoded) onThreads() (list []slice) {
	for _, s := range d.slices {
		if strings.HasPrefix(s.track, "thread ") {
			list = append(list, s)
		}
	}
	return list
}

func TestTraceHoldsEveryCall(t *testing.T) {
	tp := training(t)
	tl := tp.timeline()
	d, stats := traced(t, tl, perfetto.Options{})
	calls := make(map[string]int)
	lanes := 0
	for _, r := range tp.rows {
		if c := format.ClassOf(r.Kind); c == format.ClassMemory || c == format.ClassCall {
			calls[r.Name]++
			if timeline.IsLane(r.Kind) {
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
	if others := len(d.slices) - len(d.onThreads()); others != lanes+3 { // and an Xid, a failed allocation and the open call once more
		t.Errorf("%d instants, want %d", others, lanes+3)
	}
	if stats.Calls != int64(len(d.onThreads())) || stats.LeftOut != 0 {
		t.Errorf("stats %+v", stats)
	}
	use := memory.NewMemoryUse(tl, &query.Filter{})
	if _, err := tl.Replay(func(_ *ledger.Ledger, c *ledger.Change) { use.Consume(c) }); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Max(d.counters["GPU 0 NVIDIA H200 / live memory"]), use.Total[0].Peak; got != want {
		t.Errorf("counter's peak %d, ledger's %d", got, want)
	}
	if n := len(d.counters["GPU 0 NVIDIA H200 / NVML utilization_pct"]); n != 6 {
		t.Errorf("%d samples", n)
	}
}

func TestTraceOfRandomProgramsIsWellFormed(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 2))
		tp := newTape(t)
		randomProgram(tp, r, 500)
		for _, row := range slices.Clone(tp.rows) {
			switch r.IntN(10) {
			case 0: // a call inside of another
				in := *row
				in.ParentStartNs, in.StartNs, in.DurNs = row.StartNs, row.StartNs+row.DurNs/4, row.DurNs/2
				in.Kind, in.Name = format.KindAPI, "inner"
				tp.add(in)
			case 1: // clocks that disagree
				in := *row
				in.StartNs, in.DurNs, in.Kind, in.Name = row.StartNs+1, row.DurNs+5, format.KindSync, "longer than its parent"
				tp.add(in)
			case 2:
				row.Flags = format.FlagOpen
			case 3:
				row.Flags = format.FlagAbandoned
			case 4:
				row.Flags, row.DurNs = format.FlagNoReturn, 0
			}
		}
		tp.exit(77, 20*us)
		tl := tp.timeline()
		d, _ := traced(t, tl, perfetto.Options{})
		if len(d.onThreads()) != len(tp.rows)-1 {
			t.Errorf("seed %d: %d slices of %d calls", seed, len(d.onThreads()), len(tp.rows)-1)
		}
		for _, s := range d.slices {
			if s.durNs < 0 {
				t.Fatalf("negative duration: %+v", s)
			}
		}
		unknown := 0
		for _, row := range tp.rows {
			if row.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
				unknown++
			}
		}
		if n := len(slices.DeleteFunc(d.onThreads(), func(s slice) bool { return !s.instant })); n != unknown || n == 0 {
			t.Errorf("seed %d: %d instants for %d calls whose duration is not known", seed, n, unknown)
		}
		use := memory.NewMemoryUse(tl, &query.Filter{})
		if _, err := tl.Replay(func(_ *ledger.Ledger, c *ledger.Change) { use.Consume(c) }); err != nil {
			t.Fatal(err)
		}
		for device, total := range use.Total {
			name := fmt.Sprintf("GPU %d / live memory", device)
			values := d.counters[name]
			if slices.Max(values) != total.Peak || values[len(values)-1] != total.Live {
				t.Errorf("seed %d: %s: max %d last %d, ledger %+v", seed, name, slices.Max(values), values[len(values)-1], total)
			}
		}
	}
}

func TestTraceIsCutWhereItIsFull(t *testing.T) {
	tl := training(t).timeline()
	d, stats := traced(t, tl, perfetto.Options{MaxSlices: 100})
	all, whole := traced(t, tl, perfetto.Options{})
	if n := len(d.slices) - 4; n > 100 { // an Xid, a failed allocation, an open call once more and the note are no calls
		t.Errorf("%d slices and instants", n)
	}
	if stats.Calls+stats.LeftOut != whole.Calls || stats.LeftOutNs <= epoch {
		t.Errorf("stats %+v, want %d calls together", stats, whole.Calls)
	}
	const live = "GPU 0 NVIDIA H200 / live memory"
	if !slices.Equal(d.counters[live], all.counters[live]) {
		t.Error("counters are cut too")
	}
	if !slices.ContainsFunc(d.slices, func(s slice) bool { return s.track == "gpurec" && s.instant }) {
		t.Error("the trace does not say that it is cut")
	}
}

func TestTraceOfAWindow(t *testing.T) {
	tp := training(t)
	f := query.Filter{FromNs: epoch + 10*second, ToNs: epoch + 11*second}
	d, _ := traced(t, tp.timeline(), perfetto.Options{Filter: f})
	offset := tp.meta.ClockOffsetNs
	for _, s := range d.onThreads() {
		if start := s.startNs + offset; start > f.ToNs || start+s.durNs < f.FromNs {
			t.Fatalf("%+v is outside", s)
		}
	}
	want := 0
	for _, r := range tp.rows {
		if c := format.ClassOf(r.Kind); (c == format.ClassMemory || c == format.ClassCall) && r.StartNs <= f.ToNs && r.StartNs+r.DurNs >= f.FromNs {
			want++
		}
	}
	if n := len(d.onThreads()); n != want || want == 0 {
		t.Errorf("%d slices, want %d", n, want)
	}
}

func TestTraceShowsWhatIsMissing(t *testing.T) {
	tp := training(t)
	tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + 5*second, DurNs: 100 * ms, Value: 1204, Device: -1})
	d, _ := traced(t, tp.timeline(), perfetto.Options{})
	for _, want := range []string{"1,204 launch calls lost", "allocation failed: 200.0 GiB", "Xid 31: MMU fault"} {
		if !slices.ContainsFunc(d.slices, func(s slice) bool { return s.name == want }) {
			t.Errorf("no %q", want)
		}
	}
	open := d.slices[slices.IndexFunc(d.slices, func(s slice) bool { return s.name == "cuStreamSynchronize" && s.durNs == 100*ms })]
	if open.notes == 0 {
		t.Error("the open call is not marked")
	}
}

func TestTraceIsTheSameEveryTime(t *testing.T) {
	tp := training(t)
	tp.exit(42, 59*second)
	var first []byte
	for range 3 {
		var b bytes.Buffer
		if _, err := perfetto.Write(tp.timeline(), &b, perfetto.Options{}); err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, b.Bytes()) {
			t.Fatal("two runs differ")
		}
		first = b.Bytes()
	}
}
