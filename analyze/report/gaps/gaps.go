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

// DefaultTop is how many gaps are told one by one if --top does not bound them.
const DefaultTop = 1000

// Lengths are the bounds of the distribution, ns.
var Lengths = []struct {
	BelowNs int64
	name    string
}{{10e3, "< 10us"}, {100e3, "10us to 100us"}, {1e6, "100us to 1ms"}, {10e6, "1ms to 10ms"}, {100e6, "10ms to 100ms"}, {1e9, "100ms to 1s"}, {1<<63 - 1, ">= 1s"}}

// Scan looks for intervals without launches.
type Scan struct {
	*calls.Reader
	minNs  int64
	keep   int
	Tracks map[Track]*trackGaps
	last   lastTrack
	// The longest gaps, heaps with the shortest first: of processes, and of their devices.
	ofProcess, ofDevice []Gap
	List                []Gap // those that are told, the longest first
}

// Track is what launches are looked for on: a device of a process, or all of them.
type Track struct{ Pid, Device int32 }

// trackGaps is what was found on one.
type trackGaps struct {
	Launches, Unreturned int64
	blindNs              int64 // between first and last launch, without recording of launches
	FirstNs, UntilNs     int64 // entry of the first launch; return of the last one so far, entry where that is not known
	Gaps                 stats.Durations
	All                  [7]struct{ Count, ns int64 } // intervals of any size by Lengths
}

// Gap is an interval without launches.
type Gap struct {
	Track        Track
	FromNs, ToNs int64
	Ended        calls.Call // the launch that ended it
	Doing        activity
	Busy         Busy
}

// seenNs is the time between the first and the last launch in which launches were recorded.
func (s *trackGaps) seenNs() int64 { return s.UntilNs - s.FirstNs - s.blindNs }

func (g *Gap) DurNs() int64 { return g.ToNs - g.FromNs }

// longer orders gaps from long to short.
func (g *Gap) longer(o *Gap) int {
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
	sc := NewScan(calls.NewReader(t, &opt.Filter, format.KindLaunch), cmp.Or(opt.MinGapNs, DefaultMinGapNs), cmp.Or(opt.Top, DefaultTop))
	counts, err := calls.CountsWhile(t, func() error { return sc.Each(sc.Add) })
	if err != nil {
		return nil, err
	}
	sc.SelectLongest()
	sc.FindGPUActivity()
	if err := sc.FindCPUActivity(); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "gaps", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(sc.Tracks) == 0 {
		result = "no launches in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = report.Fill(factColumns, result, sc.minNs)
	r.Totals = sc.totals()
	gaps := sc.gapTable()
	if err := gaps.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &gaps, &opt.Options)
	r.Tables = []report.Table{sc.trackTable(), sc.lengthTable(), gaps}
	return r, nil
}

func NewScan(r *calls.Reader, minNs int64, keep int) *Scan {
	return &Scan{Reader: r, minNs: minNs, keep: keep, Tracks: make(map[Track]*trackGaps)}
}

// Add looks at a launch. What did not run ends no gap: failed launches, and captured ones.
func (sc *Scan) Add(c *calls.Call) error {
	if c.Failed() || c.Flags&(format.FlagCaptured|format.FlagAbandoned) != 0 {
		return nil
	}
	if last := &sc.last; last.device == nil || last.track != (Track{c.Pid, c.Device}) {
		*last = lastTrack{Track{c.Pid, c.Device}, sc.track(Track{c.Pid, AllDevices}, c.StartNs), sc.track(Track{c.Pid, c.Device}, c.StartNs)}
	}
	sc.launch(Track{c.Pid, AllDevices}, sc.last.process, c, &sc.ofProcess)
	sc.launch(sc.last.track, sc.last.device, c, &sc.ofDevice)
	return nil
}

// lastTrack is what the launch before belonged to: most belong to the same.
type lastTrack struct {
	track           Track
	process, device *trackGaps
}

// track returns a track, which begins now if it is new.
func (sc *Scan) track(track Track, startNs int64) *trackGaps {
	s := sc.Tracks[track]
	if s == nil {
		s = &trackGaps{FirstNs: startNs, UntilNs: startNs}
		sc.Tracks[track] = s
	}
	return s
}

func (sc *Scan) launch(track Track, s *trackGaps, c *calls.Call, longest *[]Gap) {
	s.Launches++
	end := c.EndNs
	if c.Flags&format.FlagNoReturn != 0 {
		s.Unreturned++
		end = c.StartNs
	}
	blind := sc.T.GapNs(s.UntilNs, c.StartNs)
	s.blindNs += blind
	if between := c.StartNs - s.UntilNs; between > 0 && s.Launches > 1 && blind == 0 {
		size := 0
		for between >= Lengths[size].BelowNs {
			size++
		}
		s.All[size].Count++
		s.All[size].ns += between
		if between >= sc.minNs {
			s.Gaps.Add(between)
			sc.remember(longest, Gap{Track: track, FromNs: s.UntilNs, ToNs: c.StartNs}, c)
		}
	}
	s.UntilNs = max(s.UntilNs, min(end, sc.Window.ToNs))
}

// remember keeps the longest gaps.
func (sc *Scan) remember(longest *[]Gap, g Gap, c *calls.Call) {
	shorter := func(a, b Gap) bool { return b.longer(&a) < 0 }
	if len(*longest) < sc.keep {
		g.Ended = *c
		*longest = stats.HeapPush(*longest, g, shorter)
	} else if g.longer(&(*longest)[0]) < 0 {
		g.Ended = *c
		(*longest)[0] = g
		stats.HeapFix(*longest, shorter)
	}
}

// SelectLongest chooses the gaps that are told. A process with one device has the same gaps there as altogether: they are told once.
func (sc *Scan) SelectLongest() {
	devices := make(map[int32]int)
	for track := range sc.Tracks {
		if track.Device != AllDevices {
			devices[track.Pid]++
		}
	}
	for pid, n := range devices {
		if n == 1 {
			delete(sc.Tracks, Track{pid, AllDevices})
		}
	}
	for _, list := range [][]Gap{sc.ofProcess, sc.ofDevice} {
		for i := range list {
			if sc.Tracks[list[i].Track] != nil {
				sc.List = append(sc.List, list[i])
			}
		}
	}
	slices.SortFunc(sc.List, func(a, b Gap) int { return a.longer(&b) })
	sc.List = sc.List[:min(len(sc.List), sc.keep)]
}

// SortedTracks lists the tracks, those of a process together.
func (sc *Scan) SortedTracks() []Track {
	return slices.SortedFunc(maps.Keys(sc.Tracks), func(a, b Track) int { return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device)) })
}

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
	{Key: "min_gap_ns", Title: "shortest gap", Unit: report.UnitNs, About: "intervals between launches that are shorter are no gaps"},
}

var totalColumns = []report.Column{
	{Key: "gaps", Title: "gaps", Unit: report.UnitCount, About: "gaps of processes, all their devices taken together: from the return of a launch (its entry, where the return was not recorded) to the entry of the next one that ran"},
	{Key: "gap_sum_ns", Title: "without launches", Unit: report.UnitNs, About: "length of these together"},
	{Key: "gap_max_ns", Title: "longest", Unit: report.UnitNs, About: "the longest"},
	{Key: "gap_pct", Title: "% of the time between first and last launch", Unit: report.UnitPercent, About: "their share in that time, of all processes; times in which launches were not recorded (--max-overhead) are in neither"},
	{Key: "launches", Title: "launches", Unit: report.UnitCount, About: "kernel and graph launches in the window that ran, as far as is known"},
	{Key: "idle_gaps", Title: "with idle GPU", Unit: report.UnitCount, About: "of the gaps listed, those in which samples say that the GPU was idle"},
	{Key: "busy_gaps", Title: "with busy GPU", Unit: report.UnitCount, About: "of the gaps listed, those in which the GPU was busy: with earlier work, or another process's"},
}

func (sc *Scan) totals() []report.Fact {
	var sum stats.Durations
	var span, launches, idle, busy int64
	for _, track := range sc.SortedTracks() {
		if s := sc.Tracks[track]; track.Device == AllDevices || sc.Tracks[Track{track.Pid, AllDevices}] == nil {
			sum.Merge(&s.Gaps)
			span = units.EndOf(span, s.seenNs())
			launches += s.Launches
		}
	}
	for i := range sc.List {
		switch sc.List[i].Busy.Word() {
		case GPUIdle:
			idle++
		case GPUBusy:
			busy++
		}
	}
	return report.Fill(totalColumns, sum.Count, sum.SumNs, sum.Most(), units.Percent(sum.SumNs, span), launches, idle, busy)
}

var trackColumns = []report.Column{
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
func (sc *Scan) trackTable() report.Table {
	table := report.Table{Name: "processes", Title: "time without launches", Columns: trackColumns, Aside: true, Spare: []string{"gap_med_ns", "lead_ns"}}
	for _, track := range sc.SortedTracks() {
		s := sc.Tracks[track]
		end := sc.Window.ToNs
		if exit := sc.T.Facts.Processes[track.Pid].ExitNs; exit > 0 {
			end = min(end, exit)
		}
		name, _ := sc.T.ProcessName(track.Pid)
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.Gaps.Count, s.Gaps.SumNs, units.Percent(s.Gaps.SumNs, s.seenNs()), s.Gaps.At(0.5), s.Gaps.At(0.95), s.Gaps.Most(),
			s.Launches, s.Unreturned, s.FirstNs - sc.Window.FromNs, max(0, end-s.UntilNs), int64(track.Pid), units.Known(name), sc.trackDevice(track)}})
	}
	processes.AddRanks(sc.T, &table)
	return table
}

// trackDevice names the device of a track.
func (sc *Scan) trackDevice(track Track) string {
	if track.Device == AllDevices {
		return "all"
	}
	return sc.T.OrdinalLabel(track.Pid, track.Device)
}

var lengthColumns = []report.Column{
	{Key: "length", Title: "LENGTH", Unit: report.UnitText, About: "of the interval between two launches, of any length, upper bound not included"},
	{Key: "intervals", Title: "INTERVALS", Unit: report.UnitCount, About: "intervals of that length"},
	{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "their length together"},
	{Key: "span_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share in the time between first and last launch"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "as above"},
}

// lengthTable has a row per process, device and length of intervals.
func (sc *Scan) lengthTable() report.Table {
	table := report.Table{Name: "distribution", Title: "intervals between launches by length", Columns: lengthColumns, Aside: true}
	for _, track := range sc.SortedTracks() {
		s := sc.Tracks[track]
		for i, n := range s.All {
			if n.Count > 0 {
				table.Rows = append(table.Rows, report.Row{Cells: []any{Lengths[i].name, n.Count, n.ns, units.Percent(n.ns, s.seenNs()), int64(track.Pid), sc.trackDevice(track)}})
			}
		}
	}
	processes.AddRanks(sc.T, &table)
	return table
}
