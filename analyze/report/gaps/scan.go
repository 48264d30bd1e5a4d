package gaps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// LengthClasses are the length classes of the distribution of intervals. BelowNs is the upper
// bound, exclusive.
var LengthClasses = []struct {
	BelowNs int64
	name    string
}{
	{10e3, "< 10us"},
	{100e3, "10us to 100us"},
	{1e6, "100us to 1ms"},
	{10e6, "1ms to 10ms"},
	{100e6, "10ms to 100ms"},
	{1e9, "100ms to 1s"},
	{1<<63 - 1, ">= 1s"},
}

// Scan collects intervals without launches, in one pass over the launches. It is not safe for
// concurrent use.
type Scan struct {
	*calls.CallReader
	minNs     int64 // minimum length of a gap, ns
	maxListed int   // maximum length of List
	Tracks    map[DeviceTrack]*trackGaps
	last      cachedTrack
	// processGaps and deviceGaps are heaps of the longest gaps, shortest first: on all devices of a
	// process together, and on single devices.
	processGaps, deviceGaps []Gap
	List                    []Gap // the longest gaps, longest first; set by SelectLongestGaps
	host                    hostTimes
}

// DeviceTrack is one device of a process, or all of its devices together (AllDevicesOfProcess).
type DeviceTrack struct{ Pid, Device int32 }

// trackGaps has the statistics of the gaps on a track.
type trackGaps struct {
	Launches, Unreturned int64
	unrecordedNs         int64 // time between first and last launch without recorded launches, ns
	FirstNs              int64 // start of the first launch, Unix ns
	UntilNs              int64 // return of the last launch so far (else its start), Unix ns
	Gaps                 stats.Durations
	ByLength             [7]struct{ Count, ns int64 } // intervals of any length, by index of Lengths
}

// Gap is an interval without launches on a track. FromNs and ToNs are Unix ns.
type Gap struct {
	Track        DeviceTrack
	FromNs, ToNs int64
	EndedBy      calls.Call // the launch that ended the gap
	Activity     gapActivity
	Busy         BusyBounds
}

// recordedNs returns the time between the first and last launch in which launches were recorded,
// ns.
func (g *trackGaps) recordedNs() int64 { return g.UntilNs - g.FirstNs - g.unrecordedNs }

// DurNs returns the length of the gap, ns.
func (g *Gap) DurNs() int64 { return g.ToNs - g.FromNs }

// compareLength compares gaps by length, longest first.
func (g *Gap) compareLength(o *Gap) int {
	return cmp.Or(cmp.Compare(o.DurNs(), g.DurNs()), cmp.Compare(g.FromNs, o.FromNs),
		cmp.Compare(g.Track.Pid, o.Track.Pid), cmp.Compare(g.Track.Device, o.Track.Device))
}

// NewScan returns a Scan for gaps of at least minNs. List will have at most keep gaps.
func NewScan(r *calls.CallReader, minNs int64, keep int) *Scan {
	return &Scan{CallReader: r, minNs: minNs, maxListed: keep, Tracks: make(map[DeviceTrack]*trackGaps)}
}

// AddLaunch adds a launch. Failed and captured launches end no gap, because they do not run.
// AddLaunch always returns nil.
func (sc *Scan) AddLaunch(c *calls.Call) error {
	if c.Failed() || c.Flags&(format.FlagCaptured|format.FlagAbandoned) != 0 {
		return nil
	}
	if last := &sc.last; last.device == nil || last.track != (DeviceTrack{c.Pid, c.Device}) {
		*last = cachedTrack{
			track:   DeviceTrack{c.Pid, c.Device},
			process: sc.findTrack(DeviceTrack{c.Pid, AllDevicesOfProcess}, c.StartNs),
			device:  sc.findTrack(DeviceTrack{c.Pid, c.Device}, c.StartNs),
		}
	}
	sc.addToTrack(DeviceTrack{c.Pid, AllDevicesOfProcess}, sc.last.process, c, &sc.processGaps)
	sc.addToTrack(sc.last.track, sc.last.device, c, &sc.deviceGaps)
	return nil
}

// cachedTrack caches the track of the previous launch, because most launches have the same track.
type cachedTrack struct {
	track           DeviceTrack
	process, device *trackGaps
}

// findTrack returns the statistics of a track. A new track begins at startNs, Unix ns.
func (sc *Scan) findTrack(track DeviceTrack, startNs int64) *trackGaps {
	s := sc.Tracks[track]
	if s == nil {
		s = &trackGaps{FirstNs: startNs, UntilNs: startNs}
		sc.Tracks[track] = s
	}
	return s
}

// addToTrack adds a launch to one track, and the gap that the launch ends.
func (sc *Scan) addToTrack(track DeviceTrack, s *trackGaps, c *calls.Call, longest *[]Gap) {
	s.Launches++
	end := c.EndNs
	if c.Flags&format.FlagNoReturn != 0 {
		s.Unreturned++
		end = c.StartNs
	}
	unrecorded := sc.T.UnrecordedLaunchNs(s.UntilNs, c.StartNs)
	s.unrecordedNs += unrecorded
	if between := c.StartNs - s.UntilNs; between > 0 && s.Launches > 1 && unrecorded == 0 {
		size := 0
		for between >= LengthClasses[size].BelowNs {
			size++
		}
		s.ByLength[size].Count++
		s.ByLength[size].ns += between
		if between >= sc.minNs {
			s.Gaps.Add(between)
			if track.Device == AllDevicesOfProcess {
				sc.addHostTime(s.UntilNs, c)
			}
			sc.keepIfLongest(longest, Gap{Track: track, FromNs: s.UntilNs, ToNs: c.StartNs}, c)
		}
	}
	s.UntilNs = max(s.UntilNs, min(end, sc.Window.ToNs))
}

// keepIfLongest keeps a gap if it is one of the longest.
func (sc *Scan) keepIfLongest(longest *[]Gap, g Gap, c *calls.Call) {
	shorter := func(a, b Gap) bool { return b.compareLength(&a) < 0 }
	if len(*longest) < sc.maxListed {
		g.EndedBy = *c
		*longest = stats.HeapPush(*longest, g, shorter)
	} else if g.compareLength(&(*longest)[0]) < 0 {
		g.EndedBy = *c
		(*longest)[0] = g
		stats.HeapFix(*longest, shorter)
	}
}

// SelectLongestGaps sets List. Call it after the last Add. For a process with one device, it lists
// each gap only once.
func (sc *Scan) SelectLongestGaps() {
	devices := make(map[int32]int)
	for track := range sc.Tracks {
		if track.Device != AllDevicesOfProcess {
			devices[track.Pid]++
		}
	}
	for pid, n := range devices {
		if n == 1 {
			delete(sc.Tracks, DeviceTrack{pid, AllDevicesOfProcess})
		}
	}
	for _, list := range [][]Gap{sc.processGaps, sc.deviceGaps} {
		for i := range list {
			if sc.Tracks[list[i].Track] != nil {
				sc.List = append(sc.List, list[i])
			}
		}
	}
	slices.SortFunc(sc.List, func(a, b Gap) int { return a.compareLength(&b) })
	sc.List = sc.List[:min(len(sc.List), sc.maxListed)]
}

// SortedTracks returns the tracks sorted by process and device.
func (sc *Scan) SortedTracks() []DeviceTrack {
	return slices.SortedFunc(maps.Keys(sc.Tracks), func(a, b DeviceTrack) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
}
