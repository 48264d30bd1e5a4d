package review

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/trigger"
)

// Stuck is the time after which a call that has not returned, or a process without calls, is a reason for a review. The
// rules need a second. The rest of the time shows that it was no long pause.
const Stuck = 5 * time.Second

// stuckBesideOthers is Stuck for a call while other threads make calls: the rules need 20 s.
const stuckBesideOthers = 20500 * time.Millisecond

// maxEntries bounds each table of Signs.
const maxEntries = 4096

// resultNotReady is CUDA_ERROR_NOT_READY, the answer of a query.
const resultNotReady = 600

// Signs finds reasons for a review in the rows of a recording. Urgent reasons are failed calls, calls that do not return,
// silent processes and Xids. Growing memory is no urgent reason: reports need time to tell a leak from a warm-up. The
// row writer's goroutine calls WatchRows and WatchTime, one other goroutine CheckOpenCalls. Take and AddSnapshot are safe
// for concurrent use.
type Signs struct {
	live *liveset.Set

	processes map[int32]*activity
	last      *activity // of lastPid: rows of a process follow each other
	lastPid   int32
	failures  map[failure]int64
	open      map[trigger.OpenCall]int // calls that were a reason, with the number of times

	memory map[memoryKey]*floor
	lookNs int64 // latest look at memory, Unix ns

	mu     sync.Mutex
	urgent bool
	grown  bool
}

// activity says when a process made its latest call.
type activity struct {
	lastNs   int64 // end of the latest call, Unix ns
	launches int64
	isSilent bool // it was a reason
}

// failure identifies failed calls that are counted together.
type failure struct {
	pid, result int32
	name        string
}

// memoryKey identifies an amount that should not grow: the memory of the allocator of a device, or another amount.
type memoryKey struct{ pid, device int32 }

// Devices of memoryKey for other amounts than that of an allocator: driver memory, and the number of driver objects.
const (
	driverMemory     = -1
	objectsOfProcess = -2
)

// objectChanges are the calls that create and destroy driver objects which programs forget to destroy.
var objectChanges = map[string]int64{
	"cuEventCreate": 1, "cuEventDestroy": -1, "cuEventDestroy_v2": -1,
	"cuStreamCreate": 1, "cuStreamCreateWithPriority": 1, "cuStreamDestroy": -1, "cuStreamDestroy_v2": -1,
	"cuGraphCreate": 1, "cuGraphDestroy": -1,
	"cuGraphInstantiate": 1, "cuGraphInstantiate_v2": 1, "cuGraphInstantiateWithFlags": 1,
	"cuGraphInstantiateWithParams": 1, "cuGraphExecDestroy": -1,
	"cuModuleLoad": 1, "cuModuleLoadData": 1, "cuModuleLoadDataEx": 1, "cuModuleLoadFatBinary": 1, "cuModuleUnload": -1,
}

// floor follows the smallest amount between two looks.
type floor struct {
	low, bytes int64 // since the last look, and now
	highest    int64 // largest floor so far
}

// NewSigns returns Signs that follow the driver memory in live. Signs read it in the row writer's goroutine.
func NewSigns(live *liveset.Set) *Signs {
	return &Signs{
		live: live, processes: make(map[int32]*activity), failures: make(map[failure]int64),
		open: make(map[trigger.OpenCall]int), memory: make(map[memoryKey]*floor),
	}
}

// Take reports whether there was an urgent reason since the last call, and whether memory has grown.
func (s *Signs) Take() (urgent, grown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent, grown = s.urgent, s.grown
	s.urgent, s.grown = false, false
	return urgent, grown
}

// AddSnapshot notes that the stacks of silent processes have been recorded: they may prove a hang. Safe for concurrent use.
func (s *Signs) AddSnapshot() { s.addUrgent() }

func (s *Signs) addUrgent() {
	s.mu.Lock()
	s.urgent = true
	s.mu.Unlock()
}

// WatchRows looks at rows of one class.
func (s *Signs) WatchRows(c format.Class, rows []format.Row) {
	switch c {
	case format.ClassFact:
		for i := range rows {
			s.addFact(&rows[i])
		}
	case format.ClassMemory, format.ClassCall, format.ClassCollective:
		for i := range rows {
			s.addCall(&rows[i])
		}
	case format.ClassAllocator, format.ClassBlock:
		for i := range rows {
			s.addAllocated(&rows[i])
		}
	case format.ClassSample:
		for i := range rows {
			if rows[i].Kind == format.KindXid {
				s.addUrgent()
			}
		}
	}
}

// addFact forgets a process that has ended or called exec.
func (s *Signs) addFact(row *format.Row) {
	if row.Kind != format.KindProcess {
		return
	}
	var fact struct {
		ExitNs int64 `json:"exit_ns"`
	}
	if json.Unmarshal([]byte(row.Message), &fact) == nil && fact.ExitNs != 0 {
		delete(s.processes, row.Pid)
		s.last = nil
		s.forgetMemory(row.Pid)
	}
}

func (s *Signs) forgetMemory(pid int32) {
	for k := range s.memory {
		if k.pid == pid {
			delete(s.memory, k)
		}
	}
}

// addCall notes the time of a call, and whether it failed.
func (s *Signs) addCall(row *format.Row) {
	if s.last == nil || s.lastPid != row.Pid {
		p := s.processes[row.Pid]
		if p == nil {
			if len(s.processes) == maxEntries {
				clear(s.processes)
			}
			p = new(activity)
			s.processes[row.Pid] = p
		}
		s.last, s.lastPid = p, row.Pid
	}
	s.last.lastNs = max(s.last.lastNs, row.StartNs+row.DurNs)
	s.last.isSilent = false
	switch row.Kind {
	case format.KindLaunch:
		s.last.launches++
	case format.KindAPI:
		if change := objectChanges[row.Name]; change != 0 && row.Result == 0 {
			f := s.floorOf(memoryKey{row.Pid, objectsOfProcess})
			f.add(f.bytes + change)
		}
	}
	const unfinished = format.FlagOpen | format.FlagAbandoned | format.FlagNoReturn
	if row.Result != 0 && row.Result != resultNotReady && row.Flags&unfinished == 0 {
		s.addFailure(failure{row.Pid, row.Result, row.Name})
	}
}

// addFailure makes the first, the third and each tenfold failure a reason, because the program may
// continue.
func (s *Signs) addFailure(f failure) {
	if len(s.failures) == maxEntries {
		clear(s.failures)
	}
	s.failures[f]++
	switch n := s.failures[f]; {
	case n == 3, isPowerOfTen(n):
		s.addUrgent()
	}
}

func isPowerOfTen(n int64) bool {
	for n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// addAllocated follows the memory that PyTorch has given to a program.
func (s *Signs) addAllocated(row *format.Row) {
	if row.Name == format.AllocatorOOM {
		s.addFailure(failure{row.Pid, 0, row.Name})
	}
	if row.AllocatedBytes <= 0 || row.Kind == format.KindBlock && row.Name != format.BlockTotals {
		return
	}
	s.floorOf(memoryKey{row.Pid, row.Device}).add(row.AllocatedBytes)
}

func (s *Signs) floorOf(k memoryKey) *floor {
	f := s.memory[k]
	if f == nil {
		if len(s.memory) == maxEntries {
			clear(s.memory)
		}
		f = new(floor)
		s.memory[k] = f
	}
	return f
}

// add sets the amount.
func (f *floor) add(bytes int64) {
	if f.low == 0 { // the first amount
		f.low = bytes
	}
	f.bytes, f.low = bytes, min(f.low, bytes)
}

// lookInterval is the time between two looks at memory.
const lookInterval = 2 * time.Second

// WatchTime finds silent processes and growing memory. It is called many times a second.
func (s *Signs) WatchTime(nowNs int64) {
	for _, p := range s.processes {
		if !p.isSilent && p.launches > 0 && nowNs-p.lastNs >= Stuck.Nanoseconds() {
			p.isSilent = true
			s.addUrgent()
		}
	}
	if nowNs-s.lookNs < lookInterval.Nanoseconds() {
		return
	}
	s.lookNs = nowNs
	s.live.EachProcess(func(pid int32, low int64) {
		f := s.floorOf(memoryKey{pid, driverMemory})
		f.low = low
	})
	grown := false
	for _, f := range s.memory {
		if f.low > f.highest {
			grown = grown || f.highest > 0
			f.highest = f.low
		}
		f.low = f.bytes
	}
	if grown {
		s.mu.Lock()
		s.grown = true
		s.mu.Unlock()
	}
}

// CheckOpenCalls makes a call that has been open for Stuck a reason, and again after stuckBesideOthers.
func (s *Signs) CheckOpenCalls(open []trigger.OpenCall, nowNs int64) {
	still := make(map[trigger.OpenCall]int)
	for _, c := range open {
		times := 0
		for _, limit := range []time.Duration{Stuck, stuckBesideOthers} {
			if nowNs-c.StartNs >= limit.Nanoseconds() {
				times++
			}
		}
		if times == 0 {
			continue
		}
		still[c] = times
		if times > s.open[c] {
			s.addUrgent()
		}
	}
	s.open = still
}
