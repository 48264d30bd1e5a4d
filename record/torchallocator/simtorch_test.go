//go:build linux

package torchallocator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// simtorchDir is the output folder of make simtorch.
const simtorchDir = "../../build/simtorch"

// simtorchProgram is a program of simtorch that has done its work, and waits.
type simtorchProgram struct {
	pid    int
	ledger string
	done   string // the line with done
	end    func()
}

// startSimtorch starts a command with more environment variables, and waits until it prints done.
func startSimtorch(t *testing.T, env []string, name string, args ...string) *simtorchProgram {
	t.Helper()
	dir, err := filepath.Abs(simtorchDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tensors")); err != nil {
		testclass.Missing(t, "simtorch is not built: make simtorch")
	}
	folder := t.TempDir()
	p := &simtorchProgram{ledger: filepath.Join(folder, "ledger")}
	if name == "tensors" {
		name = filepath.Join(dir, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SIMTORCH_LEDGER="+p.ledger, "SIMTORCH_LIB="+dir,
		"SIMCUDA_STATE="+filepath.Join(folder, "state"))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = new(strings.Builder)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	p.end = func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_, _ = io.WriteString(stdin, "\n") // fails if the program has ended
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if p.done = lines.Text(); strings.HasPrefix(p.done, "done") {
			return p
		}
	}
	p.end()
	t.Fatalf("%s %q with %q ended: %s", name, args, env, cmd.Stderr)
	return nil
}

// openSimtorch finds the allocators of a program.
func openSimtorch(t testing.TB, cache *library.Cache, pid int) (*Reader, error) {
	t.Helper()
	return Open(ProcessMemory(pid), variableOf(t, cache, pid))
}

// variableOf returns the address of the pointer to the allocator in a program.
func variableOf(t testing.TB, cache *library.Cache, pid int) uint64 {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	libs, err := cache.Mapped(p)
	if err != nil {
		t.Fatal(err)
	}
	mappings, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	lib := library.FirstOfKind(libs, library.KindAllocator)
	if lib == nil {
		t.Fatal("libc10_cuda.so is not mapped")
	}
	variable, ok := lib.AllocatorVariable(mappings)
	if !ok {
		t.Fatal("the variable of the allocator was not found")
	}
	return variable
}

// readSimtorch reads a device of a program.
func readSimtorch(t *testing.T, r *Reader, device int) (*State, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return r.Read(ctx, device)
}

// memoryTruth has the blocks and segments of a device by the ledger.
type memoryTruth struct {
	blocks   map[uint64]blockTruth // by address; without cached ones
	segments map[uint64]uint64     // sizes by address; without expandable ones
	pages    map[uint64]pageTruth  // of 2 MiB of all segments, by address
}

type blockTruth struct {
	Block
	stream uint64
	pool   PoolID
}

type pageTruth struct {
	stream                uint64
	pool                  PoolID
	isSmall, isExpandable bool
}

func newMemoryTruth() *memoryTruth {
	return &memoryTruth{map[uint64]blockTruth{}, map[uint64]uint64{}, map[uint64]pageTruth{}}
}

func (m *memoryTruth) setPages(at, bytes uint64, page pageTruth) {
	for end := at + bytes; at < end; at += 2 << 20 {
		m.pages[at] = page
	}
}

func (m *memoryTruth) deletePages(at, bytes uint64) {
	for end := at + bytes; at < end; at += 2 << 20 {
		delete(m.pages, at)
	}
}

// readLedger replays the events of a ledger, by device.
func readLedger(t *testing.T, path string, devices int) []*memoryTruth {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	truths := make([]*memoryTruth, devices)
	for i := range truths {
		truths[i] = newMemoryTruth()
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "event\t") {
			continue
		}
		e, err := parseEvent(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		e.apply(truths)
	}
	return truths
}

// ledgerEvent is an event of a ledger.
type ledgerEvent struct {
	startNs int64
	action  string
	numbers [15]uint64 // by column, from the address on
}

// parseEvent parses the line of an event.
func parseEvent(line string) (e ledgerEvent, err error) {
	f := strings.Split(line, "\t")
	e.action = f[5]
	if e.startNs, err = strconv.ParseInt(f[1], 10, 64); err != nil {
		return e, err
	}
	for i := 6; i < len(e.numbers); i++ {
		if e.numbers[i], err = strconv.ParseUint(f[i], 0, 64); err != nil {
			return e, err
		}
	}
	return e, nil
}

// apply applies the event to the device that it belongs to.
func (e *ledgerEvent) apply(truths []*memoryTruth) {
	if n := &e.numbers; e.action != "snapshot" && e.action != "oom" {
		b := Block{Address: n[6], Bytes: n[14], Requested: n[7]}
		truths[n[9]].apply(e.action, b, n[8], PoolID{n[10], n[11]})
	}
}

// apply applies an event. The requested size of a segment is its size.
func (m *memoryTruth) apply(action string, b Block, stream uint64, pool PoolID) {
	// Segments for small blocks grow by 2 MiB, others by 10 MiB at least.
	page := pageTruth{stream, pool, b.Requested < 10<<20, action == "segment_map"}
	switch action {
	case "alloc":
		b.Use = Allocated
		m.blocks[b.Address] = blockTruth{b, stream, pool}
	case "free_requested":
		block := m.blocks[b.Address]
		block.Use = AwaitsStream
		m.blocks[b.Address] = block
	case "free_completed":
		delete(m.blocks, b.Address)
	case "segment_alloc":
		m.segments[b.Address] = b.Requested
		m.setPages(b.Address, b.Requested, page)
	case "segment_map":
		m.setPages(b.Address, b.Requested, page)
	case "segment_free", "segment_unmap":
		delete(m.segments, b.Address)
		m.deletePages(b.Address, b.Requested)
	}
}

// compare returns a difference to a state, or "".
func (m *memoryTruth) compare(s *State) string {
	if err := checkState(s); err != nil {
		return err.Error()
	}
	got := newMemoryTruth()
	for i := range s.Segments {
		g := &s.Segments[i]
		if !g.IsExpandable {
			got.segments[g.Address] = g.Bytes
		}
		got.setPages(g.Address, g.Bytes, pageTruth{g.Stream, g.Pool, g.IsSmall, g.IsExpandable})
		for _, b := range g.Blocks {
			if b.Use != Cached {
				got.blocks[b.Address] = blockTruth{b, g.Stream, g.Pool}
			}
		}
	}
	if text := firstDifference("block", got.blocks, m.blocks); text != "" {
		return text
	}
	if text := firstDifference("segment", got.segments, m.segments); text != "" {
		return text
	}
	return firstDifference("page", got.pages, m.pages)
}

// firstDifference returns the difference of two maps with the lowest address, or "".
func firstDifference[V comparable](what string, got, want map[uint64]V) (text string) {
	lowest := ^uint64(0)
	for _, addresses := range []map[uint64]V{got, want} {
		for at := range maps.Keys(addresses) {
			g, isRead := got[at]
			w, exists := want[at]
			if at <= lowest && (g != w || isRead != exists) {
				lowest = at
				text = fmt.Sprintf("%s at %#x: read %t %+v, true %t %+v", what, at, isRead, g, exists, w)
			}
		}
	}
	return text
}

// layoutCounts counts the readings of devices, and the blocks of equal ones by their use.
type layoutCounts struct {
	equal, refused, wrong int
	blocks                [AwaitsStream + 1]int
}

// readLayout runs a random program with a seed for it and for its layout, and compares what is read with the ledger.
func (c *layoutCounts) readLayout(t *testing.T, cache *library.Cache, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	devices := 1 + random.IntN(2)
	conf := []string{"", "expandable_segments:True"}[random.IntN(2)]
	line := fmt.Sprintf(
		"--events %d --devices %d --threads %d --streams %d --seed %d --wait",
		200+random.IntN(3801),
		devices,
		1+random.IntN(3),
		random.IntN(4),
		seed,
	)
	env := []string{fmt.Sprintf("SIMTORCH_LAYOUT=%d", seed), "PYTORCH_CUDA_ALLOC_CONF=" + conf}
	p := startSimtorch(t, env, "tensors", strings.Fields(line)...)
	defer p.end()
	r, err := openSimtorch(t, cache, p.pid)
	if err != nil {
		c.refused += devices
		t.Logf("refused: conf %q, %s: %v", conf, line, err)
		return
	}
	if seed%4 == 0 {
		r.Remember("simtorch") // the layout of another seed, which must not fit
	}
	if r.Devices() != devices {
		c.wrong += devices
		t.Errorf("%d devices, want %d", r.Devices(), devices)
		return
	}
	for device, truth := range readLedger(t, p.ledger, devices) {
		state, err := readSimtorch(t, r, device)
		if err != nil {
			c.refused++
			t.Logf("refused: device %d, conf %q, %s: %v", device, conf, line, err)
		} else if text := truth.compare(state); text != "" || state.LimitBytes != 0 {
			c.wrong++
			t.Errorf("device %d, conf %q, %s, limit %d: %s", device, conf, line, state.LimitBytes, text)
		} else {
			c.equal++
			c.addBlocks(state)
		}
	}
}

func (c *layoutCounts) addBlocks(s *State) {
	for i := range s.Segments {
		for _, b := range s.Segments[i].Blocks {
			c.blocks[b.Use]++
		}
	}
}

// readLayouts reads n random layouts, from a seed on.
func readLayouts(t *testing.T, first uint64, n int) {
	t.Helper()
	cache := library.NewCache()
	defer cache.Close()
	var c layoutCounts
	for i := range n {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { c.readLayout(t, cache, seed) })
	}
	total := c.equal + c.refused + c.wrong
	t.Logf("%d layouts, %d devices: %d equal, %d refused, %d wrong", n, total, c.equal, c.refused, c.wrong)
	t.Logf(
		"blocks: %d cached, %d allocated, %d await a stream",
		c.blocks[Cached],
		c.blocks[Allocated],
		c.blocks[AwaitsStream],
	)
	if total >= 20 && slices.Contains(c.blocks[:], 0) {
		t.Error("blocks of one use did not arise")
	}
	if c.refused > total/20 {
		t.Errorf("%d of %d devices were refused", c.refused, total)
	}
}

// TestFewSimtorchLayouts compares what is read from programs with few random layouts with the truth.
func TestFewSimtorchLayouts(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	readLayouts(t, 1, 5)
}

// TestSimtorchLayouts compares what is read from programs with random layouts with the truth. GPUREC_LAYOUTS is the
// number of layouts.
func TestSimtorchLayouts(t *testing.T) {
	testclass.Root(t)
	n := 20
	if number, err := strconv.Atoi(os.Getenv("GPUREC_LAYOUTS")); err == nil {
		n = number
	}
	readLayouts(t, 1000, n)
}

// refusals are the broken rules of simtorch, and parts of the reasons for which such an allocator is refused.
var refusals = map[string]string{
	"totals":    errNoStatistics.Error(),
	"kinds":     errNoStatistics.Error(),
	"load":      errNoStatistics.Error(), // they have no table of active blocks
	"hash":      errNoStatistics.Error(),
	"sets":      ErrUnused.Error(),                 // no object has pools
	"stale":     "does not know the memory layout", // the last candidate fails in one of several ways
	"chain":     "does not know the memory layout",
	"class":     "of the class N3c104cuda20CUDACachingAllocator6Native21OtherCachingAllocatorE",
	"async":     "the backend cudaMallocAsync",
	"pluggable": "a pluggable allocator",
}

// readBroken reads the only device of a program with a layout and, if broken is not empty, a broken rule. The program is
// the same each time. The difference is that to the ledger.
func readBroken(t *testing.T, cache *library.Cache, layout, broken, conf string) (difference string, err error) {
	t.Helper()
	env := []string{
		"SIMTORCH_LAYOUT=" + layout, "SIMTORCH_BROKEN=" + broken, "PYTORCH_CUDA_ALLOC_CONF=" + conf, "SIMCUDA_TIME=off",
	}
	p := startSimtorch(t, env, "tensors", "--events", "2000", "--wait")
	defer p.end()
	r, err := openSimtorch(t, cache, p.pid)
	if err != nil {
		return "", err
	}
	state, err := readSimtorch(t, r, 0)
	if err != nil {
		return "", err
	}
	return readLedger(t, p.ledger, 1)[0].compare(state), nil
}

// TestBrokenSimtorchIsRefused reads allocators that break a rule, with PyTorch's layout and with random ones. Without the
// broken rule, they can be read.
func TestBrokenSimtorchIsRefused(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	cache := library.NewCache()
	defer cache.Close()
	for _, layout := range []string{"", "1", "2", "3"} {
		for _, conf := range []string{"", "expandable_segments:True"} {
			if difference, err := readBroken(t, cache, layout, "", conf); difference != "" || err != nil {
				t.Errorf("layout %q, conf %q: %s, %v", layout, conf, difference, err)
			}
			for broken, reason := range refusals {
				difference, err := readBroken(t, cache, layout, broken, conf)
				if err == nil || !strings.Contains(err.Error(), reason) {
					t.Errorf("%s, layout %q, conf %q: %v, difference %q; want a refusal with %q", broken, layout, conf,
						err, difference, reason)
				}
			}
		}
	}
}

// TestOtherAllocatorsAreNamed checks that the error for an allocator of another class has the class.
func TestOtherAllocatorsAreNamed(t *testing.T) {
	testclass.Root(t)
	cache := library.NewCache()
	defer cache.Close()
	for broken, class := range map[string]string{
		"class":     "N3c104cuda20CUDACachingAllocator6Native21OtherCachingAllocatorE",
		"async":     "N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE",
		"pluggable": "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE",
	} {
		_, err := readBroken(t, cache, "", broken, "")
		if other := new(OtherAllocatorError); !errors.As(err, &other) || other.Class != class {
			t.Errorf("%s: %#v, want class %s", broken, err, class)
		}
	}
}

// limitProgram allocates tensors under a limit of a quarter of the memory, and prints the limit.
const limitProgram = `
import sys
import simtorch as torch
torch.init()
torch.set_per_process_memory_fraction(0.25)
tensors = [torch.empty(n << 14, None) for n in range(1, 100)]
del tensors[::3]
torch.checkpoint()
print("done", torch.memory() // 4, flush=True)
sys.stdin.read()
`

// TestLimitOfSimtorch reads the memory limit. In PyTorch's layout it must be known. In others it may be unknown.
func TestLimitOfSimtorch(t *testing.T) {
	testclass.Root(t)
	scripts, err := filepath.Abs("../../examples/simtorch")
	if err != nil {
		t.Fatal(err)
	}
	cache := library.NewCache()
	defer cache.Close()
	known := 0
	for _, layout := range []string{"", "1", "2", "3", "4", "5"} {
		env := []string{"SIMTORCH_LAYOUT=" + layout, "PYTHONPATH=" + scripts}
		p := startSimtorch(t, env, "python3", "-B", "-c", limitProgram)
		defer p.end()
		r, err := openSimtorch(t, cache, p.pid)
		if err != nil {
			t.Fatalf("layout %q: %v", layout, err)
		}
		state, err := readSimtorch(t, r, 0)
		if err != nil {
			t.Fatalf("layout %q: %v", layout, err)
		}
		if text := readLedger(t, p.ledger, 1)[0].compare(state); text != "" {
			t.Errorf("layout %q: %s", layout, text)
		}
		limit, err := strconv.ParseUint(strings.Fields(p.done)[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if state.LimitBytes == limit {
			known++
		} else if layout == "" || state.LimitBytes != 0 {
			t.Errorf("layout %q: a limit of %d bytes, want %d", layout, state.LimitBytes, limit)
		}
	}
	t.Logf("the limit is known in %d layouts", known)
}
