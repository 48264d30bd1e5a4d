package activity

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// SiteTimes finds the durations of operations by kernel or graph and by call site. It is safe for concurrent
// readers.
type SiteTimes struct {
	activity *Activity
	labels   map[Label]int32
	graphs   map[siteGraph]int32
}

// siteGraph is a graph of a process at a call site. site is "" for call sites that share a label.
type siteGraph struct {
	handleKey
	site string
}

// sitesOf is the key of the SiteTimes of a window in the memo of a Timeline.
type sitesOf query.Window

// TimesOf returns the durations of the operations of a recording in a window by call site. It returns nil if the
// recording has no progress words, and errors of reading the recording.
func TimesOf(t *timeline.Timeline, w query.Window) (*SiteTimes, error) {
	if len(t.Facts.Channels) == 0 {
		return nil, nil
	}
	return timeline.Remember(t, sitesOf(w), func() (*SiteTimes, error) {
		a, err := Of(t, w)
		if err != nil {
			return nil, err
		}
		return newSiteTimes(a), nil
	})
}

func newSiteTimes(a *Activity) *SiteTimes {
	s := &SiteTimes{activity: a, labels: make(map[Label]int32), graphs: make(map[siteGraph]int32)}
	for i := range a.Labels {
		if l := &a.Labels[i]; l.Graph == 0 {
			s.labels[*l] = int32(i)
		}
	}
	for i := range a.Durations {
		if d := &a.Durations[i]; d.Op == OpGraph && d.Label >= 0 {
			l := &a.Labels[d.Label]
			s.graphs[siteGraph{handleKey{d.Pid, l.Graph}, l.Site}] = d.Label
		}
	}
	return s
}

// OfKernel returns the duration of a kernel with a grid that a call site launches.
func (s *SiteTimes) OfKernel(pid int32, kernel string, grid [3]int32, site string) Estimate {
	isShared := false
	for _, label := range [...]Label{
		{Kernel: kernel, Grid: grid, Site: site},
		{Kernel: kernel, Grid: grid},
		{Kernel: kernel, Grid: [3]int32{-1}},
	} {
		if number, ok := s.labels[label]; ok {
			e := s.activity.EstimateOf(pid, OpKernel, number)
			if e.Quality != Unknown {
				return e
			}
			isShared = isShared || e.IsShared
		}
	}
	return Estimate{IsShared: isShared}
}

// OfGraph returns the duration of a launch of a graph by a call site.
func (s *SiteTimes) OfGraph(pid int32, graph int64, site string) Estimate {
	for _, site := range [2]string{site, ""} {
		if label, ok := s.graphs[siteGraph{handleKey{pid, graph}, site}]; ok {
			return s.activity.EstimateOf(pid, OpGraph, label)
		}
	}
	return Estimate{}
}

// OfCopy returns the duration of a copy of a size. op is OpCopyToDevice, OpCopyToHost or OpCopyOnDevice.
func (s *SiteTimes) OfCopy(pid int32, op Op, bytes int64) Estimate {
	label, ok := s.labels[Label{Bytes: RoundSize(bytes)}]
	if !ok {
		return Estimate{}
	}
	return s.activity.EstimateOf(pid, op, label)
}
