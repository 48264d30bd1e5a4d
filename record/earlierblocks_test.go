//go:build linux

package record

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
)

// testBlock is a block of simtorch's allocator.
type testBlock struct {
	use             string // format.BlockAllocated or BlockAwaitsStream
	bytes           int64  // 0: not compared
	requested, pool int64
	stream          int64
}

// testBlocks are the blocks of an allocator, and the 2 MiB pages of its segments, by address.
type testBlocks struct {
	blocks map[int64]testBlock
	pages  map[int64]bool
}

func newTestBlocks() testBlocks { return testBlocks{map[int64]testBlock{}, map[int64]bool{}} }

const testPageBytes = 2 << 20

func (b testBlocks) setPages(ptr, bytes int64, exist bool) {
	for at := ptr; at < ptr+bytes; at += testPageBytes {
		if exist {
			b.pages[at] = true
		} else {
			delete(b.pages, at)
		}
	}
}

// apply applies an event. blockBytes is the size of an allocated block, 0 if it is not compared.
func (b testBlocks) apply(action string, ptr, bytes, stream, pool, blockBytes int64) {
	switch action {
	case format.AllocatorAlloc:
		b.blocks[ptr] = testBlock{format.BlockAllocated, blockBytes, bytes, pool, stream}
	case format.AllocatorFreeRequested:
		block := b.blocks[ptr]
		block.use = format.BlockAwaitsStream
		b.blocks[ptr] = block
	case format.AllocatorFreeCompleted:
		delete(b.blocks, ptr)
	case format.AllocatorSegmentAlloc, format.AllocatorSegmentMap:
		b.setPages(ptr, bytes, true)
	case format.AllocatorSegmentFree, format.AllocatorSegmentUnmap:
		b.setPages(ptr, bytes, false)
	}
}

// ledgerBlocks replays the ledger of a running program up to a time of CLOCK_MONOTONIC.
func ledgerBlocks(t *testing.T, path string, device int32, untilNs int64, withSizes bool) testBlocks {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := newTestBlocks()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		if f[0] != "event" || len(f) < 15 {
			continue
		}
		n := make([]int64, len(f))
		for i := range f {
			n[i], _ = strconv.ParseInt(f[i], 0, 64) // the action is a word, not a number
		}
		pool := n[11]
		if pool == 0 {
			pool = -n[10]
		}
		if !withSizes {
			n[14] = 0
		}
		if int32(n[9]) == device && n[1] <= untilNs {
			b.apply(f[5], n[6], n[7], n[8], pool, n[14])
		}
	}
	return b
}

// stateBlocks returns the blocks in rows of kind allocator_block of a device.
func stateBlocks(rows []format.Row, device int32, withSizes bool) testBlocks {
	b := newTestBlocks()
	for i := range rows {
		r := &rows[i]
		if r.Device != device {
			continue
		}
		switch r.Name {
		case format.BlockSegment, format.BlockMappedRange:
			b.setPages(r.Ptr, r.Bytes, true)
		case format.BlockAllocated, format.BlockAwaitsStream:
			block := testBlock{r.Name, r.Bytes, int64(r.Value), r.SrcPtr, r.Stream}
			if !withSizes {
				block.bytes = 0
			}
			b.blocks[r.Ptr] = block
		}
	}
	return b
}

func (b testBlocks) difference(want testBlocks) string {
	wrong := 0
	example := ""
	for ptr, block := range want.blocks {
		if b.blocks[ptr] != block {
			wrong++
			example = fmt.Sprintf("%#x: %+v, want %+v", ptr, b.blocks[ptr], block)
		}
	}
	for ptr, block := range b.blocks {
		if _, ok := want.blocks[ptr]; !ok {
			wrong++
			example = fmt.Sprintf("%#x: %+v, want none", ptr, block)
		}
	}
	if !maps.Equal(b.pages, want.pages) {
		return fmt.Sprintf(
			"%d pages of segments, want %d; %d blocks differ: %s",
			len(b.pages),
			len(want.pages),
			wrong,
			example,
		)
	}
	if wrong > 0 {
		return fmt.Sprintf("%d of %d blocks differ: %s", wrong, len(want.blocks), example)
	}
	return ""
}

// allocatorStates returns the notes about states of a recording, by device.
func allocatorStates(t *testing.T, path string) map[int32]format.AllocatorStateFact {
	t.Helper()
	facts := make(map[int32]format.AllocatorStateFact)
	for _, note := range factRows(t, path, format.KindNote) {
		if note.Name != format.NoteAllocatorState {
			continue
		}
		var fact format.AllocatorStateFact
		if err := json.Unmarshal([]byte(note.Message), &fact); err != nil {
			t.Fatal(err)
		}
		facts[note.Device] = fact
	}
	return facts
}

// recordEarlierBlocks attaches to a running program until its blocks were read, and some hundred events longer.
func recordEarlierBlocks(t *testing.T, p *simProgram, ledger string, opt Options) Result {
	t.Helper()
	read := make(chan int, 1)
	opt.onEarlierBlocks = func(pid int) { read <- pid }
	return runWhile(t, start(t, opt), func() {
		select {
		case <-read:
		case <-time.After(time.Minute):
			t.Error("the blocks were neither read nor refused in a minute")
		}
		waitForLines(t, ledger, countLines(ledger)+200+rand.IntN(600))
	})
}

// TestEarlierBlocks attaches to a running program with two devices, three threads, streams, private pools and pauses.
// The blocks that were read, and those brought forward by the recorded events to the last one, must equal the ledger's.
// GPUREC_ATTACHES is the number of attaches for each kind of segments.
func TestEarlierBlocks(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	attaches := 2
	if n, err := strconv.Atoi(os.Getenv("GPUREC_ATTACHES")); err == nil {
		attaches = n
	}
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run("conf="+conf, func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "torch.tsv")
			env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "PYTORCH_CUDA_ALLOC_CONF=" + conf}
			p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--threads", "3", "--streams", "2",
				"--devices", "2", "--rate", "6000", "--seed", fmt.Sprint(rand.IntN(1000)))
			defer p.kill()
			waitForLines(t, ledger, 3000)
			equal, refused, tries := 0, 0, []int{}
			for range attaches {
				result := recordEarlierBlocks(t, p, ledger, testOptions(t, p.pid()))
				states := allocatorStates(t, result.Output)
				if len(states) != 2 {
					t.Fatalf("states %+v", states)
				}
				for device, fact := range states {
					if fact.Refused != "" {
						refused++
						t.Logf("device %d: %s", device, fact.Refused)
						continue
					}
					if compareEarlierBlocks(t, result.Output, ledger, device) {
						equal++
					}
					tries = append(tries, fact.Tries)
				}
			}
			t.Logf("%d attaches, 2 devices: %d equal, %d refused; tries %v", attaches, equal, refused, tries)
			if total := 2 * attaches; equal+refused != total || refused > total/10+1 {
				t.Errorf("%d equal and %d refused of %d", equal, refused, total)
			}
		})
	}
}

// waitForLines waits until a file has a number of lines.
func waitForLines(t *testing.T, path string, lines int) {
	t.Helper()
	for range 600 {
		if countLines(path) >= lines {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s has less than %d lines after a minute", path, lines)
}

func countLines(path string) int {
	data, _ := os.ReadFile(path) // the program may not have made it yet
	return bytes.Count(data, []byte("\n"))
}

// compareEarlierBlocks compares the state of a recording, and the one after its last event, with the ledger.
func compareEarlierBlocks(t *testing.T, path, ledger string, device int32) bool {
	t.Helper()
	offset := metaOf(t, path).ClockOffsetNs
	rows := factRows(t, path, format.KindAllocatorBlock)
	at := slices.IndexFunc(rows, func(r format.Row) bool { return r.Device == device })
	if at < 0 {
		t.Errorf("device %d: no blocks", device)
		return false
	}
	atNs := rows[at].StartNs
	diff := stateBlocks(rows, device, true).difference(ledgerBlocks(t, ledger, device, atNs-offset, true))
	if diff != "" {
		t.Errorf("device %d, when it was read: %s", device, diff)
		return false
	}
	forward, lastNs, applied := stateBlocks(rows, device, false), atNs, 0
	for _, r := range eventsInOrder(t, path, device) {
		if r.StartNs > atNs {
			forward.apply(r.Name, r.Ptr, r.Bytes, r.Stream, r.SrcPtr, 0)
			lastNs = r.StartNs
			applied++
		}
	}
	if diff := forward.difference(ledgerBlocks(t, ledger, device, lastNs-offset, false)); diff != "" || applied == 0 {
		t.Errorf("device %d, after %d events: %s", device, applied, diff)
		return false
	}
	return true
}

// eventsInOrder returns the allocator events of a device in order of time.
func eventsInOrder(t *testing.T, path string, device int32) (list []format.Row) {
	t.Helper()
	for _, rows := range allocatorRows(t, path) {
		for i := range rows {
			if rows[i].Device == device && rows[i].Name != format.AllocatorSnapshot {
				list = append(list, rows[i])
			}
		}
	}
	slices.SortFunc(list, func(a, b format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	return list
}

// TestEarlierBlocksOfUnknownLayout refuses an allocator whose blocks do not add up to its statistics.
func TestEarlierBlocksOfUnknownLayout(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	ledger := filepath.Join(t.TempDir(), "torch.tsv")
	env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "SIMTORCH_BROKEN=totals"}
	p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--rate", "3000")
	defer p.kill()
	waitForLines(t, ledger, 1000)
	result := recordEarlierBlocks(t, p, ledger, testOptions(t, p.pid()))
	fact := allocatorStates(t, result.Output)[0]
	if !strings.Contains(fact.Refused, "does not know the memory layout") || fact.Blocks != 0 {
		t.Errorf("fact %+v", fact)
	}
	if rows := factRows(t, result.Output, format.KindAllocatorBlock); len(rows) != 0 {
		t.Errorf("%d rows of blocks", len(rows))
	}
}

// TestNoEarlierBlocks reads no memory of a process whose allocator is not recorded, nor of a started command.
func TestNoEarlierBlocks(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	never := func(pid int) { t.Errorf("the blocks of process %d were read", pid) }
	opt := testOptions(t)
	opt.Allocator, opt.onEarlierBlocks = library.AllocatorModeOff, never
	result, _ := recordTensors(t, opt, nil, "tensors", "--events", "2000")
	if states := allocatorStates(t, result.Output); len(states) != 0 {
		t.Errorf("allocator off: states %+v", states)
	}
	opt = testOptions(t)
	opt.NoEarlierBlocks, opt.onEarlierBlocks = true, never
	recordTensors(t, opt, nil, "tensors", "--events", "2000")
	opt = testOptions(t)
	opt.Command, opt.onEarlierBlocks = startSimCommand(t, nil, simtorch(t, "tensors"), "--events", "2000"), never
	s := start(t, opt)
	result = runWhile(t, s, func() {
		opt.Command.Run()
		if _, err := opt.Command.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if states := allocatorStates(t, result.Output); len(states) != 0 {
		t.Errorf("command: states %+v", states)
	}
}
