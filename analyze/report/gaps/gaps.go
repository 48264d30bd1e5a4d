package gaps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// DefaultMinGapNs is the shortest interval without launches that counts as a gap if nothing else is said: what a step of training
// takes to be prepared is mostly less.
const DefaultMinGapNs = int64(1e6)

// Options shape the report of gaps.
type Options struct {
	query.Options
	// MinGapNs is the shortest interval that is a gap, ns; 0 is DefaultMinGapNs.
	MinGapNs int64
}

// AllDevices is the device of a gap in which a process launched nothing on any device.
const AllDevices = int32(-2)

// MostGaps is how many gaps are told one by one if --top does not bound them.
const MostGaps = 1000

// GapSizes are the bounds of the distribution, ns.
var GapSizes = []struct {
	BelowNs int64
	name    string
}{{10e3, "< 10us"}, {100e3, "10us to 100us"}, {1e6, "100us to 1ms"}, {10e6, "1ms to 10ms"}, {100e6, "10ms to 100ms"}, {1e9, "100ms to 1s"}, {1<<63 - 1, ">= 1s"}}

// GapUse looks for intervals without launches.
type GapUse struct {
	*calls.Reader
	minNs  int64
	keep   int
	Tracks map[GapTrack]*TrackGaps
	last   lastTrack
	// The longest gaps, heaps with the shortest first: of processes, and of their devices.
	ofProcess, ofDevice []LaunchGap
	List                []LaunchGap // those that are told, the longest first
}

// GapTrack is what launches are looked for on: a device of a process, or all of them.
type GapTrack struct{ Pid, Device int32 }

// TrackGaps is what was found on one.
type TrackGaps struct {
	Launches, Unreturned int64
	blindNs              int64 // between first and last launch, without recording of launches
	FirstNs, UntilNs     int64 // entry of the first launch; return of the last one so far, entry where that is not known
	Gaps                 stats.Durations
	All                  [7]struct{ Count, ns int64 } // intervals of any size by GapSizes
}

// LaunchGap is an interval without launches.
type LaunchGap struct {
	Track        GapTrack
	FromNs, ToNs int64
	Ended        calls.Call // the launch that ended it
	Doing        GapActivity
	Busy         GapBusy
}

// seenNs is the time between the first and the last launch in which launches were recorded.
func (s *TrackGaps) seenNs() int64 { return s.UntilNs - s.FirstNs - s.blindNs }

func (g *LaunchGap) DurNs() int64 { return g.ToNs - g.FromNs }

// longer orders gaps from long to short.
func (g *LaunchGap) longer(o *LaunchGap) int {
	return cmp.Or(cmp.Compare(o.DurNs(), g.DurNs()), cmp.Compare(g.FromNs, o.FromNs), cmp.Compare(g.Track.Pid, o.Track.Pid), cmp.Compare(g.Track.Device, o.Track.Device))
}

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports intervals in which a process gave no work to the GPU: how many and how long, what the launching thread did in the
// longest ones, and whether the GPU was idle. It returns a *SortError for a column that there is not.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "gaps"); err != nil {
		return nil, err
	}
	u := NewGapUse(calls.NewReader(t, &opt.Filter, format.KindLaunch), cmp.Or(opt.MinGapNs, DefaultMinGapNs), cmp.Or(opt.Top, MostGaps))
	counts, err := calls.CountsWhile(t, func() error { return u.Each(u.Add) })
	if err != nil {
		return nil, err
	}
	u.Finish()
	u.AskSamples()
	if err := u.Watch(); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "gaps", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(u.Tracks) == 0 {
		result = "no launches in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = report.Fill(GapFacts, result, u.minNs)
	r.Totals = u.totals()
	gaps := u.gapTable()
	if err := gaps.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &gaps, &opt.Options)
	r.Tables = []report.Table{u.trackTable(), u.sizeTable(), gaps}
	return r, nil
}

func NewGapUse(r *calls.Reader, minNs int64, keep int) *GapUse {
	return &GapUse{Reader: r, minNs: minNs, keep: keep, Tracks: make(map[GapTrack]*TrackGaps)}
}

// Add looks at a launch. What did not run ends no gap: failed launches, and captured ones.
func (u *GapUse) Add(c *calls.Call) error {
	if c.Failed() || c.Flags&(format.FlagCaptured|format.FlagAbandoned) != 0 {
		return nil
	}
	if last := &u.last; last.device == nil || last.track != (GapTrack{c.Pid, c.Device}) {
		*last = lastTrack{GapTrack{c.Pid, c.Device}, u.track(GapTrack{c.Pid, AllDevices}, c.StartNs), u.track(GapTrack{c.Pid, c.Device}, c.StartNs)}
	}
	u.launch(GapTrack{c.Pid, AllDevices}, u.last.process, c, &u.ofProcess)
	u.launch(u.last.track, u.last.device, c, &u.ofDevice)
	return nil
}

// lastTrack is what the launch before belonged to: most belong to the same.
type lastTrack struct {
	track           GapTrack
	process, device *TrackGaps
}

// track returns a track, which begins now if it is new.
func (u *GapUse) track(track GapTrack, startNs int64) *TrackGaps {
	s := u.Tracks[track]
	if s == nil {
		s = &TrackGaps{FirstNs: startNs, UntilNs: startNs}
		u.Tracks[track] = s
	}
	return s
}

func (u *GapUse) launch(track GapTrack, s *TrackGaps, c *calls.Call, longest *[]LaunchGap) {
	s.Launches++
	end := c.EndNs
	if c.Flags&format.FlagNoReturn != 0 {
		s.Unreturned++
		end = c.StartNs
	}
	blind := u.T.GapNs(s.UntilNs, c.StartNs)
	s.blindNs += blind
	if between := c.StartNs - s.UntilNs; between > 0 && s.Launches > 1 && blind == 0 {
		size := 0
		for between >= GapSizes[size].BelowNs {
			size++
		}
		s.All[size].Count++
		s.All[size].ns += between
		if between >= u.minNs {
			s.Gaps.Add(between)
			u.remember(longest, LaunchGap{Track: track, FromNs: s.UntilNs, ToNs: c.StartNs}, c)
		}
	}
	s.UntilNs = max(s.UntilNs, min(end, u.Window.ToNs))
}

// remember keeps the longest gaps.
func (u *GapUse) remember(longest *[]LaunchGap, g LaunchGap, c *calls.Call) {
	shorter := func(a, b LaunchGap) bool { return b.longer(&a) < 0 }
	if len(*longest) < u.keep {
		g.Ended = *c
		*longest = stats.HeapPush(*longest, g, shorter)
	} else if g.longer(&(*longest)[0]) < 0 {
		g.Ended = *c
		(*longest)[0] = g
		stats.HeapFix(*longest, shorter)
	}
}

// Finish chooses the gaps that are told. A process with one device has the same gaps there as altogether: they are told once.
func (u *GapUse) Finish() {
	devices := make(map[int32]int)
	for track := range u.Tracks {
		if track.Device != AllDevices {
			devices[track.Pid]++
		}
	}
	for pid, n := range devices {
		if n == 1 {
			delete(u.Tracks, GapTrack{pid, AllDevices})
		}
	}
	for _, list := range [][]LaunchGap{u.ofProcess, u.ofDevice} {
		for i := range list {
			if u.Tracks[list[i].Track] != nil {
				u.List = append(u.List, list[i])
			}
		}
	}
	slices.SortFunc(u.List, func(a, b LaunchGap) int { return a.longer(&b) })
	u.List = u.List[:min(len(u.List), u.keep)]
}

// SortedTracks lists the tracks, those of a process together.
func (u *GapUse) SortedTracks() []GapTrack {
	return slices.SortedFunc(maps.Keys(u.Tracks), func(a, b GapTrack) int { return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device)) })
}

var GapFacts = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
	{Key: "min_gap_ns", Title: "shortest gap", Unit: report.UnitNs, About: "intervals between launches that are shorter are no gaps"},
}

var GapTotals = []report.Column{
	{Key: "gaps", Title: "gaps", Unit: report.UnitCount, About: "gaps of processes, all their devices taken together: from the return of a launch (its entry, where the return was not recorded) to the entry of the next one that ran"},
	{Key: "gap_sum_ns", Title: "without launches", Unit: report.UnitNs, About: "length of these together"},
	{Key: "gap_max_ns", Title: "longest", Unit: report.UnitNs, About: "the longest"},
	{Key: "gap_pct", Title: "% of the time between first and last launch", Unit: report.UnitPercent, About: "their share in that time, of all processes; times in which launches were not recorded (--max-overhead) are in neither"},
	{Key: "launches", Title: "launches", Unit: report.UnitCount, About: "kernel and graph launches in the window that ran, as far as is known"},
	{Key: "idle_gaps", Title: "with idle GPU", Unit: report.UnitCount, About: "of the gaps listed, those in which samples say that the GPU was idle"},
	{Key: "busy_gaps", Title: "with busy GPU", Unit: report.UnitCount, About: "of the gaps listed, those in which the GPU was busy: with earlier work, or another process's"},
}

func (u *GapUse) totals() []report.Fact {
	var sum stats.Durations
	var span, launches, idle, busy int64
	for _, track := range u.SortedTracks() {
		if s := u.Tracks[track]; track.Device == AllDevices || u.Tracks[GapTrack{track.Pid, AllDevices}] == nil {
			sum.Merge(&s.Gaps)
			span = units.EndOf(span, s.seenNs())
			launches += s.Launches
		}
	}
	for i := range u.List {
		switch u.List[i].Busy.Word() {
		case GPUIdle:
			idle++
		case GPUBusy:
			busy++
		}
	}
	return report.Fill(GapTotals, sum.Count, sum.SumNs, sum.Most(), units.Percent(sum.SumNs, span), launches, idle, busy)
}

var TrackColumns = []report.Column{
	{Key: "gaps", Title: "GAPS", Unit: report.UnitCount, About: "intervals without launches of at least min_gap_ns: from the return of a launch (its entry, where the return was not recorded) to the entry of the next one that ran. Failed and captured launches do not run"},
	{Key: "gap_sum_ns", Title: "TOTAL", Unit: report.UnitNs, About: "length of these together"},
	{Key: "gap_pct", Title: "GAP%", Unit: report.UnitPercent, About: "share in the time between first and last launch, without times in which launches were not recorded"},
	{Key: "gap_med_ns", Title: "MED", Unit: report.UnitNs, About: "half of them are no longer; off by less than 0.8%"},
	{Key: "gap_p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% are no longer; off by less than 0.8%"},
	{Key: "gap_max_ns", Title: "LONGEST", Unit: report.UnitNs, About: "the longest"},
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "kernel and graph launches in the window that ran, as far as is known"},
	{Key: "unreturned_launches", Title: "", Unit: report.UnitCount, About: "of these, launches that were recorded at their entry only: their gap begins there"},
	{Key: "lead_ns", Title: "BEFORE", Unit: report.UnitNs, About: "from the window's start to the first launch; not a gap"},
	{Key: "tail_ns", Title: "AFTER", Unit: report.UnitNs, About: "from the last launch to the window's end, or the end of the process; not a gap"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "", Unit: report.UnitText, About: "its name"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device as the process counts; all: launches on any of several devices"},
}

// trackTable has a row per process and device.
func (u *GapUse) trackTable() report.Table {
	table := report.Table{Name: "processes", Title: "time without launches", Columns: TrackColumns, Aside: true, Spare: []string{"gap_med_ns", "lead_ns"}}
	for _, track := range u.SortedTracks() {
		s := u.Tracks[track]
		end := u.Window.ToNs
		if exit := u.T.Facts.Processes[track.Pid].ExitNs; exit > 0 {
			end = min(end, exit)
		}
		name, _ := u.T.ProcessName(track.Pid)
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.Gaps.Count, s.Gaps.SumNs, units.Percent(s.Gaps.SumNs, s.seenNs()), s.Gaps.At(0.5), s.Gaps.At(0.95), s.Gaps.Most(),
			s.Launches, s.Unreturned, s.FirstNs - u.Window.FromNs, max(0, end-s.UntilNs), int64(track.Pid), units.Known(name), u.trackDevice(track)}})
	}
	processes.AddRanks(u.T, &table)
	return table
}

// trackDevice names the device of a track.
func (u *GapUse) trackDevice(track GapTrack) string {
	if track.Device == AllDevices {
		return "all"
	}
	return u.T.OrdinalLabel(track.Pid, track.Device)
}

var SizeColumns = []report.Column{
	{Key: "length", Title: "LENGTH", Unit: report.UnitText, About: "of the interval between two launches, of any length, upper bound not included"},
	{Key: "intervals", Title: "INTERVALS", Unit: report.UnitCount, About: "intervals of that length"},
	{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "their length together"},
	{Key: "span_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share in the time between first and last launch"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "as above"},
}

// sizeTable has a row per process, device and length of intervals.
func (u *GapUse) sizeTable() report.Table {
	table := report.Table{Name: "distribution", Title: "intervals between launches by length", Columns: SizeColumns, Aside: true}
	for _, track := range u.SortedTracks() {
		s := u.Tracks[track]
		for i, n := range s.All {
			if n.Count > 0 {
				table.Rows = append(table.Rows, report.Row{Cells: []any{GapSizes[i].name, n.Count, n.ns, units.Percent(n.ns, s.seenNs()), int64(track.Pid), u.trackDevice(track)}})
			}
		}
	}
	processes.AddRanks(u.T, &table)
	return table
}
