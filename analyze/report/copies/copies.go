package copies

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// What makes a burst of small copies, and from which size on a copy's time says something of bandwidth: below, the time is
// that of the call.
const (
	burstCopies       = 50
	burstBytes        = 4 << 10
	burstNs           = int64(10e6)
	bandwidthMinBytes = 64 << 10
	// stuckMinBytes is from which size on a copy's time tells whether the call waited for it, and linkBytesPerNs what no link between
	// host and GPU exceeds: PCIe 5.0 with 16 lanes has 63 GB/s. 1 MiB takes 16 us there, and a call that only hands it over 5 us.
	stuckMinBytes  = 1 << 20
	linkBytesPerNs = 64
)

// copySizes are the buckets of sizes, each up to its bound.
var copySizes = []struct {
	below int64
	name  string
}{{4 << 10, "< 4 KiB"}, {64 << 10, "4 KiB to 64 KiB"}, {1 << 20, "64 KiB to 1 MiB"}, {16 << 20, "1 MiB to 16 MiB"}, {256 << 20, "16 MiB to 256 MiB"}, {1<<63 - 1, ">= 256 MiB"}}

// Words for how a copy is called.
const (
	modeBlocking = "blocking"
	modeAsync    = "async"
)

// Scan sums up copies.
type Scan struct {
	*calls.Reader
	host    *hostmem.Blocks
	groups  map[groupKey]*copyStats
	Sites   map[siteKey]*copyStats
	threads map[origin.Thread]*threadBursts
	Bursts  map[burstKey]*burst
}

// groupKey is what copies have in common.
type groupKey struct {
	direction, mode, host string
	size                  int
}

type siteKey struct {
	Site            int32
	Direction, mode string
}

// copyStats is what was counted of copies.
type copyStats struct {
	copies, captured, errors, open int64
	bytes                          int64 // of copies that were made
	took                           stats.Durations
	meaningfulBytes, meaningfulNs  int64 // of those whose host time is that of the copy
	// Async copies of 64 KiB and more with host memory that is not known to be pinned; of these, those large enough to tell
	// whether the call waited, and those that did.
	Unpinned, UnpinnedBytes, UnpinnedNs int64
	Telling, Stuck                      int64
	FirstNs, LastNs                     int64 // entries
	Stack                               int32
}

// threadBursts follows the small copies of a thread.
type threadBursts struct {
	calls.BurstDetector
	burst *burst
}

type burstKey struct {
	Thread origin.Thread
	Site   int32
}

// burst sums up bursts of a thread that became bursts at one place.
type burst struct {
	Bursts, Copies, now, Most int64
	FirstNs, LastNs           int64
	Stack                     int32
}

// Run reports copies by direction, size, kind of host memory and way of calling, and bursts of small ones. It returns a
// *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "copies"); err != nil {
		return nil, err
	}
	host, counts, err := hostmem.Read(t)
	if err != nil {
		return nil, err
	}
	sc := NewScan(calls.NewReader(t, &opt.Filter, format.KindMemcpy), host)
	if err := sc.Each(sc.Add); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "copies", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if r.Facts = report.Fill(factColumns, ""); len(sc.groups) == 0 {
		r.Facts[0].Value = "no copies in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	r.Totals = sc.totals()
	table := sc.table()
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	bursts, places := sc.burstTable(), sc.siteTable()
	for _, aside := range []*report.Table{&bursts, &places} {
		if err := aside.Arrange("", opt.Top); err != nil {
			return nil, err
		}
	}
	frames.Fill(t, &bursts, &opt)
	r.Tables = []report.Table{bursts, table, places}
	return r, nil
}

func NewScan(r *calls.Reader, host *hostmem.Blocks) *Scan {
	return &Scan{Reader: r, host: host, groups: make(map[groupKey]*copyStats), Sites: make(map[siteKey]*copyStats),
		threads: make(map[origin.Thread]*threadBursts), Bursts: make(map[burstKey]*burst)}
}

// Add counts a copy.
func (sc *Scan) Add(c *calls.Call) error {
	name := sc.Names.List[c.Name]
	key := groupKey{direction: cmp.Or(sc.Names.List[c.CopyKind], "unknown"), mode: modeBlocking}
	if strings.Contains(name, "Async") {
		key.mode = modeAsync
	}
	key.host = sc.hostOf(key.direction, c)
	for key.size < len(copySizes)-1 && c.Bytes >= copySizes[key.size].below {
		key.size++
	}
	if sc.groups[key] == nil {
		sc.groups[key] = new(copyStats)
	}
	sc.groups[key].add(c, key.bandwidth(c))
	place := siteKey{c.Site, key.direction, key.mode}
	if sc.Sites[place] == nil {
		sc.Sites[place] = &copyStats{Stack: c.Stack, FirstNs: c.StartNs}
	}
	sc.Sites[place].add(c, key.bandwidth(c))
	if key.mode == modeAsync && key.host == hostmem.HostUnknown {
		sc.Sites[place].unpin(c)
	}
	if c.Bytes < burstBytes && c.Flags&format.FlagCaptured == 0 && !c.Failed() {
		sc.addSmall(c)
	}
	return nil
}

// hostOf says what is known of the host's side of a copy; "" if it has none.
func (sc *Scan) hostOf(direction string, c *calls.Call) string {
	switch {
	case strings.HasPrefix(direction, "H"):
		return sc.host.At(c.StartNs, c.Pid, c.Src)
	case strings.HasSuffix(direction, "toH"):
		return sc.host.At(c.StartNs, c.Pid, c.Ptr)
	case direction == "unknown" || strings.Contains(direction, "U"):
		if known := sc.host.At(c.StartNs, c.Pid, c.Src); known != hostmem.HostUnknown {
			return known
		}
		return sc.host.At(c.StartNs, c.Pid, c.Ptr)
	}
	return ""
}

// bandwidth reports whether the call's time is that of its copy: it waits for it, and the copy is large enough to be most of it.
func (k *groupKey) bandwidth(c *calls.Call) bool {
	host := strings.HasPrefix(k.direction, "H") || strings.HasSuffix(k.direction, "toH") // copies on a device do not block
	return host && k.mode == modeBlocking && c.Bytes >= bandwidthMinBytes && c.EndNs > c.StartNs
}

func (s *copyStats) add(c *calls.Call, bandwidth bool) {
	s.copies++
	s.LastNs = max(s.LastNs, c.StartNs)
	if c.Flags&(format.FlagOpen|format.FlagAbandoned) != 0 {
		s.open++
	}
	if c.Timed() {
		s.took.Add(c.EndNs - c.StartNs)
		if calls.IsError(c.Result) {
			s.errors++
		}
	}
	switch {
	case c.Failed():
	case c.Flags&format.FlagCaptured != 0:
		s.captured++
	default:
		s.bytes = units.EndOf(s.bytes, c.Bytes)
		if bandwidth && c.Timed() {
			s.meaningfulBytes, s.meaningfulNs = units.EndOf(s.meaningfulBytes, c.Bytes), units.EndOf(s.meaningfulNs, c.EndNs-c.StartNs)
		}
	}
}

// unpin counts an async copy with host memory that is not known to be pinned.
func (s *copyStats) unpin(c *calls.Call) {
	if c.Bytes < bandwidthMinBytes || c.Failed() || c.Flags&format.FlagCaptured != 0 {
		return
	}
	s.Unpinned++
	s.UnpinnedBytes = units.EndOf(s.UnpinnedBytes, c.Bytes)
	if !c.Timed() {
		return
	}
	s.UnpinnedNs = units.EndOf(s.UnpinnedNs, c.EndNs-c.StartNs)
	if c.Bytes >= stuckMinBytes {
		s.Telling++
		if c.EndNs-c.StartNs >= c.Bytes/linkBytesPerNs {
			s.Stuck++
		}
	}
}

func (s *copyStats) merge(o *copyStats) {
	s.copies += o.copies
	s.captured += o.captured
	s.errors += o.errors
	s.open += o.open
	s.bytes = units.EndOf(s.bytes, o.bytes)
	s.took.Merge(&o.took)
	s.meaningfulBytes, s.meaningfulNs = units.EndOf(s.meaningfulBytes, o.meaningfulBytes), units.EndOf(s.meaningfulNs, o.meaningfulNs)
}

// rate is the bandwidth seen from the host, nil where the times do not tell it.
func (s *copyStats) rate() any {
	if s.meaningfulNs == 0 {
		return nil
	}
	return catalog.Measured{Value: float64(s.meaningfulBytes) / (float64(s.meaningfulNs) / 1e9), Unit: catalog.UnitOf("_bytes_per_second")}
}

// small follows a thread's small copies.
func (sc *Scan) addSmall(c *calls.Call) {
	crowd := sc.threads[c.Thread()]
	if crowd == nil {
		crowd = new(threadBursts)
		sc.threads[c.Thread()] = crowd
	}
	joined, began := crowd.Add(c.StartNs, burstCopies, burstNs)
	if joined == 0 {
		return
	}
	if began {
		key := burstKey{c.Thread(), c.Site}
		if sc.Bursts[key] == nil {
			sc.Bursts[key] = &burst{Stack: c.Stack, FirstNs: c.StartNs}
		}
		crowd.burst = sc.Bursts[key]
		crowd.burst.Bursts++
		crowd.burst.now = 0
	}
	b := crowd.burst
	b.LastNs = c.StartNs
	b.Copies += joined
	b.now += joined
	b.Most = max(b.Most, b.now)
}

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"}}

var totalColumns = []report.Column{
	{Key: "copies", Title: "copies", Unit: report.UnitCount, About: "copies that began in the window"},
	{Key: "bytes", Title: "copied", Unit: report.UnitBytes, About: "bytes of those that were made: neither failed nor captured"},
	{Key: "host_sum_ns", Title: "host time", Unit: report.UnitNs, About: "time that threads spent in copies whose duration is known"},
	{Key: "timed_copies", Title: "timed", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "blocking_copies", Title: "blocking", Unit: report.UnitCount, About: "copies that are called without Async"},
	{Key: "unknown_memory_copies", Title: "with unknown host memory", Unit: report.UnitCount, About: "copies with a host side that is in no pinned or managed memory of the recording: pageable, or pinned out of its sight"},
	{Key: "bursts", Title: "bursts of small copies", Unit: report.UnitCount, About: "bursts of at least 50 copies below 4 KiB within 10 ms by one thread"},
	{Key: "burst_copies", Title: "copies in bursts", Unit: report.UnitCount, About: "copies in these"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "open", Unit: report.UnitCount, About: "copies that were not seen to return"},
}

func (sc *Scan) totals() []report.Fact {
	var sum copyStats
	var blocking, unknown, bursts, inBursts int64
	for key, s := range sc.groups {
		sum.merge(s)
		if key.mode == modeBlocking {
			blocking += s.copies
		}
		if key.host == hostmem.HostUnknown {
			unknown += s.copies
		}
	}
	for _, b := range sc.Bursts {
		bursts += b.Bursts
		inBursts += b.Copies
	}
	return report.Fill(totalColumns, sum.copies, sum.bytes, sum.took.SumNs, sum.took.Count, blocking, unknown, bursts, inBursts, sum.errors, sum.open)
}

var groupColumns = []report.Column{
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies that began in the window"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of those that were made: neither failed nor captured"},
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "time that threads spent in these calls, of TIMED ones; of async copies it is the time to hand them over"},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average of that"},
	{Key: "host_p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% took no longer; off by less than 0.8%"},
	{Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio, About: "bytes by host time, of blocking copies between host and device of 64 KiB and more only: others return before the copy is done, or their time is that of the call. Waiting for earlier work is in it: the link may be faster"},
	{Key: "captured", Title: "CAPTURED", Unit: report.UnitCount, About: "copies that were put into a graph, not made"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "OPEN", Unit: report.UnitCount, About: "copies that were not seen to return"},
	{Key: "mode", Title: "MODE", Unit: report.UnitText, About: "async: a function with Async in its name; blocking: one without. From pageable memory an async copy blocks too"},
	{Key: "host_memory", Title: "HOST MEMORY", Unit: report.UnitText, About: "pinned: inside of pinned or registered memory that was live then; managed; unknown: in none that the recording knows, so pageable, or pinned before it began; absent for copies on devices"},
	{Key: "size", Title: "SIZE", Unit: report.UnitText, About: "bytes of the copy, upper bound not included"},
	{Key: "direction", Title: "DIRECTION", Unit: report.UnitText, About: "HtoD to the device, DtoH to the host, DtoD, with A for arrays, U where only the driver knows; unknown for cuMemcpy and cuMemcpyAsync, which do not say"},
}

// table has a row per direction, size, memory and mode.
func (sc *Scan) table() report.Table {
	table := report.Table{Name: "copies", Title: "copies by time spent in them on the CPU", Columns: slices.Clone(groupColumns), Spare: []string{"host_p95_ns", "timed_copies", "host_avg_ns", "open_copies", "bandwidth_bytes_per_second"}}
	var captured, errors, open int64
	for key, s := range sc.groups {
		captured, errors, open = captured+s.captured, errors+s.errors, open+s.open
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.copies, s.bytes, s.took.Total(), s.took.Count, s.took.Avg(), s.took.At(0.95), s.rate(), s.captured, s.errors, s.open,
			key.mode, units.Known(key.host), copySizes[key.size].name, key.direction}})
	}
	for name, n := range map[string]int64{"captured": captured, "errors": errors, "open_copies": open} {
		if n == 0 {
			report.Hide(table.Columns, name)
		}
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		order := report.CompareCells(a.Cells[2], b.Cells[2])
		for _, i := range []int{1, 0, 13, 12, 11, 10} {
			order = cmp.Or(order, report.CompareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	return table
}

var burstColumns = []report.Column{
	{Key: "bursts", Title: "BURSTS", Unit: report.UnitCount, About: "bursts: at least 50 copies below 4 KiB within 10 ms by one thread; a burst goes on while that holds"},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies in them"},
	{Key: "copies_max", Title: "LARGEST", Unit: report.UnitCount, About: "copies of the largest one"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "when the first one was noticed, at its 50th copy, from the recording's start"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread that copied"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the place in the program of that copy; others may take part in a burst"},
}

func (sc *Scan) burstTable() report.Table {
	table := report.Table{Name: "bursts", Title: "bursts of small copies", Columns: burstColumns, Aside: true}
	start := sc.T.Recording().FromNs
	for key, b := range sc.Bursts {
		table.Rows = append(table.Rows, report.Row{StackID: b.Stack, Cells: []any{b.Bursts, b.Copies, b.Most, b.FirstNs - start, sc.T.ThreadLabel(key.Thread), sc.Names.List[key.Site]}})
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(report.CompareCells(a.Cells[1], b.Cells[1]), report.CompareCells(a.Cells[4], b.Cells[4]), report.CompareCells(a.Cells[5], b.Cells[5]))
	})
	return table
}

var siteColumns = []report.Column{
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "time that threads spent in these calls, of timed ones"},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies that began in the window"},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of those that were made"},
	{Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio, About: "as above"},
	{Key: "direction", Title: "DIRECTION", Unit: report.UnitText, About: "as above"},
	{Key: "mode", Title: "MODE", Unit: report.UnitText, About: "as above"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

// siteTable has a row per place in the program, direction and mode.
func (sc *Scan) siteTable() report.Table {
	table := report.Table{Name: "sites", Title: "copies by place in the program", Columns: siteColumns, Aside: true, Spare: []string{"timed_copies"}}
	for key, s := range sc.Sites {
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.took.Total(), s.copies, s.took.Count, s.bytes, s.rate(), key.Direction, key.mode, sc.Names.List[key.Site]}})
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		order := 0
		for _, i := range []int{0, 3, 1, 7, 5, 6} {
			order = cmp.Or(order, report.CompareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	return table
}
