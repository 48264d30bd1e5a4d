//go:build linux

package record

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/symbolize"
)

// notProbed are functions of simcuda that the call table does not contain. They neither manage
// memory nor submit work to the GPU.
var notProbed = []string{
	"cuDriverGetVersion",
	"cuGetProcAddress",
	"cuGetProcAddress_v2",
	"cuThreadExchangeStreamCaptureMode",
	"cuDeviceGetCount",
	"cuDeviceGet",
	"cuDeviceGetName",
	"cuDeviceTotalMem_v2",
	"cuDeviceGetAttribute",
	"cuDeviceGetPCIBusId",
	"cuDeviceGetDevResource",
	"cuDevResourceGenerateDesc",
	"cuCtxGetDevice_v2",
	"cuMemGetAllocationGranularity",
	"cuMulticastGetGranularity",
	"cuStreamGetCaptureInfo_v2",
	"cuStreamGetCaptureInfo_v2_ptsz",
	"cuStreamGetCaptureInfo_v3",
	"cuStreamGetCaptureInfo_v3_ptsz",
}

// countedCalls returns the functions of the call table that are only counted.
func countedCalls() map[string]bool {
	counted := make(map[string]bool)
	for cookie := range bpf.NumDriverCookies() {
		call, name, _, _ := bpf.FunctionByCookie(uint16(cookie))
		counted[name] = call.CountOnly
	}
	return counted
}

// compare checks that a recording has exactly the calls of the ledger, column by column, and the
// right numbers of counted calls. It returns the number of recorded calls.
func compare(t *testing.T, path string, ledger map[int32][]ledgerCall) int {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			for _, note := range factRows(t, path, format.KindNote) {
				t.Logf("note %s of process %d: %s", note.Name, note.Pid, note.Message)
			}
		}
	})
	recorded := recordedCalls(t, path)
	n, counts := compareThreads(t, recorded, ledger, metaOf(t, path).ClockOffsetNs)
	for tid, rows := range recorded {
		if _, ok := ledger[tid]; !ok {
			t.Errorf("thread %d is not in the ledger: %d calls recorded", tid, len(rows))
		}
	}
	for _, row := range factRows(t, path, format.KindCount) {
		counts[row.Name] -= int(row.Value)
	}
	for name, left := range counts {
		if left != 0 {
			t.Errorf("%s: the ledger has %d calls more than were counted", name, left)
		}
	}
	return n
}

// compareAmongOthers compares like compare, for recordings that also contain processes of tests
// that run in parallel.
func compareAmongOthers(t *testing.T, path string, ledger map[int32][]ledgerCall) int {
	t.Helper()
	n, _ := compareThreads(t, recordedCalls(t, path), ledger, metaOf(t, path).ClockOffsetNs)
	return n
}

// compareThreads compares the threads of a ledger. It returns the number of recorded calls, and the
// number of calls of each function that is only counted.
func compareThreads(
	t *testing.T,
	recorded map[int32][]format.Row,
	ledger map[int32][]ledgerCall,
	clockOffset int64,
) (int, map[string]int) {
	t.Helper()
	counted, counts := countedCalls(), make(map[string]int)
	n, wrong := 0, 0
	for tid, calls := range ledger {
		rows := recorded[tid]
		i := 0
		for _, c := range calls {
			switch {
			case counted[c.name]:
				counts[c.name]++
				continue
			case slices.Contains(notProbed, c.name):
				continue
			case i >= len(rows):
				t.Fatalf("thread %d: %d calls recorded, then %s is missing", tid, len(rows), c.name)
			}
			if diff := difference(&rows[i], &c, clockOffset); diff != "" {
				if wrong++; wrong <= 10 {
					t.Errorf("thread %d call %d %s: %s", tid, i, c.name, diff)
				}
			}
			i++
		}
		if i < len(rows) {
			t.Errorf("thread %d: %d recorded calls are not in the ledger, first %s", tid, len(rows)-i, rows[i].Name)
		}
		n += i
	}
	return n, counts
}

// difference describes the difference between a row and a call of the ledger, "" if there is none.
func difference(r *format.Row, c *ledgerCall, clockOffset int64) string {
	if c.name == "cuDevicePrimaryCtxRelease_v2" {
		c.ptr = 0 // the caller of simcuda does not know the current context
	}
	failed := c.result != 0
	if r.Flags&format.FlagNoReturn != 0 {
		c.result, c.endNs = 0, r.StartNs-clockOffset
		if r.DurNs != 0 {
			return "a duration without a return"
		}
	}
	switch {
	case r.Name != c.name:
		return fmt.Sprintf("recorded as %s", r.Name)
	case r.Pid != c.pid,
		r.Result != c.result,
		r.Ptr != c.ptr,
		r.Bytes != c.bytes,
		r.Stream != c.stream,
		r.SrcPtr != c.src && !hasImagePointer(c.name):
		return fmt.Sprintf("recorded pid %d result %d ptr %#x bytes %d stream %#x src %#x, happened %d %d %#x %d "+
			"%#x %#x",
			r.Pid, r.Result, r.Ptr, r.Bytes, r.Stream, r.SrcPtr, c.pid, c.result, c.ptr, c.bytes, c.stream, c.src)
	case r.Function != c.function,
		r.SharedBytes != c.shared,
		[3]int32{r.GridX, r.GridY, r.GridZ} != c.grid,
		[3]int32{r.BlockX, r.BlockY, r.BlockZ} != c.block:
		return fmt.Sprintf(
			"recorded function %#x grid %d %d %d block %d %d %d shared %d, ledger %#x %v %v %d",
			r.Function,
			r.GridX,
			r.GridY,
			r.GridZ,
			r.BlockX,
			r.BlockY,
			r.BlockZ,
			r.SharedBytes,
			c.function,
			c.grid,
			c.block,
			c.shared,
		)
	case r.StartNs-clockOffset > c.startNs || r.StartNs+r.DurNs-clockOffset < c.endNs:
		return fmt.Sprintf(
			"recorded: start %d, duration %d; ledger: start %d, end %d",
			r.StartNs-clockOffset,
			r.DurNs,
			c.startNs,
			c.endNs,
		)
	case directionOf(c.name) != "" && r.CopyKind != directionOf(c.name):
		return fmt.Sprintf("direction %s", r.CopyKind)
	case r.Context != 0 && (r.Context != c.context || r.Device != -1 && r.Device != c.device && !namesDevice(c.name)):
		return fmt.Sprintf("recorded context %#x device %d, was %#x %d", r.Context, r.Device, c.context, c.device)
	case r.Flags&format.FlagUnreadable != 0 && r.Result != 0:
		// For example a null pointer: neither the driver nor the probe can read it.
	case strings.HasPrefix(r.Name, "cuMemcpy3DBatchAsync") && r.Bytes == 0 && r.Flags == format.FlagUnreadable:
		// Copies of arrays: only the array knows the size of its elements.
	case r.Flags&(format.FlagOpen|format.FlagAbandoned|format.FlagUnreadable) != 0:
		return fmt.Sprintf("flags %d", r.Flags)
	case r.Kind == format.KindLaunch && !failed && r.Kernel != symbolize.Demangle(c.kernel):
		return fmt.Sprintf("kernel %q, was %q", r.Kernel, c.kernel)
	case r.Value != 0 && c.value != 0 && math.Abs(valueOf(r)-float64(c.value)) > 1+math.Abs(float64(c.value))*1e-6:
		return fmt.Sprintf("value %v, was %d", valueOf(r), c.value)
	}
	return ""
}

// directionOf returns the direction of a copy function from its name, "" if the name has none.
func directionOf(name string) string {
	for _, d := range []string{"HtoD", "DtoH", "DtoD", "HtoA", "AtoH", "DtoA", "AtoD", "AtoA"} {
		if strings.HasPrefix(name, "cuMemcpy"+d) {
			return d
		}
	}
	return ""
}

// namesDevice reports whether a function has a device argument. The device of its row is that
// argument, not the device of the thread's context.
func namesDevice(name string) bool {
	for cookie := range bpf.NumDriverCookies() {
		if call, n, _, _ := bpf.FunctionByCookie(uint16(cookie)); n == name {
			return call.Columns == bpf.ColumnsDevice || call.Columns == bpf.ColumnsDeviceUUID
		}
	}
	return false
}

// hasImagePointer reports whether the ledger has the image pointer of a function, which is not
// recorded.
func hasImagePointer(name string) bool {
	return name == "cuModuleLoadData" || name == "cuLibraryLoadData"
}

// valueOf returns the value of a row in the unit of the ledger: nanoseconds instead of
// milliseconds.
func valueOf(r *format.Row) float64 {
	if r.Name == "cuEventElapsedTime" || r.Name == "cuEventElapsedTime_v2" {
		return r.Value * 1e6
	}
	return r.Value
}

func metaOf(t *testing.T, path string) format.Meta {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	return rec.Meta
}

func TestEveryCallEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needMulti(t)
	calls := faultScale(200_000, 1_000_000)
	p := startSim(t, nil, "storm", "--calls", fmt.Sprint(calls), "--threads", "4", "--seed", "7", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach = privilege.AttachMulti
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		if done := p.expect("done"); done != fmt.Sprint(calls) {
			t.Errorf("storm made %s calls", done)
		}
	})
	p.finish()
	total := result.Meta.Totals()
	if total.Lost != 0 || total.Seen != total.Recorded || total.Open != 0 || total.Abandoned != 0 {
		t.Errorf("counts %+v", total)
	}
	n := compare(t, result.Output, readLedger(t, p.ledger, since))
	if int64(n) != total.Recorded {
		t.Errorf("%d calls compared, %d recorded", n, total.Recorded)
	}
	t.Logf("%d calls equal, %d only counted; %+v", n, total.Counted, result.Meta.Cost)
}

// TestPerfUprobesRecordTheSame uses perf uprobes, as on kernels before 6.6. It probes only some
// functions, because removing a perf uprobe takes 0.05 to 0.3 s.
func TestPerfUprobesRecordTheSame(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "50000", "--threads", "2", "--seed", "7", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach, opt.Only = privilege.AttachPerf, probedByPerf
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	if n := comparePerf(
		t,
		result,
		readLedger(t, p.ledger, since),
	); n < 20000 ||
		int64(n) != result.Meta.Totals().Recorded {
		t.Errorf("%d calls compared, %d recorded", n, result.Meta.Totals().Recorded)
	}
}

// probedByPerf are the functions to probe with perf uprobes.
var probedByPerf = []string{
	"cuMemAlloc_v2",
	"cuMemAllocPitch_v2",
	"cuMemFree_v2",
	"cuMemcpyHtoD_v2",
	"cuStreamSynchronize",
	"cuStreamCreate",
	"cuLaunchKernel",
	"cuLaunchKernelEx",
}

// comparePerf compares the calls of probedByPerf and returns their number.
func comparePerf(t *testing.T, result Result, ledger map[int32][]ledgerCall) int {
	t.Helper()
	for tid := range ledger {
		ledger[tid] = slices.DeleteFunc(
			ledger[tid],
			func(c ledgerCall) bool { return !slices.Contains(probedByPerf, c.name) },
		)
	}
	recorded := recordedCalls(t, result.Output)
	for _, rows := range recorded { // the functions that set contexts are not probed
		for i := range rows {
			rows[i].Context = 0
		}
	}
	n, _ := compareThreads(t, recorded, ledger, result.Meta.ClockOffsetNs)
	return n
}

// TestPerfUprobesBeginAndEndAtOnce records a part of a program's run. Perf uprobes are attached and
// removed one by one, for seconds. The recording must begin and end at one time for all functions:
// otherwise it would have allocations without their frees.
func TestPerfUprobesBeginAndEndAtOnce(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "100000000", "--threads", "2", "--seed", "7", "--rate", "4000", "--wait")
	p.expect("ready")
	p.step()
	opt := testOptions(t, p.pid())
	opt.Attach, opt.Only = privilege.AttachPerf, probedByPerf
	s := start(t, opt)
	result := finishAfter(t, s, func() { awaitCalls(t, s, 1000) })
	if entries, returns := s.probes.CountPermanentLinks(); entries == 0 || returns == 0 || !s.Finished() {
		t.Errorf("%d entries and %d returns are still probed; finished: %v", entries, returns, s.Finished())
	}
	if meta := metaOf(t, result.Output); meta.Complete != format.CompleteYes || meta.Cost.DetachNs != 0 {
		t.Errorf(
			"while probes are there: complete %q, detached in %v",
			meta.Complete,
			time.Duration(meta.Cost.DetachNs),
		)
	}
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("the file was finished %v before the probes were removed", time.Since(begin))
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	ledger := readLedger(t, p.ledger, 0)
	for tid, rows := range recordedCalls(t, result.Output) {
		from, last := rows[0].StartNs-result.Meta.ClockOffsetNs, rows[len(rows)-1]
		to := last.StartNs + last.DurNs - result.Meta.ClockOffsetNs
		ledger[tid] = slices.DeleteFunc(
			ledger[tid],
			func(c ledgerCall) bool { return c.startNs < from || c.endNs > to },
		)
	}
	n := comparePerf(t, result, ledger)
	if n < 100 || int64(n) != result.Meta.Totals().Recorded {
		t.Errorf("%d calls compared, %d recorded", n, result.Meta.Totals().Recorded)
	}
}

// TestPerfUprobesRecordNothingAfterTheEnd makes a call return after the end of the recording, while
// its probe is still attached. The call must be recorded as open. A call that returned just before
// the open calls were read would otherwise be missing.
func TestPerfUprobesRecordNothingAfterTheEnd(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	// The second synchronize waits for eight launches: 1.6 s of simulated time.
	command := startSimCommand(
		t,
		[]string{"SIMCUDA_TIME=on", "SIMCUDA_KERNEL_US=200000", "SIMCUDA_LEDGER_SYNC=1"},
		"leak",
		"--steps",
		"1",
	)
	defer command.Kill()
	opt := testOptions(t)
	opt.Command, opt.Attach, opt.Only = command, privilege.AttachPerf, []string{"cuStreamSynchronize", "cuLaunchKernel"}
	s := start(t, opt)
	defer s.Close()
	result := finishAfter(t, s, func() {
		command.Run()
		awaitCalls(t, s, 10)
		awaitOpenCall(t, s, "cuStreamSynchronize", 0)
	})
	if status, err := command.Wait(t.Context()); status != 0 || err != nil {
		t.Fatalf("the recorded program failed: status %d, %v", status, err)
	}
	ledger, err := os.ReadFile(os.Getenv("SIMCUDA_LEDGER"))
	if returned := strings.Count(string(ledger), "\tcuStreamSynchronize\t0\t"); err != nil || returned != 2 {
		t.Fatalf("%d calls have returned, %v", returned, err)
	}
	if open, err := s.probes.OpenCalls(); len(open) != 1 || err != nil {
		t.Errorf("%d calls are open, %v", len(open), err)
	}
	if total := result.Meta.Totals(); total.Open != 1 || total.Recorded != 10 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
}
