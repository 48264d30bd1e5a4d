package review

import (
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/trigger"
)

const second = int64(time.Second)

func newTestSigns() (*Signs, *liveset.Set) {
	live := liveset.New(100)
	return NewSigns(live), live
}

// takeUrgent returns whether there was an urgent reason.
func takeUrgent(s *Signs) bool {
	urgent, _ := s.Take()
	return urgent
}

func launch(pid int32, atNs int64, result int32) format.Row {
	return format.Row{Kind: format.KindLaunch, Name: "cuLaunchKernel", Pid: pid, StartNs: atNs, Result: result}
}

func TestFailedCallsAreUrgentAtGrowingCounts(t *testing.T) {
	testclass.Unit(t)
	s, _ := newTestSigns()
	var urgentAt []int
	for i := 1; i <= 1000; i++ {
		s.WatchRows(format.ClassCall, []format.Row{launch(7, second, 700)})
		if takeUrgent(s) {
			urgentAt = append(urgentAt, i)
		}
	}
	want := []int{1, 3, 10, 100, 1000}
	if len(urgentAt) != len(want) {
		t.Fatalf("urgent at failures %v, want %v", urgentAt, want)
	}
	for i := range want {
		if urgentAt[i] != want[i] {
			t.Errorf("urgent at failures %v, want %v", urgentAt, want)
		}
	}
	for _, row := range []format.Row{
		launch(7, second, 0), launch(7, second, resultNotReady),
		{Kind: format.KindLaunch, Name: "cuLaunchKernel", Pid: 7, Result: 719, Flags: format.FlagOpen},
	} {
		if s.WatchRows(format.ClassCall, []format.Row{row}); takeUrgent(s) {
			t.Errorf("%+v is urgent", row)
		}
	}
	s.WatchRows(format.ClassSample, []format.Row{{Kind: format.KindXid}})
	if !takeUrgent(s) {
		t.Error("an Xid is not urgent")
	}
	s.WatchRows(format.ClassAllocator, []format.Row{{Name: format.AllocatorOOM, Pid: 7}})
	if !takeUrgent(s) {
		t.Error("a request that PyTorch's allocator refused is not urgent")
	}
}

func TestSilenceIsUrgentOnce(t *testing.T) {
	testclass.Unit(t)
	s, _ := newTestSigns()
	s.WatchRows(format.ClassCall, []format.Row{launch(7, 10*second, 0)})
	s.WatchRows(
		format.ClassMemory,
		[]format.Row{{Kind: format.KindAlloc, Pid: 8, StartNs: 10 * second}},
	) // launches nothing
	for at := int64(10); at < 30; at++ {
		s.WatchTime(at * second)
		if got, want := takeUrgent(s), at == 15; got != want {
			t.Errorf("after %d s: urgent %v", at-10, got)
		}
	}
	s.WatchRows(format.ClassCall, []format.Row{launch(7, 30*second, 0)})
	s.WatchTime(34 * second)
	if takeUrgent(s) {
		t.Error("silence of 4 s is urgent")
	}
	s.WatchTime(35 * second)
	if !takeUrgent(s) {
		t.Error("the second silence is not urgent")
	}
	s.WatchRows(format.ClassCall, []format.Row{launch(7, 40*second, 0)})
	s.WatchRows(format.ClassFact, []format.Row{{Kind: format.KindProcess, Pid: 7, Message: `{"exit_ns":41}`}})
	if s.WatchTime(60 * second); takeUrgent(s) {
		t.Error("a process that has ended is silent")
	}
}

func TestOpenCallIsUrgentTwice(t *testing.T) {
	testclass.Unit(t)
	s, _ := newTestSigns()
	call := trigger.OpenCall{Pid: 7, Tid: 7, Name: "cuCtxSynchronize", StartNs: 10 * second}
	for at := int64(11); at < 60; at++ {
		s.CheckOpenCalls([]trigger.OpenCall{call}, at*second)
		if got, want := takeUrgent(s), at == 15 || at == 31; got != want {
			t.Errorf("after %d s: urgent %v", at-10, got)
		}
	}
}

func TestNewHeightsOfMemoryAreGrowth(t *testing.T) {
	testclass.Unit(t)
	s, live := newTestSigns()
	allocated := func(bytes int64) {
		s.WatchRows(format.ClassAllocator, []format.Row{{Pid: 7, AllocatedBytes: bytes}})
	}
	look := func(at int64) bool {
		s.WatchTime(at * second)
		_, grown := s.Take()
		return grown
	}
	allocated(100)
	look(10)
	for at := int64(12); at < 20; at += 2 { // a sawtooth with the same lowest amount
		allocated(900)
		allocated(100)
		if look(at) {
			t.Errorf("a sawtooth grows at %d s", at)
		}
	}
	allocated(150)
	look(20)
	if allocated(200); !look(22) {
		t.Error("PyTorch's memory does not grow")
	}
	live.AddMemory([]format.Row{{
		Kind: format.KindAlloc, Pid: 9, Ptr: 1, Bytes: 1000, MemoryKind: format.MemoryDevice,
	}}, 0)
	look(24)
	look(26)
	live.AddMemory([]format.Row{{
		Kind: format.KindAlloc, Pid: 9, Ptr: 2, Bytes: 1000, MemoryKind: format.MemoryDevice,
	}}, 0)
	look(28)
	if !look(30) {
		t.Error("driver memory does not grow")
	}
}

// TestPaceKeepsItsShare reviews a program that gives reasons all the time.
func TestPaceKeepsItsShare(t *testing.T) {
	testclass.Unit(t)
	for name, cost := range map[string]time.Duration{"short": 200 * time.Millisecond, "long": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			begin := time.Unix(1000, 0)
			p := NewPace(begin)
			now, reviews := begin, 0
			for now.Sub(begin) < 10*time.Minute {
				p.Note(true, true)
				due, urgent := p.Next(now)
				if due {
					now = now.Add(cost)
					p.Done(now, urgent, cost, true)
					reviews++
				}
				now = now.Add(200 * time.Millisecond)
			}
			took := time.Duration(reviews) * cost
			if most := time.Duration(Share*float64(now.Sub(begin))) + maxCredit + cost; took > most {
				t.Errorf("%d reviews took %v of %v, more than %v", reviews, took, now.Sub(begin), most)
			}
			if least := time.Duration(Share * float64(now.Sub(begin)) / 2); took < least {
				t.Errorf("%d reviews took %v of %v, less than %v", reviews, took, now.Sub(begin), least)
			}
		})
	}
}

func TestPaceOfReviews(t *testing.T) {
	testclass.Unit(t)
	begin := time.Unix(1000, 0)
	next := func(p *Pace, from time.Time, urgent bool) time.Duration {
		for now := from; ; now = now.Add(100 * time.Millisecond) {
			if due, isUrgent := p.Next(now); due {
				if isUrgent != urgent {
					t.Errorf("urgent: %v", isUrgent)
				}
				p.Done(now, isUrgent, 100*time.Millisecond, false)
				return now.Sub(from)
			}
		}
	}
	p := NewPace(begin)
	if got := next(p, begin, false); got != growingGap {
		t.Errorf("the first review begins after %v", got)
	}
	at := begin.Add(firstMinute)
	p.Done(at, false, 0, false)
	if got := next(p, at, false); got != calmGap {
		t.Errorf("after a minute, the next review begins after %v", got)
	}
	at = at.Add(calmGap)
	p.Note(false, true)
	if got := next(p, at, false); got != growingGap {
		t.Errorf("with growing memory, the next review begins after %v", got)
	}
	at = at.Add(growingGap)
	p.Note(true, false)
	if got := next(p, at, true); got != minGap {
		t.Errorf("the urgent review begins after %v", got)
	}
	p.Done(at, false, 0, true)
	if got := next(p, at, false); got != settlingGap {
		t.Errorf("the second look begins after %v", got)
	}
}

func TestWindowOfReviews(t *testing.T) {
	testclass.Unit(t)
	begin := time.Unix(1000, 0)
	p := NewPace(begin)
	for _, c := range []struct {
		age    time.Duration
		events int64
		urgent bool
		want   time.Duration // at least, with everything
		whole  bool
	}{
		{time.Minute, 1000, false, time.Minute, true},
		{time.Minute, 16e6, false, 30 * time.Second, false},
		{time.Minute, 8e6, true, 15 * time.Second, false},
		{time.Hour, 1000, true, MaxWindow, false},
	} {
		got := p.Window(begin.Add(c.age), c.events, c.urgent)
		if c.whole && got < c.want || !c.whole && got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
