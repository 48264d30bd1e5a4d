package gaps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

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
