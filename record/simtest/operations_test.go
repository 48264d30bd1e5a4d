//go:build linux

package simtest

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// channelKey identifies a channel.
type channelKey struct{ pid, channel int32 }

func operationsByChannel(l *OperationLedger) map[channelKey][]Operation {
	operations := make(map[channelKey][]Operation)
	for _, w := range l.Operations {
		key := channelKey{w.Pid, w.Channel}
		operations[key] = append(operations[key], w)
	}
	return operations
}

// TestOperationLedgerIsConsistent checks the laws of the simulated GPU on a random program.
func TestOperationLedgerIsConsistent(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	r := startOperations(
		t,
		"kernel_us=2-40,jitter=0.02,extra=0.03",
		"--works",
		"40000",
		"--processes",
		"2",
		"--threads",
		"2",
		"--streams",
		"12",
		"--pageable",
		"1",
		"--seed",
		strconv.Itoa(os.Getpid()),
	)
	r.step()
	r.expect("done")
	ledger := r.finish()
	if n := len(ledger.Operations); n < 40000 {
		t.Fatalf("%d operations", n)
	}
	checkOperations(t, ledger)
	for key, operations := range operationsByChannel(ledger) {
		for i, w := range operations {
			switch {
			case w.Counter != int64(i+1):
				t.Fatalf("%v: operation %d has counter %d", key, i, w.Counter)
			case i > 0 && w.StartNs < operations[i-1].EndNs+1000:
				t.Fatalf(
					"%v: operation %d begins %d ns after the end of the one before",
					key,
					i,
					w.StartNs-operations[i-1].EndNs,
				)
			case w.Slot != operations[0].Slot:
				t.Fatalf("%v: operation %d moved to slot %#x", key, i, w.Slot)
			}
		}
	}
	checkStreams(t, ledger)
	checkDurations(t, ledger)
	if lives := countChannelLives(t, ledger); lives.shared == 0 {
		t.Error("no streams share a channel")
	}
	checkOperationsAgainstCalls(t, ledger, r.calls)
}

// TestStreamsUseChannelsInTurn checks the channel of each new stream, as on an H200.
func TestStreamsUseChannelsInTurn(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	r := startOperations(t, "kernel_us=2-10", "--works", "20000", "--streams", "40", "--warm-up")
	r.step()
	r.expect("done")
	turns := make(map[string][]int32) // channels by class
	for _, e := range r.finish().Channels {
		if e.Event == "join" {
			turns[e.Class] = append(turns[e.Class], e.Channel)
		}
	}
	const connections = 8
	for class, channels := range turns {
		for i, channel := range channels {
			if i >= connections && channel != channels[i-connections] ||
				i < connections && slices.Contains(channels[:i], channel) {
				t.Errorf("%s: stream %d has channel %d of %v", class, i, channel, channels)
			}
		}
	}
	if len(turns["compute"]) < 20 || len(turns["compute-high"]) < 9 || len(turns["compute-legacy"]) != 1 {
		t.Errorf("channels of streams: %v", turns)
	}
}

// TestChannelReuse checks both lives of the channel of a destroyed stream: another stream uses it,
// or it ends and another channel gets its slot.
func TestChannelReuse(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2")
	for _, c := range []struct {
		reuse               string
		usesSlot, usesAgain bool
	}{{"keep", false, true}, {"reset", true, false}} {
		r := startOperations(t, "kernel_us=2-10,reuse="+c.reuse, "--works", "40000", "--streams", "2", "--seed", "5")
		r.step()
		r.expect("done")
		lives := countChannelLives(t, r.finish())
		if lives.slotsReused > 0 != c.usesSlot || lives.usedAgain > 0 != c.usesAgain {
			t.Errorf("%s: %+v", c.reuse, lives)
		}
	}
}

// checkOperations checks each operation by itself.
func checkOperations(t *testing.T, ledger *OperationLedger) {
	t.Helper()
	clock, ok := ledger.Clocks[0]
	if !ok || clock.OffsetNs < -900_000 || clock.OffsetNs > 900_000 || clock.DriftPpb < -12_000 ||
		clock.DriftPpb > 12_000 {
		t.Errorf("clock %+v, %v", clock, ok)
	}
	engines := make(map[channelKey]bool) // short copies are on channels of streams
	for _, e := range ledger.Channels {
		engines[channelKey{e.Pid, e.Channel}] = engines[channelKey{e.Pid, e.Channel}] ||
			strings.HasPrefix(e.Class, "copy-")
	}
	kinds, early := make(map[string]int), 0
	for _, w := range ledger.Operations {
		kinds[w.Kind]++
		submitted := w.SubmittedNs + clock.RealMinusMonotonicNs
		if w.CallNs > w.SubmittedNs || w.StartNs < submitted+2000 || w.EndNs <= w.StartNs {
			t.Fatalf("operation %+v: submitted at %d", w, submitted)
		}
		if word := clock.TimeWord(w.WordNs); word != w.GPUNs {
			t.Fatalf("operation %+v: the clock gives %d", w, word)
		}
		switch isCopy := engines[channelKey{w.Pid, w.Channel}] && (w.Kind == "copy-in" || w.Kind == "copy-out"); {
		case isCopy && (w.WordNs < w.EndNs+300 || w.WordNs > w.EndNs+1500):
			t.Fatalf("copy %+v: its words come %d ns after its end", w, w.WordNs-w.EndNs)
		case !isCopy && w.WordNs != w.StartNs && (w.Kind != "kernel" || w.WordNs > w.StartNs):
			t.Fatalf("operation %+v: its words come %d ns after its start", w, w.WordNs-w.StartNs)
		case !isCopy && w.WordNs < w.StartNs:
			early++
		}
	}
	for _, kind := range []string{"kernel", "copy-in", "copy-out", "copy-on-device", "set", "event", "graph", "extra"} {
		if kinds[kind] == 0 {
			t.Errorf("no operation of kind %s", kind)
		}
	}
	if early == 0 {
		t.Error("no kernel has early words")
	}
	t.Logf("operations by kind: %v; kernels with early words: %d", kinds, early)
}

// streamKey identifies a stream. A new stream may have the handle of a destroyed one, so life
// counts the streams that had the handle before.
type streamKey struct {
	pid    int32
	handle int64
	life   int
}

// everyStream is the handle of a key for all streams of a process.
const everyStream = -1

// streamAt returns the stream that a handle means at realNs.
func (l *OperationLedger) streamAt(pid int32, handle, realNs int64) streamKey {
	key := streamKey{pid: pid, handle: handle}
	for _, e := range l.Channels {
		if e.Event == "leave" && e.Pid == pid && e.Stream == handle && e.TimeNs <= realNs {
			key.life++
		}
	}
	return key
}

// checkStreams checks that operations of a stream do not overlap, on whatever channels.
func checkStreams(t *testing.T, ledger *OperationLedger) {
	t.Helper()
	streams := make(map[streamKey][]Operation)
	for _, w := range ledger.Operations {
		key := ledger.streamAt(w.Pid, w.Stream, w.SubmittedNs+ledger.Clocks[0].RealMinusMonotonicNs)
		streams[key] = append(streams[key], w)
	}
	for key, operations := range streams {
		slices.SortFunc(operations, func(a, b Operation) int { return cmp.Compare(a.StartNs, b.StartNs) })
		for i := 1; i < len(operations); i++ {
			if operations[i].StartNs < operations[i-1].EndNs {
				t.Fatalf("%v: %+v begins before the end of %+v", key, operations[i], operations[i-1])
			}
		}
	}
}

// checkDurations checks that the duration of a kernel depends on its name and grid only.
func checkDurations(t *testing.T, ledger *OperationLedger) {
	t.Helper()
	type kernelKey struct {
		name string
		grid [3]int32
	}
	shortest, longest := make(map[kernelKey]float64), make(map[kernelKey]float64)
	for _, w := range ledger.Operations {
		if w.Kind != "kernel" {
			continue
		}
		key, d := kernelKey{w.Kernel, w.Grid}, float64(w.EndNs-w.StartNs)
		if _, ok := shortest[key]; !ok {
			shortest[key] = d
		}
		shortest[key], longest[key] = math.Min(shortest[key], d), math.Max(longest[key], d)
	}
	for key, d := range shortest {
		if d < 2000*0.979 || longest[key] > 40_000*1.021 || longest[key] > d*1.05 {
			t.Errorf("%v takes %.0f to %.0f ns", key, d, longest[key])
		}
	}
	if len(shortest) < 50 {
		t.Errorf("%d kernels with grids", len(shortest))
	}
}

// channelLives counts what happened to channels.
type channelLives struct {
	slotsReused int // channels in a slot of an earlier channel
	shared      int // streams that joined a channel with other streams
	usedAgain   int // streams that joined a channel that others had left
}

// countChannelLives checks the begins and ends of channels, and counts what happened between them.
func countChannelLives(t *testing.T, ledger *OperationLedger) (lives channelLives) {
	t.Helper()
	type slotKey struct {
		pid  int32
		slot uint64
	}
	owner, streams, joins := make(map[slotKey]int32), make(map[channelKey]int), make(map[channelKey]int)
	used := make(map[slotKey]bool)
	for _, e := range ledger.Channels {
		slot, channel := slotKey{e.Pid, e.Slot}, channelKey{e.Pid, e.Channel}
		switch e.Event {
		case "begin":
			if owner[slot] != 0 || e.Counter != 0 {
				t.Errorf("%+v: the slot belongs to channel %d", e, owner[slot])
			}
			if used[slot] {
				lives.slotsReused++
			}
			owner[slot], used[slot] = e.Channel, true
		case "end":
			delete(owner, slot)
		case "join":
			if streams[channel] > 0 {
				lives.shared++
			} else if joins[channel] > 0 {
				lives.usedAgain++
			}
			streams[channel]++
			joins[channel]++
		case "leave":
			streams[channel]--
		}
		if e.Event != "end" && owner[slot] != e.Channel {
			t.Errorf("%+v: the slot belongs to channel %d", e, owner[slot])
		}
	}
	t.Logf("%+v", lives)
	return lives
}

// TestEachDeviceHasAClock runs one thread on each of two devices.
func TestEachDeviceHasAClock(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Setenv("SIMCUDA_DEVICES", "2")
	r := startOperations(t, "on", "--works", "2000", "--threads", "2")
	r.step()
	r.expect("done")
	ledger := r.finish()
	if a, b := ledger.Clocks[0], ledger.Clocks[1]; a.OffsetNs == b.OffsetNs || a.DriftPpb == b.DriftPpb {
		t.Errorf("clocks %+v and %+v", a, b)
	}
	devices, operations := make(map[channelKey]int32), make(map[int32]int)
	for _, e := range ledger.Channels {
		devices[channelKey{e.Pid, e.Channel}] = e.Device
	}
	for _, w := range ledger.Operations {
		device := devices[channelKey{w.Pid, w.Channel}]
		operations[device]++
		if word := ledger.Clocks[device].TimeWord(w.WordNs); word != w.GPUNs {
			t.Fatalf("device %d, operation %+v: the clock gives %d", device, w, word)
		}
	}
	if operations[0] < 500 || operations[1] < 500 {
		t.Errorf("operations by device: %v", operations)
	}
}

// TestContextsComeAndGo resets the context twice. Its mappings must disappear, and its channels
// end.
func TestContextsComeAndGo(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	r := startOperations(t, "kernel_us=2-10", "--works", "3000", "--rounds", "3", "--warm-up")
	before := mappingsOf(t, r.pid())
	r.step()
	r.expect("done")
	after := mappingsOf(t, r.pid())
	for _, m := range after {
		if slices.Contains(before, m) {
			t.Errorf("%+v was mapped before the reset", m)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d mappings before, %d after", len(before), len(after))
	}
	ledger := r.finish()
	countChannelLives(t, ledger)
	open, most, ends := make(map[int32]bool), 0, 0
	for _, e := range ledger.Channels {
		switch e.Event {
		case "begin":
			open[e.Channel] = true
		case "end":
			delete(open, e.Channel)
			ends++
		}
		most = max(most, len(open))
	}
	if most > 18 || ends < 12 || len(ledger.Operations) < 3000 {
		t.Errorf("at most %d channels at a time, %d ended; %d operations", most, ends, len(ledger.Operations))
	}
}

// tracedCall is a line of the ledger of calls.
type tracedCall struct {
	startNs, endNs int64
	pid, tid       int32
	name           string
	ptr, stream    int64
	value          int64
}

func readCalls(t *testing.T, path string) []tracedCall {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var calls []tracedCall
	for line := range strings.Lines(string(data)) {
		f := operationFields{fields: strings.Split(line, "\t")}
		if strings.HasPrefix(line, "#") || f.fields[5] != "0" {
			continue
		}
		calls = append(
			calls,
			tracedCall{
				f.number(0), f.number(1), int32(f.number(2)), int32(f.number(3)), f.fields[4], f.number(6), f.number(8),
				f.number(20),
			},
		)
		if f.err != nil {
			t.Fatal(f.err)
		}
	}
	return calls
}

// checkOperationsAgainstCalls checks that each operation has a call that submitted it, and that calls that
// synchronise return after the end of the operations that they wait for.
func checkOperationsAgainstCalls(t *testing.T, ledger *OperationLedger, path string) {
	t.Helper()
	type callKey struct {
		tid     int32
		startNs int64
	}
	calls := readCalls(t, path)
	byStart := make(map[callKey]tracedCall)
	for _, c := range calls {
		byStart[callKey{c.tid, c.startNs}] = c
	}
	kinds := make(map[callKey][]string) // of the operations of a call
	operations := slices.Clone(ledger.Operations)
	slices.SortFunc(operations, func(a, b Operation) int { return cmp.Compare(a.StartNs, b.StartNs) })
	for _, w := range operations {
		key := callKey{w.Tid, w.CallNs}
		if c, ok := byStart[key]; !ok || c.endNs < w.SubmittedNs || c.stream != w.Stream {
			t.Fatalf("operation %+v has call %+v", w, c)
		}
		kinds[key] = append(kinds[key], w.Kind)
	}
	patterns := make(map[string]int)
	for key, c := range byStart {
		if list := strings.Join(kinds[key], "+"); list != "" || operationsOfCalls[c.name] != nil {
			patterns[c.name+" "+list]++
			if !slices.Contains(operationsOfCalls[c.name], list) {
				t.Fatalf("call %+v has operations %q", c, list)
			}
		}
	}
	const processes = 2
	for pattern, captured := range map[string]int{"cuLaunchKernel ": 14, "cuLaunchKernelEx ": 1, "cuMemcpyHtoDAsync_v2 ": 1, "cuMemsetD8Async ": 1} {
		if n := patterns[pattern]; n != captured*processes {
			t.Errorf("%d calls of %swithout an operation; %d were captured", n, pattern, captured*processes)
		}
	}
	t.Logf("operations by call: %v", patterns)
	checkEventOperations(t, calls, func(c tracedCall) []string { return kinds[callKey{c.tid, c.startNs}] })
	checkWaits(t, ledger, calls)
}

// checkEventOperations checks that the record of an event is an operation if and only if the event has timing.
func checkEventOperations(t *testing.T, calls []tracedCall, operations func(tracedCall) []string) {
	t.Helper()
	type event struct {
		pid    int32
		handle int64
	}
	const disableTiming = 2
	slices.SortFunc(calls, func(a, b tracedCall) int { return cmp.Compare(a.startNs, b.startNs) })
	untimed, records := make(map[event]bool), make(map[bool]int)
	for _, c := range calls {
		key := event{c.pid, c.ptr}
		switch c.name {
		case "cuEventCreate":
			untimed[key] = c.value&disableTiming != 0
		case "cuEventRecord":
			records[untimed[key]]++
			if list := operations(c); (len(list) == 0) != untimed[key] {
				t.Fatalf("%+v of an event without timing %v has operations %q", c, untimed[key], list)
			}
		}
	}
	if records[false] < 100 || records[true] < 100 {
		t.Errorf("records of events by timing: %v", records)
	}
}

// operationsOfCalls are the operations that a call of the program can have, as seen on an H200. A captured
// call has none. One graph of the program is a kernel, a copy and a kernel.
var operationsOfCalls = map[string][]string{
	"cuLaunchKernel":       {"", "kernel", "kernel+extra"},
	"cuLaunchKernelEx":     {"", "kernel", "kernel+extra"},
	"cuGraphLaunch":        {"graph", "graph+copy-in+graph"},
	"cuMemsetD8Async":      {"", "set", "set+extra"},
	"cuEventRecord":        {"", "event"},
	"cuMemcpyHtoDAsync_v2": {"", "copy-in"},
	"cuMemcpyHtoD_v2": {
		"copy-in",
		"copy-in+copy-in",
		"copy-in+copy-in+copy-in",
		"copy-in+copy-in+copy-in+copy-in",
	},
	"cuMemcpyDtoHAsync_v2": {"copy-out"},
	"cuMemcpyDtoH_v2":      {"copy-out"},
	"cuMemcpyDtoDAsync_v2": {"copy-on-device", "copy-on-device+extra"},
}

func checkWaits(t *testing.T, ledger *OperationLedger, calls []tracedCall) {
	t.Helper()
	realMinusMonotonic := ledger.Clocks[0].RealMinusMonotonicNs
	operations := slices.Clone(ledger.Operations)
	slices.SortFunc(operations, func(a, b Operation) int { return cmp.Compare(a.SubmittedNs, b.SubmittedNs) })
	slices.SortFunc(calls, func(a, b tracedCall) int { return cmp.Compare(a.startNs, b.startNs) })
	last, next, waits := make(map[streamKey]int64), 0, 0
	for _, c := range calls {
		for ; next < len(operations) && operations[next].SubmittedNs < c.startNs; next++ {
			w := operations[next]
			stream := ledger.streamAt(w.Pid, w.Stream, w.SubmittedNs+realMinusMonotonic)
			for _, key := range []streamKey{stream, {pid: w.Pid, handle: everyStream}} {
				last[key] = max(last[key], w.EndNs)
			}
		}
		var key streamKey
		switch c.name {
		case "cuCtxSynchronize":
			key = streamKey{pid: c.pid, handle: everyStream}
		case "cuStreamSynchronize":
			key = ledger.streamAt(c.pid, c.stream, c.startNs+realMinusMonotonic)
		default:
			continue
		}
		waits++
		if returned := c.endNs + realMinusMonotonic; returned < last[key] {
			t.Fatalf("%+v returned %d ns before the end of its last operation", c, last[key]-returned)
		}
	}
	if waits < 100 {
		t.Errorf("%d calls waited", waits)
	}
}
