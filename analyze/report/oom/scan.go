package oom

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Failure is a failed allocation: a call of the driver, or a request to a caching allocator with all
// the failed calls that the allocator made for it.
type Failure struct {
	number      int32 // number of calls and requests that failed before
	AtNs        int64 // when the allocator gave up, or else when the first call failed, Unix ns
	firstNs     int64 // when the driver refused first, Unix ns
	Origin      int32 // of the request, an index of Timeline.Origins
	byAllocator bool  // the request was to a caching allocator
	abandoned   bool  // the allocator gave up, and did not only try again
	Requested   int64 // bytes that the program requested
	asked       int64 // bytes that the driver was asked for; 0: it was not asked
	calls       int64 // number of failed calls of the driver
	returned    int64 // bytes that the allocator gave back to the driver in between
	deviceFree  int64 // free bytes of the device by the allocator; -1: not known
	pool        int64 // of the request
	stream      int64 // of the request
	Outcome     Outcome
	outcomeNs   int64 // when the thread got memory again, Unix ns; 0: it did not
	joined      bool  // it is part of another failure
}

// Outcome is what the thread did after a failure, the worst first.
type Outcome uint8

const (
	Ended        Outcome = iota // it did nothing more, and its process ended
	NothingSince                // it did nothing more
	WentOn                      // it got less memory, or gave work to the GPU
	Recovered                   // it got as much memory later
	Retried                     // the same request succeeded after cached memory was freed
)

func (o Outcome) String() string {
	return [...]string{"ended", "nothing since", "went on", "recovered", "retried"}[o]
}

// retryNs is the longest time, in ns, after which the same request counts as a retry, and after
// which a failed call of the driver counts as part of an allocator's request. It is long because an
// allocator frees its cached memory in between.
const retryNs = 10_000_000_000

// FailureScan finds failures and their outcome. T must be set. It is not safe for concurrent use.
type FailureScan struct {
	T       *timeline.Timeline
	list    []Failure
	threads []failingThread // by origin.Table.Thread
	number  int32
}

// failingThread has the failures of a thread so far, as indexes of FailureScan.list.
type failingThread struct {
	pending []int32 // failed calls that may be part of a request
	open    []int32 // failures after which the thread has not got as much
	retried int32   // 1 + the failure that a new segment ended, until its block is known; 0: none
}

// thread returns the failures of the thread of an origin.
func (s *FailureScan) thread(origin int32) *failingThread {
	n := s.T.Origins.Thread[origin]
	s.threads = units.Grow(s.threads, n)
	return &s.threads[n]
}

// Driver takes the next change of the driver's memory.
func (s *FailureScan) Driver(c *livemem.Change) {
	switch {
	case c.Kind == livemem.AllocFailed && c.Ptr == calls.ResultOutOfMemory:
		th := s.thread(c.By)
		i := int32(len(s.list))
		s.list = append(s.list, Failure{
			number:     s.number,
			AtNs:       c.AtNs,
			firstNs:    c.AtNs,
			Origin:     c.By,
			Requested:  min(c.Block.Bytes, livemem.AddressSpace),
			asked:      min(c.Block.Bytes, livemem.AddressSpace),
			calls:      1,
			deviceFree: -1,
			stream:     s.T.Origins.List[c.By].Stream,
			Outcome:    NothingSince,
		})
		s.number++
		th.pending, th.open = append(th.pending, i), append(th.open, i)
	case c.Kind == livemem.Allocated && len(s.list) > 0:
		s.got(c.By, c.Block.Bytes, c.AtNs, s.T.OnHost(c.By))
	}
}

// got sets the outcome of failures whose thread got memory now.
func (s *FailureScan) got(origin int32, bytes, atNs int64, host bool) {
	th := s.thread(origin)
	th.open = slices.DeleteFunc(th.open, func(i int32) bool {
		f := &s.list[i]
		if s.T.OnHost(f.Origin) != host {
			return false
		}
		if bytes < f.Requested {
			f.Outcome, f.outcomeNs = WentOn, max(f.outcomeNs, atNs)
			return false
		}
		f.Outcome, f.outcomeNs = Recovered, atNs
		if bytes == f.Requested && atNs-f.AtNs < retryNs &&
			s.T.Origins.List[origin].Name == s.T.Origins.List[f.Origin].Name {
			f.Outcome = Retried
		}
		return true
	})
}

// Allocator takes the next change of a caching allocator.
func (s *FailureScan) Allocator(a *caching.Allocator, c *caching.Change) {
	switch c.Op {
	case caching.OutOfMemory:
		if c.Block.Origin != originpkg.None {
			s.abandoned(a, c)
		}
	case caching.SegmentFreed, caching.SegmentUnmapped:
		if len(s.list) > 0 && c.Origin != originpkg.None {
			if th := s.thread(c.Origin); len(th.pending) > 0 {
				s.list[th.pending[len(th.pending)-1]].returned += c.Bytes
			}
		}
	case caching.SegmentAllocated, caching.SegmentMapped:
		if len(s.list) > 0 && c.Origin != originpkg.None {
			s.retried(a, c)
		}
	case caching.BlockAllocated:
		if len(s.list) == 0 || c.Block.Origin == originpkg.None {
			return
		}
		th := s.thread(c.Block.Origin)
		if th.retried > 0 {
			f := &s.list[th.retried-1]
			f.Requested, f.pool, f.stream = c.Block.Requested, c.Block.Pool, c.Block.Stream
			th.retried = 0
		}
		th.pending = th.pending[:0]
		s.got(c.Block.Origin, c.Block.Requested, c.AtNs, false)
	}
}

// abandoned adds the failure of an allocator that gave up, with the failed calls that it made.
func (s *FailureScan) abandoned(a *caching.Allocator, c *caching.Change) {
	th := s.thread(c.Block.Origin)
	f := Failure{
		number:      s.number,
		AtNs:        c.AtNs,
		firstNs:     c.AtNs,
		Origin:      c.Block.Origin,
		byAllocator: true,
		abandoned:   true,
		Requested:   c.Block.Requested,
		deviceFree:  c.DeviceFree,
		pool:        c.Block.Pool,
		stream:      c.Block.Stream,
		Outcome:     NothingSince,
	}
	s.number++
	s.join(th, &f, func(part *Failure) bool { return s.causes(part, a, c.AtNs, 0) })
	th.open = append(th.open, int32(len(s.list)))
	s.list = append(s.list, f)
}

// retried ends a request that failed at first and now got a segment.
func (s *FailureScan) retried(a *caching.Allocator, c *caching.Change) {
	th := s.thread(c.Origin)
	exact := c.Bytes
	if c.Op == caching.SegmentMapped {
		exact = 0
	}
	at := slices.IndexFunc(th.pending, func(i int32) bool { return s.causes(&s.list[i], a, c.AtNs, exact) })
	if at < 0 {
		return
	}
	first := th.pending[at]
	f := s.list[first]
	f.calls, f.returned, f.byAllocator, f.Outcome, f.outcomeNs = 0, 0, true, Retried, c.AtNs
	s.join(th, &f, func(part *Failure) bool { return s.causes(part, a, c.AtNs, exact) })
	f.joined = false
	s.list[first] = f
	th.retried = first + 1
}

// join adds to a failure the pending calls that are part of it, and removes them from the thread.
func (s *FailureScan) join(th *failingThread, f *Failure, isPart func(*Failure) bool) {
	for _, i := range th.pending {
		part := &s.list[i]
		if !isPart(part) {
			continue
		}
		f.firstNs = min(f.firstNs, part.firstNs)
		f.calls += part.calls
		f.returned += part.returned
		f.asked = max(f.asked, part.asked)
		part.joined = true
	}
	th.pending = slices.DeleteFunc(th.pending, func(i int32) bool { return s.list[i].joined })
	th.open = slices.DeleteFunc(th.open, func(i int32) bool { return s.list[i].joined })
}

// causes reports whether a failed call of the driver belongs to a request of an allocator: it is
// recent, on the same device, and for exact bytes unless exact is 0.
func (s *FailureScan) causes(f *Failure, a *caching.Allocator, atNs, exact int64) bool {
	o := &s.T.Origins.List[f.Origin]
	if o.Pid != a.Pid || o.Device >= 0 && o.Device != a.Device || atNs-f.firstNs > retryNs {
		return false
	}
	switch s.T.Origins.Memory(f.Origin) {
	case format.MemoryPhysical:
		return exact == 0
	case format.MemoryDevice:
		return exact == 0 || exact == f.asked
	}
	return false
}

// failures replays the recording and returns its failures in order of time.
func failures(t *timeline.Timeline) ([]Failure, *timeline.Program, error) {
	s := &FailureScan{T: t}
	l, all, err := t.ReplayAll(func(_ *livemem.Set, c *livemem.Change) { s.Driver(c) }, s.Allocator)
	if err != nil {
		return nil, nil, err
	}
	list, err := s.Finish()
	return list, &timeline.Program{T: t, Driver: l, Allocators: all}, err
}

// Finish returns the failures of a replay in order of time.
func (s *FailureScan) Finish() ([]Failure, error) {
	list := slices.DeleteFunc(s.list, func(f Failure) bool { return f.joined })
	if err := settleFailures(s.T, list); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b Failure) int { return int(a.number - b.number) })
	return list, nil
}

// settleFailures sets the outcome of failures after which the thread got no memory: it went on if it
// gave work to the GPU.
func settleFailures(t *timeline.Timeline, list []Failure) error {
	last := make(map[originpkg.Thread]int64) // start of the last work given to the GPU
	for i := range list {
		if o := &t.Origins.List[list[i].Origin]; list[i].Outcome <= NothingSince {
			last[originpkg.Thread{Pid: o.Pid, Tid: o.Tid}] = 0
		}
	}
	if len(last) == 0 {
		return nil
	}
	if err := lastWork(t, last); err != nil {
		return err
	}
	for i := range list {
		f := &list[i]
		o := &t.Origins.List[f.Origin]
		switch {
		case f.Outcome != NothingSince:
		case last[originpkg.Thread{Pid: o.Pid, Tid: o.Tid}] > f.AtNs:
			f.Outcome = WentOn
		case t.Facts.Processes[o.Pid].ExitNs > 0:
			f.Outcome = Ended
		}
	}
	return nil
}

// lastWork sets the start of the last work that each thread of the map gave to the GPU, Unix ns.
func lastWork(t *timeline.Timeline, last map[originpkg.Thread]int64) error {
	var kind format.Strings
	var start []int64
	var pid, tid []int32
	for _, s := range t.Calls {
		kind = s.Group.StringsInto("kind", kind)
		start, pid, tid = s.Group.Int64("start_ns", start), s.Group.Int32("pid", pid), s.Group.Int32("tid", tid)
		if err := s.Group.Err(); err != nil {
			return t.Wrap(err)
		}
		work := make([]bool, len(kind.Dict))
		for i, k := range kind.Dict {
			work[i] = k == format.KindLaunch || k == format.KindMemcpy || k == format.KindMemset
		}
		for i, ns := range start {
			if !work[kind.Index[i]] {
				continue
			}
			th := originpkg.Thread{Pid: pid[i], Tid: tid[i]}
			if at, ok := last[th]; ok && ns > at {
				last[th] = ns
			}
		}
	}
	return nil
}
