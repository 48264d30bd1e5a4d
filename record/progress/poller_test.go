//go:build linux

package progress

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
)

// rowSink keeps the rows of a poller.
type rowSink struct{ progress []format.ProgressRow }

func (s *rowSink) ProgressBatch() []format.ProgressRow { return make([]format.ProgressRow, 0, 4) }

func (s *rowSink) SendProgress(batch []format.ProgressRow) { s.progress = append(s.progress, batch...) }
func (s *rowSink) CountLostProgress(int64)                 {}
func (s *rowSink) Send([]format.Row)                       {}

// fakeGPU writes slots in memory of the test, which a poller reads as memory of another process.
type fakeGPU struct {
	t      *testing.T
	memory []byte
	poller *poller
	sink   *rowSink
	lives  *lives
	nowNs  int64
}

func newFakeGPU(t *testing.T) *fakeGPU {
	t.Helper()
	const pages = 2
	mapped, err := unix.Mmap(-1, 0, pages*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	g := &fakeGPU{t: t, memory: mapped, sink: new(rowSink), lives: new(lives)}
	pid := os.Getpid()
	g.poller = &poller{
		pid: pid, rate: RateFull, clock: clock.New(), sink: g.sink, lives: g.lives,
		memory: memory{pid: pid},
	}
	g.nowNs = g.poller.clock.NowNs()
	return g
}

func (g *fakeGPU) address(slot int) uint64 {
	return uint64(uintptr(unsafe.Pointer(&g.memory[slot*slotBytes])))
}

// write writes the words of a slot. The time is in µs after the start of the test; negative: 0.
func (g *fakeGPU) write(slot int, counter, us int64) pair {
	p := pair{counter, g.nowNs + us*1000}
	if us < 0 {
		p.gpuNs = 0
	}
	binary.LittleEndian.PutUint64(g.memory[slot*slotBytes:], uint64(p.counter))
	binary.LittleEndian.PutUint64(g.memory[slot*slotBytes+8:], uint64(p.gpuNs))
	return p
}

// set writes a slot and polls it.
func (g *fakeGPU) set(slot int, counter, us int64) {
	g.t.Helper()
	g.write(slot, counter, us)
	g.poll()
}

func (g *fakeGPU) poll() {
	g.t.Helper()
	if err := g.poller.poll(g.poller.clock.NowNs()); err != nil {
		g.t.Fatal(err)
	}
}

// find passes a slot to the poller as the finder does.
func (g *fakeGPU) find(slot int, words pair, t trust) {
	g.poller.addSlot(found{g.address(slot), words, t})
	g.poll()
}

// expect compares the rows, and the numbers of channels that have begun and ended.
func (g *fakeGPU) expect(rows []format.ProgressRow, channels, ended int) {
	g.t.Helper()
	g.poll()
	g.poller.flush()
	if len(g.sink.progress) != len(rows) {
		g.t.Fatalf("%d rows %+v, want %+v", len(g.sink.progress), g.sink.progress, rows)
	}
	for i, row := range g.sink.progress {
		want := rows[i]
		if row.Channel != want.Channel || row.Counter != want.Counter || row.GPUTimeNs != g.nowNs+want.GPUTimeNs*1000 ||
			row.Pid != int32(g.poller.pid) || row.SeenNs < g.nowNs {
			g.t.Errorf("row %d is %+v, want %+v", i, row, want)
		}
	}
	begun, over := 0, 0
	for _, row := range g.lives.take() {
		if row.DurNs == 0 {
			begun++
		} else {
			over++
		}
	}
	if begun != channels || over != ended {
		g.t.Errorf("%d channels began and %d ended, want %d and %d", begun, over, channels, ended)
	}
}

func progressRow(channel int32, counter, us int64) format.ProgressRow {
	return format.ProgressRow{Channel: channel, Counter: counter, GPUTimeNs: us}
}

// TestRowsWaitForTrust checks that rows before the evidence are kept, and that each change is one
// row.
func TestRowsWaitForTrust(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	g.find(3, g.write(3, 7, 10), trustPending)
	g.set(3, 8, 20)
	g.set(3, 11, 30)
	g.poll()
	g.expect(nil, 0, 0)
	g.find(3, pair{}, trustChannel)
	g.set(3, 12, 40)
	g.expect([]format.ProgressRow{
		progressRow(1, 7, 10), progressRow(1, 8, 20), progressRow(1, 11, 30),
		progressRow(1, 12, 40),
	}, 1, 0)
}

// TestLastRead checks that the last read has a row for each channel, whether or not its words have
// changed.
func TestLastRead(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	g.find(0, g.write(0, 1, 10), trustChannel)
	g.find(1, g.write(1, 5, 10), trustChannel)
	g.set(0, 2, 20)
	g.set(1, 6, 20)
	g.poll()
	beforeNs := g.poller.clock.NowNs()
	g.write(1, 7, 30)
	found := make(chan found)
	close(found)
	g.poller.found = found
	g.poller.finish()
	rows := g.sink.progress
	if n := len(rows); n != 6 || rows[4].SeenNs < beforeNs || rows[5].SeenNs < beforeNs {
		t.Fatalf("rows %+v", rows)
	}
	for i, want := range []format.ProgressRow{progressRow(1, 2, 20), progressRow(2, 7, 30)} {
		if r := rows[4+i]; r.Channel != want.Channel || r.Counter != want.Counter ||
			r.GPUTimeNs != g.nowNs+want.GPUTimeNs*1000 {
			t.Errorf("row %+v, want %+v", r, want)
		}
	}
}

// TestTornPairs writes one word at a time. Each order must give whole pairs only.
func TestTornPairs(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	g.find(0, g.write(0, 1, 10), trustChannel)
	g.set(0, 2, 20)
	g.poll()
	g.set(0, 3, 20) // the counter first
	g.set(0, 3, 30)
	g.set(0, 3, 40) // the time first
	g.set(0, 4, 40)
	g.expect([]format.ProgressRow{progressRow(1, 1, 10), progressRow(1, 2, 20), progressRow(1, 4, 40)}, 1, 0)
	if g.poller.torn.Load() == 0 {
		t.Error("no torn pair was counted")
	}
}

// TestEventsAreNoChannels writes the slot of a timed event: its counter stays the same.
func TestEventsAreNoChannels(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	g.find(5, g.write(5, 5, 10), trustChannel)
	for us := int64(20); us < 100; us += 10 {
		g.set(5, 5, us)
	}
	g.expect(nil, 0, 0)
}

// TestSlotReuse ends a channel, whose slot then serves another one.
func TestSlotReuse(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	g.find(1, g.write(1, 50, 10), trustChannel)
	g.set(1, 51, 20)
	g.set(1, 0, -1) // the driver clears the slot
	g.set(1, 2, 30)
	g.set(1, 3, 40)
	g.set(1, 1, 50) // a third channel, without a pause
	g.set(1, 2, 60)
	g.expect([]format.ProgressRow{
		progressRow(1, 50, 10), progressRow(1, 51, 20), progressRow(2, 2, 30), progressRow(2, 3, 40),
		progressRow(3, 1, 50), progressRow(3, 2, 60),
	}, 3, 2)
}

// TestUnmappedSlots unmaps one of two pages.
func TestUnmappedSlots(t *testing.T) {
	testclass.Unit(t)
	g := newFakeGPU(t)
	const onSecondPage = pageBytes / slotBytes
	for _, slot := range []int{0, onSecondPage} {
		g.find(slot, g.write(slot, 1, 10), trustChannel)
		g.set(slot, 2, 20)
	}
	if err := unix.Mprotect(g.memory[pageBytes:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	g.poll()
	g.set(0, 3, 30)
	g.expect([]format.ProgressRow{
		progressRow(1, 1, 10), progressRow(1, 2, 20), progressRow(2, 1, 10), progressRow(2, 2, 20),
		progressRow(1, 3, 30),
	}, 2, 1)
	if !g.poller.gone.Load() || len(g.poller.slots) != 1 {
		t.Errorf("%d slots are polled", len(g.poller.slots))
	}
}

func TestParseRate(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]Rate{
		"off": RateOff, "auto": RateAuto, "full": RateFull, "1Hz": 1, "500Hz": 500, "20kHz": 20_000, "0.5kHz": 500, "200kHz": 200_000,
	} {
		if got, err := ParseRate(text); got != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "on", "5", "kHz", "0Hz", "0.5Hz", "-1Hz", "201kHz", "NaNHz", "infkHz", "1e300kHz"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
	for _, rate := range []Rate{RateOff, RateAuto, RateFull, 1, 999, 20_000} {
		if got, err := ParseRate(rate.String()); got != rate || err != nil {
			t.Errorf("%q is %d, %v", rate, got, err)
		}
	}
}
