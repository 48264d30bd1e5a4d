//go:build linux

package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/torchallocator"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	cached    = torchallocator.Cached
	allocated = torchallocator.Allocated
	awaiting  = torchallocator.AwaitsStream
)

var readAt = time.Date(2026, 11, 29, 9, 30, 5, 0, time.UTC).UnixNano()

// part is a block of a segment in a test.
type part struct {
	bytes, requested uint64
	use              torchallocator.Use
}

// segment returns a segment whose blocks follow each other.
func segment(address uint64, isSmall bool, parts ...part) torchallocator.Segment {
	s := torchallocator.Segment{Address: address, IsSmall: isSmall}
	for _, p := range parts {
		s.Blocks = append(s.Blocks, torchallocator.Block{
			Address: address + s.Bytes, Bytes: p.bytes, Requested: p.requested, Use: p.use,
		})
		s.Bytes += p.bytes
	}
	return s
}

// newState returns a reading whose totals agree.
func newState(device int, segments ...torchallocator.Segment) *torchallocator.State {
	s := &torchallocator.State{
		Device: device, AtNs: 1e9, EndNs: 1e9 + 412_300, Segments: segments, Version: "2.11", Tries: 2, Calls: 12,
		ReadBytes: 312 * kib,
	}
	for _, segment := range segments {
		s.ReservedBytes += segment.Bytes
		for _, b := range segment.Blocks {
			if b.Use == allocated {
				s.AllocatedBytes += b.Bytes
			}
		}
	}
	for i := range 27 {
		s.Totals = append(s.Totals, torchallocator.Total{
			Name: fmt.Sprintf("total_%d", i), Blocks: s.AllocatedBytes, Statistics: s.AllocatedBytes,
		})
	}
	return s
}

// ordinaryState has small and large segments of two streams, a block that awaits a stream, and a limit.
func ordinaryState() *torchallocator.State {
	s := newState(0,
		segment(0x7f0000000000, true, part{512, 4, allocated}, part{1 * kib, 1000, allocated},
			part{2*mib - 3*kib/2, 0, cached}),
		segment(0x7f0000200000, false, part{12 * mib, 12 * mib, allocated}, part{8 * mib, 0, cached}),
		segment(0x7f0002000000, false, part{2 * mib, 2*mib - 100, allocated}, part{18 * mib, 0, cached}),
		segment(0x7f0004000000, false, part{30 * mib, 30 * mib, allocated}),
		segment(0x7f0006000000, false, part{20 * mib, 0, cached}),
		segment(0x7f0008000000, true, part{88 * kib, 90_000, awaiting}, part{2*mib - 88*kib, 0, cached}),
	)
	s.Segments[2].Stream, s.Segments[5].Stream = 0x5581f00d, 0x5581f00d
	s.LimitBytes = 100 * mib
	return s
}

func privatePools() *torchallocator.State {
	s := newState(0,
		segment(0x7f0000000000, false, part{12 * mib, 12 * mib, allocated}, part{8 * mib, 0, cached}),
		segment(0x7f0002000000, false, part{64 * mib, 0, cached}),
		segment(0x7f0008000000, true, part{512, 100, allocated}, part{2*mib - 512, 0, cached}),
	)
	s.Segments[1].Pool, s.Segments[1].Stream = torchallocator.PoolID{3, 0}, 2
	s.Segments[2].Pool = torchallocator.PoolID{0, 1}
	return s
}

// expandable has mapped ranges: free pieces of at most 1 MiB in large ones serve no request.
func expandable() *torchallocator.State {
	s := newState(0,
		segment(0x7f0000000000, false, part{19 * mib, 19 * mib, allocated}, part{1 * mib, 0, cached}),
		segment(0x7f0100000000, true, part{1 * kib, 1 * kib, allocated}, part{256 * kib, 0, cached},
			part{2*mib - 257*kib, 2*mib - 257*kib, allocated}),
	)
	for i := range s.Segments {
		s.Segments[i].IsExpandable = true
	}
	return s
}

// manySizes has more sizes and sparse segments than are listed.
func manySizes() *torchallocator.State {
	var segments []torchallocator.Segment
	for i := range uint64(7) {
		bytes := 2*mib + i*512
		segments = append(segments, segment(0x7f0000000000+i*0x2000000, false, part{bytes, bytes, allocated},
			part{20*mib - bytes, 0, cached}))
	}
	return newState(0, segments...)
}

// hung is a reading of a process with a thread inside of the allocator. Two totals differ.
func hung(state *torchallocator.State) record.TorchReading {
	if state != nil {
		state.Totals[4].Blocks, state.Totals[13].Blocks = 7, 8
		state.EndNs, state.Calls, state.ReadBytes, state.Version = state.AtNs, 0, 0, "" // as of a search
	}
	return record.TorchReading{
		UnixNs: readAt, State: state,
		Refused: &torchallocator.BusyError{Tries: 9, Holder: 17, Held: 2 * time.Second, State: state},
		Holder: &record.LockHolder{
			Tid: 4242, NamespaceTid: 17, Name: "pt_main\x1b[2J", SystemCall: "ioctl", WaitPlace: "nv_wait",
		},
	}
}

// readings are the cases of the golden files.
func readings() map[string][]record.TorchReading {
	proved := func(states ...*torchallocator.State) (list []record.TorchReading) {
		for _, s := range states {
			list = append(list, record.TorchReading{Device: s.Device, UnixNs: readAt, State: s})
		}
		return list
	}
	return map[string][]record.TorchReading{
		"ordinary":   proved(ordinaryState(), newState(1), newState(2), newState(3)),
		"private":    proved(privatePools()),
		"expandable": proved(expandable()),
		"empty":      proved(newState(0)),
		"unused":     proved(newState(0, segment(0x7f0000000000, false, part{20 * mib, 0, cached}))),
		"many":       proved(manySizes()),
		"hung":       {hung(ordinaryState())},
		"torn":       {hung(nil)},
		"busy":       {{UnixNs: readAt, Refused: &torchallocator.BusyError{Tries: 7}}},
		"refused":    {{UnixNs: readAt, Refused: errors.New("gpurec does not know the layout")}},
	}
}

func TestOutputs(t *testing.T) {
	testclass.Unit(t)
	p := Process{Pid: 4242, Comm: "python3\x1b[2J", Version: "2.11.0+cu130"}
	for name, list := range readings() {
		t.Run(name, func(t *testing.T) {
			var devices []Device
			for i := range list {
				devices = append(devices, NewDevice(&list[i], 5))
			}
			var text, object bytes.Buffer
			if err := errors.Join(WriteText(&text, p, devices, 0), WriteJSON(&object, p, devices)); err != nil {
				t.Fatal(err)
			}
			analyzetest.CompareGolden(t, name+".txt", text.Bytes())
			analyzetest.CompareGolden(t, name+".json", object.Bytes())
		})
	}
}

// TestTablesFitTerminals checks that lines are not longer than the terminal.
func TestTablesFitTerminals(t *testing.T) {
	testclass.Unit(t)
	r := hung(ordinaryState())
	var text bytes.Buffer
	if err := WriteText(&text, Process{Pid: 1, Comm: "a"}, []Device{NewDevice(&r, 0)}, 80); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text.Bytes()) {
		if n := len([]rune(string(line))) - 1; n > 80 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
}

// TestSumsEqualTheState compares the sums of all pools, sizes and pieces with the state.
func TestSumsEqualTheState(t *testing.T) {
	testclass.Unit(t)
	for name, list := range readings() {
		if list[0].State == nil {
			continue
		}
		d := NewDevice(&list[0], 2)
		var pools Pool
		for _, p := range d.Pools {
			pools.ReservedBytes += p.ReservedBytes
			pools.AllocatedBytes += p.AllocatedBytes
			pools.AwaitingBytes += p.AwaitingBytes
			pools.FreeBytes += p.FreeBytes
			pools.Blocks += p.Blocks
			pools.LargestFree = max(pools.LargestFree, p.LargestFree)
		}
		want := Pool{
			ReservedBytes: d.ReservedBytes, AllocatedBytes: d.AllocatedBytes, AwaitingBytes: d.AwaitingBytes,
			FreeBytes: d.FreeBytes, Blocks: d.AllocatedBlocks + d.AwaitingBlocks, LargestFree: d.LargestFree,
		}
		if pools != want {
			t.Errorf("%s: pools have %+v, the device %+v", name, pools, want)
		}
		sizes := d.OtherSizes
		for _, s := range d.Sizes {
			sizes.Blocks += s.Blocks
			sizes.Bytes += s.Bytes
		}
		if sizes.Blocks != want.Blocks || sizes.Bytes != want.AllocatedBytes+want.AwaitingBytes {
			t.Errorf("%s: sizes have %+v, the device %+v", name, sizes, want)
		}
		if d.AllocatedBytes+d.AwaitingBytes+d.FreeBytes != d.ReservedBytes {
			t.Errorf("%s: blocks have not the size of the segments: %+v", name, d.Memory)
		}
	}
}

func TestLargestRequest(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		isSmall     bool
		bytes, want int64
	}{
		{true, 512, 512},
		{true, 2 * mib, 1 * mib}, // larger requests use other segments
		{false, 2 * mib, 2 * mib},
		{false, 1*mib + 512, 1*mib + 512},
		{false, 1 * mib, 0}, // such requests use small segments
	} {
		if got := largestRequest(c.isSmall, c.bytes); got != c.want {
			t.Errorf("%v, %d bytes: %d, want %d", c.isSmall, c.bytes, got, c.want)
		}
	}
}

// TestDamagedState sums up a state with impossible sizes, as an unproved reading may have.
func TestDamagedState(t *testing.T) {
	testclass.Unit(t)
	s := newState(0, segment(0, false, part{math.MaxUint64, math.MaxUint64, allocated}), segment(0, true))
	s.Segments[1].Bytes, s.LimitBytes = math.MaxUint64, math.MaxUint64
	r := record.TorchReading{State: s, Refused: &torchallocator.BusyError{State: s}}
	if err := WriteText(new(bytes.Buffer), Process{}, []Device{NewDevice(&r, 0)}, 80); err != nil {
		t.Error(err)
	}
}
