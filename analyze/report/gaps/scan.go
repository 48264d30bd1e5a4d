package gaps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// Lengths are the buckets of the distribution; BelowNs is the bound of each, not included.
var Lengths = []struct {
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

// Scan finds intervals without launches, in one pass over the launches.
type Scan struct {
	*calls.Reader
	minNs  int64
	keep   int
	Tracks map[Track]*trackGaps
	last   lastTrack
	// The longest gaps, heaps with the shortest first: of processes, and of their devices.
	ofProcess, ofDevice []Gap
	List                []Gap // those to list, the longest first; see SelectLongest
}

// Track is a device of a process, or all of its devices together (AllDevices).
type Track struct{ Pid, Device int32 }

// trackGaps sums up the gaps of a track.
type trackGaps struct {
	Launches, Unreturned int64
	blindNs              int64 // between first and last launch, in which launches were not recorded
	FirstNs              int64 // entry of the first launch
	UntilNs              int64 // return of the last launch so far, entry where that is not known
	Gaps                 stats.Durations
	All                  [7]struct{ Count, ns int64 } // intervals of any size by Lengths
}

// Gap is an interval without launches on a track.
type Gap struct {
	Track        Track
	FromNs, ToNs int64
	Ended        calls.Call // the launch that ended the gap
	Doing        activity
	Busy         Busy
}

// seenNs is the time between the first and last launch, without times in which launches were not
// recorded.
func (s *trackGaps) seenNs() int64 { return s.UntilNs - s.FirstNs - s.blindNs }

// DurNs returns the length of the gap, ns.
func (g *Gap) DurNs() int64 { return g.ToNs - g.FromNs }

// longer orders gaps from long to short.
func (g *Gap) longer(o *Gap) int {
	return cmp.Or(cmp.Compare(o.DurNs(), g.DurNs()), cmp.Compare(g.FromNs, o.FromNs),
		cmp.Compare(g.Track.Pid, o.Track.Pid), cmp.Compare(g.Track.Device, o.Track.Device))
}

// NewScan returns a Scan for gaps of at least minNs, which lists at most keep of them.
func NewScan(r *calls.Reader, minNs int64, keep int) *Scan {
	return &Scan{Reader: r, minNs: minNs, keep: keep, Tracks: make(map[Track]*trackGaps)}
}

// Add counts a launch. Launches that did not run end no gap: failed and captured ones.
func (sc *Scan) Add(c *calls.Call) error {
	if c.Failed() || c.Flags&(format.FlagCaptured|format.FlagAbandoned) != 0 {
		return nil
	}
	if last := &sc.last; last.device == nil || last.track != (Track{c.Pid, c.Device}) {
		*last = lastTrack{
			track:   Track{c.Pid, c.Device},
			process: sc.track(Track{c.Pid, AllDevices}, c.StartNs),
			device:  sc.track(Track{c.Pid, c.Device}, c.StartNs),
		}
	}
	sc.launch(Track{c.Pid, AllDevices}, sc.last.process, c, &sc.ofProcess)
	sc.launch(sc.last.track, sc.last.device, c, &sc.ofDevice)
	return nil
}

// lastTrack caches the track of the previous launch: most launches are on the same one.
type lastTrack struct {
	track           Track
	process, device *trackGaps
}

// track returns the entry of a track; a new one begins at startNs.
func (sc *Scan) track(track Track, startNs int64) *trackGaps {
	s := sc.Tracks[track]
	if s == nil {
		s = &trackGaps{FirstNs: startNs, UntilNs: startNs}
		sc.Tracks[track] = s
	}
	return s
}

// launch adds a launch to one track, and the gap that it ends.
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

// remember keeps a gap if it is among the longest.
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

// SelectLongest fills List, after the last Add. A process with one device has the same gaps there
// as on all devices together: they are listed once.
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

// SortedTracks returns the tracks by process and device.
func (sc *Scan) SortedTracks() []Track {
	return slices.SortedFunc(maps.Keys(sc.Tracks), func(a, b Track) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
}
