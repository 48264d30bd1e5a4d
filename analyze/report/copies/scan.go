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

// A burst is burstCopies or more copies of less than burstBytes by one thread within burstNs.
const (
	burstCopies = 50
	burstBytes  = 4 << 10
	burstNs     = int64(10e6)
)

// bandwidthMinBytes is the least size of copies whose host time says something of bandwidth. Below
// it, the time is that of the call.
const bandwidthMinBytes = 64 << 10

// stuckMinBytes is the least size of copies whose host time says whether the call waited for the
// copy. linkBytesPerNs is more than any link between host and GPU moves: PCIe 5.0 with 16 lanes
// has 63 GB/s. There, 1 MiB takes 16 us, and a call that only enqueues the copy takes 5 us.
const (
	stuckMinBytes  = 1 << 20
	linkBytesPerNs = 64
)

// copySizes are the buckets of sizes; below is the bound of each, not included.
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

// Modes of copies, by the function that is called.
const (
	modeBlocking = "blocking"
	modeAsync    = "async"
)

// Scan sums up copies, in one pass over them.
type Scan struct {
	*calls.Reader
	host    *hostmem.Blocks
	groups  map[groupKey]*copyStats
	Sites   map[siteKey]*copyStats
	threads map[origin.Thread]*threadBursts
	Bursts  map[burstKey]*burst
}

// groupKey is what the copies of a row have in common.
type groupKey struct {
	direction, mode, host string
	size                  int
}

// siteKey is a call site, as an index of Names, with the direction and mode of its copies.
type siteKey struct {
	Site            int32
	Direction, mode string
}

// copyStats sums up copies.
type copyStats struct {
	copies, captured, errors, open int64
	bytes                          int64 // of copies that were made: neither failed nor captured
	took                           stats.Durations
	// Copies whose host time is that of the copy: bandwidth is computed from these.
	measuredBytes, measuredNs int64
	// Async copies of 64 KiB and more with host memory that is not known to be pinned. Telling
	// ones are large enough to show whether the call waited for the copy; Stuck ones waited.
	Unpinned, UnpinnedBytes, UnpinnedNs int64
	Telling, Stuck                      int64
	FirstNs, LastNs                     int64 // entries
	Stack                               int32
}

// NewScan returns a Scan that looks up the host's side of copies in host.
func NewScan(r *calls.Reader, host *hostmem.Blocks) *Scan {
	return &Scan{
		Reader:  r,
		host:    host,
		groups:  make(map[groupKey]*copyStats),
		Sites:   make(map[siteKey]*copyStats),
		threads: make(map[origin.Thread]*threadBursts),
		Bursts:  make(map[burstKey]*burst),
	}
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
	site := siteKey{c.Site, key.direction, key.mode}
	if sc.Sites[site] == nil {
		sc.Sites[site] = &copyStats{Stack: c.Stack, FirstNs: c.StartNs}
	}
	sc.Sites[site].add(c, key.bandwidth(c))
	if key.mode == modeAsync && key.host == hostmem.HostUnknown {
		sc.Sites[site].addUnpinned(c)
	}
	if c.Bytes < burstBytes && c.Flags&format.FlagCaptured == 0 && !c.Failed() {
		sc.addSmall(c)
	}
	return nil
}

// hostOf returns the kind of host memory of a copy, "" if no side of it is on the host.
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

// bandwidth reports whether the call's time is that of its copy: the call waits for the copy, and
// the copy is large enough to be most of the time.
func (k *groupKey) bandwidth(c *calls.Call) bool {
	// copies on a device do not block
	host := strings.HasPrefix(k.direction, "H") || strings.HasSuffix(k.direction, "toH")
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
			s.measuredBytes, s.measuredNs = units.EndOf(
				s.measuredBytes,
				c.Bytes,
			), units.EndOf(
				s.measuredNs,
				c.EndNs-c.StartNs,
			)
		}
	}
}

// addUnpinned counts an async copy with host memory that is not known to be pinned.
func (s *copyStats) addUnpinned(c *calls.Call) {
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
	s.measuredBytes, s.measuredNs = units.EndOf(
		s.measuredBytes,
		o.measuredBytes,
	), units.EndOf(
		s.measuredNs,
		o.measuredNs,
	)
}

// rate is the bandwidth in bytes a second as seen from the host, nil where no copy shows it.
func (s *copyStats) rate() any {
	if s.measuredNs == 0 {
		return nil
	}
	return catalog.Measured{
		Value: float64(s.measuredBytes) / (float64(s.measuredNs) / 1e9),
		Unit:  catalog.UnitOf("_bytes_per_second"),
	}
}
