//go:build linux

package simtest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Operation is a piece of work that simcuda's GPU completed. Times are CLOCK_REALTIME in ns.
type Operation struct {
	Pid, Tid int32
	// Channel is the number of the channel in its process. Counter is the channel's counter after
	// the operation, and Slot the address of its words.
	Channel int32
	Counter int64
	Slot    uint64
	// Kind is kernel, copy-in, copy-out, copy-on-device, set, event, graph, other or extra. No call
	// shows an extra operation; its call is the one that caused it.
	Kind           string
	StartNs, EndNs int64
	// WordNs is the time that the words show: the start, the end of a copy, or an early time of a kernel
	// that may begin before the one before it has ended.
	WordNs int64
	GPUNs  int64 // the time word, WordNs on the GPU's clock
	Stream int64 // the argument of the call
	// CallNs is the start of the call in the ledger of calls, and SubmittedNs a time between the
	// start and the end of the call. Both are CLOCK_MONOTONIC.
	CallNs, SubmittedNs int64
	Grid                [3]int32
	// WrittenNs is the time just before the words are written. The thread that plays the GPU can be late.
	WrittenNs int64
	Kernel    string
}

// ChannelEvent is a change of a channel: begin, end, or a stream that joins or leaves it.
type ChannelEvent struct {
	Event   string
	Pid     int32
	Channel int32
	Counter int64
	Slot    uint64
	Class   string // compute, compute-high, compute-legacy, copy-in or copy-out
	TimeNs  int64  // CLOCK_REALTIME
	Device  int32
	Stream  int64
}

// TornPair is a pair of words that readers saw half written for longer than 150 ns: the counter of one
// operation, and the time word of the operation before or after it.
type TornPair struct {
	Pid     int32
	Channel int32
	Counter int64 // after the write
	Slot    uint64
	TornNs  int64 // longest possible time
}

// GPUClock describes the clock of a simulated GPU.
type GPUClock struct {
	OffsetNs, DriftPpb   int64
	OriginNs             int64 // CLOCK_MONOTONIC
	RealMinusMonotonicNs int64
}

// TimeWord returns the time word that the GPU writes at realNs.
func (c GPUClock) TimeWord(realNs int64) int64 {
	const step = 32
	sinceOrigin := realNs - c.RealMinusMonotonicNs - c.OriginNs
	drift := int64(float64(sinceOrigin) * float64(c.DriftPpb) / 1e9)
	return (realNs + c.OffsetNs + drift) / step * step
}

// OperationLedger is simcuda's ledger of operations, in the order of completion.
type OperationLedger struct {
	Operations []Operation
	Channels   []ChannelEvent
	Torn       []TornPair
	Clocks     map[int32]GPUClock // by device
}

// ReadOperationLedger reads the file of SIMCUDA_WORKS.
func ReadOperationLedger(t testing.TB, path string) *OperationLedger {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ledger := &OperationLedger{Clocks: make(map[int32]GPUClock)}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if err := ledger.readLine(lines.Text()); err != nil {
			t.Fatalf("%s line %d: %v", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return ledger
}

func (l *OperationLedger) readLine(line string) error {
	f := operationFields{fields: strings.Split(line, "\t")}
	switch {
	case strings.HasPrefix(line, "#"):
		return nil
	case f.fields[0] == "work" && len(f.fields) == 19:
		l.Operations = append(l.Operations, f.operation())
	case f.fields[0] == "torn" && len(f.fields) == 6:
		l.Torn = append(l.Torn, f.tornPair())
	case f.fields[0] == "clock" && len(f.fields) == 7:
		l.Clocks[int32(f.number(2))] = GPUClock{f.number(3), f.number(4), f.number(5), f.number(6)}
	case len(f.fields) == 10 && slices.Contains([]string{"begin", "end", "join", "leave"}, f.fields[0]):
		l.Channels = append(l.Channels, f.channelEvent())
	default:
		return fmt.Errorf("%q is no line of the ledger", line)
	}
	return f.err
}

// operationFields are the columns of a line, and the first error of their conversion.
type operationFields struct {
	fields []string
	err    error
}

func (f *operationFields) number(i int) int64 {
	text := f.fields[i]
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		n, err := strconv.ParseUint(hex, 16, 64)
		f.note(err)
		return int64(n)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	f.note(err)
	return n
}

func (f *operationFields) note(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *operationFields) operation() Operation {
	w := Operation{
		Pid:         int32(f.number(1)),
		Channel:     int32(f.number(2)),
		Counter:     f.number(3),
		Slot:        uint64(f.number(4)),
		Kind:        f.fields[5],
		StartNs:     f.number(6),
		EndNs:       f.number(7),
		WordNs:      f.number(8),
		GPUNs:       f.number(9),
		Stream:      f.number(10),
		Tid:         int32(f.number(11)),
		CallNs:      f.number(12),
		SubmittedNs: f.number(13),
		WrittenNs:   f.number(17),
		Kernel:      strings.Clone(f.fields[18]),
	}
	for i := range w.Grid {
		w.Grid[i] = int32(f.number(14 + i))
	}
	return w
}

func (f *operationFields) channelEvent() ChannelEvent {
	return ChannelEvent{
		Event:   f.fields[0],
		Pid:     int32(f.number(1)),
		Channel: int32(f.number(2)),
		Counter: f.number(3),
		Slot:    uint64(f.number(4)),
		Class:   f.fields[5],
		TimeNs:  f.number(6),
		Device:  int32(f.number(7)),
		Stream:  f.number(9),
	}
}

func (f *operationFields) tornPair() TornPair {
	return TornPair{
		Pid: int32(f.number(1)), Channel: int32(f.number(2)), Counter: f.number(3), Slot: uint64(f.number(4)),
		TornNs: f.number(5),
	}
}

// OnDevices returns the command line that runs a program of simcuda with simulated device files.
// The program runs in the process that is started. It needs root.
func OnDevices(simcudaDir, program string, args ...string) []string {
	return append([]string{filepath.Join(simcudaDir, "devfiles"), filepath.Join(simcudaDir, program)}, args...)
}
