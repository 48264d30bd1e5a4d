//go:build linux

package simtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

const slotBytes = 16

// pair is the content of a possible slot.
type pair struct{ counter, gpuNs int64 }

// scanPairs returns the pairs of all device mappings whose second word is a time of the last
// minutes.
func scanPairs(t *testing.T, pid int) map[uint64]pair {
	t.Helper()
	const minutes = 10 * int64(time.Minute)
	now := time.Now().UnixNano()
	found := make(map[uint64]pair)
	for _, m := range mappingsOf(t, pid) {
		words := make([]byte, m.end-m.start)
		if err := readMemory(pid, m.start, words); errors.Is(err, unix.EFAULT) {
			continue // registers
		} else if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(words); at += slotBytes {
			p := pairOf(words[at:])
			if p.gpuNs > now-minutes && p.gpuNs < now+minutes {
				found[m.start+uint64(at)] = p
			}
		}
	}
	return found
}

func pairOf(words []byte) pair {
	return pair{int64(binary.LittleEndian.Uint64(words)), int64(binary.LittleEndian.Uint64(words[8:]))}
}

// sample is a pair that was read while the program ran.
type sample struct {
	slot   uint64
	pair   pair
	readNs int64 // after the read, CLOCK_REALTIME
}

// pollSlots reads slots until over is closed, and returns each change.
func pollSlots(t *testing.T, pid int, slots []uint64, over <-chan struct{}) []sample {
	t.Helper()
	words := make([]byte, len(slots)*slotBytes)
	local := []unix.Iovec{{Base: &words[0]}}
	local[0].SetLen(len(words))
	remote := make([]unix.RemoteIovec, len(slots))
	for i, at := range slots {
		remote[i] = unix.RemoteIovec{Base: uintptr(at), Len: slotBytes}
	}
	var samples []sample
	last := make([]pair, len(slots))
	for {
		select {
		case <-over:
			return samples
		default:
		}
		if n, err := unix.ProcessVMReadv(pid, local, remote, 0); err != nil || n != len(words) {
			t.Errorf("%d of %d bytes: %v", n, len(words), err)
			return samples
		}
		now := time.Now().UnixNano()
		for i, at := range slots {
			if p := pairOf(words[i*slotBytes:]); p != last[i] {
				last[i] = p
				samples = append(samples, sample{at, p, now})
			}
		}
	}
}

// pinThreads lets all threads of a process run on one CPU only. The GPU thread must not take the
// CPU of the thread that reads its words: a real GPU needs no CPU.
func pinThreads(t *testing.T, pid, cpu int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		pinThread(t, tid, cpu)
	}
}

// pinThread pins a thread to a CPU. Thread 0 is the calling thread.
func pinThread(t *testing.T, tid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		t.Errorf("pin thread %d: %v", tid, err)
	}
}

// slotRun is a run of operations whose pairs were polled.
type slotRun struct {
	ledger      *OperationLedger
	samples     []sample
	last        map[uint64]pair // at the end
	movingPairs int             // pairs that moved between the beginning and the end
}

// pollOperations runs operations, polls the slots of its channels, and scans its mappings before and after.
// The warm-up makes the channels before the program is ready.
func pollOperations(t *testing.T, channels string, args ...string) slotRun {
	t.Helper()
	r := startOperations(t, channels, append(args, "--warm-up")...)
	before := scanPairs(t, r.pid())
	var slots []uint64
	for _, e := range ReadOperationLedger(t, r.operations).Channels {
		if e.Event == "begin" {
			slots = append(slots, e.Slot)
		}
	}
	over, polled := make(chan struct{}), make(chan []sample)
	pinThreads(t, r.pid(), runtime.NumCPU()-1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		pinThread(t, 0, 0)
		polled <- pollSlots(t, r.pid(), slots, over)
	}()
	r.step()
	r.expect("done")
	close(over)
	run := slotRun{samples: <-polled, last: scanPairs(t, r.pid())}
	for at, p := range run.last {
		if before[at] != p {
			run.movingPairs++
		}
	}
	run.ledger = r.finish()
	return run
}

// TestSlotsEqualTheLedger compares the words that another process reads with the ledger, while
// operations complete.
func TestSlotsEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	run := pollOperations(t, "kernel_us=20-200,tear_ns=50000,reuse=keep", "--works", "20000", "--streams", "4")
	type completion struct {
		slot    uint64
		counter int64
	}
	type timeWord struct {
		slot  uint64
		gpuNs int64
	}
	operations, final, times := make(map[completion]Operation), make(map[uint64]pair), make(map[timeWord]bool)
	for _, w := range run.ledger.Operations {
		times[timeWord{w.Slot, w.GPUNs}] = true
		operations[completion{w.Slot, w.Counter}] = w
		final[w.Slot] = pair{w.Counter, w.GPUNs}
	}
	equal, torn := 0, 0
	late := int64(1 << 62)
	for _, s := range run.samples {
		w, ok := operations[completion{s.slot, s.pair.counter}]
		switch {
		case s.pair == pair{}: // not used yet
		case !ok:
			t.Fatalf("%+v: the ledger has no such work", s)
		case s.readNs < w.WordNs:
			t.Fatalf("%+v was visible %d ns before its begin", w, w.WordNs-s.readNs)
		case s.pair.gpuNs == w.GPUNs:
			equal++
			late = min(late, s.readNs-w.WordNs)
		case !times[timeWord{s.slot, s.pair.gpuNs}]: // the reader may lose its processor between the words
			t.Fatalf("%+v: the time of no work on the slot", s)
		default:
			torn++
		}
	}
	for slot, p := range final {
		if run.last[slot] != p {
			t.Errorf("slot %#x has %+v at the end, not %+v", slot, run.last[slot], p)
		}
	}
	mustTear := runtime.NumCPU() > 1 // on one processor, the reader rarely runs between the two writes
	if n := len(run.ledger.Operations); equal < n/20 || torn == 0 && mustTear {
		t.Errorf("%d of %d operations seen, %d torn pairs", equal, n, torn)
	}
	t.Logf("%d of %d operations seen, the earliest %d ns after its start; %d torn pairs; %d pairs moved, %d channels",
		equal, len(run.ledger.Operations), late, torn, run.movingPairs, len(final))
}

// TestDecoysOnly checks that pairs move that are not the slots of channels.
func TestDecoysOnly(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	run := pollOperations(t, "kernel_us=2-20,slots=off", "--works", "20000")
	slots := make(map[uint64]bool)
	for _, w := range run.ledger.Operations {
		slots[w.Slot] = true
	}
	for at := range run.last {
		if slots[at] {
			t.Errorf("the pair at %#x is a slot", at)
		}
	}
	if len(run.ledger.Operations) < 20000 || run.movingPairs < 10 {
		t.Errorf("%d operations, %d moving pairs", len(run.ledger.Operations), run.movingPairs)
	}
}

// TestSlotsArePlacedAtRandom checks that no two runs have the same slots.
func TestSlotsArePlacedAtRandom(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	places := make(map[uint64]bool)
	const runs = 3
	for range runs {
		r := startOperations(t, "on", "--works", "10")
		r.step()
		r.expect("done")
		for _, e := range r.finish().Channels {
			if e.Event == "begin" {
				places[e.Slot] = true
				break
			}
		}
	}
	if len(places) != runs {
		t.Errorf("the first channels of %d runs have slots at %v", runs, places)
	}
}
