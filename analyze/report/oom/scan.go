package oom

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Failure is a failed allocation. It is a failed driver call, or a failed request to a caching
// allocator together with all failed driver calls for the request.
type Failure struct {
	number        int32 // number of earlier failed calls and requests
	AtNs          int64 // time at which the allocator gave up, or of the first failed call, Unix ns
	firstNs       int64 // time of the first failed driver call, Unix ns
	Origin        int32 // origin of the request, an index of Timeline.Origins
	isHost        bool  // the request was for host memory
	byAllocator   bool  // the request was to a caching allocator
	abandoned     bool  // the allocator gave up; false if a retry succeeded
	Requested     int64 // requested bytes
	driverBytes   int64 // bytes of the driver call; 0: the allocator did not call the driver
	driverCalls   int64 // number of failed driver calls
	returnedBytes int64 // bytes that the allocator returned to the driver between the calls
	deviceFree    int64 // free bytes of the device, from the allocator's event; -1: unknown
	pool          int64 // pool of the request
	stream        int64 // stream of the request
	Outcome       Outcome
	outcomeNs     int64 // time at which the thread got memory again, Unix ns; 0: never
	merged        bool  // the failure is part of another failure
}

// Outcome is the behaviour of the thread after a failure. Smaller values are worse.
type Outcome uint8

const (
	OutcomeEnded     Outcome = iota // the thread did no GPU work after the failure, and its process ended
	OutcomeInactive                 // the thread did no GPU work after the failure
	OutcomeContinued                // the thread then allocated less memory, or used the GPU
	OutcomeRecovered                // a later allocation of at least the same size succeeded
	OutcomeRetried                  // the same request succeeded after the allocator freed its cached memory
)

func (o Outcome) String() string {
	return [...]string{"ended", "nothing since", "went on", "recovered", "retried"}[o]
}

// maxRetryNs is the longest time between a failure and the same request for a retry, ns. It is also
// the longest time between a failed driver call and the end of the allocator's request. It is long
// because an allocator frees its cache in between.
const maxRetryNs = 10_000_000_000

// FailureScan collects failures and their outcome. Set T before use. It is not safe for concurrent
// use.
type FailureScan struct {
	T       *timeline.Timeline
	list    []Failure
	threads []failingThread // by origin.OriginTable.Thread
	number  int32           // number of failed calls and requests so far
}

// failingThread has the failures of one thread so far, as indexes of FailureScan.list.
type failingThread struct {
	pending []int32 // failed driver calls that may be part of an allocator's request
	open    []int32 // failures after which no allocation of the same size succeeded
	retried int32   // 1 + index of the failure that a new segment ended, until its block is known; 0: none
	// smaller is the time of the latest allocation that was smaller than all open failures of GPU memory and of host
	// memory, until noteSmaller gives it to them; Unix ns, 0: none.
	smaller [2]int64
	// least is the smallest request of the open failures of both kinds, or less. 0: unknown.
	least [2]int64
}

// kindIndex returns the index of a kind of memory in failingThread.smaller and least.
func kindIndex(host bool) int {
	if host {
		return 1
	}
	return 0
}

// failingThreadOf returns the failures of the thread of an origin, and creates them if necessary.
func (s *FailureScan) failingThreadOf(originID int32) *failingThread {
	n := s.T.Origins.Thread[originID]
	s.threads = units.GrowToIndex(s.threads, n)
	return &s.threads[n]
}

// OnDriverChange processes the next change of driver memory.
func (s *FailureScan) OnDriverChange(c *livemem.Change) {
	switch {
	case c.Kind == livemem.ChangeAllocFailed && c.Ptr == calls.ResultOutOfMemory:
		th := s.failingThreadOf(c.By)
		s.noteSmaller(th)
		i := int32(len(s.list))
		s.list = append(s.list, Failure{
			number:      s.number,
			AtNs:        c.AtNs,
			firstNs:     c.AtNs,
			Origin:      c.By,
			isHost:      s.T.IsHostOrigin(c.By),
			Requested:   min(c.Block.Bytes, livemem.MaxAllocBytes),
			driverBytes: min(c.Block.Bytes, livemem.MaxAllocBytes),
			driverCalls: 1,
			deviceFree:  -1,
			stream:      s.T.Origins.List[c.By].Stream,
			Outcome:     OutcomeInactive,
		})
		s.number++
		th.pending, th.open = append(th.pending, i), append(th.open, i)
	case c.Kind == livemem.ChangeAllocated && len(s.list) > 0:
		s.resolveFailures(c.By, c.Block.Bytes, c.AtNs, s.T.IsHostOrigin(c.By))
	}
}

// resolveFailures sets the outcome of earlier failures of a thread whose allocation succeeded.
func (s *FailureScan) resolveFailures(originID int32, bytes, atNs int64, host bool) {
	th, kind := s.failingThreadOf(originID), kindIndex(host)
	if bytes < th.least[kind] {
		th.smaller[kind] = max(th.smaller[kind], atNs)
		return
	}
	s.noteSmaller(th)
	th.open = slices.DeleteFunc(th.open, func(i int32) bool {
		f := &s.list[i]
		if f.isHost != host {
			return false
		}
		if bytes < f.Requested {
			f.Outcome, f.outcomeNs = OutcomeContinued, max(f.outcomeNs, atNs)
			return false
		}
		f.Outcome, f.outcomeNs = OutcomeRecovered, atNs
		if bytes == f.Requested && atNs-f.AtNs < maxRetryNs &&
			s.T.Origins.List[originID].Name == s.T.Origins.List[f.Origin].Name {
			f.Outcome = OutcomeRetried
		}
		return true
	})
	th.least[kind] = math.MaxInt64
	for _, i := range th.open {
		if f := &s.list[i]; f.isHost == host {
			th.least[kind] = min(th.least[kind], f.Requested)
		}
	}
}

// noteSmaller gives the open failures of a thread the outcome of allocations that were smaller than all of them. It must
// be called before the open failures change.
func (s *FailureScan) noteSmaller(th *failingThread) {
	th.least = [2]int64{}
	if th.smaller == [2]int64{} {
		return
	}
	for _, i := range th.open {
		f := &s.list[i]
		if atNs := th.smaller[kindIndex(f.isHost)]; atNs != 0 {
			f.Outcome, f.outcomeNs = OutcomeContinued, max(f.outcomeNs, atNs)
		}
	}
	th.smaller = [2]int64{}
}

// OnAllocatorChange processes the next change of a caching allocator.
func (s *FailureScan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	switch c.Op {
	case caching.OpOutOfMemory:
		if c.Block.Origin != origin.NoOrigin {
			s.addAbandoned(a, c)
		}
	case caching.OpSegmentFreed, caching.OpSegmentUnmapped:
		if len(s.list) > 0 && c.Origin != origin.NoOrigin {
			if th := s.failingThreadOf(c.Origin); len(th.pending) > 0 {
				s.list[th.pending[len(th.pending)-1]].returnedBytes += c.Bytes
			}
		}
	case caching.OpSegmentAllocated, caching.OpSegmentMapped:
		if len(s.list) > 0 && c.Origin != origin.NoOrigin {
			s.endRetriedRequest(a, c)
		}
	case caching.OpBlockAllocated:
		if len(s.list) == 0 || c.Block.Origin == origin.NoOrigin {
			return
		}
		th := s.failingThreadOf(c.Block.Origin)
		if th.retried > 0 {
			s.noteSmaller(th)
			f := &s.list[th.retried-1]
			f.Requested, f.pool, f.stream = c.Block.Requested, c.Block.Pool, c.Block.Stream
			th.retried = 0
		}
		th.pending = th.pending[:0]
		s.resolveFailures(c.Block.Origin, c.Block.Requested, c.AtNs, false)
	}
}

// addAbandoned adds the failure of an allocator that gave up, together with its failed driver
// calls.
func (s *FailureScan) addAbandoned(a *caching.Allocator, c *caching.AllocatorChange) {
	th := s.failingThreadOf(c.Block.Origin)
	s.noteSmaller(th)
	f := Failure{
		number:      s.number,
		AtNs:        c.AtNs,
		firstNs:     c.AtNs,
		Origin:      c.Block.Origin,
		isHost:      s.T.IsHostOrigin(c.Block.Origin),
		byAllocator: true,
		abandoned:   true,
		Requested:   c.Block.Requested,
		deviceFree:  c.DeviceFree,
		pool:        c.Block.Pool,
		stream:      c.Block.Stream,
		Outcome:     OutcomeInactive,
	}
	s.number++
	s.mergePending(th, &f, func(part *Failure) bool { return s.isPartOfRequest(part, a, c.AtNs, 0) })
	th.open = append(th.open, int32(len(s.list)))
	s.list = append(s.list, f)
}

// endRetriedRequest ends a request that failed at first and has now got a segment.
func (s *FailureScan) endRetriedRequest(a *caching.Allocator, c *caching.AllocatorChange) {
	th := s.failingThreadOf(c.Origin)
	exact := c.Bytes
	if c.Op == caching.OpSegmentMapped {
		exact = 0
	}
	at := slices.IndexFunc(th.pending, func(i int32) bool { return s.isPartOfRequest(&s.list[i], a, c.AtNs, exact) })
	if at < 0 {
		return
	}
	s.noteSmaller(th)
	first := th.pending[at]
	f := s.list[first]
	f.driverCalls, f.returnedBytes, f.byAllocator, f.Outcome, f.outcomeNs = 0, 0, true, OutcomeRetried, c.AtNs
	s.mergePending(th, &f, func(part *Failure) bool { return s.isPartOfRequest(part, a, c.AtNs, exact) })
	f.merged = false
	s.list[first] = f
	th.retried = first + 1
}

// mergePending merges the pending driver calls that are part of failure f into it, and removes them
// from the thread.
func (s *FailureScan) mergePending(th *failingThread, f *Failure, isPart func(*Failure) bool) {
	for _, i := range th.pending {
		part := &s.list[i]
		if !isPart(part) {
			continue
		}
		f.firstNs = min(f.firstNs, part.firstNs)
		f.driverCalls += part.driverCalls
		f.returnedBytes += part.returnedBytes
		f.driverBytes = max(f.driverBytes, part.driverBytes)
		part.merged = true
	}
	th.pending = slices.DeleteFunc(th.pending, func(i int32) bool { return s.list[i].merged })
	th.open = slices.DeleteFunc(th.open, func(i int32) bool { return s.list[i].merged })
}

// isPartOfRequest reports whether a failed driver call belongs to a request of an allocator. It
// must be recent and on the same device. It must be for exact bytes unless exact is 0.
func (s *FailureScan) isPartOfRequest(f *Failure, a *caching.Allocator, atNs, exact int64) bool {
	o := &s.T.Origins.List[f.Origin]
	if o.Pid != a.Pid || o.Device >= 0 && o.Device != a.Device || atNs-f.firstNs > maxRetryNs {
		return false
	}
	switch s.T.Origins.MemoryKindOf(f.Origin) {
	case format.MemoryPhysical:
		return exact == 0
	case format.MemoryDevice:
		return exact == 0 || exact == f.driverBytes
	}
	return false
}

// scanKey is the key of the FailureScan that reports share.
type scanKey struct{}

// ScanOf returns the FailureScan of a survey.
func ScanOf(sv *survey.Survey) *FailureScan {
	return survey.Share(sv, scanKey{}, func() *FailureScan {
		s := &FailureScan{T: sv.Timeline}
		sv.Add(survey.Observer{Driver: s.OnDriverChange, Allocator: s.OnAllocatorChange})
		return s
	})
}

// Finish returns the failures of the replay in order of time.
func (s *FailureScan) Finish() ([]Failure, error) {
	for i := range s.threads {
		s.noteSmaller(&s.threads[i])
	}
	s.list = slices.DeleteFunc(s.list, func(f Failure) bool { return f.merged })
	list := s.list
	if err := setOutcomes(s.T, list); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b Failure) int { return int(a.number - b.number) })
	return list, nil
}

// setOutcomes sets the outcome of failures after which the thread allocated no memory. The
// thread continued if it used the GPU.
func setOutcomes(t *timeline.Timeline, list []Failure) error {
	last := make(map[origin.Thread]int64) // start of the thread's last GPU work, Unix ns
	for i := range list {
		if o := &t.Origins.List[list[i].Origin]; list[i].Outcome <= OutcomeInactive {
			last[origin.Thread{Pid: o.Pid, Tid: o.Tid}] = 0
		}
	}
	if len(last) == 0 {
		return nil
	}
	if err := findLastGPUWork(t, last); err != nil {
		return err
	}
	for i := range list {
		f := &list[i]
		o := &t.Origins.List[f.Origin]
		switch {
		case f.Outcome != OutcomeInactive:
		case last[origin.Thread{Pid: o.Pid, Tid: o.Tid}] > f.AtNs:
			f.Outcome = OutcomeContinued
		case t.Facts.Processes[o.Pid].ExitNs > 0:
			f.Outcome = OutcomeEnded
		}
	}
	return nil
}

// findLastGPUWork sets the start of the last GPU work of each thread of the map, Unix ns. GPU work
// is a launch, a copy or a memset.
func findLastGPUWork(t *timeline.Timeline, last map[origin.Thread]int64) error {
	var kind format.Strings
	var start []int64
	var pid, tid []int32
	for _, s := range t.Calls {
		kind = s.Group.StringsInto("kind", kind)
		start, pid, tid = s.Group.Int64("start_ns", start), s.Group.Int32("pid", pid), s.Group.Int32("tid", tid)
		if err := s.Group.Err(); err != nil {
			return t.WrapReadError(err)
		}
		work := make([]bool, len(kind.Dict))
		for i, k := range kind.Dict {
			work[i] = k == format.KindLaunch || k == format.KindMemcpy || k == format.KindMemset
		}
		for i, ns := range start {
			if !work[kind.Index[i]] {
				continue
			}
			th := origin.Thread{Pid: pid[i], Tid: tid[i]}
			if at, ok := last[th]; ok && ns > at {
				last[th] = ns
			}
		}
	}
	return nil
}
