package copies

import (
	"cmp"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A burst is at least minBurstCopies copies of less than smallCopyBytes each by one thread within
// burstWindowNs.
const (
	minBurstCopies = 50
	smallCopyBytes = 4 << 10
	burstWindowNs  = int64(10e6)
)

// minBandwidthCopyBytes is the smallest copy whose host time measures bandwidth. The time of
// smaller copies is mostly that of the call.
const minBandwidthCopyBytes = 64 << 10

// minMeasurableCopyBytes is the smallest copy whose host time shows whether the call waited for the
// copy. maxLinkBytesPerNs exceeds the rate of any link between host and GPU: PCIe 5.0 x16 has 63
// GB/s. At that rate 1 MiB takes 16 us. A call that only enqueues the copy takes 5 us.
const (
	minMeasurableCopyBytes = 1 << 20
	maxLinkBytesPerNs      = 64
)

// copySizeClasses are the size classes of copies. below is the upper bound in bytes, exclusive.
var copySizeClasses = []struct {
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
	copyModeBlocking = "blocking"
	copyModeAsync    = "async"
)

// Scan collects statistics of copies in one pass. It is not safe for concurrent use.
type Scan struct {
	*calls.CallReader
	host    *hostmem.HostBlocks
	groups  map[copyGroupKey]*copyStats
	Sites   map[copySiteKey]*copyStats
	threads map[origin.Thread]*threadBursts
	Bursts  map[burstKey]*burstStats
	times   *activity.SiteTimes // of the report, nil without GPU times
}

// copyGroupKey identifies a row of the table of copies. size is an index of copySizeClasses.
type copyGroupKey struct {
	direction, mode, host string
	size                  int
}

// copySiteKey is a call site with the direction and mode of its copies. Site is an index of Names.
type copySiteKey struct {
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
	// ones are at least minMeasurableCopyBytes large; the call of Stuck ones waited for the copy.
	Unpinned, UnpinnedBytes, UnpinnedNs int64
	Measurable, Stuck                   int64
	FirstNs, LastNs                     int64 // starts of the first and last copy, Unix ns
	Stack                               int32
	gpu                                 gpuCopies
}

// NewScan returns a Scan of the copies of r. It finds the kind of host memory of each copy in host.
func NewScan(r *calls.CallReader, host *hostmem.HostBlocks) *Scan {
	return &Scan{
		CallReader: r,
		host:       host,
		groups:     make(map[copyGroupKey]*copyStats),
		Sites:      make(map[copySiteKey]*copyStats),
		threads:    make(map[origin.Thread]*threadBursts),
		Bursts:     make(map[burstKey]*burstStats),
	}
}

// AddCopy adds a copy to the statistics. It always returns nil.
func (sc *Scan) AddCopy(c *calls.Call) error {
	name := sc.Names.List[c.Name]
	key := copyGroupKey{direction: cmp.Or(sc.Names.List[c.CopyKind], "unknown"), mode: copyModeBlocking}
	if strings.Contains(name, "Async") {
		key.mode = copyModeAsync
	}
	key.host = sc.hostMemoryKind(key.direction, c)
	for key.size < len(copySizeClasses)-1 && c.Bytes >= copySizeClasses[key.size].below {
		key.size++
	}
	if sc.groups[key] == nil {
		sc.groups[key] = new(copyStats)
	}
	sc.groups[key].addCopy(c, key.measuresBandwidth(c))
	site := copySiteKey{c.Site, key.direction, key.mode}
	if sc.Sites[site] == nil {
		sc.Sites[site] = &copyStats{Stack: c.Stack, FirstNs: c.StartNs}
	}
	sc.Sites[site].addCopy(c, key.measuresBandwidth(c))
	if len(sc.T.Facts.Channels) > 0 && !c.Failed() && c.Flags&format.FlagCaptured == 0 {
		sc.groups[key].gpu.add(c, name, key.direction)
		sc.Sites[site].gpu.add(c, name, key.direction)
	}
	if key.mode == copyModeAsync && key.host == hostmem.HostKindUnknown {
		sc.Sites[site].addUnpinnedCopy(c)
	}
	if c.Bytes < smallCopyBytes && c.Flags&format.FlagCaptured == 0 && !c.Failed() {
		sc.addSmallCopy(c)
	}
	return nil
}

// hostMemoryKind returns the kind of host memory of a copy, or "" if neither side is in host
// memory.
func (sc *Scan) hostMemoryKind(direction string, c *calls.Call) string {
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
func (k *copyGroupKey) measuresBandwidth(c *calls.Call) bool {
	// A copy within a device does not block the call.
	host := strings.HasPrefix(k.direction, "H") || strings.HasSuffix(k.direction, "toH")
	return host && k.mode == copyModeBlocking && c.Bytes >= minBandwidthCopyBytes && c.EndNs > c.StartNs
}

// addCopy adds a copy. isMeasured means that its host time measures bandwidth.
func (s *copyStats) addCopy(c *calls.Call, isMeasured bool) {
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

// addUnpinnedCopy adds an async copy with host memory that is not known to be pinned.
func (s *copyStats) addUnpinnedCopy(c *calls.Call) {
	if c.Bytes < minBandwidthCopyBytes || c.Failed() || c.Flags&format.FlagCaptured != 0 {
		return
	}
	s.Unpinned++
	s.UnpinnedBytes = units.EndOfRange(s.UnpinnedBytes, c.Bytes)
	if !c.HasDuration() {
		return
	}
	s.UnpinnedNs = units.EndOfRange(s.UnpinnedNs, c.EndNs-c.StartNs)
	if c.Bytes >= minMeasurableCopyBytes {
		s.Measurable++
		if c.EndNs-c.StartNs >= c.Bytes/maxLinkBytesPerNs {
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

// bandwidth returns the bandwidth measured on the host, a catalog.MetricValue in bytes per second.
// It returns nil if no copy measures bandwidth.
func (s *copyStats) bandwidth() any {
	if s.measuredNs == 0 {
		return nil
	}
	return catalog.MetricValue{
		Value: float64(s.measuredBytes) / (float64(s.measuredNs) / 1e9),
		Unit:  catalog.UnitOfMetric("_bytes_per_second"),
	}
}
