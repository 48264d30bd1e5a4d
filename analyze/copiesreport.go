package analyze

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
	copyBlocking = "blocking"
	copyAsync    = "async"
)

// copyUse sums up copies.
type copyUse struct {
	*calls.Reader
	host   *hostmem.Blocks
	groups map[copyKey]*copyStats
	places map[copyPlace]*copyStats
	crowds map[origin.Thread]*copyCrowd
	bursts map[burstKey]*burst
}

// copyKey is what copies have in common.
type copyKey struct {
	direction, mode, host string
	size                  int
}

type copyPlace struct {
	site            int32
	direction, mode string
}

// copyStats is what was counted of copies.
type copyStats struct {
	copies, captured, errors, open int64
	bytes                          int64 // of copies that were made
	took                           stats.Durations
	meaningfulBytes, meaningfulNs  int64 // of those whose host time is that of the copy
	// Async copies of 64 KiB and more with host memory that is not known to be pinned; of these, those large enough to tell
	// whether the call waited, and those that did.
	unpinned, unpinnedBytes, unpinnedNs int64
	telling, stuck                      int64
	firstNs, lastNs                     int64 // entries
	stack                               int32
}

// copyCrowd follows the small copies of a thread.
type copyCrowd struct {
	calls.BurstDetector
	burst *burst
}

type burstKey struct {
	thread origin.Thread
	site   int32
}

// burst sums up bursts of a thread that became bursts at one place.
type burst struct {
	bursts, copies, now, most int64
	firstNs, lastNs           int64
	stack                     int32
}

// Copies reports copies by direction, size, kind of host memory and way of calling, and bursts of small ones. It returns a
// *SortError for a column that there is not.
func Copies(t *timeline.Timeline, opt query.Options) (*Report, error) {
	if err := needClasses(t, "copies"); err != nil {
		return nil, err
	}
	host, counts, err := hostmem.Read(t)
	if err != nil {
		return nil, err
	}
	u := newCopyUse(calls.NewReader(t, &opt.Filter, format.KindMemcpy), host)
	if err := u.Each(u.add); err != nil {
		return nil, err
	}
	r := &Report{Command: "copies", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	if r.Facts = fill(copyFacts, ""); len(u.groups) == 0 {
		r.Facts[0].Value = "no copies in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Totals = u.totals()
	table := u.table()
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	bursts, places := u.burstTable(), u.placeTable()
	for _, aside := range []*Table{&bursts, &places} {
		if err := aside.arrange("", opt.Top); err != nil {
			return nil, err
		}
	}
	addStacks(t, &bursts, &opt)
	r.Tables = []Table{bursts, table, places}
	return r, nil
}

func newCopyUse(r *calls.Reader, host *hostmem.Blocks) *copyUse {
	return &copyUse{Reader: r, host: host, groups: make(map[copyKey]*copyStats), places: make(map[copyPlace]*copyStats),
		crowds: make(map[origin.Thread]*copyCrowd), bursts: make(map[burstKey]*burst)}
}

// add counts a copy.
func (u *copyUse) add(c *calls.Call) error {
	name := u.Names.List[c.Name]
	key := copyKey{direction: cmp.Or(u.Names.List[c.CopyKind], "unknown"), mode: copyBlocking}
	if strings.Contains(name, "Async") {
		key.mode = copyAsync
	}
	key.host = u.hostOf(key.direction, c)
	for key.size < len(copySizes)-1 && c.Bytes >= copySizes[key.size].below {
		key.size++
	}
	if u.groups[key] == nil {
		u.groups[key] = new(copyStats)
	}
	u.groups[key].add(c, key.bandwidth(c))
	place := copyPlace{c.Site, key.direction, key.mode}
	if u.places[place] == nil {
		u.places[place] = &copyStats{stack: c.Stack, firstNs: c.StartNs}
	}
	u.places[place].add(c, key.bandwidth(c))
	if key.mode == copyAsync && key.host == hostmem.HostUnknown {
		u.places[place].unpin(c)
	}
	if c.Bytes < burstBytes && c.Flags&format.FlagCaptured == 0 && !c.Failed() {
		u.small(c)
	}
	return nil
}

// hostOf says what is known of the host's side of a copy; "" if it has none.
func (u *copyUse) hostOf(direction string, c *calls.Call) string {
	switch {
	case strings.HasPrefix(direction, "H"):
		return u.host.At(c.StartNs, c.Pid, c.Src)
	case strings.HasSuffix(direction, "toH"):
		return u.host.At(c.StartNs, c.Pid, c.Ptr)
	case direction == "unknown" || strings.Contains(direction, "U"):
		if known := u.host.At(c.StartNs, c.Pid, c.Src); known != hostmem.HostUnknown {
			return known
		}
		return u.host.At(c.StartNs, c.Pid, c.Ptr)
	}
	return ""
}

// bandwidth reports whether the call's time is that of its copy: it waits for it, and the copy is large enough to be most of it.
func (k *copyKey) bandwidth(c *calls.Call) bool {
	host := strings.HasPrefix(k.direction, "H") || strings.HasSuffix(k.direction, "toH") // copies on a device do not block
	return host && k.mode == copyBlocking && c.Bytes >= bandwidthMinBytes && c.EndNs > c.StartNs
}

func (s *copyStats) add(c *calls.Call, bandwidth bool) {
	s.copies++
	s.lastNs = max(s.lastNs, c.StartNs)
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
	s.unpinned++
	s.unpinnedBytes = units.EndOf(s.unpinnedBytes, c.Bytes)
	if !c.Timed() {
		return
	}
	s.unpinnedNs = units.EndOf(s.unpinnedNs, c.EndNs-c.StartNs)
	if c.Bytes >= stuckMinBytes {
		s.telling++
		if c.EndNs-c.StartNs >= c.Bytes/linkBytesPerNs {
			s.stuck++
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
func (u *copyUse) small(c *calls.Call) {
	crowd := u.crowds[c.Thread()]
	if crowd == nil {
		crowd = new(copyCrowd)
		u.crowds[c.Thread()] = crowd
	}
	joined, began := crowd.Add(c.StartNs, burstCopies, burstNs)
	if joined == 0 {
		return
	}
	if began {
		key := burstKey{c.Thread(), c.Site}
		if u.bursts[key] == nil {
			u.bursts[key] = &burst{stack: c.Stack, firstNs: c.StartNs}
		}
		crowd.burst = u.bursts[key]
		crowd.burst.bursts++
		crowd.burst.now = 0
	}
	b := crowd.burst
	b.lastNs = c.StartNs
	b.copies += joined
	b.now += joined
	b.most = max(b.most, b.now)
}

var copyFacts = []Column{{"result", "result", UnitText, "set if there is nothing to tell"}}

var copyTotals = []Column{
	{"copies", "copies", UnitCount, "copies that began in the window"},
	{"bytes", "copied", UnitBytes, "bytes of those that were made: neither failed nor captured"},
	{"host_sum_ns", "host time", UnitNs, "time that threads spent in copies whose duration is known"},
	{"timed_copies", "timed", UnitCount, "copies whose duration is known"},
	{"blocking_copies", "blocking", UnitCount, "copies that are called without Async"},
	{"unknown_memory_copies", "with unknown host memory", UnitCount, "copies with a host side that is in no pinned or managed memory of the recording: pageable, or pinned out of its sight"},
	{"bursts", "bursts of small copies", UnitCount, "bursts of at least 50 copies below 4 KiB within 10 ms by one thread"},
	{"burst_copies", "copies in bursts", UnitCount, "copies in these"},
	{"errors", "errors", UnitCount, "copies that returned an error"},
	{"open_copies", "open", UnitCount, "copies that were not seen to return"},
}

func (u *copyUse) totals() []Fact {
	var sum copyStats
	var blocking, unknown, bursts, inBursts int64
	for key, s := range u.groups {
		sum.merge(s)
		if key.mode == copyBlocking {
			blocking += s.copies
		}
		if key.host == hostmem.HostUnknown {
			unknown += s.copies
		}
	}
	for _, b := range u.bursts {
		bursts += b.bursts
		inBursts += b.copies
	}
	return fill(copyTotals, sum.copies, sum.bytes, sum.took.SumNs, sum.took.Count, blocking, unknown, bursts, inBursts, sum.errors, sum.open)
}

var copyColumns = []Column{
	{"copies", "COPIES", UnitCount, "copies that began in the window"},
	{"bytes", "BYTES", UnitBytes, "bytes of those that were made: neither failed nor captured"},
	{"host_sum_ns", "HOST SUM", UnitNs, "time that threads spent in these calls, of TIMED ones; of async copies it is the time to hand them over"},
	{"timed_copies", "TIMED", UnitCount, "copies whose duration is known"},
	{"host_avg_ns", "HOST AVG", UnitNs, "average of that"},
	{"host_p95_ns", "P95", UnitNs, "95% took no longer; off by less than 0.8%"},
	{"bandwidth_bytes_per_second", "BANDWIDTH", UnitRatio, "bytes by host time, of blocking copies between host and device of 64 KiB and more only: others return before the copy is done, or their time is that of the call. Waiting for earlier work is in it: the link may be faster"},
	{"captured", "CAPTURED", UnitCount, "copies that were put into a graph, not made"},
	{"errors", "ERRORS", UnitCount, "copies that returned an error"},
	{"open_copies", "OPEN", UnitCount, "copies that were not seen to return"},
	{"mode", "MODE", UnitText, "async: a function with Async in its name; blocking: one without. From pageable memory an async copy blocks too"},
	{"host_memory", "HOST MEMORY", UnitText, "pinned: inside of pinned or registered memory that was live then; managed; unknown: in none that the recording knows, so pageable, or pinned before it began; absent for copies on devices"},
	{"size", "SIZE", UnitText, "bytes of the copy, upper bound not included"},
	{"direction", "DIRECTION", UnitText, "HtoD to the device, DtoH to the host, DtoD, with A for arrays, U where only the driver knows; unknown for cuMemcpy and cuMemcpyAsync, which do not say"},
}

// table has a row per direction, size, memory and mode.
func (u *copyUse) table() Table {
	table := Table{Name: "copies", Title: "copies by time spent in them on the CPU", Columns: slices.Clone(copyColumns), Spare: []string{"host_p95_ns", "timed_copies", "host_avg_ns", "open_copies", "bandwidth_bytes_per_second"}}
	var captured, errors, open int64
	for key, s := range u.groups {
		captured, errors, open = captured+s.captured, errors+s.errors, open+s.open
		table.Rows = append(table.Rows, Row{Cells: []any{s.copies, s.bytes, s.took.Total(), s.took.Count, s.took.Avg(), s.took.At(0.95), s.rate(), s.captured, s.errors, s.open,
			key.mode, units.Known(key.host), copySizes[key.size].name, key.direction}})
	}
	for name, n := range map[string]int64{"captured": captured, "errors": errors, "open_copies": open} {
		if n == 0 {
			hide(table.Columns, name)
		}
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		order := compareCells(a.Cells[2], b.Cells[2])
		for _, i := range []int{1, 0, 13, 12, 11, 10} {
			order = cmp.Or(order, compareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	return table
}

var burstColumns = []Column{
	{"bursts", "BURSTS", UnitCount, "bursts: at least 50 copies below 4 KiB within 10 ms by one thread; a burst goes on while that holds"},
	{"copies", "COPIES", UnitCount, "copies in them"},
	{"copies_max", "LARGEST", UnitCount, "copies of the largest one"},
	{"first_ns", "FIRST", UnitNs, "when the first one was noticed, at its 50th copy, from the recording's start"},
	{"thread", "THREAD", UnitText, "thread that copied"},
	{"site", "SITE", UnitText, "the place in the program of that copy; others may take part in a burst"},
}

func (u *copyUse) burstTable() Table {
	table := Table{Name: "bursts", Title: "bursts of small copies", Columns: burstColumns, Aside: true}
	start := u.T.Recording().FromNs
	for key, b := range u.bursts {
		table.Rows = append(table.Rows, Row{stack: b.stack, Cells: []any{b.bursts, b.copies, b.most, b.firstNs - start, u.T.ThreadLabel(key.thread), u.Names.List[key.site]}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[1], b.Cells[1]), compareCells(a.Cells[4], b.Cells[4]), compareCells(a.Cells[5], b.Cells[5]))
	})
	return table
}

var copyPlaceColumns = []Column{
	{"host_sum_ns", "HOST SUM", UnitNs, "time that threads spent in these calls, of timed ones"},
	{"copies", "COPIES", UnitCount, "copies that began in the window"},
	{"timed_copies", "TIMED", UnitCount, "copies whose duration is known"},
	{"bytes", "BYTES", UnitBytes, "bytes of those that were made"},
	{"bandwidth_bytes_per_second", "BANDWIDTH", UnitRatio, "as above"},
	{"direction", "DIRECTION", UnitText, "as above"},
	{"mode", "MODE", UnitText, "as above"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
}

// placeTable has a row per place in the program, direction and mode.
func (u *copyUse) placeTable() Table {
	table := Table{Name: "sites", Title: "copies by place in the program", Columns: copyPlaceColumns, Aside: true, Spare: []string{"timed_copies"}}
	for key, s := range u.places {
		table.Rows = append(table.Rows, Row{Cells: []any{s.took.Total(), s.copies, s.took.Count, s.bytes, s.rate(), key.direction, key.mode, u.Names.List[key.site]}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		order := 0
		for _, i := range []int{0, 3, 1, 7, 5, 6} {
			order = cmp.Or(order, compareCells(a.Cells[i], b.Cells[i]))
		}
		return order
	})
	return table
}
