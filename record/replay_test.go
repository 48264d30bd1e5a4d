//go:build linux

package record

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// handle identifies a CUDA object by its process and handle.
type handle struct {
	pid uint32
	h   int64
}

// ledgerMemory is the memory of all processes according to the ledger. It is replayed call by call,
// with plain maps and the ledger's times.
type ledgerMemory struct {
	live map[memoryKey]ledgerCall
	refs map[memoryKey]int // references and mappings of physical memory handles
	maps map[memoryKey]ledgerCall
	// Capturing streams and captured events, with the stream on which the capture began. Work
	// of a capture goes into a graph.
	captured map[handle]int64
	totals   map[string]*state.MemoryTotal // by pid and memory kind, "pid kind"
}

type memoryKey struct {
	pid  int32
	kind string
	ptr  int64
}

// spaceOf returns the address space of a memory kind. Kinds of one address space have the same free
// function: device, managed and async memory.
func spaceOf(kind string) string {
	switch kind {
	case format.MemoryDevice, format.MemoryManaged, format.MemoryAsync:
		return "pointer"
	}
	return kind
}

func (l *ledgerMemory) total(pid int32, kind string) *state.MemoryTotal {
	key := fmt.Sprint(pid, " ", kind)
	if l.totals[key] == nil {
		l.totals[key] = &state.MemoryTotal{Pid: pid, Kind: kind}
	}
	return l.totals[key]
}

// replayLedger replays the calls of all threads in the order in which they took effect: frees at
// their start, all other calls at their end.
func replayLedger(ledger map[int32][]ledgerCall) *ledgerMemory {
	b := &ledgerMemory{
		live: make(map[memoryKey]ledgerCall), refs: make(map[memoryKey]int), maps: make(map[memoryKey]ledgerCall),
		totals: make(map[string]*state.MemoryTotal), captured: make(map[handle]int64),
	}
	table := make(map[string]bpf.ProbedFunction)
	for cookie := range bpf.NumDriverCookies() {
		call, name, _, _ := bpf.FunctionByCookie(uint16(cookie))
		table[name] = *call
	}
	var all []ledgerCall
	for _, thread := range ledger {
		all = append(all, thread...)
	}
	at := func(c ledgerCall) int64 {
		if kind := table[c.name].Kind; kind == format.KindFree || kind == format.KindUnmap ||
			kind == format.KindReturn {
			return c.startNs
		}
		return c.endNs
	}
	slices.SortStableFunc(all, func(x, y ledgerCall) int { return cmp.Compare(at(x), at(y)) })
	for _, c := range all {
		b.apply(c, table[c.name])
	}
	return b
}

// capture follows stream capture and reports whether a call's work went into a graph.
func (l *ledgerMemory) capture(c ledgerCall, call bpf.ProbedFunction) bool {
	pid := uint32(c.pid)
	stream, event := handle{pid, c.stream}, handle{pid, c.ptr}
	if c.result != 0 {
		return false
	}
	switch call.Name {
	case "cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph":
		l.captured[stream] = c.stream
	case "cuEventRecord", "cuEventRecordWithFlags":
		delete(l.captured, event)
		if origin, ok := l.captured[stream]; ok {
			l.captured[event] = origin
		}
	case "cuStreamWaitEvent":
		if origin, ok := l.captured[event]; ok {
			l.captured[stream] = origin
		}
	case "cuStreamEndCapture":
		for h, origin := range l.captured {
			if h.pid == pid && origin == c.stream {
				delete(l.captured, h)
			}
		}
	}
	_, captured := l.captured[stream]
	return captured && call.Memory == format.MemoryAsync
}

func (l *ledgerMemory) apply(c ledgerCall, call bpf.ProbedFunction) {
	if l.capture(c, call) {
		return
	}
	key := memoryKey{c.pid, spaceOf(call.Memory), c.ptr}
	switch {
	case call.Kind == format.KindAlloc && c.result != 0:
		l.total(c.pid, call.Memory).FailedAllocs++
	case c.result != 0 || c.ptr == 0:
	case call.Kind == format.KindAlloc:
		c.kernel = call.Memory // the ledger leaves kernel empty here: reuse it for the memory kind
		l.live[key] = c
		l.refs[key] = 1
		t := l.total(c.pid, call.Memory)
		t.Allocs++
		t.AllocBytes += c.bytes
		t.LiveBlocks++
		t.LiveBytes += c.bytes
		t.PeakBytes = max(t.PeakBytes, t.LiveBytes)
	case call.Kind == format.KindFree:
		l.unref(key)
	case call.Kind == format.KindRetain:
		l.refs[key]++
	case call.Kind == format.KindMap:
		l.refs[memoryKey{c.pid, format.MemoryPhysical, c.src}]++
		l.maps[key] = c
	case call.Kind == format.KindUnmap:
		for m, mapped := range l.maps {
			if m.pid == c.pid && m.ptr >= c.ptr && m.ptr < c.ptr+c.bytes {
				delete(l.maps, m)
				l.unref(memoryKey{c.pid, format.MemoryPhysical, mapped.src})
			}
		}
	}
}

func (l *ledgerMemory) unref(key memoryKey) {
	c, ok := l.live[key]
	if !ok {
		return
	}
	if l.refs[key]--; l.refs[key] > 0 {
		return
	}
	delete(l.live, key)
	t := l.total(c.pid, c.kernel)
	t.Frees++
	t.FreedBytes += c.bytes
	t.LiveBlocks--
	t.LiveBytes -= c.bytes
}

// TestReplayEqualsTheLedger records random programs: 100,000 calls of all kinds, with several
// threads, contexts, children and failures. It compares the analyzer's results with the ledger:
// live memory at each process's exit, and totals by kind. Peaks are compared for programs with one
// thread: the order of overlapping calls of several threads is undefined.
func TestReplayEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for attempt := 1; !replayChildren(t, attempt); attempt++ {
	}
}

// replayChildren returns false if another attempt must follow.
func replayChildren(t *testing.T, attempt int) bool {
	t.Helper()
	needKernel(t)
	dir := copySimcuda(t)
	cmd, begin, path := simShell(t, dir, `
		SIMCUDA_FAIL=cuMemAlloc_v2:2@100,cuMemAlloc_v2:2@1000,cuMemAllocAsync:2@50,cuMemCreate:2@3,cuLaunchKernel:700@77 $SIM/storm --calls 30000 --threads 3 --seed 11 >/dev/null 2>&1 &
		$SIM/storm --calls 30000 --threads 2 --seed 12 >/dev/null &
		$SIM/torchrun --calls 10000 >/dev/null &
		wait`)
	opt := testOptions(t, cmd.Process.Pid)
	opt.WaitForLibrary = true
	s := start(t, opt)
	result := runWhile(t, s, func() {
		begin()
		_ = cmd.Wait() // storm's exit status is not 0 if a call failed
	})
	if isLate(t, result, attempt) {
		return false
	}
	ledger := readLedger(t, path, 0)
	want := replayLedger(ledger)
	rec, err := format.Open(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.ReadMemory(tl, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls, threads := 0, make(map[int32]int)
	for _, thread := range ledger {
		calls += len(thread)
		threads[thread[0].pid]++
	}
	if calls < 99_000 {
		t.Errorf("only %d calls", calls)
	}
	held := make(map[string]bool)
	for _, a := range append(got.Live, got.Left...) {
		held[fmt.Sprint(a.Pid, " ", a.Kind, " ", a.Ptr, " ", a.Bytes)] = true
	}
	if len(held) != len(want.live) {
		t.Errorf("%d blocks are left at the end, %d were", len(held), len(want.live))
	}
	for key, c := range want.live {
		if block := fmt.Sprint(key.pid, " ", c.kernel, " ", key.ptr, " ", c.bytes); !held[block] {
			t.Errorf("block %s is missing", block)
		}
	}
	for _, total := range want.totals {
		have := got.TotalOf(total.Pid, total.Kind)
		// The analyzer frees memory at its process's exit; the ledger has it as live.
		left := int64(0)
		for key, c := range want.live {
			if key.pid == total.Pid && c.kernel == total.Kind {
				left++
			}
		}
		if have.Frees != total.Frees+left-have.LiveBlocks {
			t.Errorf("pid %d %s: %d frees, ledger %d and %d left", total.Pid, total.Kind, have.Frees, total.Frees, left)
		}
		if have.Allocs != total.Allocs || have.AllocBytes != total.AllocBytes ||
			have.FailedAllocs != total.FailedAllocs {
			t.Errorf("pid %d %s: %+v, ledger %+v", total.Pid, total.Kind, have, *total)
		}
		if threads[total.Pid] == 1 && have.PeakBytes != total.PeakBytes {
			t.Errorf("pid %d %s: peak %d, ledger %d", total.Pid, total.Kind, have.PeakBytes, total.PeakBytes)
		}
	}
	if got.UnmatchedFrees != 0 || got.LostFrees != 0 {
		t.Errorf("unmatched frees %d, lost frees %d", got.UnmatchedFrees, got.LostFrees)
	}
	t.Logf(
		"%d calls of %d processes: %d blocks left, %d totals equal",
		calls,
		len(threads),
		len(held),
		len(want.totals),
	)
	return true
}
