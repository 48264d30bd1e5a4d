package oom

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Failure is memory that somebody asked for and did not get: a call of the driver, or a
// request to a caching allocator with all the calls that it made in vain.
type Failure struct {
	number      int32 // how many calls and requests failed before
	AtNs        int64 // of a request: when it was given up; else when the first call failed
	firstNs     int64 // when the driver refused first
	Origin      int32 // who asked
	byAllocator bool
	given       bool  // byAllocator: given up with an error, not only tried again
	Requested   int64 // bytes that the program asked for
	asked       int64 // bytes that the driver was asked for; 0: it was not asked
	calls       int64 // of the driver that failed
	returned    int64 // bytes that the allocator gave back to the driver in between
	deviceFree  int64 // as the allocator told; -1: it did not
	pool        int64
	stream      int64
	Outcome     Outcome
	outcomeNs   int64 // when the thread had memory again; 0: it had not
	joined      bool  // it is part of another one
}

// Outcome is what became of the program after a failure, the worst first.
type Outcome uint8

const (
	Ended        Outcome = iota // nothing more from the thread, and the process ended
	NothingSince                // nothing more from the thread
	WentOn                      // the thread got less, or worked without
	Recovered                   // the thread got as much later
	Retried                     // cached memory was given back, and the same request succeeded
)

func (o Outcome) String() string {
	return [...]string{"ended", "nothing since", "went on", "recovered", "retried"}[o]
}

// retryNs is how soon the same request must succeed to be a retry, and how old a refusal
// of the driver may be to be the cause of an allocator's. Freeing a device's memory in
// between takes long.
const retryNs = 10_000_000_000

// FailureScan finds failures and what became of them.
type FailureScan struct {
	T       *timeline.Timeline
	list    []Failure
	threads []failingThread // by origin.Table.Thread
	number  int32
}

// failingThread is what is known of a thread's failures so far.
type failingThread struct {
	pending []int32 // refusals by the driver that may be part of a request
	open    []int32 // failures after which it has not got as much
	grown   int32   // 1 + the failure that a new segment has made good, until the block is told
}

func (s *FailureScan) thread(origin int32) *failingThread {
	n := s.T.Origins.Thread[origin]
	s.threads = units.Grow(s.threads, n)
	return &s.threads[n]
}

// Driver takes a change of the driver's memory.
func (s *FailureScan) Driver(c *ledger.Change) {
	switch {
	case c.Kind == ledger.AllocFailed && c.Ptr == calls.ResultOutOfMemory:
		th := s.thread(c.By)
		i := int32(len(s.list))
		s.list = append(s.list, Failure{
			number: s.number, AtNs: c.AtNs, firstNs: c.AtNs, Origin: c.By, Requested: min(c.Block.Bytes, ledger.AddressSpace), asked: min(c.Block.Bytes, ledger.AddressSpace), calls: 1, deviceFree: -1,
			stream: s.T.Origins.List[c.By].Stream, Outcome: NothingSince,
		})
		s.number++
		th.pending, th.open = append(th.pending, i), append(th.open, i)
	case c.Kind == ledger.Allocated && len(s.list) > 0:
		s.got(c.By, c.Block.Bytes, c.AtNs, s.T.OnHost(c.By))
	}
}

// got notes that a thread got memory.
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
		if bytes == f.Requested && atNs-f.AtNs < retryNs && s.T.Origins.List[origin].Name == s.T.Origins.List[f.Origin].Name {
			f.Outcome = Retried
		}
		return true
	})
}

// Allocator takes a change of a caching allocator.
func (s *FailureScan) Allocator(a *caching.Allocator, c *caching.Change) {
	switch c.Op {
	case caching.OutOfMemory:
		if c.Block.Origin != originpkg.None {
			s.givenUp(a, c)
		}
	case caching.SegmentFreed, caching.SegmentUnmapped:
		if len(s.list) > 0 && c.Origin != originpkg.None {
			if th := s.thread(c.Origin); len(th.pending) > 0 {
				s.list[th.pending[len(th.pending)-1]].returned += c.Bytes
			}
		}
	case caching.SegmentAllocated, caching.SegmentMapped:
		if len(s.list) > 0 && c.Origin != originpkg.None {
			s.madeGood(a, c)
		}
	case caching.BlockAllocated:
		if len(s.list) == 0 || c.Block.Origin == originpkg.None {
			return
		}
		th := s.thread(c.Block.Origin)
		if th.grown > 0 {
			f := &s.list[th.grown-1]
			f.Requested, f.pool, f.stream = c.Block.Requested, c.Block.Pool, c.Block.Stream
			th.grown = 0
		}
		th.pending = th.pending[:0]
		s.got(c.Block.Origin, c.Block.Requested, c.AtNs, false)
	}
}

// givenUp joins an allocator's request with the calls that it made in vain.
func (s *FailureScan) givenUp(a *caching.Allocator, c *caching.Change) {
	th := s.thread(c.Block.Origin)
	f := Failure{
		number: s.number, AtNs: c.AtNs, firstNs: c.AtNs, Origin: c.Block.Origin, byAllocator: true, given: true, Requested: c.Block.Requested,
		deviceFree: c.DeviceFree, pool: c.Block.Pool, stream: c.Block.Stream, Outcome: NothingSince,
	}
	s.number++
	s.join(th, &f, func(part *Failure) bool { return s.causes(part, a, c.AtNs, 0) })
	th.open = append(th.open, int32(len(s.list)))
	s.list = append(s.list, f)
}

// madeGood ends a request that was refused at first.
func (s *FailureScan) madeGood(a *caching.Allocator, c *caching.Change) {
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
	th.grown = first + 1
}

// join adds the pending refusals that are part of a failure to it, and forgets them.
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

// causes reports whether a refusal of the driver is one that an allocator's request met
// with: on its device, recently, and of the same bytes, if they are known.
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

// failures returns all failures of the recording in order of time.
func failures(t *timeline.Timeline) ([]Failure, *timeline.Program, error) {
	s := &FailureScan{T: t}
	l, all, err := t.ReplayAll(func(_ *ledger.Ledger, c *ledger.Change) { s.Driver(c) }, s.Allocator)
	if err != nil {
		return nil, nil, err
	}
	list, err := s.Finish()
	return list, &timeline.Program{T: t, Driver: l, Allocators: all}, err
}

// Finish returns what the replay has found, in order of time.
func (s *FailureScan) Finish() ([]Failure, error) {
	list := slices.DeleteFunc(s.list, func(f Failure) bool { return f.joined })
	if err := settleFailures(s.T, list); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b Failure) int { return int(a.number - b.number) })
	return list, nil
}

// settleFailures tells failures after which the thread worked from those after which it
// did not, or its process ended.
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

// lastWork finds when each of the threads gave work to the GPU for the last time.
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
