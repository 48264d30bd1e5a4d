package copies

import (
	"cmp"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A burst is at least burstCopies copies of less than burstBytes each by one thread within burstNs.
const (
	burstCopies = 50
	burstBytes  = 4 << 10
	burstNs     = int64(10e6)
)

// bandwidthMinBytes is the smallest copy whose host time measures bandwidth. The time of smaller
// copies is mostly that of the call.
const bandwidthMinBytes = 64 << 10

// measurableBytes is the smallest copy whose host time shows whether the call waited for the copy.
// linkBytesPerNs exceeds the rate of any link between host and GPU: PCIe 5.0 x16 has 63 GB/s. At
// that rate 1 MiB takes 16 us. A call that only enqueues the copy takes 5 us.
const (
	measurableBytes = 1 << 20
	linkBytesPerNs  = 64
)

// copySizes are the size classes of copies. below is the upper bound in bytes, exclusive.
var copySizes = []struct {
	below int64
	name  string
}{
	{4 << 10, "< 4 KiB"},
	{64 << 10, "4 KiB to 64 KiB"},
	{1 << 20, "64 KiB to 1 MiB"},
	{16 << 20, "1 MiB to 16 MiB"},
	{256 << 20, "16 MiB to 256 MiB"},
	{1<<63 - 1, ">= 256 MiB"},
}

// Modes of copies, by the name of the driver function.
const (
	modeBlocking = "blocking"
	modeAsync    = "async"
)

// Scan collects statistics of copies in one pass. It is not safe for concurrent use.
type Scan struct {
	*calls.CallReader
	host    *hostmem.HostBlocks
	groups  map[groupKey]*copyStats
	Sites   map[siteKey]*copyStats
	threads map[origin.Thread]*threadBursts
	Bursts  map[burstKey]*burst
}

// groupKey identifies a row of the table of copies. size is an index of copySizes.
type groupKey struct {
	direction, mode, host string
	size                  int
}

// siteKey is a call site with the direction and mode of its copies. Site is an index of Names.
type siteKey struct {
	Site            int32
	Direction, mode string
}

// copyStats has the statistics of a group of copies.
type copyStats struct {
	copies, captured, errors, open int64
	bytes                          int64 // of copies that neither failed nor were captured
	durations                      stats.Durations
	// Copies whose host time is the time of the copy. Their totals give the bandwidth.
	measuredBytes, measuredNs int64
	// Async copies of at least 64 KiB with host memory that is not known to be pinned. Measurable
	// ones are at least measurableBytes large; the call of Stuck ones waited for the copy.
	Unpinned, UnpinnedBytes, UnpinnedNs int64
	Measurable, Stuck                   int64
	FirstNs, LastNs                     int64 // starts of the first and last copy, Unix ns
	Stack                               int32
}

// NewScan returns a Scan of the copies of r. It finds the kind of host memory of each copy in host.
func NewScan(r *calls.CallReader, host *hostmem.HostBlocks) *Scan {
	return &Scan{
		CallReader:  r,
		host:    host,
		groups:  make(map[groupKey]*copyStats),
		Sites:   make(map[siteKey]*copyStats),
		threads: make(map[origin.Thread]*threadBursts),
		Bursts:  make(map[burstKey]*burst),
	}
}

// Add adds a copy to the statistics. It always returns nil.
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
	sc.groups[key].add(c, key.measuresBandwidth(c))
	site := siteKey{c.Site, key.direction, key.mode}
	if sc.Sites[site] == nil {
		sc.Sites[site] = &copyStats{Stack: c.Stack, FirstNs: c.StartNs}
	}
	sc.Sites[site].add(c, key.measuresBandwidth(c))
	if key.mode == modeAsync && key.host == hostmem.HostKindUnknown {
		sc.Sites[site].addUnpinned(c)
	}
	if c.Bytes < burstBytes && c.Flags&format.FlagCaptured == 0 && !c.Failed() {
		sc.addSmall(c)
	}
	return nil
}

// hostOf returns the kind of host memory of a copy, or "" if neither side is in host memory.
func (sc *Scan) hostOf(direction string, c *calls.Call) string {
	switch {
	case strings.HasPrefix(direction, "H"):
		return sc.host.KindAt(c.StartNs, c.Pid, c.Src)
	case strings.HasSuffix(direction, "toH"):
		return sc.host.KindAt(c.StartNs, c.Pid, c.Ptr)
	case direction == "unknown" || strings.Contains(direction, "U"):
		if known := sc.host.KindAt(c.StartNs, c.Pid, c.Src); known != hostmem.HostKindUnknown {
			return known
		}
		return sc.host.KindAt(c.StartNs, c.Pid, c.Ptr)
	}
	return ""
}

// measuresBandwidth reports whether the host time of a call measures bandwidth: the call waits for
// the copy, and the copy takes most of the time.
func (k *groupKey) measuresBandwidth(c *calls.Call) bool {
	// A copy within a device does not block the call.
	host := strings.HasPrefix(k.direction, "H") || strings.HasSuffix(k.direction, "toH")
	return host && k.mode == modeBlocking && c.Bytes >= bandwidthMinBytes && c.EndNs > c.StartNs
}

// add adds a copy. isMeasured means that its host time measures bandwidth.
func (s *copyStats) add(c *calls.Call, isMeasured bool) {
	s.copies++
	s.LastNs = max(s.LastNs, c.StartNs)
	if c.Flags&(format.FlagOpen|format.FlagAbandoned) != 0 {
		s.open++
	}
	if c.HasDuration() {
		s.durations.Add(c.EndNs - c.StartNs)
		if calls.IsErrorResult(c.Result) {
			s.errors++
		}
	}
	switch {
	case c.Failed():
	case c.Flags&format.FlagCaptured != 0:
		s.captured++
	default:
		s.bytes = units.EndOfRange(s.bytes, c.Bytes)
		if isMeasured && c.HasDuration() {
			s.measuredBytes, s.measuredNs = units.EndOfRange(
				s.measuredBytes,
				c.Bytes,
			), units.EndOfRange(
				s.measuredNs,
				c.EndNs-c.StartNs,
			)
		}
	}
}

// addUnpinned adds an async copy with host memory that is not known to be pinned.
func (s *copyStats) addUnpinned(c *calls.Call) {
	if c.Bytes < bandwidthMinBytes || c.Failed() || c.Flags&format.FlagCaptured != 0 {
		return
	}
	s.Unpinned++
	s.UnpinnedBytes = units.EndOfRange(s.UnpinnedBytes, c.Bytes)
	if !c.HasDuration() {
		return
	}
	s.UnpinnedNs = units.EndOfRange(s.UnpinnedNs, c.EndNs-c.StartNs)
	if c.Bytes >= measurableBytes {
		s.Measurable++
		if c.EndNs-c.StartNs >= c.Bytes/linkBytesPerNs {
			s.Stuck++
		}
	}
}

// merge adds the statistics of o to s.
func (s *copyStats) merge(o *copyStats) {
	s.copies += o.copies
	s.captured += o.captured
	s.errors += o.errors
	s.open += o.open
	s.bytes = units.EndOfRange(s.bytes, o.bytes)
	s.durations.Merge(&o.durations)
	s.measuredBytes, s.measuredNs = units.EndOfRange(
		s.measuredBytes,
		o.measuredBytes,
	), units.EndOfRange(
		s.measuredNs,
		o.measuredNs,
	)
}

// rate returns the bandwidth measured on the host, a catalog.MetricValue in bytes per second. It
// returns nil if no copy measures bandwidth.
func (s *copyStats) rate() any {
	if s.measuredNs == 0 {
		return nil
	}
	return catalog.MetricValue{
		Value: float64(s.measuredBytes) / (float64(s.measuredNs) / 1e9),
		Unit:  catalog.UnitOfMetric("_bytes_per_second"),
	}
}
