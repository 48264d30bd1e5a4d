package analyze

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// DefaultMinGapNs is the shortest interval without launches that counts as a gap if nothing else is said: what a step of training
// takes to be prepared is mostly less.
const DefaultMinGapNs = int64(1e6)

// GapOptions shape the report of gaps.
type GapOptions struct {
	query.Options
	// MinGapNs is the shortest interval that is a gap, ns; 0 is DefaultMinGapNs.
	MinGapNs int64
}

// allDevices is the device of a gap in which a process launched nothing on any device.
const allDevices = int32(-2)

// mostGaps is how many gaps are told one by one if --top does not bound them.
const mostGaps = 1000

// gapSizes are the bounds of the distribution, ns.
var gapSizes = []struct {
	belowNs int64
	name    string
}{{10e3, "< 10us"}, {100e3, "10us to 100us"}, {1e6, "100us to 1ms"}, {10e6, "1ms to 10ms"}, {100e6, "10ms to 100ms"}, {1e9, "100ms to 1s"}, {1<<63 - 1, ">= 1s"}}

// gapUse looks for intervals without launches.
type gapUse struct {
	*calls.Reader
	minNs  int64
	keep   int
	tracks map[gapTrack]*trackGaps
	last   lastTrack
	// The longest gaps, heaps with the shortest first: of processes, and of their devices.
	ofProcess, ofDevice []launchGap
	list                []launchGap // those that are told, the longest first
}

// gapTrack is what launches are looked for on: a device of a process, or all of them.
type gapTrack struct{ pid, device int32 }

// trackGaps is what was found on one.
type trackGaps struct {
	launches, unreturned int64
	blindNs              int64 // between first and last launch, without recording of launches
	firstNs, untilNs     int64 // entry of the first launch; return of the last one so far, entry where that is not known
	gaps                 stats.Durations
	all                  [7]struct{ count, ns int64 } // intervals of any size by gapSizes
}

// launchGap is an interval without launches.
type launchGap struct {
	track        gapTrack
	fromNs, toNs int64
	ended        calls.Call // the launch that ended it
	doing        gapActivity
	busy         gapBusy
}

// seenNs is the time between the first and the last launch in which launches were recorded.
func (s *trackGaps) seenNs() int64 { return s.untilNs - s.firstNs - s.blindNs }

func (g *launchGap) durNs() int64 { return g.toNs - g.fromNs }

// longer orders gaps from long to short.
func (g *launchGap) longer(o *launchGap) int {
	return cmp.Or(cmp.Compare(o.durNs(), g.durNs()), cmp.Compare(g.fromNs, o.fromNs), cmp.Compare(g.track.pid, o.track.pid), cmp.Compare(g.track.device, o.track.device))
}

// Gaps reports intervals in which a process gave no work to the GPU: how many and how long, what the launching thread did in the
// longest ones, and whether the GPU was idle. It returns a *SortError for a column that there is not.
func Gaps(t *timeline.Timeline, opt GapOptions) (*Report, error) {
	if err := needClasses(t, "gaps"); err != nil {
		return nil, err
	}
	u := newGapUse(calls.NewReader(t, &opt.Filter, format.KindLaunch), cmp.Or(opt.MinGapNs, DefaultMinGapNs), cmp.Or(opt.Top, mostGaps))
	counts, err := calls.CountsWhile(t, func() error { return u.Each(u.add) })
	if err != nil {
		return nil, err
	}
	u.finish()
	u.askSamples()
	if err := u.watch(); err != nil {
		return nil, err
	}
	r := &Report{Command: "gaps", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(u.tracks) == 0 {
		result = "no launches in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = fill(gapFacts, result, u.minNs)
	r.Totals = u.totals()
	gaps := u.gapTable()
	if err := gaps.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	addStacks(t, &gaps, &opt.Options)
	r.Tables = []Table{u.trackTable(), u.sizeTable(), gaps}
	return r, nil
}

func newGapUse(r *calls.Reader, minNs int64, keep int) *gapUse {
	return &gapUse{Reader: r, minNs: minNs, keep: keep, tracks: make(map[gapTrack]*trackGaps)}
}

// add looks at a launch. What did not run ends no gap: failed launches, and captured ones.
func (u *gapUse) add(c *calls.Call) error {
	if c.Failed() || c.Flags&(format.FlagCaptured|format.FlagAbandoned) != 0 {
		return nil
	}
	if last := &u.last; last.device == nil || last.track != (gapTrack{c.Pid, c.Device}) {
		*last = lastTrack{gapTrack{c.Pid, c.Device}, u.track(gapTrack{c.Pid, allDevices}, c.StartNs), u.track(gapTrack{c.Pid, c.Device}, c.StartNs)}
	}
	u.launch(gapTrack{c.Pid, allDevices}, u.last.process, c, &u.ofProcess)
	u.launch(u.last.track, u.last.device, c, &u.ofDevice)
	return nil
}

// lastTrack is what the launch before belonged to: most belong to the same.
type lastTrack struct {
	track           gapTrack
	process, device *trackGaps
}

// track returns a track, which begins now if it is new.
func (u *gapUse) track(track gapTrack, startNs int64) *trackGaps {
	s := u.tracks[track]
	if s == nil {
		s = &trackGaps{firstNs: startNs, untilNs: startNs}
		u.tracks[track] = s
	}
	return s
}

func (u *gapUse) launch(track gapTrack, s *trackGaps, c *calls.Call, longest *[]launchGap) {
	s.launches++
	end := c.EndNs
	if c.Flags&format.FlagNoReturn != 0 {
		s.unreturned++
		end = c.StartNs
	}
	blind := u.T.GapNs(s.untilNs, c.StartNs)
	s.blindNs += blind
	if between := c.StartNs - s.untilNs; between > 0 && s.launches > 1 && blind == 0 {
		size := 0
		for between >= gapSizes[size].belowNs {
			size++
		}
		s.all[size].count++
		s.all[size].ns += between
		if between >= u.minNs {
			s.gaps.Add(between)
			u.remember(longest, launchGap{track: track, fromNs: s.untilNs, toNs: c.StartNs}, c)
		}
	}
	s.untilNs = max(s.untilNs, min(end, u.Window.ToNs))
}

// remember keeps the longest gaps.
func (u *gapUse) remember(longest *[]launchGap, g launchGap, c *calls.Call) {
	shorter := func(a, b launchGap) bool { return b.longer(&a) < 0 }
	if len(*longest) < u.keep {
		g.ended = *c
		*longest = stats.HeapPush(*longest, g, shorter)
	} else if g.longer(&(*longest)[0]) < 0 {
		g.ended = *c
		(*longest)[0] = g
		stats.HeapFix(*longest, shorter)
	}
}

// finish chooses the gaps that are told. A process with one device has the same gaps there as altogether: they are told once.
func (u *gapUse) finish() {
	devices := make(map[int32]int)
	for track := range u.tracks {
		if track.device != allDevices {
			devices[track.pid]++
		}
	}
	for pid, n := range devices {
		if n == 1 {
			delete(u.tracks, gapTrack{pid, allDevices})
		}
	}
	for _, list := range [][]launchGap{u.ofProcess, u.ofDevice} {
		for i := range list {
			if u.tracks[list[i].track] != nil {
				u.list = append(u.list, list[i])
			}
		}
	}
	slices.SortFunc(u.list, func(a, b launchGap) int { return a.longer(&b) })
	u.list = u.list[:min(len(u.list), u.keep)]
}

// sortedTracks lists the tracks, those of a process together.
func (u *gapUse) sortedTracks() []gapTrack {
	return slices.SortedFunc(maps.Keys(u.tracks), func(a, b gapTrack) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device)) })
}

var gapFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing to tell"},
	{"min_gap_ns", "shortest gap", UnitNs, "intervals between launches that are shorter are no gaps"},
}

var gapTotals = []Column{
	{"gaps", "gaps", UnitCount, "gaps of processes, all their devices taken together: from the return of a launch (its entry, where the return was not recorded) to the entry of the next one that ran"},
	{"gap_sum_ns", "without launches", UnitNs, "length of these together"},
	{"gap_max_ns", "longest", UnitNs, "the longest"},
	{"gap_pct", "% of the time between first and last launch", UnitPercent, "their share in that time, of all processes; times in which launches were not recorded (--max-overhead) are in neither"},
	{"launches", "launches", UnitCount, "kernel and graph launches in the window that ran, as far as is known"},
	{"idle_gaps", "with idle GPU", UnitCount, "of the gaps listed, those in which samples say that the GPU was idle"},
	{"busy_gaps", "with busy GPU", UnitCount, "of the gaps listed, those in which the GPU was busy: with earlier work, or another process's"},
}

func (u *gapUse) totals() []Fact {
	var sum stats.Durations
	var span, launches, idle, busy int64
	for _, track := range u.sortedTracks() {
		if s := u.tracks[track]; track.device == allDevices || u.tracks[gapTrack{track.pid, allDevices}] == nil {
			sum.Merge(&s.gaps)
			span = units.EndOf(span, s.seenNs())
			launches += s.launches
		}
	}
	for i := range u.list {
		switch u.list[i].busy.word() {
		case gpuIdle:
			idle++
		case gpuBusy:
			busy++
		}
	}
	return fill(gapTotals, sum.Count, sum.SumNs, sum.Most(), units.Percent(sum.SumNs, span), launches, idle, busy)
}

var trackColumns = []Column{
	{"gaps", "GAPS", UnitCount, "intervals without launches of at least min_gap_ns: from the return of a launch (its entry, where the return was not recorded) to the entry of the next one that ran. Failed and captured launches do not run"},
	{"gap_sum_ns", "TOTAL", UnitNs, "length of these together"},
	{"gap_pct", "GAP%", UnitPercent, "share in the time between first and last launch, without times in which launches were not recorded"},
	{"gap_med_ns", "MED", UnitNs, "half of them are no longer; off by less than 0.8%"},
	{"gap_p95_ns", "P95", UnitNs, "95% are no longer; off by less than 0.8%"},
	{"gap_max_ns", "LONGEST", UnitNs, "the longest"},
	{"launches", "LAUNCHES", UnitCount, "kernel and graph launches in the window that ran, as far as is known"},
	{"unreturned_launches", "", UnitCount, "of these, launches that were recorded at their entry only: their gap begins there"},
	{"lead_ns", "BEFORE", UnitNs, "from the window's start to the first launch; not a gap"},
	{"tail_ns", "AFTER", UnitNs, "from the last launch to the window's end, or the end of the process; not a gap"},
	{"pid", "PID", UnitID, "process"},
	{"process", "", UnitText, "its name"},
	{"device", "DEVICE", UnitText, "CUDA device as the process counts; all: launches on any of several devices"},
}

// trackTable has a row per process and device.
func (u *gapUse) trackTable() Table {
	table := Table{Name: "processes", Title: "time without launches", Columns: trackColumns, Aside: true, Spare: []string{"gap_med_ns", "lead_ns"}}
	for _, track := range u.sortedTracks() {
		s := u.tracks[track]
		end := u.Window.ToNs
		if exit := u.T.Facts.Processes[track.pid].ExitNs; exit > 0 {
			end = min(end, exit)
		}
		name, _ := u.T.ProcessName(track.pid)
		table.Rows = append(table.Rows, Row{Cells: []any{s.gaps.Count, s.gaps.SumNs, units.Percent(s.gaps.SumNs, s.seenNs()), s.gaps.At(0.5), s.gaps.At(0.95), s.gaps.Most(),
			s.launches, s.unreturned, s.firstNs - u.Window.FromNs, max(0, end-s.untilNs), int64(track.pid), units.Known(name), u.trackDevice(track)}})
	}
	addRanks(u.T, &table)
	return table
}

// trackDevice names the device of a track.
func (u *gapUse) trackDevice(track gapTrack) string {
	if track.device == allDevices {
		return "all"
	}
	return u.T.OrdinalLabel(track.pid, track.device)
}

var sizeColumns = []Column{
	{"length", "LENGTH", UnitText, "of the interval between two launches, of any length, upper bound not included"},
	{"intervals", "INTERVALS", UnitCount, "intervals of that length"},
	{"total_ns", "TOTAL", UnitNs, "their length together"},
	{"span_pct", "SHARE%", UnitPercent, "share in the time between first and last launch"},
	{"pid", "PID", UnitID, "process"},
	{"device", "DEVICE", UnitText, "as above"},
}

// sizeTable has a row per process, device and length of intervals.
func (u *gapUse) sizeTable() Table {
	table := Table{Name: "distribution", Title: "intervals between launches by length", Columns: sizeColumns, Aside: true}
	for _, track := range u.sortedTracks() {
		s := u.tracks[track]
		for i, n := range s.all {
			if n.count > 0 {
				table.Rows = append(table.Rows, Row{Cells: []any{gapSizes[i].name, n.count, n.ns, units.Percent(n.ns, s.seenNs()), int64(track.pid), u.trackDevice(track)}})
			}
		}
	}
	addRanks(u.T, &table)
	return table
}
